"""What a person sees while runs go on, on stderr: bars in a terminal, quiet lines elsewhere."""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ablate.execution.listener import Listener
from ablate.execution.run import Run
from ablate.launch.pool import Job, Watcher
from ablate.store.columns import Row
from ablate.store.status import Status
from ablate.training.train import Evaluation, Step

REFRESH_S = 0.2  # looking at a loss waits for the device: not at every step


@functools.cache
def listener(total: int | None) -> Listener:
    """The one listener of this process. total: runs of the sweep, None for a single run."""
    console = Console(stderr=True, highlight=False)
    return Bar(console, total) if console.is_terminal else Lines(console, total)


@contextlib.contextmanager
def board(jobs: Sequence[Job], workers: int) -> Iterator[Watcher]:
    """Sees many runs at once."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Log(console, len(jobs))
        return
    with Board(console, jobs, workers) as watcher:
        yield watcher


# --- the lines that runs end with -----------------------------------------------------------------


def ending(name: str, row: Row) -> str:
    """How a run ended."""
    figures = f"val_loss {row['val_loss']:.4f}" if row["status"] == Status.DONE else row["error"]
    seconds = f", {row['wall_s']:.1f} s" if row.get("wall_s") else ""
    return f"{name}: {row['status']}, {figures}{seconds}"


def skipping(row: Row) -> str:
    """Why a run was not made again."""
    name = f"{row['fusion']} heads={row['heads']} seed={row['seed']} ({row['run_id']})"
    if row["status"] == Status.STALE:
        return f"{name}: made by other code or another torch; force=stale runs it again"
    return f"{name}: finished before; force=true runs it again"


# --- one run after the other ----------------------------------------------------------------------


class _Counting(Listener):
    """Numbers the runs of a sweep, and says how each ended."""

    def __init__(self, console: Console, total: int | None) -> None:
        self.console = console
        self.total = total
        self.count = 0

    def started(self, run: Run) -> None:
        self.count += 1
        self.name = self._numbered(run.name)

    def finished(self, row: Row) -> None:
        self.noticed(ending(self.name, row))

    def skipped(self, row: Row) -> None:
        self.count += 1
        self.noticed(self._numbered(skipping(row)))

    def noticed(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _numbered(self, name: str) -> str:
        return f"[{self.count}/{self.total}] {name}" if self.total else name


class Lines(_Counting):
    """A line for each evaluation of a single run, a line for each run of a sweep."""

    def evaluated(self, evaluation: Evaluation) -> None:
        if self.total is None:
            speed = evaluation.tokens / (evaluation.seconds - evaluation.evaluation_seconds)
            self.noticed(
                f"step {evaluation.step}: train_loss {evaluation.train_loss:.4f},"
                f" val_loss {evaluation.validation.loss:.4f}, {speed:,.0f} tokens/s"
            )


class Bar(_Counting):
    """A progress bar with loss, tokens a second and the time left."""

    def started(self, run: Run) -> None:
        super().started(run)
        self.tokens_a_step = run.config.train.batch * run.config.model.context
        self.bar = _bars(self.console, transient=True)
        short_name = self._numbered(f"{run.spec.fusion.name}-h{run.spec.heads}")
        self.task = self.bar.add_task(short_name, total=run.config.train.steps, figures="")
        self.val_loss = ""
        self.first_step: int | None = None
        self.shown = self.began = time.monotonic()
        self.bar.start()

    def stepped(self, step: Step) -> None:
        if self.first_step is None:  # a run that goes on has steps behind it
            self.first_step = step.step - 1
        now = time.monotonic()
        if now - self.shown > REFRESH_S:
            self.shown = now
            speed = (step.step - self.first_step) * self.tokens_a_step / (now - self.began)
            figures = f"loss {step.loss.item():.3f}{self.val_loss} {speed:,.0f} tok/s"
            self.bar.update(self.task, completed=step.step, figures=figures)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.val_loss = f" val {evaluation.validation.loss:.3f}"

    def ended(self) -> None:
        self.bar.stop()


# --- many runs at once ----------------------------------------------------------------------------


class Log:
    """A line for each run that ends."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.total = total
        self.count = 0

    def hear(self, worker: int, job: Job, event: str, *details: Any) -> None:
        if event in ("finished", "skipped", "refused"):
            self.count += 1
        name = f"[{self.count}/{self.total}] {job.name}"
        if event == "finished":
            self.say(ending(name, details[0]))
        elif event == "skipped":
            self.say(f"{name}: another process has made it")
        elif event == "noticed":  # why runs were refused is said at the end, once
            self.say(details[0])

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


class Board(Log):
    """One bar for all runs, with the time left; one for each worker. What failed is written above."""

    def __init__(self, console: Console, jobs: Sequence[Job], workers: int) -> None:
        super().__init__(console, len(jobs))
        self.done = 0.0  # of the cost of all
        self.at: dict[int, float] = {}  # worker -> of the cost of its run
        self.whole = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            speed_estimate_period=3600,
        )
        self.task = self.whole.add_task(f"0/{len(jobs)} runs", total=sum(job.cost for job in jobs))
        self.each = _bars(console)
        self.tasks: list[TaskID] = [
            self.each.add_task("starting", total=None, figures="") for _ in range(min(workers, len(jobs)))
        ]
        self.live = Live(Group(self.whole, self.each), console=console, transient=True, refresh_per_second=5)

    def __enter__(self) -> "Board":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def hear(self, worker: int, job: Job, event: str, *details: Any) -> None:
        task, steps = self.tasks[worker], job.config.train.steps
        if event == "started":
            self.each.reset(task, description=job.name, total=steps, figures="")
        elif event == "stepped":
            step, loss = details
            self.at[worker] = job.cost * step / steps
            self.each.update(task, completed=step, figures=f"loss {loss:.3f}")
        elif event == "busy":
            self.each.reset(task, description="waiting for another process", total=None, figures="")
        elif event == "noticed" or (event == "finished" and details[0]["status"] != Status.DONE):
            super().hear(worker, job, event, *details)
        elif event in ("finished", "skipped", "refused"):
            self.count += 1
        if event in ("finished", "skipped", "refused"):
            self.at.pop(worker, None)
            self.done += job.cost
        description = f"{self.count}/{self.total} runs"
        self.whole.update(self.task, completed=self.done + sum(self.at.values()), description=description)

    def say(self, line: str) -> None:
        self.live.console.print(line, markup=False, soft_wrap=True)


def _bars(console: Console, *, transient: bool = False) -> Progress:
    return Progress(  # what fits into 80 columns
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=transient,
    )
