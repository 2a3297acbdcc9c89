"""The first sentences of a report and of compare: what was found, how sure that is, what would decide."""

import re

import pandas as pd
import pytest

from ablate.analysis.compare import compare
from ablate.analysis.load import load
from ablate.config.contrast import MARGIN
from ablate.reporting.answers import answer, findings
from ablate.reporting.commands import with_seeds
from ablate.reporting.html import coded
from ablate.reporting.words import more_seeds
from ablate.store.record import Role, StudyRecord
from tests.helpers import make_record
from tests.synthetic import synthetic_study
from tests.test_compare import hand_worked, table

pytestmark = pytest.mark.usefixtures("two_seeds_decide")

PRIMARY = [{"vary": "fusion", "baseline": "concat"}]
TERMS = {"concat": "concatenating the heads", "sum": "summing the heads"}
SIZE = {"corpus": "book.txt", "layers": 2, "d_model": 64, "steps": 1000, "wall_s": 30.0, "threads": 1}


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch):
    monkeypatch.setattr("ablate.reporting.next.available_cores", lambda: 2)


def rows() -> pd.DataFrame:
    return table(*hand_worked()).assign(**SIZE)


def at(heads: int) -> pd.DataFrame:
    """The same with so many heads."""
    found = rows().assign(heads=heads, key_width=64 // heads, value_width=64 // heads)
    return found.assign(run_id=found["run_id"] + str(heads))


@pytest.mark.slow
def test_a_finding_by_hand():
    result = compare(rows(), records=[make_record(primary=PRIMARY)])
    mean, worse = findings(result, TERMS)
    assert worse == (
        "Summing the heads costs 0.250 nats (0.129 to 0.371) against concatenating the heads, about 28 % more"
        " perplexity."
    )
    assert mean == (
        "Whether mean costs or saves anything against concatenating the heads is undecided: 0.000 nats"
        " (−0.038 to 0.038)."
    )
    turned = compare(rows(), baseline={"fusion": "sum"}, where=["fusion!=mean"])
    assert findings(turned) == [
        "Concat saves 0.250 nats (0.158 to 0.342) against sum, about 22 % less perplexity."
    ]
    equal = compare(rows(), margin=0.05, where=["fusion!=sum"])
    assert findings(equal) == ["Mean and concat differ by less than 0.05 nats: 0.000 (−0.029 to 0.029)."]


def test_of_accuracy_more_is_gained():
    result = compare(rows().assign(val_acc=lambda r: r["val_loss"]), metric="val_acc", where=["fusion!=mean"])
    assert findings(result) == ["Sum gains 0.250 of val_acc (0.158 to 0.342) against concat."]


@pytest.mark.slow
def test_of_many_contrasts_their_verdicts_and_the_largest():
    many = pd.concat(map(at, (2, 4, 8)))
    many.loc[(many["fusion"] == "sum") & (many["heads"] == 2), "val_loss"] += 1.0
    result = compare(many, records=[make_record(primary=PRIMARY)])
    tally, largest = findings(result)
    assert tally == "Of 6 comparisons, 3 are undecided; 3 are worse."
    named = make_record(primary=[{"vary": "fusion", "baseline": "concat", "where": {"heads": [2, 4]}}])
    assert len(findings(compare(many, records=[named]))) == 4  # what was named beforehand is told one by one
    assert largest.startswith("The largest: sum costs 1.250 nats") and "(heads=2" in largest


@pytest.mark.slow
def test_the_answer_says_how_sure_and_what_would_make_it_surer():
    typed = ["study=mine", "seed=0,1,2,3", "train.steps=100"]
    record = make_record(primary=PRIMARY, seeds=[0, 1, 2, 3], typed=typed, answer=TERMS)
    found = answer(compare(rows(), records=[record]), record)
    assert found.findings[0].startswith("On book.txt (2 layers, 64 wide, 1,000 steps): whether mean costs")
    assert found.trust == [
        "4 paired seeds; all 2 intervals hold together with 95 % confidence.",
        f"Less than {MARGIN} nats counts as no difference.",
    ]
    (more,) = found.next
    (need,) = map(int, re.findall(r"About (\d+) more seeds would decide this", more.reason))
    assert more.command == f"ablate run study=mine train.steps=100 'seed=range(0,{4 + need})'"
    minutes = need * 3 * 30 / 2 / 60  # three variants, two at a time
    assert more.time in (f"about {minutes:.0f} min here", f"about {minutes / 60:.1f} h here")
    decided = rows().query("fusion != 'mean'")
    found = answer(compare(decided, records=[record]), record)
    assert found.next == []
    assert "about 1 more seed would" in more_seeds(1) and "about 2 more seeds would" in more_seeds(2)


def test_one_seed_shows_nothing():
    one = rows().query("seed == seed.min()")
    record = make_record(seeds=[0], typed=["-m", "fusion=concat,sum", "seed=0"])
    found = answer(compare(one), record)
    assert found.findings == ["One seed shows nothing: the same variant with another seed differs as well."]
    assert [*map(str, found.next)] == [
        "6 seeds would be enough for a verdict: `ablate run -m fusion=concat,sum 'seed=range(0,6)'`,"
        " about 4 min here."  # 5 seeds more of three variants, two at a time
    ]


def test_a_study_that_grew_is_asked_for_whole():
    record = make_record(
        typed=["-m", "fusion=sum", "heads=4", "seed=7"], factors={"fusion": ["concat", "sum"]}, seeds=[3, 4]
    )
    assert with_seeds(record, 5) == "ablate run -m fusion=concat,sum heads=4 'seed=range(3,8)'"
    assert with_seeds(make_record(seeds=[0]), 5) == ""


def test_text_between_backticks_becomes_code_and_nothing_else_is_markup():
    assert coded("<b> nats, `a<b`") == "&lt;b&gt; nats, <code>a&lt;b</code>" and coded("a ` b") == "a ` b"


def test_what_is_undecided_is_one_sentence():
    mean = rows().query("fusion == 'mean'")
    two = pd.concat([rows(), mean.assign(fusion="exclusive", form="exclusive", run_id=mean["run_id"] + "m")])
    result = compare(two, records=[make_record(primary=PRIMARY)], where=["fusion!=sum"])
    assert findings(result, {"exclusive": "taking the largest"}) == [
        "Nothing is decided yet against concat about taking the largest, 0.000 nats (−0.038 to 0.038); mean,"
        " 0.000 nats (−0.038 to 0.038)."
    ]


def test_an_answer_calls_arms_by_the_words_of_the_study(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATE_RUNS", str(tmp_path / "runs"))
    store = synthetic_study(
        tmp_path / "runs", fusions=("concat", "sum"), heads=(4,), out_proj=(True,), seeds=4, tuned="train.lr"
    )
    rows = store.study_rows("synthetic")
    arm_of = {row["run_id"]: "plain" if row["fusion"] == "concat" else "summed" for row in rows}
    roles = {
        run: Role(phase="report", role="tuned", tuned="train.lr", values={"tuned": [arm]})
        for run, arm in arm_of.items()
    }
    words = {"summed": "summing them as they are", "plain": "putting them side by side"}

    def changed(record: StudyRecord | None) -> StudyRecord:
        assert record
        return StudyRecord(**{**vars(record), "roles": roles, "answer": words})

    store.change_study("synthetic", changed)
    results = load(["synthetic"])
    (said,) = answer(compare(results.rows, records=results.records), results.record).findings
    assert "summing them as they are costs " in said and " against putting them side by side" in said
    assert "heads=4" not in said
