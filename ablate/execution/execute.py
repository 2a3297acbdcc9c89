"""One run: prepare, train, store. `execute` is the only function that launchers call."""

import contextlib
import dataclasses
import functools
import json
import math
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ablate.compute import device
from ablate.compute.fastest import fastest_product
from ablate.compute.products import PRODUCTS, works
from ablate.config.identity import run_id, run_name
from ablate.config.rules import ConfigError
from ablate.config.schema import CorpusConfig, RunConfig, TrainConfig
from ablate.data.corpora import Corpus, open_corpus, require_context
from ablate.files.atomic import StoreError
from ablate.model.attention import form
from ablate.model.lm import LM, build_model
from ablate.model.sizing import (
    attention_params,
    flops_per_token,
    match_error,
    resolve_spec,
    resolved,
    total_params,
)
from ablate.model.spec import ModelSpec
from ablate.store.columns import CONFIG_COLUMNS, Row, status_now
from ablate.store.provenance import machine, provenance
from ablate.store.run_files import Checkpoint, Damaged, RunWriter
from ablate.store.store import Store
from ablate.training.optim import Moments
from ablate.training.train import Diverged, Evaluation, Score, State, Step, evaluate, train


@dataclass(frozen=True)
class Run:
    """A run that can begin: its corpus is open, its sizes are numbers, its identity is known."""

    config: RunConfig
    spec: ModelSpec
    corpus: Corpus
    device: torch.device
    linear: str  # mkl or onednn; torch: what PyTorch takes elsewhere
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
    def noticed(self, line: str) -> None:
        """Something that a person should know, in one line."""


def step_flops(run: Run) -> float:
    """Of a training step: the backward pass costs twice the forward pass."""
    return 3.0 * flops_per_token(run.spec) * run.config.train.batch * run.spec.context


def build(run: Run) -> LM:
    """The model of a run before its first step, where it computes and with its linear layer."""
    model = build_model(run.spec, run.config.resolved_seeds()).to(run.device)
    if run.linear in PRODUCTS:
        model.use(product=PRODUCTS[run.linear])
    return model


def training(
    run: Run, model: LM, config: TrainConfig, start: State | None = None
) -> Iterator[Step | Evaluation | State]:
    """`train` on the text of a run and with its batches, by `config`, which may be shorter than the run's."""
    return train(
        model,
        config,
        train_tokens=run.corpus.splits["train"].tokens,
        validation_tokens=run.corpus.splits["validation"].tokens,
        context=run.spec.context,
        data_seed=run.config.resolved_seeds()["data"],
        start=start,
    )


def prepare(config: RunConfig) -> Run:
    """Everything that can be refused is refused here, before anything is trained. Raises ConfigError."""
    place = device.pick(config.device)
    # A wrong size should not wait for a large text to be read; only a match needs its vocabulary.
    resolve_spec(dataclasses.replace(config, match="none"), vocab=1)
    corpus = _corpus(config.corpus)
    require_context(corpus, config.model.context)
    spec = resolve_spec(config, corpus.tokenizer.vocab_size)
    config = resolved(config, spec)
    identity = run_id(config, vocab=spec.vocab, corpus_sha256=corpus.sha256)
    linear = _linear(config, place)
    return Run(config, spec, corpus, place, linear, identity, run_name(config, identity))


def execute(run: Run, listener: Listener, root: Path = Path("runs")) -> Row:
    """Train one run into the store and return its row; a finished run is not run again.

    A run that fails or diverges is a row too, with its reason. Raises StoreError where it can't begin.
    """
    store = Store(root)
    finished = _finished(store, run, listener)
    if finished and not _again(run.config.force, finished):
        finished["status"] = status_now(finished, provenance())
        listener.skipped(finished)
        return finished
    row = describe(run)
    with _writing(store, run, listener, row, anew=finished is not None) as writer:
        about = {
            "device": device.describe(run.device),
            "train_tokens": len(run.corpus.splits["train"].tokens),
        }
        writer.write_json("environment.json", {**machine(), **about})
        run.corpus.tokenizer.save(writer.path / "tokenizer.json")
        writer.log(f"going on after step {writer.start.step}" if writer.start else "begun")
        listener.started(run)
        try:
            row |= _train(run, writer, listener)
        except StoreError:  # a full disk is no result
            raise
        except Exception as error:
            writer.log(traceback.format_exc())
            row |= {"status": "failed", "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        finally:
            listener.ended()
        store.finish(run.name, writer, row)
    listener.finished(row)
    return row


def settled(run: Run, root: Path = Path("runs")) -> Row | None:
    """The row of a run that is finished and not to be trained again; None for all others."""
    try:
        finished = Store(root).read(run.name)
    except Damaged:
        return None
    return None if finished is None or _again(run.config.force, finished) else finished


def record_failure(run: Run, reason: str, root: Path = Path("runs")) -> Row:
    """The row of a run whose process is gone, with the reason; what it had logged is kept. If the process
    had finished the run before it went, that is the row."""
    if row := settled(run, root):
        return row
    store, row = Store(root), describe(run) | {"status": "failed", "error": reason}
    with _writing(store, run, Listener(), row, anew=True) as writer:
        writer.log(reason)
        store.finish(run.name, writer, row)
    return row


def _finished(store: Store, run: Run, listener: Listener) -> Row | None:
    try:
        return store.read(run.name)
    except Damaged as error:
        if not (aside := store.set_aside(store.directory(run.name))):
            return store.read(run.name)
        listener.noticed(f"{error}; it lies in {aside} now")
        return None


@contextlib.contextmanager
def _writing(store: Store, run: Run, listener: Listener, row: Row, *, anew: bool) -> Iterator[RunWriter]:
    """Store.writing; a part that is damaged is put aside first."""
    asked_for = dataclasses.asdict(run.config)
    with contextlib.ExitStack() as stack:
        try:
            writer = stack.enter_context(store.writing(run.name, asked_for, row, anew=anew))
        except Damaged as error:
            if aside := store.set_aside(store.part(run.name)):
                listener.noticed(f"{error}: {aside}")
            writer = stack.enter_context(store.writing(run.name, asked_for, row, anew=anew))
        yield writer


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
        "form": form(spec.attention),
        "model": config.model.name,
        "params": total_params(spec),
        "params_attention": attention_params(spec),
        "flops_per_token": flops_per_token(spec),
        "corpus": config.corpus.name,
        "corpus_sha256": run.corpus.sha256,
        "device": device.describe(run.device),
        "engine": "plain",
        "linear": run.linear,
        "threads": torch.get_num_threads() if run.device.type == "cpu" else None,
        **provenance(),
    }


