"""The runs of a store, or of a study, at one moment: a line of counts, and a table of the runs that go on and
of those that ended last. Loads no torch."""

import math
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.config.identity import short_id
from ablate.execution.events import Stepped
from ablate.phrases import counted, duration, lines_if, visible
from ablate.store import lease
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.jobs import Array, State, arrays_of
from ablate.store.rows import without_id
from ablate.store.run_files import last_metrics
from ablate.store.store import Store

LATEST = 5  # how many of the runs that ended last are shown
WIDEST = 40  # characters of a name, so that a row has room in 80 columns


@dataclass(frozen=True)
class Look:
    """line: how many runs are in which state. is_over: whether none goes on or is still to begin."""

    line: str
    table: Group
    is_over: bool


def look(
    store: Store,
    study: str | None,
    only: Collection[str] | None = None,
    steps: Mapping[str, Stepped] | None = None,
) -> Look:
    """study: None for the whole store. only: the ids of the runs that count; all by default. steps: the last
    steps that are known better than the store knows them, by name of the run. Raises StoreError."""
    rows = store.rows() if study is None else store.study_rows(study)
    record = store.read_study(study) if study else None
    wanted = {*record.runs} if record else set()
    if only is not None:
        rows, wanted = [row for row in rows if row["run_id"] in only], wanted & {*only}
    to_begin = len(wanted - {row["run_id"] for row in rows})
    changed, attempts = store.changed(), {short_id(name): at for name, at in store.attempts().items()}
    stepped = {short_id(name): step for name, step in (steps or {}).items()}
    running = [row for row in rows if row["status"] == Status.RUNNING]
    going_on = [_pace(row, attempts, changed, stepped) for row in running]
    hosts = {short: host for short, attempt in attempts.items() if (host := lease.host(attempt))}
    may_follow = record.looks.may_follow if record and record.looks and only is None else 0
    line = summary(rows, to_begin) + "".join(lines_if(may_follow, f", at most {may_follow:,} more"))
    title = f"{line}{time_left(rows, going_on, to_begin)}{together(going_on)}"
    jobs = job_lines(arrays_of(store.study_directory(study)).read()) if study else []
    names = {short_id(name): without_id(shown) for name, shown in store.titles(rows).items()}
    table = _table(rows, going_on, changed, "\n".join([title, *jobs]), hosts, names)
    return Look(line, table, not (to_begin or going_on or may_follow))


@dataclass(frozen=True)
class Pace:
    """A run that goes on. step: as reported or, if it is not, estimated from the last evaluation and the time
    since; step_s: seconds a step of all runs that are trained as one with it, None if unknown; losses: the
    last ones known."""

    row: Row
    step: int
    step_s: float | None
    losses: Mapping[str, Any]

    @property
    def members(self) -> int:
        """How many runs are trained as one with it, itself included."""
        return self.row.get("members") or 1

    @property
    def at_end(self) -> bool:
        """Whether its steps are made, and whole splits are being evaluated."""
        return self.step >= self.row["steps"]

    @property
    def left_s(self) -> float:
        return (self.row["steps"] - self.step) * (self.step_s or math.nan)


def _pace(
    row: Row, attempts: Mapping[str, Path], changed: Mapping[str, float], stepped: Mapping[str, Stepped]
) -> Pace:
    short = row["run_id"][:8]
    last = last_metrics(attempts[short]) if short in attempts else {}
    at, seconds = last.get("step", 0), last.get("seconds", 0.0)  # half a line may be written
    row = {**row, "steps": row.get("steps") or 0, "eval_every": row.get("eval_every") or 0}
    seconds *= row.get("members") or 1  # which are its share
    if short in stepped:
        step, last = stepped[short].step, {**last, "train_loss": stepped[short].loss}
    elif at and seconds > 0:
        since = time.time() - changed.get(short, time.time())
        # The next evaluation has not been written yet, so the run can't be past it.
        step = min(at + int(since * at / seconds), at + row["eval_every"], row["steps"])
    else:
        step = at
    return Pace(row, step, seconds / at if at and seconds > 0 else None, last)


