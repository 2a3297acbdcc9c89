"""Train one run and store its result: its row, and the rows, log lines, checkpoints, weights on the way."""

import contextlib
import dataclasses
import inspect
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ablate.compute import device
from ablate.config.identity import digest
from ablate.execution import formulas, plugins, translate
from ablate.execution.events import (
    Evaluated,
    Finished,
    Listener,
    Noticed,
    Skipped,
    Stepped,
    ignore,
)
from ablate.execution.run import PlacedRun, Run, arrays, build, to_checkpoint, to_state, training
from ablate.files.atomic import StoreError
from ablate.model import fusion, scores
from ablate.model.models import Model
from ablate.phrases import error_line, out_of_memory
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.provenance import machine, parts_code, provenance, status_now
from ablate.store.run_files import Damaged, RunWriter, Stamp
from ablate.store.store import Store
from ablate.store.stored_run import StoredRun
from ablate.training.optim import in_precision
from ablate.training.train import Averaged, Diverged, Evaluation, Kept, State, Step

LOOK_EVERY_S = 0.2  # time between reports of the loss, since reading it waits for the device


def execute(
    run: PlacedRun, listener: Listener, root: Path | None = None, *, known: Stamp | None = None
) -> Row:
    """Train one run, store its result and return its row; a finished run is not repeated.

    A failed or diverged run has a row too, with the reason. known: the stamp of the result that existed when
    the command began (StoredRun.stamp), if known: a newer result is kept, even if it failed or force is true.
    Raises StoreError if the run can't begin, or if a new attempt at a run that has a result fails.
    """
    stored = Store(root).run(run.name)
    current, finished = stored.stamp(), _finished(stored, listener)
    if finished and (known not in (None, current) or not _again(run.config.force, finished)):
        finished["status"] = status_now(finished)
        listener(Skipped())
        return finished
    current, row = current if finished else [], describe(run)
    with _attempt(stored, run, listener, row, known=current) as writer:
        about: dict[str, Any] = {"device": device.describe(run.device)}
        if run.config.train.translate:
            about["sacrebleu"] = translate.signatures()
        writer.write_json("environment.json", {**machine(), **about})
        writer.write("tokenizer.json", run.corpus.tokenizer.dump())
        for name, source in plugins.copies(run.spec.chosen).items():
            writer.write(name, source)
        writer.log(f"going on after step {writer.start.step}" if writer.start else "begun")
        try:
            with device.deterministic(run.device):
                row |= _train(run, writer, listener)
        except StoreError:  # a full disk, or a run taken over by another process, is not a failure of the run
            raise
        except Exception as error:
            writer.log(traceback.format_exc())
            reason = out_of_memory(error)
            line = f"{row['device']}: {reason}" if reason else error_line(error, {})
            row |= {"status": Status.FAILED, "error": line}
        _finish(stored, writer, row, finished, known=current)
    device.release_memory(run.device)
    listener(Finished(row))
    return row


def settled(run: Run, root: Path | None = None) -> Row | None:
    """The row of a run that is finished and not to be trained again; None for any other."""
    try:
        finished = Store(root).run(run.name).read()
    except Damaged:
        return None
    return None if finished is None or _again(run.config.force, finished) else finished


def record_failure(run: PlacedRun, reason: str, root: Path | None = None, *, known: Stamp) -> Row:
    """Store and return a failed row, with the reason, for a run whose process is gone; its log is kept. If
    the run had been finished before, by that process or another, return that row. known: as for `execute`.
    Raises StoreError."""
    stored = Store(root).run(run.name)
    current, finished = stored.stamp(), _finished(stored, ignore)
    if finished and current != known:
        return finished
    current = current if finished else []
    row = describe(run) | {"status": Status.FAILED, "error": reason}
    with _attempt(stored, run, ignore, row, known=current) as writer:
        writer.log(reason)
        _finish(stored, writer, row, finished, known=current)
    return row


def _finished(stored: StoredRun, listener: Listener) -> Row | None:
    try:
        return stored.read()
    except Damaged as error:
        if not (aside := stored.put_aside_if_damaged(stored.directory)):
            return stored.read()
        listener(Noticed(f"{error}; it is in {aside} now"))
        return None


@contextlib.contextmanager
def _attempt(
    stored: StoredRun, run: PlacedRun, listener: Listener, row: Row, *, known: Stamp
) -> Iterator[RunWriter]:
    """StoredRun.attempt, which first puts aside a damaged earlier attempt."""
    config = dataclasses.asdict(run.config)
    with contextlib.ExitStack() as stack:
        try:
            writer = stack.enter_context(stored.attempt(config, row, known=known))
        except Damaged as error:
            if aside := stored.put_aside_if_damaged(error.path.parent):
                listener(Noticed(f"{error}: {aside}"))
            writer = stack.enter_context(stored.attempt(config, row, known=known))
        yield writer


