"""The values of the columns of a run, as pure functions without files."""

import json
import math
from operator import attrgetter

import numpy as np

from ablate.data.counting import mixture, text_statistics
from ablate.data.examples import Examples
from ablate.execution.run import Run
from ablate.model.costs import attention_params, flops_per_token, relative_cost, total_params
from ablate.model.function_class import function_class
from ablate.store.columns import KEYS, Row
from ablate.training.events import Diverged, Evaluation, Final, Score


def before_training(run: Run) -> Row:
    """The columns known before the first step: identity, config, seeds, sizes and costs."""
    config, spec, attention = run.config, run.spec, run.spec.chosen
    fusion, rule = attention.fusion, attention.scores
    options = {key: value for key, value in fusion.options.items() if key != "normalize"}
    return {
        **{column: attrgetter(key)(config) for column, key in KEYS.items()},
        "run_id": run.run_id,
        "fusion": fusion.name,
        "fusion_options": json.dumps(options, sort_keys=True),
        "normalize": fusion.options.get("normalize"),
        "scores": rule.name,
        "scores_options": json.dumps(rule.options, sort_keys=True),
        "key_width": attention.key_width,
        "rope_base": attention.rope_base,
        "vocab": spec.vocab,
        "match_error": None if config.match == "none" else relative_cost(spec, config.match),
        "model": config.model.name,
        "form": attention.form,
        "function_class": function_class(attention),
        "params": total_params(spec),
        "params_attention": attention_params(spec),
        "flops_per_token": flops_per_token(spec, run.corpus.splits["train"].target_share),
        "epochs": _epochs(run),
        "corpus": config.corpus.called,
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


def at_end(run: Run, last: Evaluation, metrics: list[Row], final: Final) -> Row:
    """The columns of a run that reached its last step. metrics: of metrics.csv."""
    split, validation, test = run.corpus.splits["validation"], final.validation or last.validation, final.test
    return {
        "tokens": last.tokens,
        "train_loss": last.train_loss,
        "val_loss": validation.loss,
        "val_bpb": validation.nats / math.log(2) / split.predicted_bytes if split.predicted_bytes else None,
        "val_acc": validation.accuracy,
        "val_exact": validation.exact_match,
        **(
            {"test_loss": test.loss, "test_acc": test.accuracy, "test_exact": test.exact_match}
            if test.targets
            else {}
        ),
        **_beside_counting(run, validation, test),
        **_best(metrics),
        **final.of_model,
        "tokens_per_s": round(last.tokens_per_s, 1),
        "wall_s": round(last.seconds, 3),
    }


def at_divergence(run: Run, event: Diverged, metrics: list[Row]) -> Row:
    """The columns of a run that diverged. metrics: the rows of metrics.csv until then."""
    return {
        "tokens": round(event.step * run.tokens_a_step),
        **_best(metrics),
        "wall_s": round(event.seconds, 3),
    }


def _epochs(run: Run) -> float | None:
    """How often training reads its split; None if that is endless."""
    split, rows = run.corpus.splits["train"], run.config.train.batch * run.config.train.steps
    if isinstance(split, Examples):
        return rows / split.per_epoch if split.per_epoch else None
    return rows * run.spec.context / split.size if split.size else None


def _beside_counting(run: Run, validation: Score, test: Score) -> Row:
    """What is known of a text, and the loss of the mixture with counting; empty for anything else,
    and where no model gave probabilities."""
    text = None if run.is_simulated else run.corpus.text
    counted = text and text_statistics(run.corpus, run.spec.context)
    if not (text and counted):
        return {}
    row = {
        "overlap": text.most_shared,
        "ngram_order": counted.order,
        "ngram_val_loss": counted.loss["validation"],
        "ngram_loss": counted.loss.get("test"),
        "mix_weight": mixture(_probabilities(validation), counted.probabilities["validation"]),
    }
    if test.targets:
        mixed_J = row["mix_weight"] * _probabilities(test)
        mixed_J += (1 - row["mix_weight"]) * counted.probabilities["test"]
        row["mix_loss"] = float(-np.log(mixed_J).mean())
    return row


def _probabilities(score: Score) -> np.ndarray:
    """(J,) float64: what the model gave each target."""
    return np.exp(-score.nats_J.astype(np.float64))


def _best(metrics: list[Row]) -> Row:
    """The columns of the best evaluation, not counting the one at step 0."""
    if not (after := [row for row in metrics if row["step"] > 0]):
        return {}
    best = min(after, key=lambda row: row["val_loss"])
    return {"best_val_loss": best["val_loss"], "best_step": best["step"]}
