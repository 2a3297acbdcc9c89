"""Variants side by side: hand-worked numbers, who is compared with whom, and what may not stand together."""

import itertools
import math
import re
from collections.abc import Iterable

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.compare import Comparison
from ablate.analysis.notes import of_rows
from ablate.config.rules import ConfigError
from ablate.phrases import texts
from ablate.reporting import paper
from ablate.reporting.answers import answer
from ablate.reporting.cells import caption, contrast_table
from ablate.store.columns import COLUMNS
from ablate.store.frames import select
from ablate.tables import lines_of
from tests.helpers import compared, make_record, summarize

pytestmark = pytest.mark.usefixtures("two_seeds_decide")

ROW = {
    **dict.fromkeys(COLUMNS),
    **{"status": "done", "fusion": "concat", "heads": 4, "out_proj": True, "seed": 0, "params": 97},
    **{"corpus_sha256": "abc", "tokenizer": "char", "vocab": 11, "splits": "[0.8, 0.1, 0.1]"},
    **{"numerics": 1, "torch": "2.9.0", "value_width": 16, "key_width": 16},
}


def table(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame([{**ROW, "run_id": f"{i:016x}", **row} for i, row in enumerate(rows)])


def of_cells(cells: Iterable[tuple[dict, Iterable[float]]]) -> pd.DataFrame:
    """A variant with these columns for each cell, and with its losses at seeds 0, 1, …"""
    return table(*(row for columns, losses in cells for row in variant(losses, **columns)))


def note(comparison: Comparison, words: str) -> str:
    """The one note that has these words."""
    (line,) = [line for line in texts(comparison.notes) if words in line]
    return line


def sentences(comparison: Comparison) -> list[str]:
    """Without the place, of which these rows say nothing."""
    return answer(comparison, []).findings


def grid() -> pd.DataFrame:
    values = {("concat", 4): (2.0, 2.2, 2.4), ("sum", 4): (1.0, 1.5, 2.0), ("sum", 8): (3.0, 3.0, 3.0)}
    return of_cells(
        ({"fusion": fusion, "heads": heads, "key_width": 64 // heads}, losses)
        for (fusion, heads), losses in values.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize("column, other", [("numerics", 2), ("torch", "2.8.0"), ("processor", "other")])
def test_sides_of_two_programs_are_a_doubt(column, other):
    rows = table(*hand_worked())
    is_sum = rows["fusion"] == "sum"
    rows[column] = rows[column].astype(object).mask(is_sum, other)
    assert note(compared(rows), f"{column} (").endswith("a difference may be its doing")
    rows.loc[is_sum & (rows["seed"] > 0), column] = rows[column].iloc[0]
    assert f"{column} " in note(compared(rows), "differs between what is compared")


def test_two_versions_of_one_method_are_a_doubt_and_two_methods_are_not():
    rows = grid().assign(parts=lambda of: of["fusion"].map({"concat": None, "sum": "3f" * 6}))
    rows.loc[rows["heads"] == 8, "parts"] = "5e" * 6
    for by, differs in (({"fusion": "concat"}, False), ({"heads": 4}, True)):
        assert ("parts differs, too" in {one.brief for one in compared(rows, baseline=by).notes}) is differs


def test_crossed_seeds_are_no_replicates():
    rows = table(
        *(
            {"fusion": fusion, "seed": 0, "seed_backbone": w, "seed_fusion": w, "seed_data": b,
             "val_loss": 2 + of_weights + of_batches + 0.01 * (fusion == "sum")}
            for fusion in ("concat", "sum")
            for w, of_weights in enumerate((0.1, -0.1))
            for b, of_batches in enumerate((0.2, 0.0, -0.2))
        )
    )  # fmt: skip
    result = compared(rows)
    assert result.table["p"].isna().all()
    assert any(str(why).startswith("its seeds are crossed") for why in result.table["why"])


@pytest.mark.slow
def test_bimodal_seeds_are_named(tmp_path):
    """As 500 steps of `tiny` at 0.006 gave: seven seeds of 1.80 to 1.89, and one of 2.24."""
    losses = [1.80, 1.82, 2.24, 1.84, 1.85, 1.86, 1.88, 1.89]
    rows = table(*({"val_loss": loss, "seed": seed} for seed, loss in enumerate(losses)))
    assert ": 7 at 1.849, and 1 at 2.24 (0000000000000002);" in note(compared(rows), "one seed of ")


def test_what_did_not_finish_is_in_no_mean_and_named():
    rows = table(
        {"val_loss": 1.0},
        {"val_loss": 2.0, "seed": 1},
        {"status": "diverged", "error": "the loss was not finite at step 7", "seed": 2},
        {"status": "failed", "error": "MemoryError: full", "seed": 3},
        {"val_loss": 3.0, "fusion": "sum"},
    )
    summary = summarize(rows).set_index("variant")
    concat = summary.loc["fusion=concat heads=4 out_proj=true"]
    assert (concat["n"], concat["diverged"], concat["mean"]) == (2, 1, 1.5)
    named = texts(of_rows(rows))
    assert len(named) == 3 and "step 7" in named[0] and "seed=3" in named[1] and "MemoryError" in named[1]
    line = "missing: sum has no run of seed 1, 2, 3"
    assert line in texts(compared(rows).notes)


def test_a_metric_that_is_not_there():
    with pytest.raises(ConfigError, match=r"--metric val_los: .*did you mean val_loss\?"):
        summarize(grid(), "val_los")
    with pytest.raises(ConfigError, match="no finished run has it"):
        summarize(table({"val_loss": 1.0, "status": "failed"}))
    with pytest.raises(ConfigError, match=r"val_exact: no finished run has it \(9 done\); --metric takes"):
        summarize(grid(), "val_exact")


# --- comparisons ------------------------------------------------------------------------------------

SEEDS = (0.0, 0.1, 0.2, 0.3)
CONCAT = {"fusion": "concat", "fusion_options": "{}", "normalize": "none", "form": "concat"}
SUM = {**CONCAT, "fusion": "sum", "form": "sum normalize=none"}
MEAN = {**CONCAT, "fusion": "mean", "form": "mean normalize=none"}
WEIGHTED = {**CONCAT, "fusion": "weighted_sum", "form": "weighted_sum normalize=none per=head weights=free"}
WEIGHTED |= {"fusion_options": '{"per": "head", "weights": "free"}'}


def variant(losses, **columns) -> list[dict]:
    return [{**columns, "seed": seed, "val_loss": loss} for seed, loss in enumerate(losses)]


def hand_worked(**columns) -> list[dict]:
    """Sum − concat is 0.3, 0.2, 0.3, 0.2; mean − concat is 0.01, −0.01, 0.02, −0.02."""
    return [
        *variant((2.0, 2.1, 2.2, 2.3), **CONCAT, **columns),
        *variant((2.3, 2.3, 2.5, 2.5), **SUM, **columns),
        *variant((2.01, 2.09, 2.22, 2.28), **MEAN, **columns),
    ]


def by_fusion(comparison, key: str = "fusion") -> dict:
    return {row[key]: row for row in comparison.table.to_dict("records")}


def test_every_number_by_hand():
    result = compared(table(*hand_worked()), margin=0.05)
    assert result.table["fusion"].tolist() == ["concat", "mean", "sum"]  # the best first; ties by name
    rows = by_fusion(result)
    # t = 5√3 with 3 degrees of freedom: p = 1 − (2/π)(atan 5 + 5/26).
    p = 1 - 2 / math.pi * (math.atan(5) + 5 / 26)
    half, t = 0.1 / math.sqrt(12), 4.176534846  # t(1 − 0.05/4; 3): two comparisons share 5 %
    worse = rows["sum"]
    assert (worse["n"], worse["pairs"], worse["diverged"], worse["verdict"]) == (4, 4, 0, "worse")
    numbers = {
        **{"mean": 2.4, "sd": 0.1 * 2 / math.sqrt(3), "diff": 0.25, "sd_diff": 0.1 / math.sqrt(3)},
        **{"low": 0.25 - t * half, "high": 0.25 + t * half, "p": p, "p_adjusted": 2 * p, "level": 0.975},
    }
    assert {key: worse[key] for key in numbers} == pytest.approx(numbers, rel=1e-8, abs=1e-9)
    # Σ(0.01² + 0.01² + 0.02² + 0.02²)/3 = 0.001/3; the interval ±t·√(0.001/12) is within 0.05.
    level = rows["mean"]
    assert level["sd_diff"] == pytest.approx(math.sqrt(0.001 / 3))
    assert level["high"] == pytest.approx(t * math.sqrt(0.001 / 12))
    assert (level["verdict"], level["p"]) == ("equivalent", pytest.approx(1))
    assert (rows["concat"]["verdict"], rows["concat"]["why"]) == ("", "baseline")
    assert rows["sum"]["baseline"] == rows["mean"]["baseline"] == "fusion=concat heads=4 out_proj=true"


def test_where_more_is_better_the_larger_is():
    rows = table(*hand_worked()).assign(val_acc=lambda rows: rows["val_loss"])
    result = compared(rows, metric="val_acc", margin=0.05)
    assert result.table["fusion"].tolist() == ["sum", "concat", "mean"]
    assert summarize(rows, "val_acc")["mean"].tolist() == result.table["mean"].tolist()
    assert by_fusion(result)["sum"]["verdict"] == "better"
    assert sentences(result)[0] == "Sum gains 0.250 of val_acc (0.129 to 0.371) against concat."


def test_each_variant_meets_the_baseline_that_shares_its_other_factors():
    rows = table(
        *(row for heads in (4, 8) for row in hand_worked(heads=heads, key_width=64 // heads)),
        *variant([5.0 + seed for seed in SEEDS], **CONCAT, heads=4, out_proj=False, value_width=16),
        *variant([5.5 + seed for seed in SEEDS[:3]], **SUM, heads=4, out_proj=False, value_width=64),
        *variant([6.0 + seed for seed in SEEDS], **SUM, heads=2, out_proj=False, value_width=64),
        *variant([6.5 + seed for seed in SEEDS], **SUM, heads=1, out_proj=False, layers=3),
    )
    comparison = compared(rows)
    result = by_fusion(comparison, "variant")
    assert result["fusion=sum heads=8 out_proj=true"]["baseline"] == "fusion=concat heads=8 out_proj=true"
    unlike = result["fusion=sum heads=4 out_proj=false"]
    assert (unlike["baseline"], unlike["pairs"]) == ("fusion=concat heads=4 out_proj=false", 3)
    assert unlike["differs"] == "fusion value_width"
    assert result["fusion=sum heads=2 out_proj=false"]["baseline"] == "fusion=sum heads=4 out_proj=false"
    assert contrast_table(comparison).iloc[-1][["n", "verdict"]].tolist() == ["4", "no baseline"]
    base = "concat heads=4 out_proj=true"
    assert note(comparison, f"no baseline for sum heads=1 out_proj=false; --baseline '{base}' compares them")
    assert compared(rows, baseline=base).table["why"].ne("no baseline").all()


@pytest.mark.slow
def test_the_other_baselines_change_one_key_or_several():
    rows = table(*(row for heads in (1, 8) for row in hand_worked(heads=heads, key_width=64 // heads)))
    result = compared(rows, baseline="heads=1").table
    pairs = result[result["baseline"].notna()]
    name = "fusion={} heads={} out_proj=true".format
    expected = [(name(fusion, 8), name(fusion, 1)) for fusion in ("concat", "mean", "sum")]
    assert [(row.variant, row.baseline) for row in pairs.itertuples()] == expected
    several = compared(rows, baseline="fusion=concat, heads=1").table
    assert set(several["baseline"].dropna()) == {"fusion=concat heads=1 out_proj=true"}
    assert several["baseline"].notna().sum() == 5
    with pytest.raises(ConfigError, match=r"--baseline heads=2: no such variant; choices: heads=1, heads=8"):
        compared(rows, baseline={"heads": 2})
    with pytest.raises(ConfigError, match="no such variant; choices: fusion=concat, fusion=mean, fusion=sum"):
        compared(rows, baseline={"fusion": "cncat"})
    for name in ("concat heads=1", "fusion=concat heads=1 out_proj=true"):  # as tables print it
        assert compared(rows, baseline=name).table["baseline"].equals(several["baseline"])
    with pytest.raises(
        ConfigError,
        match=r"neither K=V\[,K=V\] nor a variant; did you mean sum heads=8\? choices: concat heads=1",
    ):
        compared(rows, baseline="heads")


@pytest.mark.slow
def test_of_several_baselines_the_nearest_is_taken_and_a_tie_takes_none():
    wide = [
        *variant((1.0, 1.1), **CONCAT, value_width=16),
        *variant((2.0, 2.1), **CONCAT, value_width=64),
        *variant((3.0, 3.2), **SUM, value_width=64),
    ]
    result = compared(table(*wide)).table.set_index("variant")
    assert result.loc["fusion=sum heads=4 out_proj=true value_width=64", "diff"] == pytest.approx(1.05)
    neither = [{**row, "value_width": 32} if row["fusion"] == "sum" else row for row in wide]
    assert compared(table(*neither)).table["diff"].isna().all()


def test_what_is_equal_by_construction_is_labelled_and_leaves_the_family():
    one_head = {"heads": 1, "form": "concat"}
    normalized = {"normalize": "variance", "heads": 4, "form": "sum normalize=variance"}
    convex = {**WEIGHTED, "fusion_options": '{"per": "head", "weights": "convex"}'}
    rows = table(
        *(row for one in (CONCAT, SUM, MEAN, convex) for row in variant((1.0, 1.2, 1.1), **one | one_head)),
        *variant((1.01, 1.23, 1.12), **WEIGHTED | one_head),
        *variant((2.0, 2.2, 2.1), **CONCAT, heads=4),
        *variant((2.1, 2.4, 2.25), **SUM | normalized),
        *variant((2.1, 2.4, 2.250001), **MEAN | normalized),
        *variant((2.5, 2.5, 2.7), **MEAN, heads=4),
        *variant((2.0, 2.2, 2.1), **{**SUM, "fusion": "product", "form": "product"}, heads=4),
    )
    result = compared(rows)
    variants = by_fusion(result, "variant")
    equal = {name: row for name, row in variants.items() if row["why"].startswith("the same function")}
    assert len(equal) == 5 and all(np.isnan(row["p"]) for row in equal.values())
    at_one_head = [name.split()[0] for name in equal if "heads=1" in name]
    assert sorted(at_one_head) == ["fusion=mean", "fusion=sum", *["fusion=weighted_sum"] * 2]
    name = "fusion=weighted_sum weights=free normalize=none heads=1 out_proj=true"
    assert equal[name]["why"].startswith("the same function as concat")
    (twin,) = [row for name, row in equal.items() if "mean" in name and "variance" in name]
    assert twin["why"].startswith("the same function as sum")
    (product,) = [row for name, row in variants.items() if "product" in name]
    assert (product["verdict"], product["why"]) == (
        "",
        "identical at all 3 seeds: fusion changes nothing here",
    )
    tested = [row["level"] for row in variants.values() if not np.isnan(row["p"])]
    assert tested == [pytest.approx(1 - 0.05 / 3)] * 2  # the normalized sum, and the mean; the product counts


def diverged(**columns) -> dict:
    return {"status": "diverged", "error": "the loss was not finite at step 7", "val_loss": None, **columns}


@pytest.mark.slow
def test_a_variant_that_diverges_more_is_not_called_better_or_equivalent():
    lost = diverged(**SUM, seed=3)
    better = [*variant((2.5, 2.6, 2.7, 2.8), **CONCAT), *variant((2.30, 2.41, 2.50), **SUM), lost]
    result = compared(table(*better))
    row = by_fusion(result)["sum"]
    assert (row["n"], row["diverged"], row["verdict"], row["p"] < 0.05) == (3, 1, "undecided", True)
    assert row["why"] == "diverged, as it did on 1 more seed than its baseline"
    assert row["mean"] == pytest.approx((2.30 + 2.41 + 2.50) / 3) and pd.isna(row["more_seeds"])
    assert "saves 0" not in sentences(result)[0] and "did on 1 more seed" in sentences(result)[0]
    worse = [*variant((2.0, 2.1, 2.2, 2.3), **CONCAT), *variant((2.5, 2.61, 2.7), **SUM), lost]
    assert by_fusion(compared(table(*worse)))["sum"]["verdict"] == "worse"
    level = [row for row in hand_worked() if row["fusion"] != "sum"]
    for more, verdict in (
        ([diverged(**MEAN, seed=4)], "undecided"),
        ([diverged(**CONCAT, seed=4)], "equivalent"),  # then no more than its baseline
    ):
        level += more
        assert by_fusion(compared(table(*level), margin=0.05))["mean"]["verdict"] == verdict


def test_a_diverged_run_stays_one_when_it_is_stale_and_infinity_is_no_result():
    rows = [
        *variant((2.0, 2.1), **CONCAT),
        *variant((2.5, math.inf), **SUM),
        diverged(**CONCAT, seed=2) | {"status": "stale"},
    ]
    result = compared(table(*rows)).table.set_index("fusion")
    assert result["diverged"].to_dict() == {"concat": 1, "sum": 1}
    assert result["n"].to_dict() == {"concat": 2, "sum": 1}


def test_a_difference_of_fewer_seeds_than_its_mean_says_so():
    rows = table(*variant((2.0, 2.1, 2.2, 2.3), **CONCAT), *variant((2.5, 2.7), **SUM))
    assert contrast_table(compared(rows))["n"].tolist() == ["4", "2"]
    assert contrast_table(compared(rows, baseline={"fusion": "sum"}))["n"].tolist() == ["2 of 4", "2"]


@pytest.mark.slow
def test_missing_seeds_and_too_few_are_named():
    rows = table(*variant((2.0, 2.1, 2.2), **CONCAT), *variant((2.5,), **SUM))
    result = compared(rows)
    row = by_fusion(result)["sum"]
    assert (row["verdict"], row["why"], row["diff"]) == ("undecided", "one paired seed", pytest.approx(0.5))
    assert "missing: sum has no run of seed 1, 2" in texts(result.notes)
    assert "undecided: one paired seed" in lines_of(contrast_table(result, long=True), None)[0]
    same = compared(table(*variant((2.0, 2.1, 2.2), **CONCAT), *variant((2.3, 2.4, 2.5), **SUM)))
    assert by_fusion(same)["sum"]["why"] == "the same difference at every seed"
    two = compared(table(*variant((2.0, 2.1), **CONCAT), *variant((2.5, 2.601), **SUM)))
    # One degree of freedom: t = 0.5005/0.0005, p = 1 − (2/π) atan t.
    assert by_fusion(two)["sum"]["p"] == pytest.approx(1 - 2 / math.pi * math.atan(1001), rel=1e-6)


@pytest.mark.slow
def test_primary_contrasts_are_a_family_of_their_own():
    rows = table(*(row for heads in (4, 8) for row in hand_worked(heads=heads, key_width=64 // heads)))
    where = {"fusion": ["concat", "sum"], "heads": 4, "out_proj": True}
    entry = {"vary": "fusion", "baseline": "concat", "where": where}
    result = compared(rows, records=[make_record(primary=[entry], margin=0.05)])
    assert result.families == ["planned", "exploratory"] and result.margin == 0.05
    primary, others = result.table_of("planned"), result.table_of("exploratory")
    assert primary["variant"].tolist() == [f"fusion={one} heads=4 out_proj=true" for one in ("concat", "sum")]
    p = 1 - 2 / math.pi * (math.atan(5) + 5 / 26)
    assert primary["p_adjusted"].iloc[1] == pytest.approx(p) and primary["level"].iloc[1] == 0.95
    # What nobody planned is corrected for what was planned, too.
    assert (others["p"].notna().sum(), others["level"].max()) == (3, pytest.approx(1 - 0.05 / 4))
    assert others["p_adjusted"].min() == pytest.approx(4 * p)
    assert "named beforehand" in caption(result, "planned") and "test it" in caption(result, "exploratory")
    assert len(sentences(result)) == 1 and sentences(result)[0].startswith("Sum costs")
    assert [len(contrast_table(result, family, long=True)) for family in result.families] == [2, 5]

    def declared(**entry) -> Comparison:
        return compared(rows, records=[make_record(primary=[entry])])

    with pytest.raises(ConfigError, match=r"no column fuson; did you mean fusion\?"):
        declared(vary="fuson", baseline="concat")
    with pytest.raises(ConfigError, match=r"write an entry as \{vary"):
        declared(key="fusion")


@pytest.mark.slow
def test_the_metric_is_the_one_that_the_study_reports_on():
    rows = table(*hand_worked()).assign(test_loss=lambda rows: rows["val_loss"] + 1)
    assert compared(rows).metric == "val_loss"
    planned = compared(rows, records=[make_record(metric="test_loss")])
    assert planned.metric == "test_loss"
    phased = pd.concat([rows.assign(phase="report"), rows.assign(phase="develop", seed=99, run_id="x")])
    result = compared(phased)
    assert result.metric == "test_loss" and note(result, "taken: metric test_loss")
    concat = by_fusion(result)["concat"]
    assert (concat["n"], concat["mean"]) == (4, pytest.approx(3.15))
    assert "left out: 12 rows of development seeds (phase)" in texts(result.notes)
    with pytest.raises(ConfigError, match="every row is of development seeds"):
        compared(rows.assign(phase="develop"))


@pytest.mark.parametrize(
    "seeds, conditions",
    [
        ([1], ["seed=1"]),
        ([2, 3], ["seed>1.5", "seed!=0,1"]),
        ([0, 1, 3], ["seed = 0, 3,1"]),
        ([0, 1, 2, 3], ["train.lr>=1e-3", "out_proj=True", "fusion!=sum", "heads=4.0", "value_width=16"]),
        ([0, 1, 2, 3], ["role!=tuned"]),  # the word, though there is a column of that name
    ],
)
def test_conditions_choose_rows(seeds, conditions):
    rows = table(*variant(SEEDS, **CONCAT, lr=0.001, d_model=64, value_width=16))
    for condition in conditions:
        assert select(rows, [condition])["seed"].tolist() == seeds, condition


@pytest.mark.parametrize(
    "condition, reason",
    [
        ("seed", "not a condition"),
        ("sed=1", "did you mean seed"),
        ("fusion<1", "fusion is concat, no number"),
        ("seed=7", "no row meets it; seed is 0, 1"),
    ],
)
def test_a_condition_that_is_none(condition, reason):
    with pytest.raises(ConfigError, match=reason) as caught:
        select(table(*variant(SEEDS, **CONCAT)), [condition])
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_by_names_what_makes_a_variant_and_never_pools():
    rows = table(*hand_worked()).assign(optimizer="adam")
    both = pd.concat([rows, rows.assign(optimizer="muon", run_id=lambda rows: rows["run_id"] + "m")])
    with pytest.raises(
        ConfigError, match=r"two rows of one variant and seed.* differ in optimizer; add optimizer to --by"
    ):
        compared(both)
    result = compared(both, by=["fusion", "optimizer", "fusion"])
    assert result.shown == ["fusion", "optimizer"] and len(result.table) == 6
    optimizers = {f"fusion=concat optimizer={one}" for one in ("adam", "muon")}
    assert set(result.table["baseline"].dropna()) == optimizers
    grids = table(*(row for heads in (4, 8) for row in hand_worked(heads=heads)))
    never = r"of fusion=concat differ in heads \(4 / 8\), and variants are never"
    with pytest.raises(ConfigError, match=never):
        compared(grids, by=["fusion"])
    assert len(compared(grids, by=["fusion"], where=["heads=8"]).table) == 3


def test_the_order_of_rows_and_the_names_of_seeds_change_nothing():
    rng = np.random.default_rng(0)
    variants = itertools.product((4, 8), (CONCAT, SUM, MEAN, WEIGHTED))
    rows = of_cells(({**fusion, "heads": h}, rng.normal(2, 0.01, 5)) for h, fusion in variants)
    result = compared(rows).table
    shuffled = rows.sample(frac=1, random_state=0).assign(seed=lambda rows: 10**15 + 7 * rows["seed"])
    pd.testing.assert_frame_equal(compared(shuffled).table, result)
    moved = compared(rows.assign(val_loss=rows["val_loss"] + 1.5)).table
    assert moved["p_adjusted"].dropna().tolist() == pytest.approx(
        result["p_adjusted"].dropna().tolist(), rel=1e-6
    )


@pytest.mark.slow
def test_what_was_named_beforehand_is_so_for_its_metric_and_its_baseline():
    rows = table(*(row for heads in (4, 8) for row in hand_worked(heads=heads, key_width=64 // heads)))
    rows = rows.assign(val_bpb=rows["val_loss"], wall_s=rows["val_loss"])
    study = make_record(primary=[{"vary": "fusion", "baseline": "concat"}], metric="val_loss")
    assert compared(rows, records=[study]).families == ["planned"]
    assert compared(rows, records=[study], baseline={"fusion": "concat"}).families == ["planned"]
    other, fusions = compared(rows, records=[study], baseline={"heads": 8}), ("concat", "sum", "mean")
    assert other.families == ["exploratory"]
    assert {*other.table["baseline"].dropna()} == {f"fusion={one} heads=8 out_proj=true" for one in fusions}
    assert compared(rows, records=[study], metric="val_bpb").families == ["exploratory"]


# --- formats ----------------------------------------------------------------------------------------


def test_latex_has_everything_escaped():
    rows = table(*hand_worked(), *variant((2.4, 2.6, 2.5, 2.7), **{**SUM, "fusion": r"a_b&50%$#{x}^~\\"}))
    text = paper.latex(paper.differences(compared(rows)))
    body = text[text.index(r"\toprule") :]
    assert re.findall(r"\\(\w+rule)\n", body) == ["toprule", "midrule", "bottomrule"]
    cells = [line for line in body.splitlines() if line.endswith(r" \\")]
    assert len(cells) == 1 + 4
    assert {len(re.findall(r"(?<!\\)&", line)) for line in cells} == {2}
    assert r"a\_b\&50\%\$\#\{x\}\textasciicircum{}\textasciitilde{}\textbackslash{}" in text
    assert r"{[}$-$" in text and not re.search(r"(?<!\{)\[", text)
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


# --- classes of functions, and keys that came later ---------------------------------------------


def noisy(*names: str, **columns) -> list[dict]:
    """Rows of several fusions of one class over four seeds, each worse than the one before."""
    noise = (0.0, 0.01, -0.02, 0.03)
    return [
        row
        for rank, name in enumerate(names)
        for row in variant(
            [1 + rank / 2 + noise[(seed + rank) % 4] for seed in range(4)],
            **{"fusion": name, "form": name, "function_class": "a", **columns},
        )
    ]


@pytest.mark.slow
def test_what_is_of_one_class_is_tested_and_called_parametrization():
    rows = table(*noisy("concat", "gated", "exclusive"))
    rows.loc[rows["fusion"] == "exclusive", "function_class"] = "b"
    result = compared(rows)
    found = result.table.set_index("fusion")
    assert found["same_class"].to_dict() == {"concat": False, "gated": True, "exclusive": False}
    assert found.loc["gated", "verdict"] == "worse" and found["p"].notna().sum() == 2
    ending = "; both sides represent the same functions, so what differs is training."
    for fusion, is_same in (("gated", True), ("exclusive", False)):
        two = rows[rows["fusion"].isin(["concat", fusion])]
        assert sentences(compared(two))[0].endswith(ending) is is_same
    two = rows[rows["fusion"] != "exclusive"]
    two = two.assign(val_loss=two["val_loss"].to_numpy()[::-1] % 0.1)
    assert re.match(f"Whether .* is undecided.*{ending}$", sentences(compared(two))[0])


@pytest.mark.parametrize("columns, same", [({}, True), ({"lr": 0.5}, True), ({"d_model": 9}, False)])
def test_one_class_needs_all_else_that_a_model_can_be(columns, same):
    first = {"lr": 0.1, "mlp_hidden": 8, "d_model": 8, "bias": False}
    rows = table(*noisy("concat", **first), *noisy("gated", **{**first, **columns}))
    by = {"fusion": "concat"} | {key: first[key] for key in columns}
    assert compared(rows, baseline=by).table.set_index("fusion").loc["gated", "same_class"] == same


def test_a_rate_alone_is_no_parametrization_and_rows_without_a_class_are_of_none():
    rates = table(*noisy("concat", lr=0.1), *noisy("concat", lr=0.2))
    assert not compared(rates, baseline={"lr": 0.1}).table["same_class"].any()
    without = table(*noisy("concat", "gated")).assign(function_class=None)
    assert not compared(without).table["same_class"].any()


ATTENTION = {
    **{"scores": "softmax", "scores_options": "{}", "key_heads": "auto"},
    **{"value_heads": "auto", "tie_qk": False, "scale": "inside"},
}


def test_the_options_of_a_rule_on_scores_follow_it():
    rows = table(
        *noisy("concat", **ATTENTION),
        *noisy("concat", **{**ATTENTION, "scores": "talking", "scores_options": '{"mix": "both"}'}),
        *noisy("concat", **{**ATTENTION, "scores": "windows", "scores_options": '{"windows": "auto"}'}),
        *noisy("concat", **{**ATTENTION, "key_heads": 1}),
    )
    result = compared(rows, baseline={"scores": "softmax"}, where=["key_heads=auto"])
    has_baseline = result.table.set_index("scores")["baseline"].notna().to_dict()
    assert has_baseline == {"softmax": False, "talking": True, "windows": True}
    shared = compared(rows, baseline={"key_heads": "auto"}, where=["scores=softmax"]).table
    assert shared.set_index("key_heads")["baseline"].notna().to_dict() == {"auto": False, "1": True}
