"""Progress on stderr while runs go on: bars in a terminal, a few lines elsewhere."""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from ablate.execution.events import (
    Elsewhere,
    Ended,
    Evaluated,
    Event,
    Finished,
    Listener,
    Noticed,
    Refused,
    Skipped,
    Started,
    Stepped,
    Taken,
)
from ablate.launch.pool import Job, Watcher
from ablate.phrases import duration
from ablate.store.columns import Row
from ablate.store.status import Status

T = TypeVar("T")
MANY, SILENT_S = 1000, 3.0  # from how many runs on to report the checking; seconds between lines


@functools.cache
def listener(total: int | None) -> Listener:
    """The only listener of this process. total: the number of runs in the sweep, None for a single run."""
    console = Console(stderr=True, highlight=False)
    return (Bar(console, total) if console.is_terminal else Lines(console, total)).hear


def checking(runs: Sequence[T]) -> Iterator[T]:
    """Yield the runs of a sweep while they are checked; if they are many, print progress now and then."""
    console, said = Console(stderr=True, highlight=False), time.monotonic()
    for count, run in enumerate(runs):
        if len(runs) >= MANY and time.monotonic() - said > SILENT_S:
            said = time.monotonic()
            console.print(f"checked {count:,} of {len(runs):,} runs", soft_wrap=True)
        yield run


@contextlib.contextmanager
def board(jobs: Sequence[Job], workers: int) -> Iterator[Watcher]:
    """The watcher of many runs at once, as bars or as lines."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Log(console, len(jobs)).at
        return
    with Board(console, jobs, workers) as watcher:
        yield watcher.at


# --- the lines that runs end with -----------------------------------------------------------------


def ending(name: str, row: Row) -> str:
    """The line about a run that ended."""
    figures = f"val_loss {row['val_loss']:.4f}" if row["status"] == Status.DONE else row["error"]
    seconds = f", {row['wall_s']:.1f} s" if row.get("wall_s") else ""
    return f"{name}: {row['status']}, {figures}{seconds}"


def skipping(row: Row) -> str:
    """The line about a run that is not repeated, with the reason."""
    name = f"{row['fusion']} heads={row['heads']} seed={row['seed']} ({row['run_id']})"
    if row["status"] == Status.STALE:
        return f"{name}: made by other code or another torch; force=stale runs it again"
    return f"{name}: finished before; force=true runs it again"


# --- one run after the other ----------------------------------------------------------------------


class Lines:
    """Prints a line for each evaluation of a single run, or for each run of a sweep."""

    def __init__(self, console: Console, total: int | None) -> None:
        self.console = console
        self.total = total
        self.count = 0
        self.name = ""

    def hear(self, event: Event) -> None:
        match event:
            case Started(name=name):
                self.count += 1
                self.name = self.numbered(name)
            case Evaluated() if self.total is None:
                self.say(
                    f"step {event.step}: train_loss {event.train_loss:.4f}, val_loss {event.val_loss:.4f},"
                    f" {event.tokens_per_s:,.0f} tokens/s"
                )
            case Finished(row):
                self.say(ending(self.name, row))
            case Skipped(row):
                self.count += 1
                self.say(self.numbered(skipping(row)))
            case Noticed(line):
                self.say(line)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def numbered(self, name: str) -> str:
        return f"[{self.count}/{self.total}] {name}" if self.total else name


class Bar(Lines):
    """A progress bar with loss, tokens per second and the time left."""

    def hear(self, event: Event) -> None:
        match event:
            case Started():
                super().hear(event)
                self.run, self.began, self.val_loss = event, time.monotonic(), ""
                self.bar = _bars(self.console, transient=True)
                self.task = self.bar.add_task(self.numbered(event.label), total=event.steps, figures="")
                self.bar.start()
            case Stepped(step, loss):
                seconds = time.monotonic() - self.began
                speed = (step - self.run.after) * self.run.tokens_a_step / seconds
                figures = f"loss {loss:.3f}{self.val_loss} {speed:,.0f} tok/s"
                self.bar.update(self.task, completed=step, figures=figures)
            case Evaluated():
                self.val_loss = f" val {event.val_loss:.3f}"
            case Ended():
                self.bar.stop()
            case _:
                super().hear(event)


# --- many runs at once ----------------------------------------------------------------------------

ENDS = (Finished, Skipped, Elsewhere, Refused)  # events after which this command is done with a run


class Log:
    """Prints a line for each run that ends."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.total = total
        self.count = 0

    def at(self, worker: int, job: Job) -> Listener:
        """The listener for a job on a worker."""
        return functools.partial(self.hear, worker, job)

    def hear(self, worker: int, job: Job, event: Event) -> None:
        if isinstance(event, ENDS):
            self.count += 1
        name = f"[{self.count}/{self.total}] {job.name}"
        match event:  # reasons of refused runs are printed once, at the end
            case Finished(row):
                self.say(ending(name, row))
            case Skipped() | Elsewhere():
                self.say(f"{name}: another process has made it")
            case Noticed(line):
                self.say(line)

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


class Board(Log):
    """One bar for all runs, with the time left, and one for each worker. Failures are printed above them."""

    def __init__(self, console: Console, jobs: Sequence[Job], workers: int) -> None:
        super().__init__(console, len(jobs))
        self.done = 0.0  # the cost of all runs that ended
        self.under_way: dict[int, float] = {}  # worker -> the cost of its run so far
        self.whole = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            Clock(),
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

    def hear(self, worker: int, job: Job, event: Event) -> None:
        task, steps = self.tasks[worker], job.config.train.steps
        match event:
            case Started():
                self.each.reset(task, description=job.name, total=steps, figures="")
            case Stepped(step, loss):
                self.under_way[worker] = job.cost * step / steps
                self.each.update(task, completed=step, figures=f"loss {loss:.3f}")
            case Taken():
                self.each.reset(task, description="waiting for another process", total=None, figures="")
            case Noticed():
                super().hear(worker, job, event)
            case Finished(row) if row["status"] != Status.DONE:
                super().hear(worker, job, event)
            case Finished() | Skipped() | Elsewhere() | Refused():
                self.count += 1
        if isinstance(event, ENDS):
            self.under_way.pop(worker, None)
            self.done += job.cost
        description = f"{self.count}/{self.total} runs"
        self.whole.update(
            self.task, completed=self.done + sum(self.under_way.values()), description=description
        )

    def say(self, line: str) -> None:
        self.live.console.print(line, markup=False, soft_wrap=True)


class Clock(ProgressColumn):
    """The time, as in `8 s gone, 4 min left`."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = "" if task.time_remaining is None else f", {duration(task.time_remaining)} left"
        return Text(f"{duration(task.elapsed or 0)} gone{left}")


def _bars(console: Console, *, transient: bool = False) -> Progress:
    return Progress(  # fits into 80 columns
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        Clock(),
        console=console,
        transient=transient,
    )
