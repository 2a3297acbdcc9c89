"""What a person sees of the runs in a store, whoever trains them: with `ablate runs --watch`, and while the
helpers of a cluster train them for this command. Loads no torch.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.live.board import Lines
from ablate.phrases import counted, duration, lines_if
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.jobs import Array, State, read_arrays
from ablate.store.store import Store

EVERY_S = 1.0
LATEST = 5  # how many of the runs that ended last are shown


class StudyBoard(Lines):
    """The jobs and the runs of a study: in a terminal a table that is kept up to date, with lines above it
    for runs that failed; elsewhere a line for each run that ends, and for each change of the jobs."""

    def __init__(self, study: str, total: int) -> None:
        super().__init__(Console(stderr=True, highlight=False), total)
        self.study = study
        self.live = _live(self.console, transient=True)
        self.quiet = self.live is not None

    def __enter__(self) -> "StudyBoard":
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, arrays: Sequence[Array], trouble: str) -> None:
        """Called every second. trouble: why the engine does not answer; empty if it does."""
        if self.live:
            self.live.update(Group(look(Store(), self.study).table, Text(trouble)), refresh=True)
        else:
            self.say_once("; ".join([*job_lines(arrays), *lines_if(trouble, trouble)]))


def watch(store: Store, target: str | None) -> None:
    """Show how many runs are done, running or failed, the progress of each running one and the time left,
    until every run of the study is finished, or until Ctrl-C.

    In a terminal the table is updated in place and stays at the end; elsewhere the summary line is printed
    whenever it changes. Raises StoreError.
    """
    lines = Lines(Console(highlight=False), None)
    live = _live(lines.console)
    with contextlib.suppress(KeyboardInterrupt), live or contextlib.nullcontext():
        while True:
            now = look(store, target)
            if live:
                live.update(now.table, refresh=True)
            else:
                lines.say_once(now.line)
            if target and now.is_over:
                return
            time.sleep(EVERY_S)


def _live(console: Console, *, transient: bool = False) -> Live | None:
    return Live(console=console, auto_refresh=False, transient=transient) if console.is_terminal else None


@dataclass(frozen=True)
class Look:
    """The runs of a store, or of a study, at one moment. line: how many are in which state."""

    line: str
    table: Group
    is_over: bool


def look(store: Store, target: str | None) -> Look:
    """Raises StoreError."""
    rows = store.rows() if target is None else store.study_rows(target)
    record = store.read_study(target) if target else None
    to_begin = len({*record.runs} - {row["run_id"] for row in rows}) if record else 0
    changed = store.changed()
    under_way = [_pace(store, row, changed) for row in rows if row["status"] == Status.RUNNING]
    line = summary(rows, to_begin)
    title = f"{line}{time_left(rows, under_way, to_begin)}"
    jobs = job_lines(read_arrays(store.study_directory(target))) if target else []
    table = _board(rows, under_way, changed, "\n".join([title, *jobs]), store.hosts())
    return Look(line, table, not (to_begin or under_way))


@dataclass(frozen=True)
class Pace:
    """A run under way. step: the estimated current step, from its last evaluation and the time since; left_s:
    the estimated seconds left, None if unknown; losses: its last row of metrics.csv."""

    row: Row
    step: int
    left_s: float | None
    losses: Mapping[str, str]


def _pace(store: Store, row: Row, changed: Mapping[str, float]) -> Pace:
    last = store.last_metrics(row["run_id"]) or {}
    at, seconds = int(last.get("step", 0)), float(last.get("seconds", 0))
    if not at or not seconds:
        return Pace(row, at, None, last)
    since = time.time() - changed.get(row["run_id"][:8], time.time())
    # The next evaluation has not been written yet, so the run can't be past it.
    step = min(at + int(since * at / seconds), at + row["eval_every"], row["steps"])
    return Pace(row, step, (row["steps"] - step) * seconds / at, last)


def summary(rows: list[Row], to_begin: int = 0) -> str:
    """The counts by status, as in `12 done, 2 running, 82 to begin`."""
    counts = Counter(row["status"] for row in rows)
    parts = [f"{count} {status}" for status, count in sorted(counts.items())]
    return ", ".join([*parts, *([f"{to_begin} to begin"] if to_begin else [])]) or "no runs yet"


def time_left(rows: list[Row], under_way: list[Pace], to_begin: int) -> str:
    """The time left, estimated from the time of finished runs, as in `; about 14 min left`."""
    took = [row["wall_s"] for row in rows if row["status"] in RESULTS and row.get("wall_s")]
    known = [pace.left_s for pace in under_way if pace.left_s is not None]
    if not under_way or (to_begin and not took) or not known:
        return ""
    mean = sum(took) / len(took) if took else max(known)
    left = (sum(known) + mean * (to_begin + len(under_way) - len(known))) / len(under_way)
    return f"; about {duration(left)} left"


def job_lines(arrays: Sequence[Array]) -> list[str]:
    """A line for each array with helpers that are queued or running, as in
    `job 12: 2 running (n1, n2), 1 queued (Resources)`."""
    return [f"job {array.job or array.name}: {_helpers(array)}" for array in arrays if not array.has_ended]


def _helpers(array: Array) -> str:
    parts = []
    for state in (State.RUNNING, State.QUEUED, State.ENDED):
        alike = [helper for helper in array.seen if helper.state == state]
        about = dict.fromkeys(helper.node if state == State.RUNNING else helper.reason for helper in alike)
        why = ", ".join(filter(None, about))
        if alike:
            parts.append(f"{len(alike)} {state}{f' ({why})' if why else ''}")
    return ", ".join(parts)


def _board(
    rows: list[Row],
    under_way: list[Pace],
    changed: Mapping[str, float],
    title: str,
    hosts: Mapping[str, str],
) -> Group:
    """hosts: of the runs under way; shown if there are several."""
    table = Table(box=None, pad_edge=False)
    several = len({*hosts.values()}) > 1
    for name in ("run", "", *(["on"] if several else []), "step", "left", "train_loss", "val_loss"):
        words = name in ("run", "", "on")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "run")

    def add(row: Row, state: RenderableType, step: str, left: str, losses: Mapping[str, Any]) -> None:
        name = f"{row['fusion']} heads={row['heads']} out_proj={str(row['out_proj']).lower()}"
        on = [hosts.get(row["run_id"][:8], "")] if several else []
        numbers = [losses.get(key) for key in ("train_loss", "val_loss")]
        texts = ["" if number is None else f"{float(number):.4f}" for number in numbers]
        table.add_row(f"{name} seed={row['seed']}", state, *on, step, left, *texts)

    for pace in under_way:
        steps, left = pace.row["steps"], "" if pace.left_s is None else duration(pace.left_s)
        bar = ProgressBar(total=steps, completed=pace.step, width=12)
        add(pace.row, bar, f"{pace.step}/{steps}", left, pace.losses)
    ended = [row for row in rows if row["status"] != Status.RUNNING]
    ended.sort(key=lambda row: changed.get(row["run_id"][:8], 0))
    for row in ended[-LATEST:]:
        add(row, row["status"], str(row["steps"]), "", row)
    shown: list[RenderableType] = [Text(title), table]
    if len(ended) > LATEST:
        shown.append(Text(f"and {counted(len(ended) - LATEST, 'run')} that ended before"))
    return Group(*shown)
