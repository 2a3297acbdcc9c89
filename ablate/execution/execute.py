"""Train runs and store their results: one, or those of a group as one."""

import contextlib
import dataclasses
import inspect
import traceback
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ablate.compute import device
from ablate.execution import formulas, plugins
from ablate.execution.attempt import Attempt
from ablate.execution.events import Listener, Noticed, Skipped, ignore
from ablate.execution.run import PlacedRun, Run
from ablate.execution.simulated import simulated
from ablate.files.atomic import StoreError
from ablate.lazy import torch
from ablate.phrases import counted, error_line, out_of_memory
from ablate.store.columns import Row, Status
from ablate.store.lease import Heartbeat
from ablate.store.provenance import machine, parts_code, provenance, status_now
from ablate.store.run_files import Checkpoint, Damaged, Stamp
from ablate.store.store import Store
from ablate.store.stored_run import StoredRun
from ablate.training.events import Began, Checked, Event, Step


@dataclass(frozen=True)
class Task:
    """A run to be trained. known: the stamp of the result that existed when the command began
    (StoredRun.stamp), if known: a newer result is kept, even if it failed or force is true."""

    run: PlacedRun
    listener: Listener
    known: Stamp | None = None


def execute(
    run: PlacedRun, listener: Listener, root: Path | None = None, *, known: Stamp | None = None
) -> Row:
    """Train one run, store its result and return its row; a finished run is not repeated.

    A failed or diverged run has a row too, with the reason. known: as in Task. Raises StoreError if the run
    can't begin, or if a new attempt at a run that has a result fails.
    """
    return _row(*execute_group([Task(run, listener, known)], root))


def execute_group(tasks: Sequence[Task], root: Path | None = None) -> list[Row | StoreError]:
    """Train runs as one, each stored as a run like any other: its row, or why there is none, as for
    `execute`. Those of another kind, or that resume after another step, are further groups, in turn."""
    with Heartbeat() as heartbeat, contextlib.ExitStack() as stack:
        begun = [_begun(task, Store(root).run(task.run.name), heartbeat, stack) for task in tasks]
        attempts = [attempt for attempt in begun if isinstance(attempt, Attempt)]
        for group, remark in _grouped(attempts):
            with device.deterministic(group[0].run.device):
                _train(group, remark)
    return [attempt.outcome if isinstance(attempt, Attempt) else attempt for attempt in begun]


def _grouped(attempts: Sequence[Attempt]) -> Iterator[tuple[list[Attempt], str]]:
    """The attempts that are trained as one, with a line for their logs, as why one is trained alone."""
    if len(attempts) <= 1 and all(attempt.run.device.type != "cuda" for attempt in attempts):
        yield from (([attempt], "") for attempt in attempts)
        return
    from ablate.execution.grouping import kind, why_alone  # which a single run doesn't need

    groups: dict[tuple[str, int], list[Attempt]] = {}
    for attempt in attempts:
        after = attempt.writer.start.step if attempt.writer.start else 0
        groups.setdefault((kind(attempt.run), after), []).append(attempt)
    for group in groups.values():
        if why := why_alone(group[0].run):
            group[0].tell(f"trained alone: {why}")
            yield from (([attempt], f"trained alone: {why}") for attempt in group)
        else:
            yield group, "trained alone: no other run of its kind waits" * (len(group) == 1)


def _row(outcome: Row | StoreError) -> Row:
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def _begun(
    task: Task, stored: StoredRun, heartbeat: Heartbeat, stack: contextlib.ExitStack
) -> Attempt | Row | StoreError:
    """The attempt at a run; its row if it is finished, or why it can't begin."""
    run, listener = task.run, task.listener
    own = stack.enter_context(contextlib.ExitStack())
    try:
        current, finished = stored.stamp(), _finished(stored, listener)
        if finished and (task.known not in (None, current) or not _again(run.config.force, finished)):
            finished["status"] = status_now(finished)
            listener(Skipped())
            return finished
        anew = run.config.force is not False
        attempt = own.enter_context(_attempt(stored, run, listener, finished, current, heartbeat, anew))
        attempt.release = own.close
        about = {**machine(), "device": device.describe(run.device)}
        attempt.writer.write_json("environment.json", about)
        attempt.writer.write("tokenizer.json", run.corpus.tokenizer.dump())
        for name, source in plugins.copies(run.spec.chosen).items():
            attempt.writer.write(name, source)
        return attempt
    except StoreError as error:
        own.close()
        return error


