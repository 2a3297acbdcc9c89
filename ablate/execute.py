"""One run: prepare, train, store. `execute` is the only function that launchers call."""

import dataclasses
import functools
import json
import math
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablate import device
from ablate.columns import CONFIG_COLUMNS, Row, status_now
from ablate.config import CorpusConfig, ModelSpec, RunConfig, resolve, run_id, run_name
from ablate.data.corpora import Corpus, open_corpus, require_context
from ablate.environment import machine, provenance
from ablate.model.lm import LM, build_model
from ablate.model.sizing import attention_params, flops_per_token, match_error, resolve_spec, total_params
from ablate.store import RunWriter, Store
from ablate.train import Diverged, Evaluation, Score, Step, evaluate, train


@dataclass(frozen=True)
class Run:
    """A run that can begin: its corpus is open, its sizes are numbers, its identity is known."""

    config: RunConfig
    spec: ModelSpec
    corpus: Corpus
    device: torch.device
    run_id: str
    name: str


class Listener:
    """Hears of a run while it goes on. Every method may be left as it is."""

    def started(self, run: Run) -> None: ...
    def stepped(self, step: Step) -> None: ...
    def evaluated(self, evaluation: Evaluation) -> None: ...
    def ended(self) -> None:
        """The run is over, by whatever end: a result, an error or Ctrl-C."""

    def finished(self, row: Row) -> None: ...
    def skipped(self, row: Row) -> None: ...


def prepare(config: RunConfig) -> Run:
    """Everything that can be refused is refused here, before anything is trained. Raises ConfigError."""
    place = device.pick(config.device)
    # A wrong size should not wait for a large text to be read; only a match needs its vocabulary.
    resolve_spec(dataclasses.replace(config, match="none"), vocab=1)
    corpus = _corpus(config.corpus)
    require_context(corpus, config.model.context)
    spec = resolve_spec(config, corpus.tokenizer.vocab_size)
    identity = run_id(config, spec, corpus.sha256)
    return Run(resolve(config, spec), spec, corpus, place, identity, run_name(config, identity))


