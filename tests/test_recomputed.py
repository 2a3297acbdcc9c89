"""Every number of a comparison, made a second time by pandas and scipy alone."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

import ablate
from ablate.store.record import PlannedContrast, PlannedLooks, Role, Side, StudyRecord
from tests.helpers import compared, make_record
from tests.test_compare import of_cells

reference: Any = scipy_stats  # its results have no types
Weights = Mapping[str, float]  # of a contrast, by arm
FEWEST, ALPHA = 6, 0.05


def recomputed(
    values: pd.DataFrame,
    lost: pd.DataFrame,
    contrasts: Sequence[Weights],
    k: int,
    margin: float,
    looks: list[int],
) -> list[dict[str, Any]]:
    """Each contrast's numbers. values, lost (diverged): a row a seed, a column an arm; less is better."""
    ends = looks or [len(values)]
    decided, spread, stands = {}, {}, {}
    for before, n in pairwise([0, *ends]):
        going_on = [at for at in range(len(contrasts)) if at not in decided]
        differences = {}
        for at in going_on:
            weights = pd.Series(contrasts[at])
            d = (values[weights.index][:n] * weights).sum(axis=1, skipna=False).dropna()
            differences[at], spread[at] = d, d.std()
            stands[at] = n
        for at, d in differences.items():
            level = 1 - ALPHA * (n - before) / ends[-1] / k
            sd = d.std() if n == ends[-1] else max(d.std(), np.median([*spread.values()]))
            half = reference.t.ppf((1 + level) / 2, len(d) - 1) * sd / len(d) ** 0.5
            p = 2 * reference.t.sf(abs(d.mean()) / sd * len(d) ** 0.5, len(d) - 1)
            of = numbers(d.mean(), half, sd, level, p, margin)
            more = sum(np.sign(w) * lost[arm][:n].sum() for arm, w in contrasts[at].items())
            of["verdict"] = "undecided" if withheld(of["verdict"], more) else of["verdict"]
            if of["verdict"] != "undecided" or n == ends[-1]:
                decided[at] = of | {"pairs": len(d)}
    for at, of in decided.items():
        variant, _ = two_sides(contrasts[at])
        last = stands[at] if len(variant) > 1 else len(values)
        whole = values[:last].dropna(subset=[*contrasts[at]] if len(variant) > 1 else [*variant])
        own = (whole[[*variant]] * pd.Series(variant)).sum(axis=1)
        gone = lost[next(iter(variant))].sum() if len(variant) == 1 else 0
        of |= {"n": len(own), "mean": own.mean(), "sd": own.std(), "diverged": gone}
        of["verdict"] = of["verdict"] if of["pairs"] >= FEWEST else "undecided"
    return [decided[at] for at in range(len(contrasts))]


def two_sides(weights: Weights) -> tuple[Weights, Weights]:
    """Of a contrast of contrasts the two differences, else the first arm of either sign."""
    first, second = [*weights.items()][:2], [*weights.items()][2:]
    if [weight for _, weight in first] == [-weight for _, weight in second]:
        return dict(first), {arm: -weight for arm, weight in second}
    variant, base = (next(arm for arm, w in weights.items() if w * sign > 0) for sign in (1, -1))
    return {variant: 1.0}, {base: 1.0}


def numbers(diff: float, half: float, sd: float, level: float, p: float, margin: float) -> dict[str, Any]:
    low, high = diff - half, diff + half
    inside, verdict = (
        -margin < low and high < margin,
        "worse" if low > 0 else "better" if high < 0 else "undecided",
    )
    of = {"diff": diff, "low": low, "high": high, "sd_diff": sd, "level": level, "p": p}
    return of | {
        "p_adjusted": min(1, p * ALPHA / (1 - level)),
        "verdict": "equivalent" if inside else verdict,
    }


def withheld(verdict: str, more: float) -> bool:
    return (more > 0 and verdict in ("better", "equivalent")) or (
        more < 0 and verdict in ("worse", "equivalent")
    )


