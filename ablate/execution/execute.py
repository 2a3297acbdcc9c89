"""Train runs and store their results: one, or those of a group as one."""

import contextlib
import dataclasses
import inspect
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from ablate.compute import device
from ablate.execution import formulas, plugins
from ablate.execution.attempt import Attempt
from ablate.execution.events import Listener, Skipped, ignore
from ablate.execution.run import Run
from ablate.execution.simulated import simulated
from ablate.files.atomic import StoreError
from ablate.lazy import torch
from ablate.phrases import counted, error_line, out_of_memory
from ablate.store.columns import Row, Status
from ablate.store.lease import Heartbeat
from ablate.store.provenance import machine, parts_code, provenance, status_now
from ablate.store.run_files import Checkpoint, Damaged
from ablate.store.run_folder import RunFolder
from ablate.store.store import Store
from ablate.training.events import Began, Checked, Event, Step


def execute(run: Run, listener: Listener, root: Path | None = None) -> Row:
    """Train one run, store its result and return its row; a finished run is not repeated (Run.is_over).

    A failed or diverged run has a row too, with the reason. Raises StoreError if the run can't begin, or if a
    new attempt at a run that has a result fails.
    """
    return _row(*execute_group([run], lambda _: listener, root))


def execute_group(
    runs: Sequence[Run], listen: Callable[[Run], Listener], root: Path | None = None
) -> list[Row | StoreError]:
    """Train runs as one, each stored as a run like any other: its row, or why there is none, as for
    `execute`. Those of another kind, or that resume after another step, are further groups, in turn."""
    with Heartbeat() as heartbeat, contextlib.ExitStack() as stack:
        begun = [_begun(run, listen(run), Store(root), heartbeat, stack) for run in runs]
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

    for group in _alike(attempts, lambda attempt: (kind(attempt.run), attempt.after)):
        if why := why_alone(group[0].run):
            group[0].tell(f"trained alone: {why}")
            yield from (([attempt], f"trained alone: {why}") for attempt in group)
        else:
            yield group, "trained alone: no other run of its kind waits" * (len(group) == 1)


def _alike(attempts: Sequence[Attempt], key: Callable[[Attempt], object]) -> Iterator[list[Attempt]]:
    """Those of equal keys, in the order of the first of each."""
    for same in dict.fromkeys(map(key, attempts)):
        yield [attempt for attempt in attempts if key(attempt) == same]


def _row(outcome: Row | StoreError) -> Row:
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def _begun(
    run: Run, listener: Listener, store: Store, heartbeat: Heartbeat, stack: contextlib.ExitStack
) -> Attempt | Row | StoreError:
    """The attempt at a run; its row if it is finished, or why it can't begin."""
    own = stack.enter_context(contextlib.ExitStack())
    try:
        anew = run.config.force is not False
        attempt = own.enter_context(_attempt(run, store, listener, heartbeat, anew=anew))
        if row := _result(run, attempt.folder):
            own.close()
            listener(Skipped())
            return row
        attempt.release = own.close
        about = {**machine(), "device": device.describe(run.device)}
        attempt.folder.write_json("environment.json", about)
        attempt.folder.write("tokenizer.json", run.corpus.tokenizer.dump())
        for name, source in plugins.copies(run.spec.chosen).items():
            attempt.folder.write(name, source)
        return attempt
    except StoreError as error:
        own.close()
        return error


def _result(run: Run, folder: RunFolder) -> Row | None:
    """The result that the run has, if it counts; then this attempt ends."""
    if (row := folder.finished) and run.is_over(row, folder.seen):
        folder.drop()
        return {**row, "status": status_now(row)}
    return None


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
    for attempt in rest:
        attempt.go_back()
    middle = (len(attempts) + 1) // 2
    for half in (rest[:middle], rest[middle:]):
        for group in _alike([attempt for attempt in half if attempt.trains], lambda attempt: attempt.after):
            _train(group, line)


def _compute(attempts: Sequence[Attempt]) -> None:
    """Train and evaluate. Each attempt takes what is of its run."""
    runs = [attempt.run for attempt in attempts]
    device.reset_peak_memory(runs[0].device)
    with contextlib.closing(_trained(runs, [attempt.folder.start for attempt in attempts])) as events:
        for event in events:
            of_group = isinstance(event, Began | Step | Checked)
            for attempt in attempts if of_group else [attempts[event.member]]:
                attempt.take(event)
            if not any(attempt.trains for attempt in attempts):
                return


def _trained(runs: Sequence[Run], starts: Sequence[Checkpoint | None]) -> Generator[Event, None, None]:
    """What happens while these runs of one kind are trained, from checkpoints of one step or from scratch."""
    if runs[0].is_simulated:
        return simulated(runs, starts)
    from ablate.execution.networks import trained  # which loads torch

    return trained(runs, starts)


def settled(run: Run) -> Row | None:
    """The row of a run that is finished and not to be trained again; None for any other. Raises StoreError if
    another run lies in its place."""
    folder = Store().run(run.name)
    try:
        row = folder.read()
    except Damaged:
        return None
    return row if row and run.is_over(row, folder.stamp()) else None


def record_failure(run: Run, reason: str, root: Path | None = None) -> Row:
    """Store and return a failed row, with the reason, for a run whose process is gone. Its log is kept, and
    what it has left, from which the next command goes on. If the run has been finished meanwhile, return that
    row. Raises StoreError."""
    with _attempt(run, Store(root), ignore, anew=True, resumes=False) as attempt:
        if row := _result(run, attempt.folder):
            return row
        attempt.failed(reason)
        attempt.end()
    return _row(attempt.outcome)


@contextlib.contextmanager
def _attempt(
    run: Run, store: Store, listener: Listener, heartbeat: Heartbeat | None = None, **how: bool
) -> Iterator[Attempt]:
    """RunFolder.attempt, which first puts aside what is damaged: a result, an earlier attempt. how: as
    there."""
    row, config, folder = describe(run), dataclasses.asdict(run.config), store.run(run.name)
    with contextlib.ExitStack() as stack:
        for is_last in (False, False, True):
            try:
                stack.enter_context(folder.attempt(config, row, heartbeat, **how))
                break
            except Damaged as error:
                if is_last:
                    raise
                if aside := folder.put_aside_if_damaged(error.path.parent):
                    listener(f"{error}; it is in {aside} now")
        yield Attempt(run, folder, listener, row)


def describe(run: Run) -> Row:
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