def execute(run: Run, listener: Listener, root: Path = Path("runs")) -> Row:
    """Train one run into the store and return its row; a finished run is not run again.

    A run that fails or diverges is a row too, with its reason. Raises StoreError where it can't begin.
    """
    store = Store(root)
    finished = store.read(run.name)
    if finished and not _again(run.config.force, finished):
        finished["status"] = status_now(finished, provenance())
        listener.skipped(finished)
        return finished
    row = describe(run)
    with store.writing(run.name, dataclasses.asdict(run.config), {**row, "status": "running"}) as writer:
        writer.write_json("environment.json", {**machine(), "device": device.describe(run.device)})
        run.corpus.tokenizer.save(writer.path / "tokenizer.json")
        listener.started(run)
        try:
            row |= _train(run, writer, listener)
        except Exception as error:
            writer.log(traceback.format_exc())
            row |= {"status": "failed", "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        finally:
            listener.ended()
        writer.finish(row)
    listener.finished(row)
    return row


def describe(run: Run) -> Row:
    """The columns that are known before training."""
    config, spec = run.config, run.spec
    options = {key: value for key, value in spec.fusion.options.items() if key != "normalize"}
    keys = {**vars(config.corpus), **vars(config.train), **vars(config.model), **vars(config), **vars(spec)}
    return {
        **{column: keys[column] for column in CONFIG_COLUMNS if column in keys},
        "run_id": run.run_id,
        "status": "running",
        "fusion": spec.fusion.name,
        "fusion_options": json.dumps(options, sort_keys=True),
        "normalize": spec.fusion.options["normalize"],
        "match_by": config.match_by if config.match != "none" else None,
        "match_error": match_error(config, spec),
        "seed": config.seed,
        "seed_backbone": config.seeds.backbone,
        "seed_fusion": config.seeds.fusion,
        "seed_data": config.seeds.data,
        "model": config.model.name,
        "params": total_params(spec),
        "params_attention": attention_params(spec),
        "flops_per_token": flops_per_token(spec),
        "corpus": config.corpus.name,
        "corpus_sha256": run.corpus.sha256,
        "device": device.describe(run.device),
        "engine": "plain",
        "linear": "torch",
        "threads": torch.get_num_threads() if run.device.type == "cpu" else None,
        **provenance(),
    }


def _train(run: Run, writer: RunWriter, listener: Listener) -> Row:
    """Train and evaluate; the columns that come of it."""
    train_config, context = run.config.train, run.spec.context
    tokens = {name: split.tokens for name, split in run.corpus.splits.items()}
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    model = build_model(run.spec, run.config.resolved_seeds()).to(run.device)
    evaluations: list[Evaluation] = []
    try:
        for event in train(
            model,
            train_config,
            train_tokens=tokens["train"],
            validation_tokens=tokens["validation"],
            context=context,
            data_seed=run.config.resolved_seeds()["data"],
        ):
            writer.heartbeat()
            if isinstance(event, Step):
                listener.stepped(event)
                continue
            evaluations.append(event)
            writer.metrics(_metrics(event))
            writer.log(
                f"step {event.step}/{train_config.steps} train_loss {event.train_loss:.4f}"
                f" val_loss {event.validation.loss:.4f}"
            )
            listener.evaluated(event)
    except Diverged as error:
        writer.log(str(error))
        tokens_seen = error.step * train_config.batch * context
        return {"status": "diverged", "error": str(error), "tokens": tokens_seen, **_best(evaluations)}
    row = {"status": "done", **_best(evaluations), **_last(run, evaluations[-1])}
    if len(tokens["test"]):
        test = evaluate(model, tokens["test"], train_config, context=context)
        row |= {"test_loss": test.loss, "test_acc": test.accuracy}
    row["fusion_weights"] = _fusion_weights(model)
    row["peak_memory_mb"] = device.peak_memory_mb(run.device)
    if train_config.save == "model":
        writer.write_weights({name: value.cpu().numpy() for name, value in model.state_dict().items()})
    return row


def _metrics(event: Evaluation) -> Row:
    return {
        "step": event.step,
        "tokens": event.tokens,
        "lr": event.lr,
        "train_loss": event.train_loss,
        "val_loss": event.validation.loss,
        "grad_norm": event.grad_norm,
        "seconds": round(event.seconds, 3),
    }


def _last(run: Run, last: Evaluation) -> Row:
    score: Score = last.validation
    return {
        "tokens": last.tokens,
        "train_loss": last.train_loss,
        "val_loss": score.loss,
        "val_bpb": score.nats / math.log(2) / run.corpus.splits["validation"].predicted_bytes,
        "val_acc": score.accuracy,
        "tokens_per_s": round(last.tokens / (last.seconds - last.evaluation_seconds), 1),
        "wall_s": round(last.seconds, 3),
    }


def _best(evaluations: list[Evaluation]) -> Row:
    if not evaluations:
        return {}
    best = min(evaluations, key=lambda event: event.validation.loss)
    return {"best_val_loss": best.validation.loss, "best_step": best.step}


def _fusion_weights(model: LM) -> list[Any] | None:
    """The learned weights, layers × heads (× channels); None where the method has none."""
    weights = [block.attention.fusion.head_weights() for block in model.blocks]
    return [layer.tolist() for layer in weights if layer is not None] or None


def _again(force: bool | str, finished: Row) -> bool:
    """Whether a finished run is to be trained once more."""
    if finished["status"] == "failed" or force is True:
        return True
    return force == "stale" and status_now(finished, provenance()) == "stale"


@functools.lru_cache(maxsize=4)
def _corpus(config: CorpusConfig) -> Corpus:
    """Opened once for all the runs of a process."""
    return open_corpus(config)