def same(
    table: pd.DataFrame, contrasts: Sequence[Weights], expected: Sequence[dict[str, Any]], by: str
) -> None:
    """The rows of the table are these contrasts, with these numbers."""
    found = table[table["baseline"].notna() | table["diff"].notna()]
    assert len(found) == len(contrasts)
    bases = table.drop_duplicates("variant").set_index("variant")[by]
    for weights, of in zip(contrasts, expected, strict=True):
        variant, base = (" - ".join(map(str, side)) for side in two_sides(weights))
        mine = (found[by] == variant) & (found["baseline"].map(bases) == base)
        if not mine.any():  # a sum of arms, which stands by its name alone, and has no mean
            of = of | {"n": of["pairs"], "mean": np.nan, "sd": np.nan}
            mine = found["baseline"].isna() & np.isclose(found["diff"], of["diff"], rtol=1e-9)
        (one,) = found[mine].to_dict("records")
        assert one["verdict"] == of.pop("verdict")
        found_here = {key: float(one[key]) if pd.notna(one[key]) else np.nan for key in of}
        assert found_here == pytest.approx({key: float(of[key]) for key in of}, rel=1e-9, nan_ok=True)


# --- rows of ours -----------------------------------------------------------------------------------


def study(
    seeds: Mapping[str, int],
    *,
    scatter: float = 0.3,
    apart: float = 0.25,
    lost: Sequence[tuple[str, int]] = (),
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Rows of fusions with so many seeds each, which share noise; their values and which of them
    diverged, a row a seed."""
    rng, most = np.random.default_rng(len(seeds)), max(seeds.values())
    noise = rng.normal(size=most)
    values = pd.DataFrame(index=range(most))
    for at, (name, n) in enumerate(seeds.items()):
        losses = 3 + at * apart + scatter * (noise + rng.normal(size=most))
        values[name] = np.where(np.arange(most) < n, losses, np.nan)
    gone = pd.DataFrame(False, values.index, values.columns)
    for name, seed in lost:
        gone.loc[seed, name], values.loc[seed, name] = True, np.nan
    rows = of_cells(({"fusion": name, "heads": 4}, values[name].fillna(0)[:n]) for name, n in seeds.items())
    for at, (seed, fusion) in enumerate(zip(rows["seed"], rows["fusion"], strict=True)):
        rows.loc[rows.index[at], "status"] = "diverged" if gone[fusion][seed] else "done"
        rows.loc[rows.index[at], "val_loss"] = values[fusion][seed]
    return rows, values, gone


def against(base: str, *others: str) -> list[Weights]:
    return [{one: 1.0, base: -1.0} for one in others]


def record(rows: pd.DataFrame, contrasts: Sequence[Weights], **given: Any) -> StudyRecord:
    runs = rows.groupby("fusion")["run_id"].agg(list)
    planned = [
        PlannedContrast(name=str(one), sides=[Side(w, arm, runs[arm]) for arm, w in one.items()])
        for one in contrasts
    ]
    usual = {"metric": "val_loss", "margin": 0.05, "runs": [*rows["run_id"]], "contrasts": planned}
    return make_record(**{**usual, **given})


FOUR, THREE = ("concat", "sum", "gated", "static"), ("concat", "sum", "gated")
ALL = against(*FOUR)
MIXED: Weights = {"static": 0.5, "gated": 0.5, "sum": -1.0}
SUMS: list[Weights] = [
    {"sum": 0.5, "gated": 0.5, "concat": -1.0},
    {"sum": 1, "gated": -1, "concat": -1, "static": 1},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "contrasts", "looks"),
    [
        pytest.param(study(dict.fromkeys(FOUR, 8)), ALL, [], id="a grid"),
        pytest.param(
            study(dict.fromkeys(FOUR, 8), scatter=0.01, apart=0.004), ALL, [], id="within the margin"
        ),
        pytest.param(study(dict.fromkeys(FOUR, 9)), SUMS, [], id="sums of arms"),
        pytest.param(study(dict.fromkeys(FOUR, 16), scatter=0.2, apart=0.1), ALL, [8, 12, 16], id="looks"),
        pytest.param(
            study(dict.fromkeys(FOUR, 12), scatter=0.03), [*ALL[:2], MIXED], [6, 12], id="looks at sums"
        ),
        pytest.param(study({"concat": 9, "sum": 7, "gated": 6, "static": 5}), ALL, [], id="unequal seeds"),
        pytest.param(study(dict.fromkeys(FOUR, 8), lost=[("concat", 2)]), ALL, [], id="a baseline diverged"),
        pytest.param(
            study(dict.fromkeys(FOUR, 8), lost=[("sum", 1), ("sum", 2)]), ALL, [], id="a variant diverged"
        ),
    ],
)
def test_every_number_of_a_study_is_what_pandas_and_scipy_make_of_its_rows(made, contrasts, looks):
    rows, values, lost = made
    plan = PlannedLooks(at=looks, seeds=[*range(looks[-1])]) if looks else None
    table = compared(rows, records=[record(rows, contrasts, looks=plan)]).table
    expected = recomputed(values, lost, contrasts, len(contrasts), 0.05, looks)
    same(table[table["family"] == "planned"], contrasts, expected, "fusion")
    if not looks and contrasts is ALL:  # named by nobody, against the same baseline
        same(
            compared(rows, margin=0.05).table, contrasts, recomputed(values, lost, ALL, 3, 0.05, []), "fusion"
        )


def test_of_a_tuned_study_each_arm_counts_at_its_own_value_and_on_seeds_that_report():
    rows, values, lost = study(dict.fromkeys(THREE, 8))
    own = {"concat": 0.01, "sum": 0.02, "gated": 0.04}
    rows["lr"] = rows["fusion"].map(own)
    develop = rows[rows["seed"] < 2].assign(
        seed=lambda r: r["seed"] + 90, val_loss=1.0, role="", phase="develop"
    )
    other = rows.assign(lr=0.08, val_loss=0.5, role="", phase="report")  # a value that was replaced
    every = pd.concat([rows.assign(role="tuned", phase="report"), develop, other], ignore_index=True)
    every = every.assign(run_id=[f"r{at}" for at in range(len(every))], tuned="train.lr")
    chosen = every[every["role"] == "tuned"]
    roles = {
        row["run_id"]: Role(
            phase=row["phase"],
            role=row["role"],
            tuned="train.lr",
            values={"tuned": [row["fusion"]]} if row["role"] else {},
        )
        for row in every.to_dict("records")
    }
    contrasts = against(*THREE)
    planned = record(chosen, contrasts, roles=roles, declared={"tune": "train.lr"}, runs=[*every["run_id"]])
    table = compared(every, records=[planned]).table
    same(table, contrasts, recomputed(values, lost, contrasts, 2, 0.05, []), "fusion")


# --- tables of other programs -----------------------------------------------------------------------


def foreign(**levels: int) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([range(n) for n in levels.values()], names=[*levels])
    rows = index.to_frame(index=False).assign(method=lambda rows: rows["method"].map(dict(enumerate("abc"))))
    return rows.assign(loss=np.random.default_rng(0).normal(rows.iloc[:, -1] + 0.3 * rows["method"].eq("c")))


@pytest.mark.parametrize(
    ("rows", "unit", "pair_by"),
    [
        pytest.param(foreign(method=3, seed=9), "seed", (), id="seeds"),
        pytest.param(foreign(method=3, task=9), "task", "task", id="tasks"),
        pytest.param(foreign(method=3, seed=7, doc=5), "seed", "doc", id="documents within runs"),
        pytest.param(foreign(method=3, seed=9)[3:-2], "seed", (), id="unequal seeds"),
    ],
)
def test_every_number_of_a_table_of_another_program(rows, unit, pair_by):
    asked = {
        "by": "method",
        "metric": "loss",
        "baseline": "method=a",
        "margin": 0.05,
        "higher_is_better": False,
    }
    values = rows.groupby(["method", unit])["loss"].mean().unstack("method")
    contrasts = against(*"abc")
    expected = recomputed(values, values.isna() & False, contrasts, 2, 0.05, [])
    same(ablate.compare(rows, pair_by=pair_by, **asked).table, contrasts, expected, "method")
