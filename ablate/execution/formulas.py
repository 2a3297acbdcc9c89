"""What the columns of a run hold, and how each is computed. Pure functions: no files.

A change here changes what rows say, so this file is part of the column `code`.
"""

import json
import math
from typing import Any

from ablate.execution.run import Run
from ablate.model.attention import form
from ablate.model.costs import attention_params, flops_per_token, total_params
from ablate.model.function_class import function_class
from ablate.model.lm import LM
from ablate.model.resolve import match_error
from ablate.store.columns import CONFIG_COLUMNS, Row
from ablate.training.computing import in_precision
from ablate.training.train import Diverged, Evaluation, evaluate


def before_training(run: Run) -> Row:
    """Identity, config, seeds, sizes and costs: all that is known before the first step."""
    config, spec, attention = run.config, run.spec, run.spec.attention
    fusion, scores = attention.fusion, attention.scores
    options = {key: value for key, value in fusion.options.items() if key != "normalize"}
    keys = {**vars(config.corpus), **vars(config.train), **vars(config.model), **vars(spec), **vars(config)}
    return {
        **{column: keys[column] for column in CONFIG_COLUMNS if column in keys},
        "run_id": run.run_id,
        "fusion": fusion.name,
        "fusion_options": json.dumps(options, sort_keys=True),
        "normalize": fusion.options.get("normalize"),
        "scores": scores.name,
        "scores_options": json.dumps(scores.options, sort_keys=True),
        "key_width": attention.key_width,
        "match_by": config.match_by if config.match != "none" else None,
        "match_error": match_error(config, spec),
        "seed": config.seed,
        "seed_backbone": config.seeds.backbone,
        "seed_fusion": config.seeds.fusion,
        "seed_data": config.seeds.data,
        "model": config.model.name,
        "form": form(attention),
        "function_class": function_class(attention),
        "params": total_params(spec),
        "params_attention": attention_params(spec),
        "flops_per_token": flops_per_token(spec),
        "corpus": config.corpus.name,
        "corpus_sha256": run.corpus.sha256,
    }


def at_evaluation(evaluation: Evaluation) -> Row:
    """A row of metrics.csv."""
    return {
        "step": evaluation.step,
        "tokens": evaluation.tokens,
        "lr": evaluation.lr,
        "train_loss": evaluation.train_loss,
        "val_loss": evaluation.validation.loss,
        "grad_norm": evaluation.grad_norm,
        "seconds": round(evaluation.seconds, 3),
    }


def at_end(run: Run, model: LM, last: Evaluation, metrics: list[Row]) -> Row:
    """Of a run that came to its last step. model: as trained; metrics: the rows of metrics.csv."""
    score = last.validation
    return {
        "tokens": last.tokens,
        "train_loss": last.train_loss,
        "val_loss": score.loss,
        "val_bpb": score.nats / math.log(2) / run.corpus.splits["validation"].predicted_bytes,
        "val_acc": score.accuracy,
        **_test(run, model),
        **_best(metrics),
        "fusion_weights": _fusion_weights(model),
        "tokens_per_s": round(last.tokens_per_s, 1),
        "wall_s": round(last.seconds, 3),
    }


def at_divergence(run: Run, error: Diverged, metrics: list[Row]) -> Row:
    """Of a run that diverged. metrics: the rows of metrics.csv until then."""
    return {
        "tokens": error.step * run.config.train.batch * run.spec.context,
        **_best(metrics),
        "wall_s": round(error.seconds, 3),
    }


def _test(run: Run, model: LM) -> Row:
    """Nothing where the test split is empty."""
    tokens = run.corpus.splits["test"].tokens
    if not len(tokens):
        return {}
    score = evaluate(in_precision(model, run.config.train.precision), tokens, context=run.spec.context)
    return {"test_loss": score.loss, "test_acc": score.accuracy}


def _best(metrics: list[Row]) -> Row:
    if not metrics:
        return {}
    best = min(metrics, key=lambda row: row["val_loss"])
    return {"best_val_loss": best["val_loss"], "best_step": best["step"]}


def _fusion_weights(model: LM) -> list[Any] | None:
    """The learned weights, layers × heads (× channels); None where the method has none."""
    weights = [block.attention.fusion.head_weights() for block in model.blocks]
    return [layer.tolist() for layer in weights if layer is not None] or None
