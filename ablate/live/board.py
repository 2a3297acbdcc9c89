"""What a person sees on stderr while this command trains: bars in a terminal, a few lines elsewhere."""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from ablate.execution.events import (
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
from ablate.phrases import duration
from ablate.store.columns import Row, Status

if TYPE_CHECKING:
    from ablate.launch.pool import Item, Watcher

T = TypeVar("T")
MANY, SILENT_S = 1000, 3.0  # from how many runs on to report the checking; seconds between lines


@functools.cache
def one_by_one(total: int | None) -> "Lines":
    """The board of a process that trains one run after the other. total: the number of runs in the sweep,
    None for a single run."""
    console = Console(stderr=True, highlight=False)
    return Bar(console, total) if console.is_terminal else Lines(console, total)


@contextlib.contextmanager
def board(costs: Sequence[float], workers: int) -> "Iterator[Watcher]":
    """The watcher of many runs at once. costs: of the runs."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Lines(console, len(costs)).at
        return
    bars = Bars(console, costs, workers)
    with bars.live:
        yield bars.at


def checking(runs: Sequence[T]) -> Iterator[T]:
    """Yield the runs of a sweep while they are checked; if they are many, print progress now and then."""
    console, printed = Console(stderr=True, highlight=False), time.monotonic()
    for count, run in enumerate(runs):
        if len(runs) >= MANY and time.monotonic() - printed > SILENT_S:
            printed = time.monotonic()
            console.print(f"checked {count:,} of {len(runs):,} runs", soft_wrap=True)
        yield run


class Lines:
    """Prints a line for each run that ends and, of a single run, for each evaluation."""

    quiet = False  # whether runs that are done get no line

    def __init__(self, console: Console, total: int | None) -> None:
        self.console = console
        self.total = total
        self.count = 0  # of the runs that this command is done with
        self._last = ""

    def at(self, worker: int, run: "Item") -> Listener:
        """The listener for a run on a worker."""
        return functools.partial(self.hear, worker, run)

    def hear(self, worker: int, run: "Item", event: Event) -> None:
        match event:
            case Evaluated() if self.total is None:
                self.say(
                    f"step {event.step}: train_loss {event.train_loss:.4f}, val_loss {event.val_loss:.4f},"
                    f" {event.tokens_per_s:,.0f} tokens/s"
                )
            case Finished(row):
                self.ended(run.name, row)
            case Skipped():
                self.count += 1
                if not self.quiet:
                    self.say(f"{self.numbered(self.count, run.name)}: another process has made it")
            case Refused():  # the reasons are printed at the end
                self.count += 1
            case Noticed(line):
                self.say(line)

    def ended(self, name: str, row: Row) -> None:
        self.count += 1
        if not (self.quiet and row["status"] == Status.DONE):
            figures = f"val_loss {row['val_loss']:.4f}" if row["status"] == Status.DONE else row["error"]
            seconds = f", {row['wall_s']:.1f} s" if row.get("wall_s") else ""
            self.say(f"{self.numbered(self.count, name)}: {row['status']}, {figures}{seconds}")

    def numbered(self, count: int, name: str) -> str:
        return f"[{count}/{self.total}] {name}" if self.total else name

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def say_once(self, line: str) -> None:
        """Print a line unless it was the last one that this printed."""
        if line != self._last:
            self._last = line
            self.say(line)


class Bar(Lines):
    """A bar for the run that goes on, with loss, tokens per second and the time left."""

    def hear(self, worker: int, run: "Item", event: Event) -> None:
        match event:
            case Started():
                self.run, self.began, self.val_loss = event, time.monotonic(), ""
                self.bar = _bars(self.console, transient=True)
                label = self.numbered(self.count + 1, event.label)
                self.task = self.bar.add_task(label, total=event.steps, figures="")
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
                super().hear(worker, run, event)


class Bars(Lines):
    """One bar for all runs, with the time left, and one for each worker. Failures are printed above them."""

    quiet = True

    def __init__(self, console: Console, costs: Sequence[float], workers: int) -> None:
        super().__init__(console, len(costs))
        self.done = 0.0  # the cost of all runs that ended
        self.under_way: dict[int, float] = {}  # worker -> the cost of its run so far
        self.steps: dict[int, int] = {}  # worker -> the steps of its run
        self.whole = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            Clock(),
            console=console,
            speed_estimate_period=3600,
        )
        self.task = self.whole.add_task(f"0/{len(costs)} runs", total=sum(costs))
        self.each = _bars(console)
        self.tasks = [
            self.each.add_task("starting", total=None, figures="") for _ in range(min(workers, len(costs)))
        ]
        self.live = Live(Group(self.whole, self.each), console=console, transient=True, refresh_per_second=5)

    def hear(self, worker: int, run: "Item", event: Event) -> None:
        task, count = self.tasks[worker], self.count
        match event:
            case Started(steps=steps):
                self.steps[worker] = steps
                self.each.reset(task, description=run.name, total=steps, figures="")
            case Stepped(step, loss):
                self.under_way[worker] = run.cost * step / self.steps[worker]
                self.each.update(task, completed=step, figures=f"loss {loss:.3f}")
            case Taken():
                self.each.reset(task, description="waiting for another process", total=None, figures="")
            case _:
                super().hear(worker, run, event)
        if self.count > count:
            self.under_way.pop(worker, None)
            self.done += run.cost
        description = f"{self.count}/{self.total} runs"
        self.whole.update(
            self.task, completed=self.done + sum(self.under_way.values()), description=description
        )


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
