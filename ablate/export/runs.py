"""The runs of a study or one run, as exporters are given them: read from the store, never changed there.

Loads no torch.
"""

import csv
import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ablate.analysis.load import find_source
from ablate.config.identity import digest
from ablate.config.overrides import as_value, flatten
from ablate.config.rules import ConfigError
from ablate.export.exporter import ExportedRun, Plain, Point
from ablate.files.atomic import file_digest
from ablate.phrases import some
from ablate.store.columns import METRICS, WIDTHS, Status
from ablate.store.record import ONE_BY_ONE
from ablate.store.run_files import read_config, read_finished, sealed_metrics, unreadable
from ablate.store.store import Store, StoreError

EXPORTED = (Status.DONE, Status.DIVERGED)
FACTS = (
    "run_id",
    "status",
    "error",
    "corpus",
    "torch",
    "ablate",
    "code",
    "parts",
    "git",
    "device",
    "processor",
)
NUMBERS = (*METRICS, *WIDTHS)  # the widths are numbers here, where the config may say `auto`


@dataclass(frozen=True)
class Selection:
    """What a target names. store: that has the runs. study: their study. directories: of its runs that ended
    done or diverged. left_out: how many did not, by status. only: the one run that the target names; None if
    it names the study."""

    store: Store
    study: str
    directories: list[Path]
    left_out: Mapping[str, int]
    only: Path | None = None

    @cached_property
    def runs(self) -> list[ExportedRun]:
        """Every run of the study that can be exported. Raises ConfigError if a file of one is damaged."""
        titles = self.store.titles()
        return [_run(path, self.study, titles.get(path.name, path.name)) for path in self.directories]

    @property
    def chosen(self) -> list[ExportedRun]:
        """The runs that the target names."""
        if self.only is None:
            return self.runs
        return [run for run, path in zip(self.runs, self.directories, strict=True) if path == self.only]


def select(target: str) -> Selection:
    """The runs that a target names: a study by name or directory, or a run by a prefix of its id or name, or
    by its directory. Raises ConfigError if none of them can be exported."""
    source = find_source(target, runs=True)
    store = source.store
    if store is None:
        raise ConfigError(f"{target}: a copy of a study without its runs; export it where they were made")
    if source.run:
        return _of_run(source.run, store)
    selection = _of_study(store, source.study)
    if not selection.directories:
        what = some([f"{count} {status}" for status, count in selection.left_out.items()])
        raise ConfigError(f"{target}: no run of it is done or diverged ({what or 'none has begun'})")
    return selection


def _of_study(store: Store, study: str) -> Selection:
    rows = store.study_rows(study)
    directories = store.directories(row["run_id"] for row in rows)
    ended = {run_id: _status(path) for run_id, path in directories.items()}
    chosen = [directories[run_id] for run_id, status in ended.items() if status in EXPORTED]
    counts = Counter(({row["run_id"]: row["status"] for row in rows} | ended).values())
    left_out = {status: count for status, count in counts.items() if status not in EXPORTED}
    return Selection(store, study, chosen, left_out)


def _of_run(path: Path, store: Store) -> Selection:
    """The study that a run belongs to, the first of several, with this run alone chosen."""
    row = read_finished(path, thorough=True)
    if row["status"] not in EXPORTED:
        raise ConfigError(f"{path.name}: {row['status']} ({row.get('error')}); take a run that is done")
    studies = [name for name, record in store.studies().items() if row["run_id"] in record.runs]
    if not studies:
        return Selection(store, ONE_BY_ONE, [path], {}, path)
    return dataclasses.replace(_of_study(store, studies[0]), left_out={}, only=path)


def _status(directory: Path) -> str:
    """The status that a run ended with. `stale` is none: what was measured stays measured."""
    try:
        return read_finished(directory, thorough=True)["status"]
    except StoreError:
        return "damaged"


def report_of(selection: Selection) -> ExportedRun:
    """The study's report, without its file: to draw it takes seconds."""
    rows = selection.store.study_rows(selection.study)
    record = selection.store.read_study(selection.study)
    return ExportedRun(
        id="report",
        name="report",
        study=selection.study,
        config={},
        metrics={},
        facts={},
        started=min(run.started for run in selection.runs),
        ended=max(run.ended for run in selection.runs),
        digest=digest([rows, repr(record)]),
    )


def _run(directory: Path, study: str, name: str) -> ExportedRun:
    row, config = read_finished(directory, thorough=True), flatten(read_config(directory))
    try:
        metrics_csv = file_digest(directory / "metrics.csv")
        ended = (directory / "result.json").stat().st_mtime
        points = [(point.pop("step"), point) for point in sealed_metrics(directory)]
    except (OSError, ValueError, TypeError, csv.Error) as error:
        raise unreadable(directory, error) from error
    took = max([row.get("wall_s") or 0.0, *(values.get("seconds", 0.0) for _, values in points)])
    started = ended - took
    curves = [Point(step, started + values.get("seconds", 0.0), values) for step, values in points]
    plain = {key: _plain(value) for key, value in config.items()}
    metrics = {key: row[key] for key in NUMBERS if isinstance(row.get(key), int | float)}
    facts = {key: str(row[key]) for key in FACTS if row.get(key) not in (None, "")}
    return ExportedRun(
        id=row["run_id"],
        name=name,
        study=study,
        status=row["status"],
        config=plain,
        curves=curves,
        metrics=metrics,
        facts=facts,
        started=started,
        ended=ended,
        digest=digest([name, study, plain, metrics_csv, metrics, facts]),
    )


def _plain(value: Any) -> Plain:
    """A value of a config; lists and mappings as they are typed."""
    return value if value is None or isinstance(value, str | int | float) else as_value(value)
