"""The verdict on a claim: what the comparison of its study says of each prediction.

docs/results/NAME keeps results.csv and study.json of that study.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pandas as pd

from ablate.analysis.compare import ALPHA, Comparison, compare
from ablate.analysis.finding import Finding
from ablate.analysis.load import load
from ablate.analysis.stats import BETTER, EQUIVALENT, WITHIN, WORSE
from ablate.config.rules import ConfigError
from ablate.files.atomic import write_atomically
from ablate.ledger.entry import Entry, Prediction
from ablate.phrases import counted, lines_if
from ablate.store import documents
from ablate.store.columns import RESULTS as ENDED
from ablate.store.columns import Status
from ablate.store.record import StudyRecord

RESULTS = Path("docs/results")


class Verdict(StrEnum):
    """The verdict on a claim, always of this scale and these texts."""

    REPLICATED = "replicated at this scale"
    NOT = "not replicated at this scale"
    UNDECIDED = "undecided at this scale"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a prediction. diff, low, high: of its contrast in nats, with its simultaneous interval,
    NaN if there is none. n: paired seeds."""

    contrast: str
    diff: float
    low: float
    high: float
    n: int
    verdict: Verdict


@dataclass(frozen=True)
class Judged:
    """The verdict on an entry with what it rests on. diverged: the arms of which a run diverged."""

    verdict: Verdict
    predictions: list[Outcome]
    diverged: list[str]

    @property
    def n(self) -> int:
        """Paired seeds of the prediction with most of them."""
        return max(one.n for one in self.predictions)


def judge(entry: Entry, rows: pd.DataFrame, record: StudyRecord, alpha: float = ALPHA) -> Judged:
    """Judge the claim by the comparison of its study. alpha: of all its intervals together.

    A claimed effect holds if the comparison calls the variant better or worse, as expected, and the middle is
    at least the share of the published one that has to be seen; it fails if the comparison says the opposite,
    or that the difference is within the margin. A bound holds if the whole interval is on its side, and fails
    if the whole interval is beyond it. The claim is replicated if all predictions hold, and not if one fails;
    it is undecided if a reporting run diverged. Raises ConfigError.
    """
    _require_whole(entry, rows, record)
    comparison = compare(rows, records=[record], alpha=alpha)
    arms = {name: _arms(comparison.runs[name], record) for name in comparison.table["variant"]}
    lost = comparison.table[comparison.table["diverged"] > 0]["variant"]
    diverged = {arm for name in lost for arm in arms[name]}
    diverged |= {arm for arm, choice in record.chosen.items() if choice.value is None}
    found = _by_contrast(comparison, arms)
    outcomes = [_outcome(one, found.get(one.contrast), entry.margin) for one in entry.predictions]
    verdicts = {Verdict.UNDECIDED} if diverged else {one.verdict for one in outcomes}
    verdict = next(v for v in (Verdict.NOT, Verdict.UNDECIDED, Verdict.REPLICATED) if v in verdicts)
    return Judged(verdict, outcomes, sorted(diverged))


def keep(entry: Entry, study: Path) -> Judged:
    """Judge a finished study, and copy its tables and study.json. Raises ConfigError if runs are missing."""
    judged = judge(entry, *read_kept(study))
    for name in ("results.csv", "study.json", *lines_if((study / documents.FILE).is_file(), documents.FILE)):
        write_atomically(RESULTS / entry.name / name, (study / name).read_bytes())
    return judged


def read_kept(directory: Path) -> tuple[pd.DataFrame, StudyRecord]:
    """The rows and the record of a study. Raises ConfigError."""
    results = load([str(directory)])
    if not results.records:
        raise ConfigError(f"{directory}: no study.json; a claim is judged by the runs that it lists")
    return results.rows, results.records[0]


def judged(entry: Entry) -> Judged | None:
    """The verdict that the kept rows give; None if there are none yet. Raises ConfigError if they are not of
    this entry."""
    directory = RESULTS / entry.name
    try:
        return judge(entry, *read_kept(directory)) if directory.exists() else None
    except ConfigError as error:
        line = str(error)
        raise ConfigError(line if entry.name in line else f"{entry.name}: {line}") from error


def _require_whole(entry: Entry, rows: pd.DataFrame, record: StudyRecord) -> None:
    """Raises ConfigError unless these are results of all runs of the entry's study, none of them stale."""
    if record.claim != entry.digest:
        raise ConfigError(
            f"its runs were made for digest {record.claim[:12] or '(none)'}, not for this entry"
        )
    if record.looks is None or record.looks.seeds != entry.reporting_seeds:
        raise ConfigError("its reporting seeds are not those of the entry's batch")
    ended = {*rows["run_id"][rows["status"].isin(ENDED)]}
    if missing := len({*record.runs} - ended):
        raise ConfigError(
            f"{counted(missing, 'run')} without a result; ablate claims run {entry.number} goes on from there"
        )
    if (rows["status"] == Status.STALE).any():
        raise ConfigError(
            "its rows are of an older version of the numerics or of torch; ablate claims run with force=stale"
            " trains those anew"
        )


def _arms(run_id: str, record: StudyRecord) -> list[str]:
    """The arms that a run reports."""
    return record.roles[run_id].values.get("tuned", [])


def _by_contrast(comparison: Comparison, arms: Mapping[str, list[str]]) -> dict[str, Finding]:
    """What the primary contrasts found, by the names of their arms."""
    return {
        f"{one} - {base}": found
        for found in comparison.findings
        for one in arms[found.variant.name]
        for base in arms[found.baseline.name]
        if found.is_primary
    }


def _outcome(one: Prediction, found: Finding | None, margin: float) -> Outcome:
    if found is None:  # an arm diverged at every value
        return Outcome(one.contrast, math.nan, math.nan, math.nan, 0, Verdict.UNDECIDED)
    verdict = _on_effect(one, found) if one.is_of_effect else _on_bound(one, found, margin)
    return Outcome(one.contrast, found.diff, found.low, found.high, found.pairs or 0, verdict)


def _on_effect(one: Prediction, found: Finding) -> Verdict:
    expected, opposite = (BETTER, WORSE) if one.expect == "below" else (WORSE, BETTER)
    if found.verdict in (opposite, EQUIVALENT, *WITHIN):
        return Verdict.NOT
    is_seen = abs(found.diff) >= one.share * abs(one.published or 0)
    return Verdict.REPLICATED if found.verdict == expected and is_seen else Verdict.UNDECIDED


def _on_bound(one: Prediction, found: Finding, margin: float) -> Verdict:
    bound = one.bound or margin
    upper = bound if one.expect in ("within", "at_most") else math.inf
    lower = -bound if one.expect in ("within", "at_least") else -math.inf
    if found.low > upper or found.high < lower:
        return Verdict.NOT
    return Verdict.REPLICATED if lower < found.low and found.high < upper else Verdict.UNDECIDED
