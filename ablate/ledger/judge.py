"""The verdict on a claim, from the rows of its runs.

docs/results/NAME keeps these rows, the record of their study, and the verdict on them.
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ablate.analysis import stats
from ablate.analysis.incomparable import CODE_COLUMNS
from ablate.analysis.load import load
from ablate.analysis.notes import FIRST_TEXT
from ablate.config.rules import ConfigError
from ablate.files.atomic import write_atomically
from ablate.ledger.entry import ALPHA, METRIC, Entry, Prediction, weights_of
from ablate.phrases import some
from ablate.store.columns import RESULTS as ENDED
from ablate.store.columns import Status
from ablate.store.record import StudyRecord

RESULTS = Path("docs/results")
VERDICT = "verdict.json"


class Verdict(StrEnum):
    """The verdict on a claim, always of this scale and these texts."""

    REPLICATED = "replicated at this scale"
    NOT = "not replicated at this scale"
    UNDECIDED = "undecided at this scale"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one prediction. diff, low, high: of its contrast in nats, with its simultaneous
    interval. n: paired seeds. share: diff by the reference. bound: what it was compared with, in nats; of a
    bound in shares, at the mean reference. verdict: on this prediction. share and such a bound are NaN
    unless the reference is above 0."""

    contrast: str
    expect: str
    diff: float
    low: float
    high: float
    n: int
    share: float
    bound: float
    verdict: Verdict


@dataclass(frozen=True)
class Judged:
    """The verdict on an entry with what it rests on. level: of each interval. reference: what attention is
    worth, in nats; NaN without a yardstick. diverged: the arms of which a run diverged."""

    verdict: Verdict
    predictions: list[Outcome]
    level: float
    reference: float
    diverged: list[str]


def judge(entry: Entry, rows: pd.DataFrame, record: StudyRecord, alpha: float = ALPHA) -> Judged:
    """Judge the claim by as many reporting seeds as the rows have. alpha: of all its intervals together.

    A prediction holds if its whole interval is where the claim expects it and, of a published effect, its
    middle is at least the share that has to be seen. It fails if the whole interval is on the other side, or,
    of a claimed effect, within the margin. The claim is replicated if all predictions hold, and not if one
    fails; it is undecided if a reporting run diverged. The intervals hold together over all predictions and
    looks (Bonferroni; each look spends its share). Raises ConfigError.
    """
    _require_one_program(rows)
    seeds = _reporting_seeds(entry, record)
    losses = _losses(entry, rows, record, seeds)
    diverged = [arm for arm, values in losses.items() if np.isnan(values).any()]
    level = 1 - alpha * entry.share(len(seeds)) / len(entry.predictions)
    reference_S = _contrast(entry.yardstick, losses) if entry.yardstick else np.full(len(seeds), np.nan)
    outcomes = [_outcome(entry, one, losses, reference_S, level) for one in entry.predictions]
    verdicts = {Verdict.UNDECIDED} if diverged else {one.verdict for one in outcomes}
    verdict = next(v for v in (Verdict.NOT, Verdict.UNDECIDED, Verdict.REPLICATED) if v in verdicts)
    return Judged(verdict, outcomes, level, float(np.mean(reference_S)), diverged)


def keep(entry: Entry, study: Path, root: Path = RESULTS) -> Judged:
    """Copy results.csv and study.json of a finished study, and write the verdict beside them. Raises
    ConfigError if runs are missing."""
    judged = judge(entry, *read_kept(study))
    directory = root / entry.name
    for name in ("results.csv", "study.json"):
        write_atomically(directory / name, (study / name).read_bytes())
    write_atomically(directory / VERDICT, json.dumps(as_plain(entry, judged), indent=2) + "\n")
    return judged


def read_kept(directory: Path) -> tuple[pd.DataFrame, StudyRecord]:
    """The rows and the record of a study. Raises ConfigError."""
    results = load([str(directory)])
    if not results.records:
        raise ConfigError(f"{directory}: no study.json; a claim is judged by the runs that it lists")
    return results.rows, results.records[0]


def judged_again(entry: Entry, root: Path = RESULTS) -> Judged | None:
    """The verdict that the kept rows give; None if there are none yet. Raises ConfigError if it is not the
    one kept beside them, or not on this entry."""
    directory = root / entry.name
    if not directory.exists():
        return None
    rows, record = read_kept(directory)
    if record.claim != entry.digest:
        raise ConfigError(
            f"{directory}: its runs were made for digest {record.claim[:12] or '(none)'}, not for this entry"
        )
    judged = judge(entry, rows, record)
    try:
        kept = _rounded({**json.loads((directory / VERDICT).read_text(encoding="utf-8"))})
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{directory / VERDICT}: not readable ({error}); ablate claims run writes it"
        ) from error
    now = _rounded(as_plain(entry, judged))
    if differing := [key for key in now if key != "python" and now[key] != kept.get(key)]:
        raise ConfigError(
            f"{directory / VERDICT}: {differing[0]} does not follow from results.csv; ablate claims run"
            f" {entry.number} writes it again"
        )
    return judged


def is_of_first_edition(entry: Entry, root: Path = RESULTS) -> bool:
    """Whether the kept rows of an entry are on the text of the first edition."""
    table = root / entry.name / "results.csv"
    return table.exists() and FIRST_TEXT.encode() in table.read_bytes()


