"""The runs of a store, or of a study, at one moment: a line of counts, and a table of the runs that go on.
Loads no torch."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress_bar import ProgressBar
from rich.table import Table

from ablate.config.identity import short_id
from ablate.phrases import duration, lines_if, visible
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.rows import without_id
from ablate.store.run_files import last_metrics
from ablate.store.store import Store


@dataclass(frozen=True)
class Look:
    """line: how many runs are in which state. title: the same with the time left. is_over: whether none goes
    on or is still to begin."""

    line: str
    title: str
    table: Table
    is_over: bool


def look(store: Store, study: str | None, only: Collection[str] | None = None) -> Look:
    """study: None for the whole store. only: the ids of the runs that count; all by default. Raises
    StoreError."""
    rows = store.rows() if study is None else store.study_rows(study)
    record = store.read_study(study) if study else None
    wanted = {*record.runs} if record else set()
    if only is not None:
        rows, wanted = [row for row in rows if row["run_id"] in only], wanted & {*only}
    to_begin = len(wanted - {row["run_id"] for row in rows})
    attempts = {short_id(name): at for name, at in store.attempts().items()}
    going_on = [_pace(row, attempts) for row in rows if row["status"] == Status.RUNNING]
    may_follow = record.looks.may_follow if record and record.looks and only is None else 0
    line = summary(rows, to_begin) + "".join(lines_if(may_follow, f", at most {may_follow:,} more"))
    title = f"{line}{time_left(rows, going_on, to_begin)}"
    names = {short_id(name): without_id(shown) for name, shown in store.titles(rows).items()}
    return Look(line, title, _table(going_on, names), not (to_begin or going_on or may_follow))


@dataclass(frozen=True)
class Pace:
    """A run that goes on. step: of its last evaluation; took_s: how long it had taken until then, its share
    where several are trained as one; losses: at that step."""

    row: Row
    step: int
    took_s: float
    losses: Mapping[str, Any]

    @property
    def done(self) -> float:
        """The share of its steps that it has made."""
        return min(self.step / self.row["steps"], 1.0) if self.row["steps"] else 0.0


def _pace(row: Row, attempts: Mapping[str, Path]) -> Pace:
    short = row["run_id"][:8]
    last = last_metrics(attempts[short]) if short in attempts else {}  # half a line may be written
    return Pace({**row, "steps": row.get("steps") or 0}, last.get("step", 0), last.get("seconds", 0.0), last)


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


def _table(going_on: Sequence[Pace], names: Mapping[str, str]) -> Table:
    """names: of the runs, by short id."""
    table = Table(box=None, pad_edge=False)
    for name in ("run", "", "step", "train_loss", "val_loss"):
        table.add_column(name, justify="left" if name in ("run", "") else "right", no_wrap=name != "run")
    for pace in going_on:
        short, steps = pace.row["run_id"][:8], pace.row["steps"]
        bar = ProgressBar(total=steps, completed=pace.step, width=12)
        numbers = [pace.losses.get(key) for key in ("train_loss", "val_loss")]
        losses = [f"{float(number):.4f}" if number else "" for number in numbers]
        table.add_row(visible(names.get(short, short)), bar, f"{pace.step}/{steps}", *losses)
    return table
