"""Train runs and store their results: one, or those of a group as one."""

import contextlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ablate.compute import device
from ablate.execution.attempt import Attempt
from ablate.execution.grouping import why_alone
from ablate.execution.run import Run
from ablate.files.atomic import StoreError
from ablate.phrases import error_line, out_of_memory
from ablate.store.columns import Row
from ablate.store.run_files import Damaged
from ablate.store.store import Store
from ablate.training.events import Began, Listener, Step


def execute(run: Run, listener: Listener, root: Path | None = None) -> Row:
    """Train one run, store its result and return its row; a finished run is not repeated (Run.is_over).

    A failed or diverged run has a row too, with the reason. Raises StoreError if the run can't begin, or if a
    new attempt at a run that has a result fails.
    """
    (outcome,) = execute_group([run], lambda _: listener, root)
    if isinstance(outcome, StoreError):
        raise outcome
    return outcome


def execute_group(
    runs: Sequence[Run], listen: Callable[[Run], Listener], root: Path | None = None
) -> list[Row | StoreError]:
    """Train runs of a kind as one, each stored as a run like any other: its row, or why there is none, as for
    `execute`. Those that resume after another step are further groups, in turn.

    Raises what goes wrong with several as one; tried again, they go on from their last checkpoints."""
    attempts = [Attempt(run, listen(run), Store(root)) for run in runs]
    with contextlib.ExitStack() as stack:
        for attempt in attempts:
            stack.callback(attempt.close)
            attempt.open(anew=attempt.run.config.force is not False)
        for group, remark in _grouped([attempt for attempt in attempts if attempt.trains]):
            with device.deterministic(group[0].run.device):
                _train(group, remark)
            if len(runs) > 1 and device.is_lost(runs[0].device):
                raise RuntimeError("the device is lost")
    return [attempt.error or attempt.row for attempt in attempts]


def _grouped(attempts: Sequence[Attempt]) -> Iterator[tuple[list[Attempt], str]]:
    """The attempts that are trained as one, with a line for their logs where one is trained alone."""
    for after in dict.fromkeys(attempt.after for attempt in attempts):
        group = [attempt for attempt in attempts if attempt.after == after]
        first = group[0].run
        if (len(group) > 1 or first.device.type == "cuda") and (why := why_alone(first)):
            group[0].tell(f"trained alone: {why}")
            yield from (([attempt], f"trained alone: {why}") for attempt in group)
        else:
            yield group, ""


def _train(attempts: Sequence[Attempt], remark: str) -> None:
    """Train the runs of these attempts as one. A single one that fails has a row that says so."""
    for attempt in attempts:
        attempt.begin(len(attempts), remark)
    try:
        _compute(attempts)
    except StoreError:
        raise
    except Exception as error:
        if len(attempts) > 1:
            raise
        attempts[0].failed(out_of_memory(error) or error_line(error, {}), traceback.format_exc())
    finally:
        for attempt in attempts:
            if not attempt.trains:
                attempt.end()


def _compute(attempts: Sequence[Attempt]) -> None:
    """Train and evaluate. Each attempt takes what is of its run."""
    runs = [attempt.run for attempt in attempts]
    if runs[0].is_simulated:
        from ablate.execution.simulated import simulated as trained
    else:
        from ablate.execution.networks import trained  # which loads torch
    with contextlib.closing(trained(runs, [attempt.folder.start for attempt in attempts])) as events:
        for event in events:
            if isinstance(event, Step):
                continue
            for attempt in attempts if isinstance(event, Began) else [attempts[event.member]]:
                attempt.take(event)
            if not any(attempt.trains for attempt in attempts):
                return


def settled(run: Run, *, thorough: bool = True) -> Row | None:
    """The row of a run that is finished and not to be trained again; None for any other. thorough: as for
    RunFolder.read. Raises StoreError if another run lies in its place."""
    folder = Store().run(run.name)
    try:
        row = folder.read(thorough=thorough)
    except Damaged:
        return None
    return row if row and run.is_over(row, folder.stamp()) else None


def record_failure(run: Run, reason: str, root: Path | None = None) -> Row:
    """Store and return a failed row, with the reason, for a run whose process is gone, and what it has left,
    from which the next command goes on. If the run has been finished meanwhile, return that row. Raises
    StoreError."""
    attempt = Attempt(run, lambda _: None, Store(root))
    with contextlib.closing(attempt):
        attempt.open(ended=True)
        attempt.failed(reason)
        attempt.end()
    if attempt.error:
        raise attempt.error
    return attempt.row