def _train(run: Run, writer: RunWriter, listener: Listener) -> Row:
    """Train and evaluate; the columns that come of it."""
    train_config, context = run.config.train, run.spec.context
    tokens = {name: split.tokens for name, split in run.corpus.splits.items()}
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    model = build(run)
    metrics = list(writer.start.metrics) if writer.start else []
    last: Evaluation | None = None
    try:
        for event in training(
            run, model, train_config, start=_to_state(writer.start) if writer.start else None
        ):
            writer.heartbeat()
            if isinstance(event, Step):
                listener.stepped(event)
            elif isinstance(event, State):
                writer.checkpoint(_to_checkpoint(event, metrics))
            else:
                last = event
                metrics.append(_metrics(event))
                writer.metrics(metrics[-1])
                writer.log(
                    f"step {event.step}/{train_config.steps} train_loss {event.train_loss:.4f}"
                    f" val_loss {event.validation.loss:.4f}"
                )
                listener.evaluated(event)
    except Diverged as error:
        writer.log(str(error))
        measured = {
            "tokens": error.step * train_config.batch * context,
            "wall_s": round(error.seconds, 3),
        }
        return {"status": "diverged", "error": str(error), **measured, **_best(metrics)}
    assert last is not None, "training ends with an evaluation"
    row = {"status": "done", **_best(metrics), **_last(run, last)}
    if len(tokens["test"]):
        test = evaluate(model, tokens["test"], train_config, context=context)
        row |= {"test_loss": test.loss, "test_acc": test.accuracy}
    row["fusion_weights"] = _fusion_weights(model)
    row["peak_memory_mb"] = device.peak_memory_mb(run.device)
    if train_config.save == "model":
        writer.write_weights({name: value.cpu().numpy() for name, value in model.state_dict().items()})
    return row


def _to_checkpoint(state: State, metrics: list[Row]) -> Checkpoint:
    parts = {"param": state.params, "first": state.moments.first, "second": state.moments.second}
    arrays = {
        f"{part}/{name}": tensor.detach().cpu().numpy()
        for part, tensors in parts.items()
        for name, tensor in tensors.items()
    }
    return Checkpoint(state.step, arrays, metrics, state.seconds, state.evaluation_seconds)


def _to_state(checkpoint: Checkpoint) -> State:
    parts: dict[str, dict[str, torch.Tensor]] = {"param": {}, "first": {}, "second": {}}
    for key, array in checkpoint.arrays.items():
        part, _, name = key.partition("/")
        parts[part][name] = torch.from_numpy(array)
    return State(
        checkpoint.step,
        parts["param"],
        Moments(parts["first"], parts["second"]),
        checkpoint.seconds,
        checkpoint.evaluation_seconds,
    )


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


def _best(metrics: list[Row]) -> Row:
    if not metrics:
        return {}
    best = min(metrics, key=lambda row: row["val_loss"])
    return {"best_val_loss": best["val_loss"], "best_step": best["step"]}


def _fusion_weights(model: LM) -> list[Any] | None:
    """The learned weights, layers × heads (× channels); None where the method has none."""
    weights = [block.attention.fusion.head_weights() for block in model.blocks]
    return [layer.tolist() for layer in weights if layer is not None] or None


def _again(force: bool | str, finished: Row) -> bool:
    """Whether a finished run is to be trained once more."""
    if finished["status"] == "failed" or force is True:
        return True
    return force == "stale" and status_now(finished, provenance()) == "stale"


def _linear(config: RunConfig, place: torch.device) -> str:
    """There is a choice for float32 on the CPU only."""
    if place.type != "cpu" or config.train.precision != "float32":
        return "torch"
    if config.train.linear == "onednn" and not works(PRODUCTS["onednn"]):
        raise ConfigError(
            "train.linear=onednn: this PyTorch lacks it, or it is not exact; use train.linear=mkl"
        )
    return fastest_product() if config.train.linear == "auto" else config.train.linear


@functools.lru_cache(maxsize=4)
def _corpus(config: CorpusConfig) -> Corpus:
    """Opened once for all the runs of a process."""
    return open_corpus(config)
