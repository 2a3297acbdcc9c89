"""One run: train and store."""

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from ablate.compute import device
from ablate.execution.events import (
    Ended,
    Evaluated,
    Finished,
    Listener,
    Noticed,
    Skipped,
    Started,
    Stepped,
    unheard,
)
from ablate.execution.recorder import Recorder, describe
from ablate.execution.run import Run, build, training
from ablate.files.atomic import StoreError
from ablate.store.columns import Row
from ablate.store.provenance import machine
from ablate.store.run_files import Damaged, RunWriter
from ablate.store.status import Status, status_now
from ablate.store.store import Store
from ablate.training.train import Diverged, Evaluation, Step

LOOK_EVERY_S = 0.2  # a look at the loss waits for the device: not at every step


def execute(run: Run, listener: Listener, root: Path = Path("runs")) -> Row:
    """Train one run into the store and return its row; a finished run is not run again.

    A run that fails or diverges is a row too, with its reason. Raises StoreError where it can't begin.
    """
    store = Store(root)
    finished = _finished(store, run, listener)
    if finished and not _again(run.config.force, finished):
        finished["status"] = status_now(finished)
        listener(Skipped(finished))
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
        listener(_started(run, writer))
        try:
            row |= _train(run, writer, listener)
        except StoreError:  # a full disk is no result
            raise
        except Exception as error:
            writer.log(traceback.format_exc())
            row |= {"status": Status.FAILED, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        finally:
            listener(Ended())
        store.finish(run.name, writer, row)
    listener(Finished(row))
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
    store, row = Store(root), describe(run) | {"status": Status.FAILED, "error": reason}
    with _writing(store, run, unheard, row, anew=True) as writer:
        writer.log(reason)
        store.finish(run.name, writer, row)
    return row


def _finished(store: Store, run: Run, listener: Listener) -> Row | None:
    try:
        return store.read(run.name)
    except Damaged as error:
        if not (aside := store.set_aside(store.directory(run.name))):
            return store.read(run.name)
        listener(Noticed(f"{error}; it lies in {aside} now"))
        return None


@contextlib.contextmanager
def _writing(store: Store, run: Run, listener: Listener, row: Row, *, anew: bool) -> Iterator[RunWriter]:
    """Store.writing; an attempt that is damaged is put aside first."""
    asked_for = dataclasses.asdict(run.config)
    with contextlib.ExitStack() as stack:
        try:
            writer = stack.enter_context(store.writing(run.name, asked_for, row, anew=anew))
        except Damaged as error:
            if aside := store.set_aside(store.attempt(run.name)):
                listener(Noticed(f"{error}: {aside}"))
            writer = stack.enter_context(store.writing(run.name, asked_for, row, anew=anew))
        yield writer


def _train(run: Run, writer: RunWriter, listener: Listener) -> Row:
    """Train and evaluate; the columns that come of it."""
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    model, recorder, looked = build(run), Recorder(run, writer), time.monotonic()
    try:
        for event in training(run, model, run.config.train, start=recorder.start):
            recorder.record(event)
            if isinstance(event, Step) and (now := time.monotonic()) - looked > LOOK_EVERY_S:
                looked = now
                listener(Stepped(event.step, event.loss.item()))
            elif isinstance(event, Evaluation):
                losses = (event.train_loss, event.validation.loss)
                listener(Evaluated(event.step, *losses, event.tokens_per_s))
    except Diverged as error:
        return recorder.diverged(error)
    return recorder.done(model)


def _started(run: Run, writer: RunWriter) -> Started:
    config = run.config
    return Started(
        name=run.name,
        label=f"{run.spec.fusion.name}-h{run.spec.heads}",
        steps=config.train.steps,
        after=writer.start.step if writer.start else 0,
        tokens_a_step=config.train.batch * config.model.context,
    )


def _again(force: bool | str, finished: Row) -> bool:
    """Whether a finished run is to be trained once more."""
    if finished["status"] == Status.FAILED or force is True:
        return True
    return force == "stale" and status_now(finished) == Status.STALE
