"""Tables of any origin: what is taken for what, what is refused, and the verdicts on them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

import ablate
from ablate.analysis.foreign import as_results
from ablate.analysis.load import load
from ablate.config.rules import ConfigError, same
from ablate.phrases import texts
from tests.helpers import compared, make_record
from tests.test_compare import grid

pytestmark = pytest.mark.usefixtures("two_seeds_decide")

LOSSES = {"base": (2.0, 2.1, 2.2, 2.3), "ours": (1.9, 2.01, 2.09, 2.21)}
reference: Any = scipy_stats  # its results have no types
ASKED: dict[str, Any] = {"by": "method", "metric": "loss", "baseline": "method=base"}
LESS: dict[str, Any] = {"higher_is_better": False}


def frame(losses=LOSSES, **columns) -> pd.DataFrame:
    rows = [(method, seed, loss) for method, of in losses.items() for seed, loss in enumerate(of)]
    return pd.DataFrame(rows, columns=["method", "seed", "loss"]).assign(**columns)


def contrast(rows: pd.DataFrame, **asked) -> pd.Series:
    """The row of the only contrast."""
    table = ablate.compare(rows, **{**ASKED, **asked}).table
    return table[table["baseline"].notna()].iloc[0]


# --- a column that was varied, a metric, and a seed ------------------------------------------------


def test_without_by_the_only_column_of_words_is_taken_and_said():
    found = ablate.compare(frame(), baseline="method=base")
    assert "taken: variants by method, metric loss (--by and --metric take others)" in str(found)
    two = frame(fold=["a", "b"] * 4)  # columns are suggested in the order of the table
    with pytest.raises(ConfigError, match="name the column that was varied, as --by method: method, fold"):
        ablate.compare(two, metric="loss")
    with pytest.raises(ConfigError, match="as --by COL: none has a value twice"):
        ablate.compare(pd.DataFrame({"commit": ["a", "b"], "val_bpb": [0.99, 0.98]}))


def test_without_a_baseline_the_line_says_how_to_name_one():
    found = ablate.compare(frame(), by="method", metric="loss")
    assert "no verdicts: no baseline is named; name one: --baseline method=base" in texts(found.notes)
    assert found.table["verdict"].eq("").all()


# --- what pairs, and Welch where nothing does ---------------------------------------------------------


@pytest.mark.parametrize(
    "seeds, why", [(None, "there is no seed and no --pair-by"), ([0, 1, 2, 5, 6], "no two seeds")]
)
def test_two_groups_are_tested_by_welch(seeds, why):
    base, ours = (2.0, 2.1, 2.2), (1.8, 2.0)
    rows = frame({"base": base, "ours": ours}).drop(columns="seed")
    found = ablate.compare(rows if seeds is None else rows.assign(seed=seeds), **ASKED)
    (row,) = found.table[found.table["baseline"].notna()].to_dict("records")
    # se² = 0.1²/3 + 0.02/2 = 0.04/3; df = se⁴ / ((0.01/3)²/2 + 0.01²/1) = 32/19
    half = reference.t.isf(0.025, 32 / 19) * (0.04 / 3) ** 0.5
    assert [row["diff"], row["low"], row["high"]] == pytest.approx([-0.2, -0.2 - half, -0.2 + half])
    assert row["p"] == pytest.approx(reference.ttest_ind(ours, base, equal_var=False).pvalue)
    assert (row["n"], row["verdict"]) == (2, "undecided") and pd.isna(row["pairs"])
    assert f"taken: not paired, as {why}" in str(found)
    assert "2 to 3 runs a variant, not paired" in str(found)


def test_equal_rows_without_a_seed_are_several_runs(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("method,loss\n" + "base,2.0\n" * 2 + "base,2.1\nours,1.9\nours,1.9\n", encoding="utf-8")
    assert len(load([str(path)]).rows) == len(load([str(path)] * 2).rows) == 5


# --- which way a metric is better, and its margin ---------------------------------------------------------


@pytest.mark.slow
def test_a_foreign_metric_has_no_better_unless_it_is_said():
    found, row = ablate.compare(frame(), **ASKED), contrast(frame())
    why = "say which way is better: --lower-is-better or --higher-is-better"
    assert (row["verdict"], row["why"], row["diff"]) == ("undecided", why, pytest.approx(-0.0975))
    assert not re.search("better|saves|costs", str(found).replace("is better", "").replace("-is-better", ""))
    assert contrast(frame(), margin=0.2)["verdict"] == "equivalent"  # which has no direction
    assert contrast(frame(), higher_is_better=True)["verdict"] == "worse"
    assert contrast(frame(), **LESS)["verdict"] == "better"
    more = ablate.compare(
        frame(LOSSES | {"base": LOSSES["ours"], "ours": LOSSES["base"]}), higher_is_better=True, **ASKED
    )
    assert "method=ours gains 0.098 of loss" in str(more)


@pytest.mark.parametrize("metric, given", [("val_loss", True), ("val_acc", False)])
def test_a_metric_of_ablates_knows_which_way_it_is_better(metric, given, command):
    rows = frame().rename(columns={"loss": metric})
    rows.to_csv("t.csv", index=False)
    option, better = ("--higher-is-better", "lower") if given else ("--lower-is-better", "higher")
    code, out, err = command("compare", "t.csv", "--by", "method", "--metric", metric, option)
    assert (code, out) == (
        2,
        "",
    ) and err == f"ablate: {option}: {metric} is better when {better}; leave it out\n"


@pytest.mark.slow
def test_only_what_is_in_nats_has_a_margin_by_default():
    gain = {"base": (0.80, 0.81, 0.82, 0.83), "ours": (0.812, 0.8221, 0.8319, 0.842)}
    rows = frame(gain).rename(columns={"loss": "val_acc"})
    asked: Any = {"by": "method", "baseline": "method=base", "metric": "val_acc"}
    found = ablate.compare(rows, **asked)
    assert np.isnan(found.margin) and "better" in {*found.table["verdict"]}
    assert "method=ours gains 0.012 of val_acc (0.012 to 0.012) against method=base." in str(found)
    assert "margin" not in str(found) and "would matter" not in str(found)


@pytest.mark.slow
def test_the_margin_of_a_study_is_in_the_unit_of_its_metric():
    rows, record = grid(), make_record(metric="val_loss", margin=0.5)
    rows = rows.assign(val_acc=np.arange(len(rows)) / 100, test_loss=rows["val_loss"])
    assert (
        compared(rows, records=[record]).margin
        == compared(rows, records=[record], metric="test_loss").margin
        == 0.5
    )
    assert np.isnan(compared(rows, records=[record], metric="val_acc").margin)


@pytest.mark.slow
def test_plan_asks_for_the_difference_of_what_is_not_in_nats(command):
    frame().to_csv("t.csv", index=False)
    asked = ("plan", "t.csv", "--by", "method", "--metric", "loss", "--baseline", "method=base")
    code, out, err = command(*asked)
    assert (code, out) == (2, "") and err.endswith(
        "loss is not in nats, so give the --difference to detect, in its unit\n"
    )
    code, _, err = command(*asked[:-2], "--difference", "0.02")
    assert code == 2 and "no noise to plan for; name a --baseline" in err
    code, out, _ = command(*asked, "--difference", "0.02", "--format", "csv")
    assert code == 0 and out.splitlines()[1].startswith("as measured,")


# --- an option without effect ------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_arms_that_agree_to_the_last_digit_are_identical(command):
    same_losses = {"1e6": LOSSES["base"], "1e7": LOSSES["base"]}
    rows = frame(same_losses).rename(columns={"method": "clip"}).astype({"clip": float})
    rows.to_csv("t.csv", index=False)
    asked = ("t.csv", "--by", "clip", "--metric", "loss", "--baseline", "clip=1e6")
    words = (
        "clip=10000000.0 and clip=1000000.0 are identical at all 4 seeds: clip changes nothing here; perhaps"
        " the option never reached the program."
    )
    code, out, err = command("compare", *asked)
    assert code == 0 and out.startswith(f"{words}\n") and not err
    assert "Doubt" not in out and "more seed" not in out and "identical at all 4 seeds\n" in out


# --- numbers are numbers --------------------------------------------------------------------------------


@pytest.mark.slow
def test_numbers_are_compared_as_numbers():
    assert same(100000.0, "1e5") and same("1E+5", 100000) and same(1e-5, "0.00001") and same("1e6", "1000000")
    assert not same("12345678e012", "12345678e013") and not same("1e5", 100001)
    rows = frame({"0.001": LOSSES["base"], "100000": LOSSES["ours"]}).rename(columns={"method": "steps"})
    rows = rows.astype({"steps": float})
    odd = rows.assign(**{"acc %": 3, "2nd": "a<b"})
    assert len(ablate.compare(odd, by="steps", metric="loss", where={"acc %": 3, "2nd": "a<b"}).rows) == 8
    for spelled in ("1e5", "100000.0"):
        assert len(ablate.compare(rows, by="steps", metric="loss", where=f"steps={spelled}").rows) == 4
    assert contrast(rows, by="steps", baseline="steps=1e5", **LESS)["verdict"] == "worse"


# --- brought into shape, and said ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, why",
    [
        ("method;tokens;size\na;1.024;2,5\nb;2.048;2,4\n", "'1.024' may mean a decimal or thousands"),
        ("method,tokens\na,2.5\nb,2,4\n", "line 3 has 3 cells, and the header 2"),
    ],
)
def test_what_may_mean_thousands_is_refused(text, why, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(why)):
        ablate.compare(tmp_path / "t.csv", by="method", metric="tokens")


def test_a_second_row_without_a_result_differs_in_no_column_of_our_making():
    rows = pd.concat([frame(), frame().tail(1).assign(loss=np.nan)])
    with pytest.raises(ConfigError, match=r"two rows .* and nan\); leave one out"):
        ablate.compare(rows, **ASKED)


def test_nan_is_no_result_and_inf_is_diverged():
    rows = frame().astype({"loss": object})
    rows.loc[[1, 6], "loss"] = ["nan", np.inf]
    found = ablate.compare(rows, **ASKED)
    assert not any("differs" in one.text for one in found.notes)
    counts: Any = found.table.set_index("variant")[["n", "diverged"]]
    assert counts.loc["method=base"].tolist() == [3, 0] and counts.loc["method=ours"].tolist() == [3, 1]
    assert "done: method=base seed=1: no loss" in texts(found.notes)


@pytest.mark.slow
def test_values_that_deserve_a_doubt():
    crashed = ablate.compare(frame(LOSSES | {"ours": (1.9, 0.0, 2.09, 2.21)}), **ASKED)
    assert "loss of exactly 0" in str(crashed) and crashed.table["n"].tolist() == [4, 4]
    assert "exactly" not in str(ablate.compare(frame(), **ASKED))


@pytest.mark.slow
def test_a_report_of_a_foreign_table(command):
    frame().to_csv("t.csv", index=False)
    code, _, _ = command("report", "t.csv", "--by", "method", "--metric", "loss", "--baseline", "method=base")
    page = Path("t-report-loss-method-base.html").read_text(encoding="utf-8")
    assert code == 0 and "say which way is better" in page
    assert not re.search("counting tokens|learned to look|one learning rate|validation split, as", page)


# --- what a hostile reader tried -------------------------------------------------------------------


def csv(path: str, rows: pd.DataFrame) -> str:
    rows.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("column", ["role", "lr"])
def test_words_that_only_ablate_knows_say_nothing_in_a_table_of_others(column):
    rows = frame({"base": LOSSES["base"], "tuned": LOSSES["ours"]}).rename(columns={"method": column})
    baseline = f"{column}=base"
    if column == "lr":
        rows[column], baseline = [1.0] * 4 + [2.0] * 4, "lr=1"
    row = contrast(rows, by=column, baseline=baseline, **LESS)
    assert (row["pairs"], row["verdict"]) == (4, "better")
    assert row["diff"] == pytest.approx(-0.0975)


@pytest.mark.parametrize(
    ("cell", "why"), [("OOM", "is no usable number; corr"), ("3.2 ± 0.01", "is a mean over runs, and a comp")]
)
def test_a_cell_of_the_metric_that_is_no_number_is_named(tmp_path, cell, why):
    rows = frame().astype({"loss": object})
    rows.loc[1, "loss"] = cell
    path = csv(str(tmp_path / "t.csv"), rows)
    with pytest.raises(ConfigError, match=rf"^loss: '{cell}' {why}.* \(method=base seed=1\)$"):
        ablate.compare(path, **ASKED)
    left_out = rows.assign(state=["finished", "crashed"] + ["finished"] * 6)
    assert contrast(left_out)["pairs"] == 3


def test_advice_on_duplicates_never_names_the_metric():
    rows = pd.concat([frame(dataset=name, loss=frame()["loss"] + at) for at, name in enumerate("ab")])
    advice = " differ in dataset; add dataset to --by or --pair-by, or choose with --where dataset=…"
    with pytest.raises(ConfigError, match=rf"\(method=base seed=0: loss 2 and 3\){advice}$"):
        ablate.compare(rows, **ASKED)
    assert contrast(rows, pair_by="dataset", **LESS)["pairs"] == 4  # of seeds, over both


def test_a_setting_that_each_method_has_for_itself_is_told():
    rows = [("base", 0.0003, 3.2, (1, -1, 0, 2, -2, 0)), ("ours", 0.001, 3.1, (0, 2, -1, 0, 1, -2))]
    rows += [("rival", 0.0003, 3.2, (-1, 0, 1, 0, -1, 1))]
    given = pd.DataFrame(
        [
            {"method": method, "seed": seed, "lr": lr, "val_loss": loss + noise / 1000}
            for method, lr, loss, of_seeds in rows
            for seed, noise in enumerate(of_seeds)
        ]
    )
    read, _ = as_results(given, "t")
    found = compared(read, by=["method"], baseline={"method": "base"})
    verdicts = dict(zip(found.table["variant"], found.table["verdict"], strict=True))
    assert (verdicts["method=ours"], verdicts["method=rival"]) == ("better", "equivalent")
    assert [note.brief for note in found.notes if "its doing" in note.text] == ["lr differs, too"]
