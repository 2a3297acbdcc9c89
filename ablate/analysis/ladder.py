"""A ladder as its results stand: differences at each rung, their change with size, and what was predicted."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ablate.analysis.rungs import Rungs, slopes
from ablate.analysis.stats import Array
from ablate.analysis.variants import USABLE
from ablate.store.record import Predicted, Rung, StudyRecord

SHAPE = ("layers", "d_model", "heads", "key_width", "value_width")


@dataclass(frozen=True)
class Estimate:
    """A value and the limits of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Arm:
    """An arm against the baseline. steps: its contrasts in the comparison, a row for each rung that has one,
    the lowest first, with its columns and `rung`, an index. slope: what a doubling of the parameters adds
    to the difference. predicted: of the top."""

    name: str
    steps: pd.DataFrame
    slope: Estimate | None
    predicted: Predicted | None


@dataclass(frozen=True)
class LadderResult:
    """The results of a ladder, which may be under way. record: of its study."""

    record: StudyRecord
    arms: list[Arm]

    @property
    def rungs(self) -> list[Rung]:
        return self.record.rungs

    @property
    def top(self) -> Rung:
        return self.rungs[-1]

    @property
    def baseline(self) -> str:
        return self.record.declared["baseline"]

    @property
    def is_predicted(self) -> bool:
        """Whether there is a prediction that is the one that was frozen; any other counts for nothing."""
        return self.record.prediction is not None and self.record.prediction.is_intact

    def has_top(self, arm: Arm) -> bool:
        """Whether this arm has a contrast at the top."""
        return bool((arm.steps["rung"] == len(self.rungs) - 1).any())


def ladder_result(
    rows: pd.DataFrame,
    table: pd.DataFrame,
    runs: Mapping[str, str],
    metric: str,
    records: Sequence[StudyRecord],
) -> LadderResult | None:
    """The ladder in the rows and the table of a comparison; None if they are not of one study that is one, if
    another metric is compared than it predicts, and if no arm is compared with its baseline. runs: a run of
    each variant."""
    if len(records) != 1 or not records[0].rungs or metric != records[0].metric:
        return None
    (record,) = records
    places = places_of(record)
    variants = {place: variant for variant, run in runs.items() for place in places.get(run, ())}
    baseline = str(record.declared["baseline"])
    names = [baseline, *(name for name in record.arms if name != baseline)]
    losses = _losses(rows, metric, record, places, names)
    prediction, arms = record.prediction, []
    for at, name in enumerate(names[1:], 1):
        steps = _steps(table, variants, record, name)
        predicted = prediction.of.get(name) if prediction and prediction.is_intact else None
        arms.append(Arm(name=name, steps=steps, slope=_slope(record, losses, at), predicted=predicted))
    is_compared = any(len(arm.steps) for arm in arms)
    return LadderResult(record, arms) if is_compared else None


def places_of(record: StudyRecord) -> dict[str, list[tuple[int, str]]]:
    """The rung, as an index, and the arm of each run that reports, by run_id."""
    places = record.places
    tuned = {run: role.values.get("tuned", []) for run, role in record.roles.items()}
    of_runs = {run: [places[name] for name in names if name in places] for run, names in tuned.items()}
    return {run: found for run, found in of_runs.items() if found}


def shapes(rows: pd.DataFrame, record: StudyRecord) -> pd.DataFrame:
    """The shape of each arm at each rung with results: arm, rung, SHAPE, and write_rank, the most directions
    into which its heads write together; 0 if its class does not say."""
    places = places_of(record)
    found = [
        {"arm": arm, "rung": rung, **{column: int(row[column]) for column in SHAPE}}
        | {"write_rank": _write_rank(str(row["function_class"]))}
        for row in rows.dropna(subset=[*SHAPE]).to_dict("records")
        for rung, arm in places.get(row["run_id"], ())
    ]
    columns = ["arm", "rung", *SHAPE, "write_rank"]
    return (
        pd.DataFrame(found, columns=columns).drop_duplicates().sort_values(["arm", "rung"], ignore_index=True)
    )


def _write_rank(function_class: str) -> int:
    found = re.search(r"\b(?:shared|slots=(\d+)) rank=(\d+)$", function_class)
    return int(found[1] or 1) * int(found[2]) if found else 0


# --- from the rows ----------------------------------------------------------------------------------


def _losses(
    rows: pd.DataFrame,
    metric: str,
    record: StudyRecord,
    places: Mapping[str, Sequence[tuple[int, str]]],
    names: Sequence[str],
) -> list[Array]:
    """(V, S) for each rung: the results of the arms at its seeds."""
    losses = [np.full((len(names), len(rung.seeds)), np.nan) for rung in record.rungs]
    for row in rows[rows["status"].isin(USABLE) & rows[metric].notna()].to_dict("records"):
        for rung, arm in places.get(row["run_id"], ()):
            if math.isfinite(row[metric]) and row["seed"] in record.rungs[rung].seeds:
                losses[rung][names.index(arm), record.rungs[rung].seeds.index(row["seed"])] = row[metric]
    return losses


def _steps(
    table: pd.DataFrame, variants: Mapping[tuple[int, str], str], record: StudyRecord, arm: str
) -> pd.DataFrame:
    baseline = str(record.declared["baseline"])
    primary = table[(table["family"] == "primary") & table["pairs"].gt(0)]
    found = [
        primary[
            (primary["variant"] == variants.get((at, arm)))
            & (primary["baseline"] == variants.get((at, baseline)))
        ].assign(rung=at)
        for at in range(len(record.rungs))
    ]
    return pd.concat(found, ignore_index=True)


def _slope(record: StudyRecord, losses: Sequence[Array], arm: int) -> Estimate | None:
    at = [r for r, loss in enumerate(losses) if np.isfinite(loss[arm] - loss[0]).sum() >= 2]
    if len(at) < 2:
        return None
    of = slopes(Rungs(_sizes(record)[at], [losses[r][[0, arm]] for r in at]), [(1, 0)])
    return Estimate(*(float(value[0]) * math.log(2) for value in (of.value, of.low, of.high)))


def _sizes(record: StudyRecord) -> Array:
    return np.array([float(rung.size) for rung in record.rungs])
