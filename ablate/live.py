"""What a person sees while runs go on: a line for what happens and, in a terminal, how far they are below
these lines, or in a table. It is the same whether this command trains the runs or another does. No torch is
loaded."""

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.config.rules import ConfigError
from ablate.phrases import duration, lines_if, one_line, visible
from ablate.printing import console
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.rows import without_id
from ablate.store.run_files import read_metrics
from ablate.store.run_folder import Busy, OfAnotherKind
from ablate.store.store import REHEARSALS, Store
from ablate.training.events import Evaluation, Listener, News

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
    many runs it has in all, in words; in_all: as a number. before: its runs that were done before those that
    the lines count. may_follow: how many runs may be added to theirs, at most."""

    phase: str = ""
    of: str = ""
    in_all: int = 0
    before: int = 0
    may_follow: int = 0


class Lines:
    """Prints a line for each run that ends and, of a single run, for each evaluation. total: the number of
    runs; None for a single one."""

    quiet = False  # whether runs that are done get no line
    typed: Mapping[str, str] = MappingProxyType({})  # what tells a run from others, by its name

    def __init__(self, console: Console, total: int | None) -> None:
        self.console = console
        self.total = total
        self.count = 0  # of the runs that this command is done with
        self.place = Place()
        self._last = ""

    def listener(self, name: str) -> Listener:
        """The listener for the run with this name."""
        return functools.partial(self.hear, name)

    def hear(self, name: str, news: News) -> None:
        match news:
            case Evaluation(train_loss=float()) if self.total is None:
                self.say(
                    f"step {news.step}: train_loss {news.train_loss:.4f}, val_loss"
                    f" {news.validation.loss:.4f}, {news.tokens_per_s:,.0f} tokens/s"
                )
            case dict():
                self.ended(name, news)
            case None:
                self.count += 1
                if not self.quiet:
                    self.say(f"{self.numbered(name)}: finished by another process")
            case Busy() | OfAnotherKind():  # it is tried again
                pass
            case ConfigError():  # the reasons are printed at the end
                self.count += 1
            case str():
                self.say_once(news)

    def ended(self, name: str, row: Row) -> None:
        self.count += 1
        if not (self.quiet and row["status"] == Status.DONE):
            figures = f"val_loss {row['val_loss']:.4f}" if row["status"] == Status.DONE else row["error"]
            seconds = f", {row['wall_s']:.1f} s" if row.get("wall_s") else ""
            self.say(f"{self.numbered(name)}: {row['status']}, {figures}{seconds}")

    @property
    def whereabouts(self) -> str:
        """Where the study is, as `rates, round 1 (0.006 to 0.024) · 45 of about 129 runs`."""
        return f"{self.place.phase} · {self.place.before + self.count} of {self.place.of}"

    def numbered(self, name: str) -> str:
        name = self.typed.get(name, name)
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
        self._seen, self._due = "", 0.0  # what was seen last; when to look again
        self.quiet = self.console.is_terminal or Store().root.parent.name == REHEARSALS
        self._live = contextlib.ExitStack()

    def __enter__(self) -> "Board":
        if self.console.is_terminal:
            frequency: dict[str, Any] = {"refresh_per_second": 1 / EVERY_S, "transient": True}
            self._live.enter_context(Live(console=self.console, get_renderable=self._progress, **frequency))
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()

    def _progress(self) -> RenderableType:
        began = time.monotonic()
        if began > self._due:
            try:
                self._seen = look(Store(), self.study, self.only, self.place.in_all).title
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


# --- the runs of a store, or of a study, at one moment -----------------------------------------------------


@dataclass(frozen=True)
class Look:
    """line: how many runs are in which state. title: the same with the time left. is_over: whether none goes
    on or is still to begin."""

    line: str
    title: str
    table: Table
    is_over: bool


def look(store: Store, study: str | None, only: Collection[str] | None = None, in_all: int = 0) -> Look:
    """study: None for the whole store. only: the ids of the runs that count; all by default. in_all: how many
    runs there will be, if more are to be listed. Raises StoreError."""
    named = store.by_name(study)
    record = store.read_study(study) if study else None
    wanted = {*record.runs} if record else set()
    if only is not None:
        named = {name: row for name, row in named.items() if row["run_id"] in only}
        wanted &= {*only}
    rows = [*named.values()]
    to_begin = len(wanted - {row["run_id"] for row in rows})
    attempts = store.attempts()
    going_on = [
        _pace(without_id(name), row, attempts.get(name))
        for name, row in named.items()
        if row["status"] == Status.RUNNING
    ]
    may_follow = record.looks.may_follow if record and record.looks and only is None else 0
    line = summary(rows, to_begin) + "".join(lines_if(may_follow, f", at most {may_follow:,} more"))
    title = f"{line}{time_left(rows, going_on, max(to_begin, in_all - len(rows)))}"
    return Look(line, title, _table(going_on), not (to_begin or going_on or may_follow))


@dataclass(frozen=True)
class Pace:
    """A run that goes on. step: of its last evaluation; took_s: how long it had
    taken until then, its share where several are trained as one; losses: at that step."""

    name: str
    row: Row
    step: int
    took_s: float
    losses: Mapping[str, Any]

    @property
    def done(self) -> float:
        """The share of its steps that it has made."""
        return min(self.step / self.row["steps"], 1.0) if self.row["steps"] else 0.0


def _pace(name: str, row: Row, attempt: Path | None) -> Pace:
    *_, last = [Row(), *(read_metrics(attempt) if attempt else ())]  # half a line may be written
    return Pace(
        name, {**row, "steps": row.get("steps") or 0}, last.get("step", 0), last.get("seconds", 0.0), last
    )


def summary(rows: list[Row], to_begin: int = 0) -> str:
    """The counts by status, as in `12 done, 2 running, 82 to begin`."""
    counts = Counter(row["status"] for row in rows)
    parts = [f"{count} {status}" for status, count in sorted(counts.items())]
    return ", ".join([*parts, *([f"{to_begin} to begin"] if to_begin else [])]) or "no runs yet"


def time_left(rows: list[Row], going_on: list[Pace], to_begin: int) -> str:
    """The time left, as in `; about 14 min left`, from the times of finished runs or, without any, of those
    that go on."""
    took = [row["wall_s"] for row in rows if row["status"] in RESULTS and row.get("wall_s")]
    took = took or [pace.took_s / pace.done for pace in going_on if pace.done and pace.took_s]
    if not (took and going_on):
        return ""
    left = to_begin + sum(1 - pace.done for pace in going_on)
    at_once = sum(1 / (pace.row.get("members") or 1) for pace in going_on)
    return f"; about {duration(left * sum(took) / len(took) / at_once)} left" if left else "; evaluating"


def _table(going_on: Sequence[Pace]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("run", "", "step", "train_loss", "val_loss"):
        table.add_column(name, justify="left" if name in ("run", "") else "right", no_wrap=name != "run")
    for pace in going_on:
        steps = pace.row["steps"]
        bar = ProgressBar(total=steps, completed=pace.step, width=12)
        numbers = [pace.losses.get(key) for key in ("train_loss", "val_loss")]
        losses = [f"{float(number):.4f}" if number else "" for number in numbers]
        table.add_row(visible(pace.name), bar, f"{pace.step}/{steps}", *losses)
    return table
