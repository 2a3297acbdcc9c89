"""What to do next: what matters most comes first, and nothing is asked for that would not help."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import ablate
from ablate.cli.train import two_fusions
from ablate.config.rules import ConfigError
from ablate.reporting.answers import lines
from ablate.reporting.next import MOST, next_steps
from ablate.store.store import Store
from tests.helpers import QUICK, compared, make_record, with_contrasts, write_study
from tests.test_compare import table

PRIMARY = {"primary": [{"vary": "fusion", "baseline": "concat"}], "metric": "val_loss", "margin": 0.02}
TYPED = ["-m", "fusion=concat,sum", "train.steps=1000", "name=s"]
SIZE = {"steps": 1000, "wall_s": 30.0, "threads": 1, "lr": 0.01, "match": "none"}
OWN_RATES = {"tuned": "train.lr", "role": "tuned"}
ONE_RATE: dict[str, Any] = {"tuned": "", "role": ""}
FUSIONS = {"fusion": ["concat", "sum"]}
NOISE = (0.05, -0.08, 0.06, -0.02, 0.0, 0.07, -0.04, -0.04)


def concat_and_sum(seeds: int, apart: float, noise: Sequence[float] = NOISE, **columns: Any) -> pd.DataFrame:
    """Losses at these seeds, of which those of sum are so much higher, on average and but for noise."""
    each = {**SIZE, **OWN_RATES, **columns}
    return table(
        *({"seed": seed, "val_loss": 3 + seed / 10, **each} for seed in range(seeds)),
        *(
            {"fusion": "sum", "seed": seed, "val_loss": 3 + seed / 10 + apart + noise[seed], **each}
            for seed in range(seeds)
        ),
    )


def asked(rows: pd.DataFrame, **of: Any) -> list[str]:
    record = make_record(**{"name": "s", "seeds": [*range(rows["seed"].nunique())], "typed": TYPED, **of})
    record = with_contrasts(record, rows)
    return [*map(str, next_steps(rows, [record], compared(rows, records=[record])))]


def test_a_single_run_is_compared_as_it_was_typed():
    typed = ["--plugin", "mine.py", "fusion=mine", "fusion.start=2", "heads=2", "seed=3", "name=one"]
    assert two_fusions(typed) == "ablate run -m fusion=concat,mine 'seed=range(6)' --plugin mine.py heads=2"
    assert two_fusions(["fusion=concat"]) == "ablate run -m fusion=concat,sum 'seed=range(6)'"


@pytest.mark.slow
def test_one_rate_for_all_is_the_first_reason():
    rows = concat_and_sum(8, 0.03).assign(**ONE_RATE)
    first, second = asked(rows, factors={"fusion": ["concat", "sum"]}, fixed={"heads": 2, "out_proj": True})
    assert first == (
        "All variants share one learning rate, 0.01, which was tuned for none: `ablate run study=tuned"
        " 'study.primary=[{baseline:{fusion:concat}}]' corpus=docs train=default heads=2 out_proj=true"
        " fusion=concat,sum train.steps=1000 name=s-tuned`."
    )
    assert (
        "seeds would decide sum against concat, if it is as large as it looks: ask again with fresh seeds:"
        " `ablate run study=fusion 'study.primary=[{baseline:{fusion:concat}}]'" in second
    )
    (named,) = asked(rows, arms={"a": {"fusion": "sum"}, "b": {}}, **PRIMARY)[:1]
    assert named == "All variants share one learning rate, 0.01, which was tuned for none."
    assert "one learning rate" not in " ".join(asked(rows.assign(lr=[0.01] * 8 + [0.02] * 8)))


@pytest.mark.slow
def test_the_tuned_study_trains_the_same_runs_but_for_their_rates(command):
    """Here it is not the fusion that varies."""
    code, _, err = command("run", "-m", "scores=softmax,talking", "heads=2", *QUICK)
    assert code == 0, err
    (tuned,) = [line for line in err.splitlines() if "`ablate run study=tuned 'study.primary" in line]
    words = shlex.split(tuned.partition("`")[2].rpartition("`")[0])[1:]
    assert {"corpus=grammar", "train=default"} <= {*words}
    code, out, err = command(*words, "study.looks=[]", "seed=range(100,102)", "--dry-run")
    assert code == 0 and "scores: softmax, talking" in out, err


def test_a_difference_as_large_as_the_margin_is_decided_by_more_seeds():
    (one,) = compared(concat_and_sum(8, 0.02, [noise * 0.9 for noise in NOISE]), margin=0.02).tested
    assert one.more_seeds is not None and 30 < one.more_seeds < 60


@pytest.mark.parametrize("apart", [0.0, 0.002])
@pytest.mark.parametrize("margin", [None, 0.0001])
def test_more_seeds_than_anybody_trains_are_not_advised(apart, margin):
    """Beside a difference that a few more seeds decide, that is told first."""
    rows = concat_and_sum(8, apart).assign(my_loss=lambda rows: rows["val_loss"])
    rows = rows[["fusion", "seed", "my_loss"]].rename(columns={"fusion": "method"})
    asked = {"by": "method", "baseline": "method=concat", "higher_is_better": False, "margin": margin}
    found, equal = ablate.compare(rows, **asked), "; --margin, the least difference that matters, may call it"
    why = "1,000 seeds would not decide method=sum against method=concat, if it is as small as it looks"
    assert found.answer[-1] == why + ("." if margin else f"{equal} equivalent.")
    assert found.table["more_seeds"].isna().all() == (apart == 0)
    near = rows[rows["method"] == "sum"].assign(method="near", my_loss=lambda of: of["my_loss"] + 0.03)
    both = ablate.compare(pd.concat([rows, near]), **asked).answer[-1]
    assert re.match(r"About \d\d seeds would decide method=near against method=concat, if", both)


@pytest.mark.slow
@pytest.mark.parametrize(
    "declared, status, missing, done",
    [(PRIMARY, "done", 1, "8 of 9"), ({}, "done", 1, "8 of 9"), ({}, "failed", 0, "7 of 8")],
)
def test_an_unfinished_study_is_finished_first(declared, status, missing, done):
    """Be it one that declares contrasts or a plain sweep, and with one run alone."""
    rows = concat_and_sum(4, 0.5).assign(status=["done"] * 7 + [status])
    of = {"seeds": [*range(6)], "runs": [*rows["run_id"], *["f" * 16] * missing], **declared}
    (again,) = asked(rows, **of)
    goes_on = "runs have a result, and the same command goes on from there"
    assert again == f"{done} {goes_on}: `ablate run {' '.join(TYPED)}`."
    record = make_record(name="s", typed=TYPED, **of)
    two = [record, make_record(name="t", typed=TYPED, **of)]
    steps = [*map(str, next_steps(rows, two, compared(rows, records=two)))]
    assert steps == [f"s: {again}", f"t: {again}"]  # each with its command
    copied = next_steps(rows, [replace(record, is_copy=True)], compared(rows, records=[record]))
    assert str(copied[0]) == f"{done} runs have a result."  # none goes on from there
    one = compared(rows[:1], records=[record])
    assert any(goes_on in line for line in lines(one, [record])) and "a verdict takes" not in str(one.notes)


def test_where_nothing_reports_yet_the_command_that_goes_on_is_named():
    rows, record = concat_and_sum(1, 0.5), make_record(name="s", typed=TYPED)
    for of in ({"status": "interrupted"}, {"phase": "develop"}):
        with pytest.raises(ConfigError, match=r"^s: no run that reports has a result yet; `ablate run -m"):
            compared(rows.assign(**of), records=[record])


@pytest.mark.parametrize("words", ["runs s", "compare s", "compare s s", "plan s"])
def test_where_no_run_has_begun_the_command_that_trains_them_is_named(words, command):
    write_study(Store(), make_record(name="s", typed=TYPED, runs=["f" * 16]))
    begun = f"s: none of its runs has begun; `ablate run {' '.join(TYPED)}` trains them\n"
    assert command(*words.split())[2].endswith(begun)


@pytest.mark.slow
def test_a_run_that_failed_has_ended():
    rows = concat_and_sum(8, 0.5)
    failed = rows.assign(status=["failed", *rows["status"][1:]])  # which has ended
    whole = make_record(seeds=[*range(8)], runs=[*rows["run_id"]], **PRIMARY)
    assert compared(failed, records=[whole]).tested[0].verdict == "worse"


@pytest.mark.slow
def test_what_nobody_named_is_asked_again_with_fresh_seeds():
    lead = "No contrast was named beforehand: ask again, with fresh seeds: `ablate run -m fusion=concat,sum"
    (one,) = asked(concat_and_sum(8, 0.5))
    assert one == f"{lead} train.steps=1000 'seed=range(8,16)' name=s-again`."
    rows = concat_and_sum(8, 0.5).assign(**ONE_RATE).assign(params=[100] * 8 + [200] * 8)
    rate, size, again = asked(rows)
    assert "rate" in rate and "100 to 200 parameters" in size and again == one
    assert len(asked(rows.assign(match="params"))) < MOST


def test_a_plain_grid_is_asked_again_once_and_as_a_study_that_names_its_contrasts():
    mean = concat_and_sum(8, 0.02).query("fusion == 'sum'").assign(fusion="mean")
    mean["run_id"] = "m" + mean["run_id"]
    rows = pd.concat([concat_and_sum(8, 0.5), mean])
    typed = ["-m", "fusion=concat,sum,mean", "train.lr=0.003", "name=s"]
    (again,) = asked(rows, factors={"fusion": ["concat", "sum", "mean"]}, typed=typed)
    seeds, command = re.findall(r"About (\d+) seeds would decide mean against concat, .*: `(.*)`", again)[0]
    assert command == (
        "ablate run study=fusion 'study.primary=[{baseline:{fusion:concat}}]' corpus=docs train=default"
        f" fusion=concat,sum,mean train.lr=0.003 'seed=range(8,{8 + int(seeds)})' name=s-again"
    )


ASKED = {  # by what is asked of a grid of fusion and heads, what the next study is to name beforehand
    None: "{baseline:{fusion:concat}}",
    "heads=4": "{baseline:{heads:4}}",
    "fusion=sum,heads=2": "{baseline:{fusion:sum,heads:2}}",
    "within": "{baseline:{fusion:concat},within:heads}",
}


@pytest.mark.parametrize("baseline", ASKED)
@pytest.mark.parametrize("seeds", [1, 8])
def test_the_next_command_asks_what_was_compared(baseline, seeds):
    two, four = (concat_and_sum(seeds, 0.02, heads=heads, **ONE_RATE) for heads in (2, 4))
    four["run_id"] = "4" + four["run_id"]
    rows = pd.concat([two, four.assign(val_loss=four["val_loss"] + 0.01 * four["seed"] % 0.03)])
    record = make_record(
        name="s", seeds=[*range(seeds)], typed=TYPED, factors={**FUSIONS, "heads": ["2", "4"]}
    )
    how = {"within": "heads"} if baseline == "within" else {"baseline": baseline}
    steps = next_steps(rows, [record], compared(rows, records=[record], **how))
    named = re.findall(r"study.primary=\[(.*?)\]' ", " ".join(map(str, steps)))
    assert named and {*named} == {ASKED[baseline]}


def test_a_study_that_is_asked_something_else_names_that_the_next_time():
    rows, study = concat_and_sum(8, 0.5), {"study": "fusion", "typed": ["study=fusion", "name=s"], **PRIMARY}
    record = make_record(name="s", seeds=[*range(8)], factors=FUSIONS, **study)
    (one,) = next_steps(rows, [record], compared(rows, records=[record], baseline="fusion=sum"))
    assert "study=fusion 'study.primary=[{baseline:{fusion:sum}}]' fusion=concat,sum" in one.command
    assert not next_steps(rows, [record], compared(rows, records=[record]))  # what was planned is decided


def test_runs_that_share_no_seed_do_not_pair():
    rows = table({"val_loss": 3.0, "seed": 0}, {"fusion": "sum", "val_loss": 3.1, "seed": 1})
    assert "no two share a seed" in " ".join(lines(compared(rows), []))