def as_plain(entry: Entry, judged: Judged) -> dict[str, Any]:
    """The content of verdict.json; NaN becomes null."""
    plain = {"digest": entry.digest, "python": platform.python_version(), **asdict(judged)}
    return json.loads(json.dumps(plain), parse_constant=lambda _: None)


def _reporting_seeds(entry: Entry, record: StudyRecord) -> list[int]:
    """The reporting seeds of the record, in the entry's order. Raises ConfigError for any others."""
    reporting = {*record.seeds} - {*entry.develop}
    for look in entry.seeds:
        if {entry.seed(k) for k in range(look)} == reporting:
            return [entry.seed(k) for k in range(look)]
    raise ConfigError(
        f"its reporting seeds are not the first {some([*map(str, entry.seeds)])} of the entry's"
    )


def _require_one_program(rows: pd.DataFrame) -> None:
    """Raises ConfigError unless one version of the numerics made all rows, and one of a plugin its rows."""
    several = any(rows[column].nunique() > 1 for column in CODE_COLUMNS if column in rows)
    if "parts" in rows:
        several |= (rows.groupby(["fusion", "scores"])["parts"].nunique() > 1).any()
    if several or (rows["status"] == Status.STALE).any():
        raise ConfigError(
            "its rows are of several versions of the numerics or of torch, or of an older one;"
            " ablate claims run with force=stale trains those anew"
        )


def _losses(
    entry: Entry, rows: pd.DataFrame, record: StudyRecord, seeds: list[int]
) -> dict[str, stats.Array]:
    """(S,) the loss of each arm at its own value, by name; NaN for a run that diverged, all NaN for an arm
    that did at every value. Raises ConfigError if a run is missing or has no result."""
    losses = {}
    for name in entry.arms:
        choice = record.chosen.get(name)
        if choice is not None and choice.value is None:  # it diverged at every value
            losses[name] = np.full(len(seeds), np.nan)
            continue
        own = {run_id for run_id, role in record.roles.items() if name in role.values.get("tuned", ())}
        of_arm = rows[rows["run_id"].isin(own) & rows["status"].isin(ENDED)]
        of_arm = of_arm.drop_duplicates("seed").set_index("seed").reindex(seeds)
        if missing := int(of_arm["run_id"].isna().sum()):
            raise ConfigError(f"arm {name}: {missing} of its {len(seeds)} reporting runs have no result")
        loss_S = pd.to_numeric(of_arm[METRIC], errors="coerce").to_numpy(float)
        losses[name] = np.where(np.isfinite(loss_S), loss_S, np.nan)
    return losses


def _contrast(contrast: str, losses: Mapping[str, stats.Array]) -> stats.Array:
    return np.sum([weight * losses[arm] for arm, weight in weights_of(contrast).items()], axis=0)


def _outcome(
    entry: Entry,
    prediction: Prediction,
    losses: Mapping[str, stats.Array],
    reference_S: stats.Array,
    level: float,
) -> Outcome:
    difference_S = _contrast(prediction.contrast, losses)
    reference_S = np.where(np.mean(reference_S) > 0, reference_S, np.nan)
    bound_S = np.full_like(difference_S, prediction.bound or entry.margin)
    if prediction.of_attention is not None:
        bound_S = prediction.of_attention * reference_S  # it scatters over seeds too
    diff, low, high = _interval(difference_S, level)
    return Outcome(
        contrast=prediction.contrast,
        expect=prediction.expect,
        diff=diff,
        low=low,
        high=high,
        n=int((~np.isnan(difference_S)).sum()),
        share=diff / float(np.mean(reference_S)),
        bound=float(np.mean(bound_S)),
        verdict=_verdict(prediction, entry.margin, difference_S, bound_S, level),
    )


def _verdict(
    prediction: Prediction, margin: float, difference_S: stats.Array, bound_S: stats.Array, level: float
) -> Verdict:
    at_most, at_least = difference_S - bound_S, -difference_S - bound_S
    has_to_be_below_0 = {
        **{"below": [difference_S], "above": [-difference_S]},
        **{"at_most": [at_most], "at_least": [at_least], "within": [at_most, at_least]},
    }[prediction.expect]
    middles, lows, highs = np.transpose([_interval(values_S, level) for values_S in has_to_be_below_0])
    if np.isnan(lows).any():
        return Verdict.UNDECIDED
    claims_effect = prediction.expect in ("below", "above")
    is_small = claims_effect and lows[0] > -margin and highs[0] < margin
    if is_small or (lows > 0).any():
        return Verdict.NOT
    is_seen = not claims_effect or -middles[0] >= prediction.share * abs(prediction.published or 0)
    return Verdict.REPLICATED if is_seen and (highs < 0).all() else Verdict.UNDECIDED


def _interval(values_S: stats.Array, level: float) -> tuple[float, float, float]:
    """The mean with its t-interval; NaN as bounds where nothing scatters."""
    one = stats.paired(values_S[None], np.zeros_like(values_S)[None], margin=np.inf, alpha=1 - level)
    return float(one["diff"][0]), float(one["low"][0]), float(one["high"][0])


def _rounded(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a verdict.json, with numbers up to the sixth decimal."""
    return json.loads(json.dumps(content), parse_float=lambda digits: round(float(digits), 6))
