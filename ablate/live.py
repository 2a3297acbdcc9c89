"""What a person sees while runs go on: a line for what happens and, in a terminal, how far they are below
these lines. It is the same whether this command trains the runs or another does. No torch is loaded."""

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rich.live import Live

from ablate.config.rules import ConfigError
from ablate.phrases import duration, lines_if, one_line
from ablate.printing import console, say
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.run_folder import Busy
from ablate.store.store import REHEARSALS, Store
from ablate.training.events import Evaluation, Listener, News

EVERY_S = 1.0  # between two looks at the store
SHARE = 0.05  # of the time that looking takes, at most: a store of many thousand runs is looked at less often


@dataclass
class Place:
    """Where a command is in its study, whichever lines say it. phase: of a study that has several. of: how
    many runs it has in all, in words, if that is not fixed; in_all: of one with phases, as a number. before:
    its runs that were done before those that the lines count."""

    phase: str = ""
    of: str = ""
    in_all: int = 0
    before: int = 0


class Lines:
    """Prints a line for each run that ends and, of a single run, for each evaluation. total: the number of
    runs; None for a single one, 0 if it is not known."""

    quiet = False  # whether runs that are done get no line
    typed: Mapping[str, str] = MappingProxyType({})  # what tells a run from others, by its name

    def __init__(self, total: int | None = None) -> None:
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
                say(
                    f"step {news.step}: train_loss {news.train_loss:.4f}, val_loss"
                    f" {news.validation.loss:.4f}, {news.tokens_per_s:,.0f} tokens/s"
                )
            case dict():
                self.ended(name, news)
            case None:
                self.count += 1
                if not self.quiet:
                    say(f"{self.numbered(name)}: finished by another process")
            case Busy():  # it is tried again
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
            say(f"{self.numbered(name)}: {row['status']}, {figures}{seconds}")

    @property
    def whereabouts(self) -> str:
        """Where the study is, as `rates, round 1 (0.006 to 0.024) · 45 of about 129 runs`."""
        return f"{self.place.phase} · {self.place.before + self.count} of {self.place.of}"

    def numbered(self, name: str) -> str:
        name = self.typed.get(name, name)
        if self.place.of:
            return f"[{self.place.before + self.count} of {self.place.of}] {name}"
        return f"[{self.count}/{self.total}] {name}" if self.total else name

    def say_once(self, line: str) -> None:
        """Print a line unless it was the last one that this printed."""
        if line != self._last:
            self._last = line
            say(line)


class Board(Lines):
    """Lines on stderr and, in a terminal, how many runs of a study are done below them, with the time left,
    brought up to date every second; runs that are done have no line then. only: ids of the runs that count;
    all by default."""

    def __init__(self, study: str, total: int | None, only: Collection[str] | None = None) -> None:
        super().__init__(total)
        self.study, self.only = study, only
        self._seen, self._due = "", 0.0  # what was seen last; when to look again
        self.console = console()
        self.quiet = self.console.is_terminal or Store().root.parent.name == REHEARSALS
        self._live = contextlib.ExitStack()

    def __enter__(self) -> "Board":
        if self.console.is_terminal:
            frequency: dict[str, Any] = {"refresh_per_second": 1 / EVERY_S, "transient": True}
            self._live.enter_context(Live(console=self.console, get_renderable=self._progress, **frequency))
        return self

    def __exit__(self, *_: object) -> None:
        self._live.close()

    def _progress(self) -> str:
        began = time.monotonic()
        if began > self._due:
            try:
                self._seen = look(Store(), self.study, self.only, self.place.in_all).whole
            except (ConfigError, OSError) as error:  # the disk may be out of reach for a while
                self._seen = one_line(str(error))
            self._due = began + (time.monotonic() - began) / SHARE
        return "\n".join([*lines_if(self.place.phase, self.whereabouts), self._seen])


def watch(store: Store, study: str | None) -> None:
    """Say how many runs are done, running or failed, and the time left, until every run of the study is
    finished, or until Ctrl-C: in a terminal in place, elsewhere a line whenever a run begins or ends. Raises
    StoreError."""
    screen, last = console(stderr=False), ""
    live = Live(console=screen, auto_refresh=False) if screen.is_terminal else None
    with contextlib.suppress(KeyboardInterrupt), live or contextlib.nullcontext():
        while True:
            now = look(store, study)
            if live:
                live.update(now.whole, refresh=True)
            elif now.line != last:
                screen.print(now.whole, soft_wrap=True)
            last = now.line
            if study and now.is_over:
                return
            time.sleep(EVERY_S)


# --- the runs of a store, or of a study, at one moment -----------------------------------------------------


@dataclass(frozen=True)
class Look:
    """line: how many runs are in which state. whole: the same with the time left. is_over: whether none goes
    on or is still to begin."""

    line: str
    whole: str
    is_over: bool


def look(store: Store, study: str | None, only: Collection[str] | None = None, in_all: int = 0) -> Look:
    """study: None for the whole store. only: the ids of the runs that count; all by default. in_all: how many
    runs there will be, if more are to be listed. Raises StoreError."""
    rows = store.rows(study)
    record = store.read_study(study) if study else None
    wanted = {*record.runs} if record else set()
    if only is not None:
        rows = [row for row in rows if row["run_id"] in only]
        wanted &= {*only}
    to_begin = len(wanted - {row["run_id"] for row in rows})
    may_follow = record.looks.may_follow if record and record.looks and only is None else 0
    line = summary(rows, to_begin) + "".join(lines_if(may_follow, f", at most {may_follow:,} more"))
    is_over = not (to_begin or may_follow or any(row["status"] == Status.RUNNING for row in rows))
    return Look(line, f"{line}{time_left(rows, max(to_begin, in_all - len(rows)))}", is_over)


def summary(rows: list[Row], to_begin: int = 0) -> str:
    """The counts by status, as in `12 done, 2 running, 82 to begin`."""
    counts = Counter(row["status"] for row in rows)
    parts = [f"{count} {status}" for status, count in sorted(counts.items())]
    return ", ".join([*parts, *([f"{to_begin} to begin"] if to_begin else [])]) or "no runs yet"


def time_left(rows: list[Row], to_begin: int) -> str:
    """The time left, as in `; about 14 min left`, from the times of finished runs; those that go on count as
    half done."""
    took = [row["wall_s"] for row in rows if row["status"] in RESULTS and row.get("wall_s")]
    running = [row for row in rows if row["status"] == Status.RUNNING]
    if not (took and running):
        return ""
    at_once = sum(1 / (row.get("members") or 1) for row in running)
    seconds = (to_begin + len(running) / 2) * sum(took) / len(took) / at_once
    return f"; about {duration(seconds)} left"
