"""What a person sees while runs go on: a line for what happens and, in a terminal, how far they are below
these lines. It is the same whether this command trains the runs or another does. Loads no torch.
"""

import contextlib
import functools
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from ablate.config.rules import ConfigError
from ablate.execution.events import (
    Evaluated,
    Event,
    Finished,
    Listener,
    Noticed,
    Refused,
    Skipped,
)
from ablate.live.table import look
from ablate.phrases import lines_if, one_line
from ablate.printing import console
from ablate.store.columns import Row, Status
from ablate.store.rows import swept, title
from ablate.store.store import Store

T = TypeVar("T")
EVERY_S = 1.0  # between two looks at the store
SHARE = 0.05  # of the time that looking takes, at most: a store of many thousand runs is looked at less often
MANY, SILENT_S = 1000, 3.0  # from how many runs on to report the checking; seconds between lines


def checking(runs: Sequence[T]) -> Iterator[T]:
    """Yield the runs of a sweep while they are checked; if they are many, print progress now and then."""
    screen, printed = console(), time.monotonic()
    for count, run in enumerate(runs):
        if len(runs) >= MANY and time.monotonic() - printed > SILENT_S:
            printed = time.monotonic()
            screen.print(f"checked {count:,} of {len(runs):,} runs", soft_wrap=True)
        yield run


@dataclass
class Place:
    """Where a command is in its study, whichever lines say it. phase: of a study that has several. of: how
    many runs it has in all, in words. before: its runs that were done before those that the lines count.
    may_follow: how many runs may be added to theirs, at most."""

    phase: str = ""
    of: str = ""
    before: int = 0
    may_follow: int = 0


class Lines:
    """Prints a line for each run that ends and, of a single run, for each evaluation. total: the number of
    runs; None for a single one."""

    quiet = False  # whether runs that are done get no line
    swept: Collection[str] = ()  # the keys that runs are named by beyond what every name has

    def __init__(self, console: Console, total: int | None) -> None:
        self.console = console
        self.total = total
        self.count = 0  # of the runs that this command is done with
        self.place = Place()
        self._last = ""

    def listener(self, name: str) -> Listener:
        """The listener for the run with this name."""
        return functools.partial(self.hear, name)

    def hear(self, name: str, event: Event) -> None:
        match event:
            case Evaluated() if self.total is None:
                self.say(
                    f"step {event.step}: train_loss {event.train_loss:.4f}, val_loss {event.val_loss:.4f},"
                    f" {event.tokens_per_s:,.0f} tokens/s"
                )
            case Finished(row):
                self.ended(name, row)
            case Skipped():
                self.count += 1
                if not self.quiet:
                    self.say(f"{self.numbered(name)}: finished by another process")
            case Refused():  # the reasons are printed at the end
                self.count += 1
            case Noticed(line):
                self.say(line)

    def ended(self, name: str, row: Row) -> None:
        self.count += 1
        if not (self.quiet and row["status"] == Status.DONE):
            figures = f"val_loss {row['val_loss']:.4f}" if row["status"] == Status.DONE else row["error"]
            seconds = f", {row['wall_s']:.1f} s" if row.get("wall_s") else ""
            self.say(f"{self.numbered(title(name, row, self.swept))}: {row['status']}, {figures}{seconds}")

    @property
    def whereabouts(self) -> str:
        """Where the study is, as `rates, round 1 (0.006 to 0.024) · 45 of about 129 runs`."""
        return f"{self.place.phase} · {self.place.before + self.count} of {self.place.of}"

    def numbered(self, name: str) -> str:
        if self.place.phase:
            return f"[{self.place.before + self.count} of {self.place.of}] {name}"
        may_follow = self.place.may_follow
        most = f", at most {self.total + may_follow}" if self.total and may_follow else ""
        return f"[{self.count}/{self.total}{most}] {name}" if self.total else name

    def say(self, line: str) -> None:
        self.console.print(one_line(line), soft_wrap=True)

    def say_once(self, line: str) -> None:
        """Print a line unless it was the last one that this printed."""
        if line != self._last:
            self._last = line
            self.say(line)


@functools.cache
def one_by_one(total: int | None) -> Lines:
    """The lines of a process that trains runs for a launcher of Hydra's."""
    return Lines(console(), total)


class Board(Lines):
    """Lines on stderr and, in a terminal, how many runs of a study are done below them, with the time left,
    brought up to date every second; runs that are done have no line then. only: ids of the runs that count;
    all by default."""

    def __init__(self, study: str, total: int | None, only: Collection[str] | None = None) -> None:
        super().__init__(console(), total)
        self.study, self.only = study, only
        record = Store().read_study(study)
        self.swept = swept(record) if record else ()
        self._seen, self._due = "", 0.0  # what was seen last; when to look again
        self.quiet = self.console.is_terminal
        self._live = contextlib.ExitStack()

    def __enter__(self) -> "Board":
        if self.quiet:
            frequency: dict[str, Any] = {"refresh_per_second": 1 / EVERY_S, "transient": True}
            self._live.enter_context(Live(console=self.console, get_renderable=self._progress, **frequency))
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()

    def _progress(self) -> RenderableType:
        began = time.monotonic()
        if began > self._due:
            try:
                self._seen = look(Store(), self.study, self.only).title
            except (ConfigError, OSError) as error:  # the disk may be out of reach for a while
                self._seen = str(error)
            self._due = began + (time.monotonic() - began) / SHARE
        return Text("\n".join([*lines_if(self.place.phase, self.whereabouts), self._seen]))


def watch(store: Store, study: str | None) -> None:
    """Show how many runs are done, running or failed, the progress of each running one and the time left,
    until every run of the study is finished, or until Ctrl-C.

    In a terminal the table is updated in place and stays at the end; elsewhere the summary line is printed
    whenever it changes. Raises StoreError.
    """
    lines = Lines(console(stderr=False), None)
    live = Live(console=lines.console, auto_refresh=False) if lines.console.is_terminal else None
    with contextlib.suppress(KeyboardInterrupt), live or contextlib.nullcontext():
        while True:
            now = look(store, study)
            if live:
                live.update(Group(Text(now.title), now.table), refresh=True)
            else:
                lines.say_once(now.line)
            if study and now.is_over:
                return
            time.sleep(EVERY_S)
