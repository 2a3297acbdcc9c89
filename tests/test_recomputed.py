"""Every number of a comparison, made a second time by pandas and scipy alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

import ablate
from ablate.config.contrast import Contrast
from ablate.store.record import PlannedLooks
from tests.helpers import compared, make_record
from tests.test_compare import of_cells

reference: Any = scipy_stats  # its results have no types
OF_STUDY = [Contrast(baseline={"fusion": "concat"})]
TUNED: Any = {"tuned": "train.lr", "phase": "report", "role": "tuned"}


def grid(*seeds: int, lost: int | None = None, scatter: float = 0.3, **columns: Any) -> pd.DataFrame:
    """Fusions with so many seeds each, whose noise seeds share in part. lost: a row that diverged."""
    rng = np.random.default_rng(len(seeds))
    noise = rng.normal(size=max(seeds))
    names = ["concat", "sum", "gated", "static"][: len(seeds)]
    rows = of_cells(
        ({"fusion": name, **columns}, 3 + at / 4 + scatter * (noise[:n] + rng.normal(size=n)))
        for at, (name, n) in enumerate(zip(names, seeds, strict=True))
    )
    rows.loc[rows.index == lost, ["status", "val_loss"]] = ["diverged", None]
    return rows.assign(lr=0.001 * (1 + rows["fusion"].eq("sum"))) if columns else rows


def foreign(**levels: int) -> pd.DataFrame:
    index = pd.MultiIndex.from_product([range(n) for n in levels.values()], names=[*levels])
    rows = index.to_frame(index=False).assign(
        method=lambda rows: rows["method"].map({0: "a", 1: "b", 2: "c"})
    )
    return rows.assign(loss=np.random.default_rng(0).normal(rows.iloc[:, -1] + 0.3 * rows["method"].eq("c")))


def again(
    rows: pd.DataFrame, one: pd.Series, by: str, unit: str, metric: str, looks: list[int]
) -> dict[str, Any]:
    wide = rows.groupby([by, unit])[metric].mean().unstack(by).sort_index()
    v, b = (wide[name.removeprefix(f"{by}=").split()[0]] for name in (one["variant"], one["baseline"]))
    k, paired = one["k"], (v - b).count() >= 2
    for n, before in zip(looks or [len(wide)], [0, *looks], strict=False):
        share = (n - before) / looks[-1] if looks else 1.0
        d = (v - b).iloc[:n].dropna()
        test = (
            reference.ttest_1samp(d, 0)
            if paired
            else reference.ttest_ind(v.dropna(), b.dropna(), equal_var=False)
        )
        low, high = test.confidence_interval(1 - 0.05 * share / k)
        margin = np.nan_to_num(one["margin"])
        inside, excludes = -margin < low and high < margin, not low <= 0 <= high
        if inside or excludes:
            break
    named = "equivalent" if inside else ("worse" if low > 0 else "better") if excludes else "undecided"
    v, p = v.iloc[:n].dropna(), test.pvalue
    sd = d.std() if paired else np.hypot(v.std(), b.std())
    if named in ("worse", "equivalent") and rows.get("status", rows[by]).eq("diverged").any():
        named = "undecided"  # the baseline's, on one seed
    cells = {"n": len(v), "mean": v.mean(), "sd": v.std(), "sd_diff": sd, "low": low, "high": high, "p": p}
    cells |= {"diff": d.mean() if paired else v.mean() - b.mean(), "level": 1 - 0.05 * share / k}
    cells |= {"p_adjusted": min(1, p * k / share), "pairs": len(d) if paired else pd.NA, "verdict": named}
    return cells


@pytest.mark.parametrize(
    ("rows", "asked", "k", "looks"),
    [
        pytest.param(grid(8, 8, 8, 8), {}, 3, [], id="a grid"),
        pytest.param(grid(8, 8, 8, scatter=0.01), {"margin": 0.4}, 2, [], id="a margin"),
        pytest.param(grid(8, 8, 8, **TUNED), {}, 2, [], id="tuned rates"),
        pytest.param(grid(12, 12, scatter=0.2), {"margin": 0.05}, 1, [6, 12], id="looks"),
        pytest.param(grid(9, 7, 6), {}, 2, [], id="unequal seeds"),
        pytest.param(grid(8, 8, 8, lost=3), {}, 2, [], id="a baseline diverged once"),
        pytest.param(foreign(method=3, task=9), {"pair_by": "task"}, 2, [], id="another program's tasks"),
        pytest.param(foreign(method=3, seed=7, doc=5), {"pair_by": "doc"}, 2, [], id="documents within runs"),
        pytest.param(foreign(method=3, seed=8).assign(seed=range(24)), {}, 2, [], id="groups"),
    ],
)  # fmt: skip
def test_every_number_is_what_pandas_and_scipy_make_of_the_rows(rows, asked, k, looks):
    by, unit, metric, records = "fusion", "seed", "val_loss", []
    compare: Any = compared
    if "method" in rows:
        compare, by, unit, metric = ablate.compare, "method", rows.columns[1], "loss"
        asked = {"by": by, "baseline": "method=a", "metric": metric, "higher_is_better": False, **asked}
    if looks:
        plan = PlannedLooks(at=looks, seeds=[*range(looks[-1])])
        record = make_record(metric=metric, margin=asked["margin"], seeds=plan.seeds)
        records = [replace(record, primary=OF_STUDY, looks=plan)]
    table = compare(rows, **asked, **({"records": records} if looks else {})).table
    found = table[table["baseline"].notna()].assign(k=k)
    assert len(found) == rows[by].nunique() - 1
    for _, one in found.iterrows():
        expected = again(rows, one, by, unit, metric, looks)
        words = {key: expected.pop(key) for key in ("verdict", "pairs")}
        assert all(one[key] is of or one[key] == of for key, of in words.items())
        assert one[[*expected]].astype(float).to_dict() == pytest.approx(expected)