def _train(attempts: Sequence[Attempt], remark: str = "") -> None:
    """Train the runs of these attempts as one. If that fails, they are halved until the one at fault is
    alone: only that one fails."""
    place, line = attempts[0].run.device, ""
    for attempt in attempts:
        attempt.begin(len(attempts), remark)
    try:
        _compute(attempts)
    except StoreError:
        raise
    except Exception as error:
        if len(attempts) > 1 and device.is_lost(place):
            raise  # no half can be trained in this process
        reason = out_of_memory(error)
        line = f"{attempts[0].row['device']}: {reason}" if reason else error_line(error, {})
        if len(attempts) == 1:
            attempts[0].failed(line, traceback.format_exc())
    # Outside of the block, whose error keeps the group and its memory.
    device.release_memory(place)
    rest = [attempt for attempt in attempts if attempt.trains]
    for attempt in attempts:
        if not attempt.trains:
            attempt.end()
    if rest:
        line = f"{counted(len(attempts), 'run')} as one: {line}; halved"
        rest[0].tell(f"{rest[0].run.name} and others: {line}")
    middle = (len(attempts) + 1) // 2
    for half in (rest[:middle], rest[middle:]):
        if half:
            _train(half, line)


def _compute(attempts: Sequence[Attempt]) -> None:
    """Train and evaluate. Each attempt takes what is of its run."""
    runs = [attempt.run for attempt in attempts]
    device.reset_peak_memory(runs[0].device)
    with contextlib.closing(_trained(runs, [attempt.writer.start for attempt in attempts])) as events:
        for event in events:
            of_group = isinstance(event, Began | Step | Checked)
            for attempt in attempts if of_group else [attempts[event.member]]:
                attempt.take(event)
            if not any(attempt.trains for attempt in attempts):
                return


def _trained(runs: Sequence[PlacedRun], starts: Sequence[Checkpoint | None]) -> Generator[Event, None, None]:
    """What happens while these runs of one kind are trained, from checkpoints of one step or from scratch."""
    if runs[0].is_simulated:
        return simulated(runs, starts)
    from ablate.execution.networks import trained  # which loads torch

    return trained(runs, starts)


def settled(run: Run) -> Row | None:
    """The row of a run that is finished and not to be trained again; None for any other."""
    try:
        finished = Store().run(run.name).read()
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
    with _attempt(stored, run, ignore, finished, current, anew=True) as attempt:
        attempt.failed(reason)
        attempt.end()
    return _row(attempt.outcome)


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
    stored: StoredRun,
    run: PlacedRun,
    listener: Listener,
    finished: Row | None,
    current: Stamp,
    heartbeat: Heartbeat | None = None,
    anew: bool = False,
) -> Iterator[Attempt]:
    """StoredRun.attempt, which first puts aside a damaged earlier attempt. finished, current: the earlier
    result, if there is one, and its stamp. anew: as there."""
    row, config, known = describe(run), dataclasses.asdict(run.config), current if finished else []
    begin = partial(stored.attempt, config, row, known=known, heartbeat=heartbeat, anew=anew)
    with contextlib.ExitStack() as stack:
        try:
            writer = stack.enter_context(begin())
        except Damaged as error:
            if aside := stored.put_aside_if_damaged(error.path.parent):
                listener(Noticed(f"{error}: {aside}"))
            writer = stack.enter_context(begin())
        yield Attempt(run, listener, stored, writer, row, finished, known)


def _again(force: bool | str, finished: Row) -> bool:
    if finished["status"] == Status.FAILED or force is True:
        return True
    return force == "stale" and status_now(finished) == Status.STALE


def describe(run: PlacedRun) -> Row:
    """The row of a run that begins: its config and sizes, where it computes, and the program's version."""
    specs = [spec for spec, _ in run.spec.kinds.values()]
    parts = [part for spec in specs for part, _ in spec.parts]
    return {
        **formulas.before_training(run),
        "status": Status.RUNNING,
        "device": device.describe(run.device),
        "processor": device.processor(run.device),
        "threads": torch.get_num_threads() if run.device.type == "cpu" else None,
        "tokenizer_sha256": run.corpus.tokenizer.sha256,
        **provenance(),
        **parts_code(*(inspect.getfile(method) for method in dict.fromkeys(parts))),
    }
