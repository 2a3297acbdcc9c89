"""What an entry's runs left: docs/results/NAME, with the rows, the record, and the verdict on them."""

import json
import math
import platform
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from ablate.analysis.load import load
from ablate.config.rules import ConfigError
from ablate.files.atomic import write_atomically
from ablate.ledger.entry import Filed
from ablate.ledger.judge import Judged, judge
from ablate.store.record import StudyRecord

RESULTS = Path("docs/results")
VERDICT = "verdict.json"


def keep(filed: Filed, study: Path, root: Path = RESULTS) -> Judged:
    """Copy results.csv and study.json of a finished study, and write the verdict beside them. Raises
    ConfigError if runs are missing."""
    judged = judge(filed.entry, *read(study))
    directory = root / filed.name
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("results.csv", "study.json"):
        shutil.copyfile(study / name, directory / name)
    write_atomically(directory / VERDICT, json.dumps(as_plain(filed, judged), indent=2) + "\n")
    return judged


def read(directory: Path) -> tuple[pd.DataFrame, StudyRecord]:
    """The rows and the record of a study. Raises ConfigError."""
    results = load([str(directory)])
    if not results.records:
        raise ConfigError(f"{directory}: no study.json; a claim is judged by the runs that it lists")
    return results.rows, results.records[0]


def judged_again(filed: Filed, root: Path = RESULTS) -> Judged | None:
    """The verdict that the kept rows give; None if there are none yet. Raises ConfigError if it is not the
    one kept beside them, or not on this entry."""
    directory = root / filed.name
    if not directory.exists():
        return None
    rows, record = read(directory)
    if record.claim != filed.entry.digest:
        raise ConfigError(
            f"{directory}: its runs were made for digest {record.claim[:12] or '(none)'}, not for this entry"
        )
    judged = judge(filed.entry, rows, record)
    try:
        kept = {**json.loads((directory / VERDICT).read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{directory / VERDICT}: not readable ({error}); ablate claims run writes it"
        ) from error
    now = as_plain(filed, judged)
    if differing := [key for key in now if key != "python" and not _same(now[key], kept.get(key))]:
        raise ConfigError(
            f"{directory / VERDICT}: {differing[0]} does not follow from results.csv; ablate claims run"
            f" {filed.number} writes it again"
        )
    return judged


def as_plain(filed: Filed, judged: Judged) -> dict[str, Any]:
    """The content of verdict.json; NaN becomes null."""
    plain = {"digest": filed.entry.digest, "python": platform.python_version(), **asdict(judged)}
    return _without_nan(plain)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _same(one: Any, other: Any) -> bool:
    """Equal, with numbers up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    return one == other
