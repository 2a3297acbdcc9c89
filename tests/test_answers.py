"""The first sentences of a report and of compare: what was found, how sure that is, what would decide."""

import re

import numpy as np
import pandas as pd
import pytest

import ablate
from ablate.reporting.answers import LEAD, answer
from ablate.reporting.cells import contrast_table
from ablate.reporting.html import coded
from ablate.reporting.next import with_seeds
from tests.helpers import compared, make_record
from tests.test_compare import hand_worked, table

pytestmark = pytest.mark.usefixtures("two_seeds_decide")

PRIMARY = [{"vary": "fusion", "baseline": "concat"}]
TERMS = {"concat": "concatenating the heads", "sum": "summing the heads"}
SIZE = {"corpus": "book.txt", "layers": 2, "d_model": 64, "steps": 1000, "wall_s": 30.0, "threads": 1}


def rows() -> pd.DataFrame:
    return table(*hand_worked()).assign(**SIZE)


def at(heads: int) -> pd.DataFrame:
    """The same with so many heads."""
    found = rows().assign(heads=heads, key_width=64 // heads, value_width=64 // heads)
    return found.assign(run_id=found["run_id"] + str(heads))


@pytest.mark.slow
def test_a_finding_by_hand():
    record = make_record(primary=PRIMARY, answer=TERMS)
    worse, mean = answer(compared(rows(), records=[record]), [record]).findings
    assert worse == (
        "On book.txt (2 layers, 64 wide, 1,000 steps): summing the heads costs 0.250 nats (0.129 to 0.371)"
        " against concatenating the heads."
    )
    assert mean == (
        "Whether mean costs or saves anything against concatenating the heads is undecided"
        " (−0.038 to 0.038 nats): noise, as its interval holds 0 and reaches beyond the margin."
    )
    equal = answer(compared(rows(), margin=0.05), []).findings[1]
    assert equal == "Mean and concat differ by less than 0.05 nats: 0.000 (−0.038 to 0.038)."


@pytest.mark.slow
def test_of_many_contrasts_the_best_and_the_worst_are_named_then_verdicts_counted():
    many = pd.concat(map(at, (2, 4, 8)))
    many.loc[(many["fusion"] == "sum") & (many["heads"] == 2), "val_loss"] += 1.0
    record = make_record(primary=PRIMARY)
    short = answer(compared(many, records=[record]), [record]).short
    assert short == (
        "On book.txt, against concat, variants are worse in 3 and undecided in 3 of 6 comparisons, nowhere"
        " better; best is mean (heads=8, undecided), worst is sum (heads=2, worse by 1.250 nats)."
    )
    many.loc[many["fusion"] != "concat", "val_loss"] -= 3  # now all are better
    short = answer(compared(many, records=[record]), [record]).short
    assert "best is mean (heads=8, better by " in short and "least good is sum (heads=2, better " in short


def test_two_groups_of_seeds_are_told_as_a_frequency():
    base = np.array([0.500, 0.503, 0.498, 0.501, 0.502, 0.497])
    apart = np.array([-0.4, 0.01, -0.41, -0.4, 0.01, -0.41])  # two of six never learned
    rows = pd.DataFrame({"method": ["base"] * 6 + ["new"] * 6, "loss": [*base, *base + apart]})
    asked = {"by": "method", "metric": "loss", "baseline": "method=base", "higher_is_better": False}
    paired = rows.assign(seed=[*range(6)] * 2)
    for of, low, high in ((paired, "0.405", "−0.010"), (rows, "0.406", "−0.012")):
        found = ablate.compare(of, **asked)
        groups = f"{low} of loss in 4 of 6 runs, {high} in 2"
        assert found.answer[1] == f"method=new saves {groups} against method=base (better on average)."
        *_, difference, verdict = contrast_table(found).iloc[0].tolist()
        assert verdict == "better on average" and difference.endswith(" in 2")
        assert found.table[["low", "high"]].isna().all(axis=None) and np.isnan(found.findings[0].low)
    nothing = paired.assign(loss=[*base, *base + np.where(apart < 0, [2e-5, 0, -1e-5, -3e-5, 0, 1e-5], 0.4)])
    assert "costs 0.000 of loss in 4 of 6 runs, 0.400 in 2" in ablate.compare(nothing, **asked).answer[1]
    more = paired.query("seed < 2").assign(seed=[6, 7] * 2, status=["done"] * 2 + ["diverged"] * 2)
    lost = ablate.compare(pd.concat([paired.assign(status="done"), more]), **asked)
    assert lost.answer[1].endswith("(undecided: diverged, as it did on 2 more seeds than its baseline).")
    odd = np.array([0.998, 1.021, 1.186, 0.971, 0.987, 0.997])  # one seed is odd in both
    shared = paired.assign(loss=[*odd, *odd - [0.102, 0.122, 0.1, 0.096, 0.091, 0.093]])
    assert "saves 0.101 of loss (" in ablate.compare(shared, **asked).answer[1]


@pytest.mark.slow
def test_the_answer_says_how_sure_and_what_would_make_it_surer():
    typed = ["study=mine", "seed=0,1,2,3", "train.steps=100"]
    record = make_record(primary=PRIMARY, seeds=[0, 1, 2, 3], typed=typed, answer=TERMS)
    found = answer(compared(rows(), records=[record]), [record])
    assert found.trust == "4 paired seeds, 95 % confidence for both together."
    (more,) = found.next
    (need,) = map(
        int,
        re.findall(r"About (\d+) seeds would decide mean against .* heads, if .*: ask again", more.reason),
    )
    assert more.command == f"ablate run study=mine train.steps=100 'seed=range(4,{4 + need})' name=s-again"
    decided = rows().query("fusion != 'mean'")
    found = answer(compared(decided, records=[record]), [record])
    assert found.next == [] and LEAD not in found.trust
    assert LEAD in answer(compared(decided), []).trust
    other = make_record(name="t", primary=PRIMARY)
    twice = compared(rows(), records=[record, other])
    assert answer(twice, [record, other]).trust.startswith(
        "4 paired seeds, 95 % confidence for those of each study together."
    )


def test_one_seed_shows_nothing():
    one = rows().query("seed == seed.min()")
    record = make_record(seeds=[0], typed=["-m", "fusion=concat,sum", "seed=0"])
    found = answer(compared(one), [record])
    assert found.findings == ["One seed shows nothing: the same variant with another seed differs as well."]
    assert [*map(str, found.next)] == [
        "A verdict takes 2 seeds: `ablate run -m fusion=concat,sum 'seed=range(0,2)'`."
    ]


def test_a_study_that_grew_is_asked_for_whole():
    record = make_record(
        typed=["-m", "fusion=sum", "heads=4", "seed=7"], factors={"fusion": ["concat", "sum"]}, seeds=[3, 4]
    )
    assert with_seeds(record, 5) == "ablate run -m fusion=concat,sum heads=4 'seed=range(3,8)'"
    assert with_seeds(make_record(seeds=[0]), 5) == ""


def test_text_between_backticks_becomes_code_and_nothing_else_is_markup():
    assert coded("<b> nats, `a<b`") == "&lt;b&gt; nats, <code>a&lt;b</code>" and coded("a ` b") == "a ` b"
