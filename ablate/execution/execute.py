"""Train one run and store its result."""

import contextlib
import dataclasses
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from ablate.compute import device
from ablate.execution import plugins, translate
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
from ablate.execution.run import Resolved, Run, build, tokens_a_step, training
from ablate.files.atomic import StoreError
from ablate.store.columns import Row
from ablate.store.provenance import machine
from ablate.store.run_files import Damaged, RunWriter, Stamp, read_started
from ablate.store.status import RESULTS, Status, status_now
from ablate.store.store import Store
from ablate.store.stored_run import StoredRun
from ablate.training.train import Diverged, Evaluation, Step

LOOK_EVERY_S = 0.2  # time between reports of the loss, since reading it waits for the device


def execute(run: Run, listener: Listener, root: Path = Path("runs"), *, known: Stamp | None = None) -> Row:
    """Train one run, store its result and return its row; a finished run is not repeated.

    A failed or diverged run has a row too, with the reason. known: the stamp of the result that existed when
    the command began (StoredRun.stamp), if known: a newer result is kept, even if it failed or force is true.
    Raises StoreError if the run can't begin, or if a new attempt at a run that has a result fails.
    """
    stored = Store(root).run(run.name)
    current, finished = stored.stamp(), _finished(stored, listener)
    if finished and (known not in (None, current) or not _again(run.config.force, finished)):
        finished["status"] = status_now(finished)
        listener(Skipped(finished))
        return finished
    current, row = current if finished else [], describe(run)
    with _attempt(stored, run, listener, row, known=current) as writer:
        about = {
            "device": device.describe(run.device),
            "train_tokens": run.corpus.splits["train"].size,
        }
        if run.config.train.translate:
            about["sacrebleu"] = translate.signatures()
        writer.write_json("environment.json", {**machine(), **about})
        writer.write("tokenizer.json", run.corpus.tokenizer.dump())
        for name, source in plugins.copies(run).items():
            writer.write(name, source)
        writer.log(f"going on after step {writer.start.step}" if writer.start else "begun")
        listener(_started(run, writer))
        try:
            row |= _train(run, writer, listener)
        except StoreError:  # a full disk, or a run taken over by another process, is not a failure of the run
            raise
        except Exception as error:
            writer.log(traceback.format_exc())
            row |= {"status": Status.FAILED, "error": f"{type(error).__name__}: {error}".splitlines()[0]}
        finally:
            listener(Ended())
        _finish(stored, writer, row, finished, known=current)
    listener(Finished(row))
    return row


def require_its_plugins(run: Resolved, store: Store) -> None:
    """Raises ConfigError if the run was begun with another version of a plugin, unless force asks to train it
    again."""
    if run.config.force is not False or not plugins.copies(run):
        return
    stored = store.run(run.name)
    for directory in (stored.directory, stored.latest()):
        if directory and directory.exists():
            with contextlib.suppress(Damaged, FileNotFoundError):
                plugins.require_the_same(read_started(directory), run.name)


def settled(run: Resolved, root: Path = Path("runs")) -> Row | None:
    """The row of a run that is finished and not to be trained again; None for any other."""
    try:
        finished = Store(root).run(run.name).read()
    except Damaged:
        return None
    return None if finished is None or _again(run.config.force, finished) else finished


def record_failure(run: Run, reason: str, root: Path = Path("runs"), *, known: Stamp) -> Row:
    """Store and return a failed row, with the reason, for a run whose process is gone; its log is kept. If
    the run had been finished before, by that process or another, return that row. known: as for `execute`.
    Raises StoreError."""
    stored = Store(root).run(run.name)
    current, finished = stored.stamp(), _finished(stored, unheard)
    if finished and current != known:
        return finished
    current = current if finished else []
    row = describe(run) | {"status": Status.FAILED, "error": reason}
    with _attempt(stored, run, unheard, row, known=current) as writer:
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
    stored: StoredRun, run: Run, listener: Listener, row: Row, *, known: Stamp
) -> Iterator[RunWriter]:
    """StoredRun.attempt, which first puts aside a damaged earlier attempt."""
    asked_for = dataclasses.asdict(run.config)
    with contextlib.ExitStack() as stack:
        try:
            writer = stack.enter_context(stored.attempt(asked_for, row, known=known))
        except Damaged as error:
            if aside := stored.put_aside_if_damaged(error.path.parent):
                listener(Noticed(f"{error}: {aside}"))
            writer = stack.enter_context(stored.attempt(asked_for, row, known=known))
        yield writer


def _finish(stored: StoredRun, writer: RunWriter, row: Row, before: Row | None, *, known: Stamp) -> None:
    """Finish the run with this row. A failure never replaces an earlier result: raises StoreError instead."""
    if row["status"] == Status.FAILED and before and before["status"] in RESULTS:
        aside, name = stored.give_up(writer), stored.directory.name
        raise StoreError(f"{name}: {row['error']}; its earlier result stays, and this attempt is in {aside}")
    stored.finish(writer, row, known=known)


def _train(run: Run, writer: RunWriter, listener: Listener) -> Row:
    """Train and evaluate; returns the resulting columns."""
    if run.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(run.device)
    model, recorder, looked = build(run), Recorder(run, writer), time.monotonic()
    try:
        for event in training(run, model, run.config.train, start=recorder.start):
            recorder.record(event)
            if isinstance(event, Step) and (now := time.monotonic()) - looked > LOOK_EVERY_S:
                looked = now
                listener(Stepped(event.step, event.loss.item()))
            elif isinstance(event, Evaluation) and event.train_loss is not None:
                losses = (event.train_loss, event.validation.loss)
                listener(Evaluated(event.step, *losses, event.tokens_per_s))
    except Diverged as error:
        return recorder.diverged(error)
    return recorder.done(model)


def _started(run: Run, writer: RunWriter) -> Started:
    config = run.config
    return Started(
        name=run.name,
        label=f"{config.fusion.name}-h{config.heads}",
        steps=config.train.steps,
        after=writer.start.step if writer.start else 0,
        tokens_a_step=tokens_a_step(run),
    )


def _again(force: bool | str, finished: Row) -> bool:
    """Whether a finished run is to be trained again."""
    if finished["status"] == Status.FAILED or force is True:
        return True
    return force == "stale" and status_now(finished) == Status.STALE