def summary(rows: list[Row], to_begin: int = 0) -> str:
    """The counts by status, as in `12 done, 2 running, 82 to begin`."""
    counts = Counter(row["status"] for row in rows)
    parts = [f"{count} {status}" for status, count in sorted(counts.items())]
    return ", ".join([*parts, *([f"{to_begin} to begin"] if to_begin else [])]) or "no runs yet"


def time_left(rows: list[Row], going_on: list[Pace], to_begin: int) -> str:
    """The time left, as in `; about 14 min left`, from the times of finished runs or, without any, of those
    that go on."""
    known = [pace for pace in going_on if pace.step_s]
    if not known:
        return ""
    took = [row["wall_s"] for row in rows if row["status"] in RESULTS and row.get("wall_s")]
    took = took or [pace.row["steps"] * pace.step_s / pace.members for pace in known]
    to_come = to_begin + len(going_on) - len(known)
    if not to_come and all(pace.at_end for pace in known):
        return "; evaluating"
    work = sum(pace.left_s / pace.members for pace in known) + to_come * sum(took) / len(took)
    return f"; about {duration(work / sum(1 / pace.members for pace in going_on))} left"


def together(going_on: list[Pace]) -> str:
    """What runs that are trained as one do, as in `; 16 as one, 2,400 member-steps/s`; empty without any."""
    as_one = [pace for pace in going_on if pace.members > 1]
    rate = sum(1 / pace.step_s for pace in as_one if pace.step_s)
    return f"; {len(as_one)} as one{f', {rate:,.0f} member-steps/s' if rate else ''}" if as_one else ""


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


def _table(
    rows: list[Row],
    going_on: list[Pace],
    changed: Mapping[str, float],
    title: str,
    hosts: Mapping[str, str],
    names: Mapping[str, str],
) -> Group:
    """hosts: of the runs that go on; shown if there are several. names: of all runs, by short id."""
    table = Table(box=None, pad_edge=False)
    several = len({*hosts.values()}) > 1
    for name in ("run", "", *(["on"] if several else []), "step", "left", "train_loss", "val_loss"):
        words = name in ("run", "", "on")
        table.add_column(name, justify="left" if words else "right", no_wrap=name != "run")

    def add(row: Row, state: RenderableType, step: str, left: str, losses: Mapping[str, Any]) -> None:
        on = [hosts.get(row["run_id"][:8], "")] if several else []
        numbers = [losses.get(key) for key in ("train_loss", "val_loss")]
        texts = [f"{float(number):.4f}" if number else "" for number in numbers]
        short = row["run_id"][:8]
        table.add_row(called.get(short, short), state, *on, step, left, *texts)

    called = {short: _both_ends(visible(name)) for short, name in names.items()}
    if len({*called.values()}) < len({*names.values()}):
        called = {short: visible(name) for short, name in names.items()}
    for pace in going_on:
        steps, at_end = pace.row["steps"], pace.at_end
        bar = ProgressBar(total=steps, completed=pace.step, width=12)
        left = duration(pace.left_s) if pace.step_s and not at_end else ""
        add(pace.row, "evaluating" if at_end else bar, f"{pace.step}/{steps}", left, pace.losses)
    ended = [row for row in rows if row["status"] != Status.RUNNING]
    ended.sort(key=lambda row: changed.get(row["run_id"][:8], 0))
    for row in (row for row in ended[-LATEST:] if "steps" in row):  # a damaged run may have only its id
        add(row, row["status"], str(row["steps"]), "", row)
    shown: list[RenderableType] = [Text(title), table]
    if len(ended) > LATEST:
        shown.append(Text(f"and {counted(len(ended) - LATEST, 'run')} that ended before"))
    return Group(*shown)


def _both_ends(name: str) -> str:
    """The name without its middle if it is too wide: a method begins it, and its rate and seed end it."""
    return name if len(name) <= WIDEST else f"{name[:12]}…{name[13 - WIDEST :]}"
