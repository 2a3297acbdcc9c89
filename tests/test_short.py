"""What `ablate compare` prints at first: short, complete, and without the words of statistics."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ablate.analysis.compare import compare
from ablate.reporting.answers import brief_lines
from ablate.reporting.cells import in_width, short_table
from ablate.reporting.tables import lines_of
from ablate.store.record import PlannedLooks
from tests.helpers import ROOT, make_record
from tests.test_answers import SIZE
from tests.test_compare import CONCAT, hand_worked, table, variant

LEARNED_LATER = ("simultaneous", "exploratory", "holm", "parametrization")
DIGITS = "difference [low, high]"


def study(*arms: dict, effect: float = 0.03, sd: float = 0.005, n: int = 8, **columns) -> pd.DataFrame:
    """Arms whose losses are `effect` above those of concat, over n seeds. columns: of all rows."""
    rng = np.random.default_rng(0)
    base = rng.normal(2, 0.01, n)
    rows = [
        row
        for arm in arms
        for row in variant(
            base + effect * (arm["fusion"] != "concat") + rng.normal(0, sd, n),
            **{**CONCAT, **arm, "form": str(arm)},
        )
    ]
    return table(*rows).assign(**{**SIZE, **columns})


def height(text: str) -> int:
    """The lines that are not blank, as a terminal of 80 columns shows them."""
    return sum(-(-len(line) // 80) for line in text.splitlines() if line.strip())


def fusions(count: int) -> list[dict]:
    return [{"fusion": name} for name in ("concat", *(f"method_{i}" for i in range(count)))]


GRID = [{"fusion": f, "heads": h} for f in ("concat", "weighted_sum") for h in range(1, 9)]
DOUBTFUL = {"ngram_val_loss": 1.0, "ngram_order": 6, "overlap": 0.3, "epochs": 9.0}


@pytest.mark.parametrize(
    "rows, most",
    [
        (study(*fusions(1)), 8),
        (study(*fusions(1), effect=0.025, sd=0.01, **DOUBTFUL), 8),
        (study(*fusions(1), effect=0.01, sd=0.02, **DOUBTFUL), 8),
        (study(*fusions(8), **DOUBTFUL), 16),
        (study(*fusions(8), effect=0.024, sd=0.004, **DOUBTFUL), 16),
        (study(*GRID, **DOUBTFUL), 20),  # with each of eight baselines
    ],
)
def test_it_is_short(rows: pd.DataFrame, most: int):
    result = compare(rows)
    shown, left_out = lines_of(in_width(short_table(result), 80), 80)
    text = "\n".join([*brief_lines(result, [], result.notes), shown])
    assert height(text) <= most and not left_out, text
    assert not [word for word in LEARNED_LATER if word in text.lower()]


@pytest.mark.slow
def test_why_has_the_rest(command):
    study(*fusions(1)).to_csv("rows.csv", index=False)
    code, out, err = command("compare", "rows.csv")
    assert code == 0 and not err and "start as different" not in out
    _, out, err = command("compare", "rows.csv", "--why")
    assert not [word for word in LEARNED_LATER if word not in (out + err).lower()]
    start = "start as different functions; part of the difference may come from that start"
    assert (out + err).count(start) == 1 and f"\nConcat and method_0 {start}" in f"\n{err}"


@pytest.mark.slow
def test_so_is_a_study_of_the_repository(command):
    code, out, err = command("compare", str(ROOT / "docs" / "looks"))
    assert code == 0 and height(out + err) <= 16 and "\nvariant  " in out
    assert not [word for word in LEARNED_LATER if word in out.lower()]
    assert "95 % confidence for all 3 together, decided at 6 to 8 of at most 32 seeds." in out


@pytest.mark.slow
def test_worse_is_perhaps_within_the_margin_where_the_interval_reaches_into_it(command):
    study(*fusions(1), effect=0.013, sd=0.01).to_csv("rows.csv", index=False)
    for words in ((), ("--why",)):
        _, out, _ = command("compare", "rows.csv", *words)
        assert "worse, perhaps within the margin" in out
        assert "against concat" in out and "perhaps within the margin of 0.02" in out
    _, out, _ = command("compare", "rows.csv", "--margin", "0.001")
    assert "perhaps" not in out and "worse" in out
    _, as_csv, _ = command("compare", "rows.csv", "--format", "csv")
    assert "perhaps" not in as_csv and ",worse," in as_csv


def test_many_verdicts_are_counted_in_a_sentence():
    result = compare(study(*fusions(8), effect=0.024, sd=0.004))
    (first,) = brief_lines(result, [], [])
    assert first.startswith("On book.txt: of 8 comparisons, ")
    verdicts = short_table(result)["verdict"].value_counts()
    for verdict, count in verdicts.drop("baseline").items():
        assert f"{count} {'is' if count == 1 else 'are'} {verdict}" in first


def test_each_contrast_is_below_its_baseline():
    result = compare(study(*(arm for arm in GRID if arm["heads"] < 3)))
    shown = short_table(result)
    assert [*shown.columns] == ["variant", "n", "mean", DIGITS, "verdict"]
    names = [f"{f} heads={h}" for h in (1, 2) for f in ("concat", "weighted_sum")]
    assert sorted(shown["variant"]) == sorted(names)
    assert shown["verdict"].tolist()[::2] == ["baseline", "baseline"]
    for base, other in zip(shown["variant"][::2], shown["variant"][1::2], strict=True):
        assert base.split()[1] == other.split()[1]


def test_a_table_too_wide_for_its_terminal_has_a_shorter_verdict():
    result = compare(study({"fusion": "concat"}, {"fusion": "weighted_sum"}, effect=0.013, sd=0.01))
    shown = short_table(result)
    assert shown["verdict"].tolist() == ["baseline", "worse, perhaps within the margin"]
    assert in_width(shown, 200).equals(shown)
    narrow = in_width(shown, 80)
    assert narrow["verdict"].tolist() == ["baseline", "worse, perhaps"]
    assert max(map(len, lines_of(narrow, None)[0].splitlines())) <= 80


@pytest.mark.slow
def test_doubts_are_named_in_a_few_words_each(command):
    rows = study(*fusions(1), **DOUBTFUL)
    rows.loc[rows.index[-2:], ["status", "val_loss", "error"]] = ["diverged", None, "not finite at step 7"]
    rows.to_csv("rows.csv", index=False)
    _, out, _ = command("compare", "rows.csv")
    doubts = "Doubts: not named beforehand, worse than counting, a text that repeats itself, 2 more; --why"
    assert doubts in out, out
    assert "6 + 2 diverged" in out
    _, _, err = command("compare", "rows.csv", "--why")
    assert err.count("not finite at step 7") == 2 and "worse than counting: fusion=concat" in err
    _, latex, err = command("compare", "rows.csv", "--format", "latex")
    assert latex.startswith("% needs") and err.startswith("Doubts: worse than counting")


def test_a_study_with_looks_left_names_the_command_that_goes_on():
    few = table(*hand_worked()).query("fusion != 'sum'").assign(**SIZE)
    record = replace(
        make_record(primary=[{"vary": "fusion", "baseline": "concat"}], typed=["study=fusion", "heads=4"]),
        looks=PlannedLooks(at=[4, 8], seeds=[*range(8)], contrasts=1),
    )
    first, line = brief_lines(compare(few, records=[record]), [record], [])
    assert "95 % confidence, so far 4 of at most 8 seeds." in first
    assert line == "The study goes on with what is undecided: `ablate run study=fusion heads=4`."
