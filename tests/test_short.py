"""What `ablate compare` prints at first: what is wrong, the answer, the table, whether it stands, a
command."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ablate.reporting.answers import LEAD, around
from ablate.reporting.cells import contrast_table
from ablate.store.record import PlannedLooks
from ablate.tables import lines_of
from tests.helpers import ROOT, compared, make_record, with_contrasts
from tests.test_answers import SIZE
from tests.test_compare import CONCAT, hand_worked, table, variant

LEARNED_LATER = ("simultaneous", "holm", "parametrization", "p_")
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
        (study(*fusions(1), effect=0.025, sd=0.01, **DOUBTFUL), 9),
        (study(*fusions(1), effect=0.01, sd=0.02, **DOUBTFUL), 9),
        (study(*fusions(8), **DOUBTFUL), 18),
        (study(*fusions(8), effect=0.024, sd=0.004, **DOUBTFUL), 18),
        (study(*GRID, **DOUBTFUL), 26),  # with each of eight baselines
    ],
)
def test_it_is_short(rows: pd.DataFrame, most: int):
    result = compared(rows)
    shown, left_out = lines_of(contrast_table(result), 80)
    above, below = around(result, [])
    text = "\n".join([*above, shown, *below])
    assert height(text) <= most and not left_out, text
    assert not [word for word in LEARNED_LATER if word in text.lower()]


def test_undecided_differences_are_no_numbers_to_quote_and_verdicts_name_who():
    result = compared(study(*fusions(3), effect=0.001, sd=0.03), margin=0.001)
    shown = contrast_table(result)
    undecided = shown[shown["verdict"] == "undecided: noise"]
    assert (
        len(undecided)
        and undecided[DIGITS].str.fullmatch(r"~[+-]\d\.\d{4} \[-?\d\.\d{4}, -?\d\.\d{4}\]").all()
    )
    above, _ = around(result, [])
    assert f"{len(undecided)} undecided" in above[-1]
    named = re.findall(r"(best|worst)(?: is)? (\w+)", above[-1])
    others = shown[shown["verdict"] != "baseline"].sort_values("mean")["variant"].tolist()
    assert named == [("best", others[0]), ("worst", others[-1])]
    assert "95 % confidence for" in above[-1]


@pytest.mark.slow
def test_doubts_come_first_and_why_explains_them(command):
    rows = study(*fusions(1), **DOUBTFUL)
    rows.loc[rows.index[-2:], ["status", "val_loss", "error"]] = ["diverged", None, "not finite at step 7"]
    rows.to_csv("rows.csv", index=False)
    _, out, err = command("compare", "rows.csv")
    assert not err and out.startswith(
        "Doubts: a text that repeats itself, losses above an n-gram table's, a text read 9"
    )
    assert "6 + 2 diverged" in out and LEAD in out
    _, out, err = command("compare", "rows.csv", "--why")
    assert err.count("not finite at step 7") == 2 and "worse than counting 6 tokens by" in err
    assert "intervals of 95 % together" in out and "p_" not in out
    _, latex, err = command("compare", "rows.csv", "--format", "latex")
    assert latex.startswith("% needs") and err.startswith("Doubts: a text that repeats itself")
    _, as_csv, _ = command("compare", "rows.csv", "--format", "csv")
    assert ",p,p_adjusted," in as_csv


@pytest.mark.slow
def test_whether_a_verdict_stands_is_one_line(command):
    study(*fusions(1)).assign(test_loss=lambda rows: rows["val_loss"]).to_csv("rows.csv", index=False)
    _, out, _ = command("compare", "rows.csv")
    assert "\nDecided verdicts are the same without the farthest seed and by sign flips.\n" in out
    _, out, _ = command("compare", "rows.csv", "--metric", "test_loss")
    assert "\nDecided verdicts are the same on validation, without the farthest seed and by" in out
    rows = study(*fusions(1), effect=0.004, sd=0.001)
    rows["test_loss"] = rows["val_loss"]
    rows.loc[rows["fusion"] != "concat", "val_loss"] += 0.5
    rows.to_csv("rows.csv", index=False)
    _, out, _ = command("compare", "rows.csv", "--metric", "test_loss", "--margin", "0.0001")
    assert "flips; not the same" not in out and "Decided verdicts are the same on validation" in out
    rows.loc[rows["fusion"] != "concat", "val_loss"] -= 1.0
    rows.to_csv("rows.csv", index=False)
    _, out, _ = command("compare", "rows.csv", "--metric", "test_loss", "--margin", "0.0001")
    assert "and by sign flips; not the same on validation: method_0 (better).\n" in out
    asked = ("rows.csv", "--metric", "test_loss", "--margin", "0.0001", "--format", "latex")
    _, latex, _ = command("compare", *asked)
    assert r"not the same on validation: method\_0 (better)." in latex.partition(r"\label")[0]


@pytest.mark.slow
def test_a_study_of_the_repository_is_as_short(command):
    code, out, err = command("compare", str(ROOT / "docs" / "results" / "later"))
    assert code == 0 and height(out + err) <= 14 and "\nvariant  " in out and "missing" not in out
    assert "6 to 8 paired seeds, 95 % confidence for all 4 together." in out


def test_a_study_with_looks_left_names_the_command_that_goes_on():
    few = table(*hand_worked()).query("fusion != 'sum'").assign(**SIZE)
    record = replace(
        make_record(primary=[{"vary": "fusion", "baseline": "concat"}], typed=["study=fusion", "heads=4"]),
        looks=PlannedLooks(at=[4, 8], seeds=[*range(8)]),
    )
    record = with_contrasts(record, few)
    _, below = around(compared(few, records=[record]), [record])
    assert below == ["The study goes on with what is undecided: `ablate run study=fusion heads=4`."]


@pytest.mark.parametrize(
    ("vocabulary", "effect", "said"),
    [
        (1000, 0.0, "equivalent"),
        (10, 0.0, "undecided: untrained"),  # 2 is beyond the middle of 1 and ln 10
        (10, 0.03, "worse"),
    ],
)
def test_equivalence_of_models_nearer_to_guessing_than_to_counting_is_withheld(vocabulary, effect, said):
    rows = study(*fusions(1), effect=effect, ngram_val_loss=1.0, ngram_order=2, vocab=vocabulary)
    result = compared(rows)
    assert contrast_table(result)["verdict"].tolist()[1] == said and result.findings[0].more_seeds is None
    mixed = compared(rows.assign(mix_loss=rows["val_loss"]), metric="mix_loss").findings[0]
    assert mixed.why.startswith("untrained") == ("untrained" in said)