def _finish(stored: StoredRun, writer: RunWriter, row: Row, before: Row | None, *, known: Stamp) -> None:
    """Finish the run with this row. A failure never replaces an earlier result: raises StoreError instead."""
    if row["status"] == Status.FAILED and before and before["status"] in RESULTS:
        aside, name = stored.give_up(writer), stored.directory.name
        raise StoreError(f"{name}: {row['error']}; its earlier result stays, and this attempt is in {aside}")
    stored.finish(writer, row, known=known)


def _train(run: PlacedRun, writer: RunWriter, listener: Listener) -> Row:
    """Train and evaluate, and write what a run keeps on the way; returns the resulting columns. Raises
    StoreError if the disk refuses."""
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    config, model, looked = run.config.train, build(run), time.monotonic()
    metrics = list(writer.start.metrics) if writer.start else []
    last: Evaluation | None = None
    averaged: Averaged | None = None
    try:
        for event in training(run, model, config, start=to_state(writer.start) if writer.start else None):
            writer.check()
            match event:
                case Step(step) if (now := time.monotonic()) - looked > LOOK_EVERY_S:
                    looked = now
                    listener(Stepped(step, event.loss.item()))
                case Evaluation(step, train_loss=train_loss):
                    last, val_loss = event, event.validation.loss
                    metrics.append(formulas.at_evaluation(event))
                    writer.metrics(metrics[-1])
                    train = "" if train_loss is None else f" train_loss {train_loss:.4f}"
                    writer.log(f"step {step}/{config.steps}{train} val_loss {val_loss:.4f}")
                    if train_loss is not None:
                        listener(Evaluated(step, train_loss, val_loss, event.tokens_per_s))
                case State():
                    writer.checkpoint(to_checkpoint(event, metrics))
                case Averaged():
                    averaged = event
                case Kept():
                    writer.write_weights(arrays(event.weights), event.step)
    except Diverged as error:
        writer.log(str(error))
        row = formulas.at_divergence(run, error, metrics)
        return {"status": Status.DIVERGED, "error": str(error), **row}
    assert last is not None, "training ends with an evaluation"
    row = formulas.at_end(run, model, last, metrics, averaged)
    if config.translate:
        row |= _translate(run, model, writer)
    peak_memory_mb = device.peak_memory_mb(run.device)
    if config.save == "model":
        writer.write_weights(arrays(model.state_dict()))
    row |= {"status": Status.DONE, "peak_memory_mb": peak_memory_mb}
    if lost := [column for column, value in row.items() if not _is_finite(value)]:  # as a loss of averages
        error = f"{' and '.join(lost)} not finite after the last step"
        row |= {**dict.fromkeys(lost), "status": Status.DIVERGED, "error": error}
    return row


def _is_finite(value: Any) -> bool:
    try:
        return bool(digest(value))
    except ValueError:
        return False


def _translate(run: PlacedRun, model: Model, writer: RunWriter) -> Row:
    """Write the sources, targets and translations of the test split, and return the columns of scores."""
    computing = in_precision(model, run.config.train.precision).eval()
    lines = translate.of_test(computing, run.corpus, run.spec.context)
    for name, texts in zip(translate.FILES, zip(*lines, strict=True), strict=True):
        writer.write(name, "".join(f"{text}\n" for text in texts))
    return translate.scores(lines)


def _again(force: bool | str, finished: Row) -> bool:
    if finished["status"] == Status.FAILED or force is True:
        return True
    return force == "stale" and status_now(finished) == Status.STALE


def describe(run: PlacedRun) -> Row:
    """The row of a run that begins: its config and sizes, where it computes, and the program's version."""
    specs = [spec for spec, _ in run.spec.kinds.values()]
    parts = [fusion.method_of(a.fusion)[0] for a in specs] + [scores.method_of(a.scores)[0] for a in specs]
    return {
        **formulas.before_training(run),
        "status": Status.RUNNING,
        "device": device.describe(run.device),
        "processor": device.processor(run.device),
        "linear": run.linear,
        "attention": run.attention,
        "compile": run.config.train.compile,
        "threads": torch.get_num_threads() if run.device.type == "cpu" else None,
        "tokenizer_sha256": run.corpus.tokenizer.sha256,
        **provenance(),
        **parts_code(*(inspect.getfile(method) for method in dict.fromkeys(parts))),
    }
