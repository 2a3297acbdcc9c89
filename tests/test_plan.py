"""Seeds that a difference needs: hand-worked noise, the table of known sizes, refusals."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from scipy.stats import chi2

from ablate.analysis import power
from ablate.analysis.question import ask
from ablate.config.rules import ConfigError
from ablate.store.record import PlannedLooks, StudyRecord
from tests.helpers import make_record, with_contrasts
from tests.test_compare import CONCAT, SUM, hand_worked, table, variant


def seeds_needed(
    rows: pd.DataFrame, records: Sequence[StudyRecord] = (), **options: Any
) -> tuple[pd.DataFrame, list[str]]:
    difference = options.pop("difference", None)
    records = [with_contrasts(one, rows) for one in records]
    return power.seeds_needed(rows, ask(**options), records, difference=difference)


def pilot(**columns) -> pd.DataFrame:
    """Differences to concat: 0.3, 0.2, 0.3, 0.2 and 0.01, −0.01, 0.02, −0.02."""
    return table(*({**row, **columns} for row in hand_worked()))


SD = math.sqrt((0.01 / 3 + 0.001 / 3) / 2)  # variances 0.01/3 and 0.001/3, pooled


def planned(rows: pd.DataFrame, **options: Any) -> list[dict]:
    """The three rows: at the noise as measured, and at the ends of its interval."""
    return seeds_needed(rows, **options)[0].to_dict("records")


@pytest.mark.slow
def test_seeds_and_runs_by_hand():
    # d_z = 1 takes 10 seeds at α = 0.05 (the known table: 0.5/0.8/1/1.5/2/3 take 34/15/10/6/5/4).
    alone = pilot().query("fusion != 'mean'")
    sd = math.sqrt(0.01 / 3)
    measured = planned(alone, difference=sd)[0]
    assert measured["sd"] == pytest.approx(sd)
    assert (measured["seeds"], measured["runs"]) == (10, 20)
    own = planned(pilot(), difference=SD)[0]  # two comparisons share 5 %, with three variants
    assert own["sd"] == pytest.approx(SD) and own["runs"] == 3 * own["seeds"] and own["seeds"] > 10


def test_the_noise_has_an_interval_of_its_own():
    table, lines = seeds_needed(pilot(), difference=SD)
    low, high = (SD * math.sqrt(3 / chi2.ppf(p, 3)) for p in (0.95, 0.05))
    assert table["sd"].tolist() == pytest.approx([SD, low, high])
    measured, fewer, more = table["seeds"].tolist()
    assert fewer < measured < more
    assert "2 comparisons, up to 4 seeds" in lines[0] and "90%" in lines[1]
    assert "each of 2 comparisons at 0.05/2" in lines[2]


def test_the_noise_of_a_study_with_looks_is_that_of_its_first():
    """Which contrasts went on depends on their scatter: those that were decided early scatter less."""
    rows = pilot().query("fusion != 'mean'")
    more = [{"fusion": f, "seed": s, "val_loss": 5.0 * (s % 2)} for f in ("concat", "sum") for s in (4, 5)]
    record = make_record(metric="val_loss", margin=0.001, primary=[{"vary": "fusion", "baseline": "concat"}])
    record = replace(record, looks=PlannedLooks(at=[4, 6], seeds=[*range(6)]))
    rows = pd.concat([rows, table(*({**CONCAT, **row, "form": row["fusion"]} for row in more))])
    rows["run_id"] = [f"run{i}" for i in range(len(rows))]
    noise, lines = seeds_needed(rows, [record], difference=SD)
    assert noise["sd"].iloc[0] == pytest.approx(0.1 / math.sqrt(3)) and "up to 4 seeds" in lines[0]


def test_the_primary_contrasts_of_a_study_are_what_is_planned_for():
    entry = {"vary": "fusion", "baseline": "concat", "where": {"fusion": ["concat", "mean"]}}
    planned = make_record(primary=[entry], metric="test_loss", margin=0.01)
    rows = pilot(test_loss=0).assign(test_loss=lambda rows: 2 * rows["val_loss"])
    table, lines = seeds_needed(rows, difference=0.1, records=[planned])
    sd = 2 * math.sqrt(0.001 / 3)  # of mean − concat, in test_loss
    assert table["sd"].iloc[0] == pytest.approx(sd) and "1 planned comparison, up to 4 seeds" in lines[0]
    assert (table["runs"] == 2 * table["seeds"]).all() and "at 0.05/1" in lines[2]


def test_a_verdict_takes_six_seeds_however_large_the_difference():
    table, lines = seeds_needed(pilot(), difference=20 * SD)
    assert table["seeds"].tolist() == [6, 6, 6] and "fewer give no verdict" in "\n".join(lines)


@pytest.mark.parametrize(
    "rows, options, reason",
    [
        (pilot().query("seed == 0"), {}, "no noise to plan for"),
        (pilot().query("fusion == 'concat'"), {}, "no noise to plan for"),
        (
            table(*variant((2.0, 2.1, 2.2), **CONCAT), *variant((2.5, 2.6, 2.7), **SUM)),
            {},
            "val_loss: no difference of two variants scatters",
        ),
        (pilot(), {"difference": 1e-9}, "more than 100,000 seeds"),
        *((pilot(), {"difference": float(of)}, f"--difference {of}: give") for of in ("nan", "inf", "-1.0")),
        (pilot(), {"where": ["heads=5"]}, "no row meets it"),
    ],
)
def test_what_can_not_be_planned(rows: pd.DataFrame, options: Any, reason: str):
    with pytest.raises(ConfigError, match=reason):
        planned(rows, **{"difference": 0.1, **options})
