"""The placebo floor: of which arms it is, how large it is, and which differences do not clear it."""

import itertools
import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

import ablate
from ablate.analysis.compare import Comparison, compare
from ablate.analysis.placebo import Floor
from ablate.reporting import answers, words
from ablate.reporting.tables import render
from tests.test_compare import by_fusion, of_cells
from tests.test_looks import AT, recorded
from tests.test_tuned import tuned_record

ONE = {"function_class": "one"}
SAME = ("sum", "mean", "weighted_sum")
NOISE = np.random.default_rng(0).normal(0, 0.01, (4, 12))
LOSSES: dict[str, np.ndarray] = dict(zip(("concat", *SAME), 2 + NOISE, strict=True))


def rows(losses: Mapping[str, Iterable[float]] = LOSSES, **columns: Any) -> pd.DataFrame:
    """concat, and three arms of one class. columns: of these three."""
    given = {"steps": 100, "lr": 0.1}
    return of_cells(
        ({**given, "fusion": name, "form": name, **({**ONE, **columns} if name in SAME else {})}, of)
        for name, of in losses.items()
    )


def floor_of(rows: pd.DataFrame, **given: Any) -> Floor:
    found = compare(rows, **given).floor
    assert found is not None
    return found


def by_hand(losses: Mapping[str, np.ndarray], alpha: float) -> float:
    """The largest absolute end of the paired t-intervals of these arms, two by two, at 1 − alpha each."""
    tests = [ttest_rel(one, other) for one, other in itertools.combinations(losses.values(), 2)]
    ends = [test.confidence_interval(1 - alpha) for test in tests]
    return max(abs(end) for interval in ends for end in interval)


def of_class(losses: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: losses[name] for name in SAME}


# --- its size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 5, 12])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_it_is_the_farthest_end_of_the_intervals_corrected_over_the_pairs(n, alpha):
    losses = {name: of[:n] + 0.02 * (name == "mean") for name, of in LOSSES.items()}
    found = floor_of(rows(losses), alpha=alpha)
    assert found.value == pytest.approx(by_hand(of_class(losses), alpha / 3))
    assert (found.level, found.pairs, found.seeds) == (pytest.approx(1 - alpha), 3, n)


def test_the_fewest_seeds_of_a_pair_are_said():
    fewer = rows({**LOSSES, "mean": LOSSES["mean"][:5]})
    assert floor_of(fewer).seeds == 5


@pytest.mark.slow
def test_a_pair_needs_seeds_in_common():
    apart = rows()
    apart.loc[apart["fusion"] == "mean", "seed"] += 100
    assert (floor_of(apart).pairs, floor_of(apart).seeds) == (1, 12)


def test_two_settings_are_one_family_and_pairs_are_within_each():
    both = pd.concat([rows(), rows(steps=200).query("fusion in @SAME")], ignore_index=True)
    both["run_id"] = [f"{i:016x}" for i in range(len(both))]
    found = floor_of(both)
    assert found.pairs == 6 and found.value == pytest.approx(by_hand(of_class(LOSSES), 0.05 / 6))


# --- of which arms ----------------------------------------------------------------------------------


def test_one_form_under_two_names_is_one_arm():
    named = rows()
    named.loc[named["fusion"] == "mean", "form"] = "sum"
    found = floor_of(named)
    pair = {name: LOSSES[name] for name in ("sum", "weighted_sum")}
    assert found.pairs == 1 and found.value == pytest.approx(by_hand(pair, 0.05))


def test_what_is_identical_to_the_last_digit_is_no_placebo():
    losses = {**LOSSES, "mean": LOSSES["sum"]}
    found = floor_of(rows(losses))
    assert found.pairs == 2 and found.value == pytest.approx(by_hand(of_class(losses), 0.05 / 2), nan_ok=True)


def test_an_arm_that_diverged_on_more_seeds_is_in_no_pair():
    diverged = rows()
    diverged.loc[(diverged["fusion"] == "mean") & (diverged["seed"] == 3), "status"] = "diverged"
    assert floor_of(diverged).pairs == 1


@pytest.mark.parametrize(
    "change",
    [
        {"function_class": SAME},
        {"function_class": ("", "", "")},
        *({column: (1, 2, 3)} for column in ("steps", "lr", "d_model", "mlp_hidden", "bias")),
    ],
    ids=str,
)
def test_arms_of_other_classes_models_texts_or_trainings_have_no_floor(change):
    apart = rows()
    for column, values in change.items():
        for name, value in zip(SAME, values, strict=True):
            apart.loc[apart["fusion"] == name, column] = value
    result = compare(apart)
    assert result.floor is None and result.table["clears_floor"].isna().all()
    assert "same functions differ" not in " ".join([*answers.lines(result, []), *words.sentences(result)])


@pytest.mark.slow
def test_lengths_and_texts_have_a_floor_each():
    """Arms after 100 steps scatter ten times as much as after 200."""
    noisy = {name: 2 + 10 * (of - 2) for name, of in LOSSES.items()}
    both = pd.concat([rows(noisy), rows(steps=200).assign(steps=200)], ignore_index=True)
    both = both.assign(run_id=[str(row) for row in range(len(both))])
    baseline = {"fusion": "concat"}
    found = floor_of(both, baseline=baseline)
    assert found.pairs == 6 and min(found.of.values()) == pytest.approx(found.value / 10)
    line = next(
        line for line in words.sentences(compare(both, baseline=baseline)) if "same functions" in line
    )
    assert "by text and training" in line


def test_a_table_of_another_program_has_none():
    foreign = pd.DataFrame(
        {"method": name, "seed": seed, "loss": loss, "function_class": "one", "form": name}
        for name, of in LOSSES.items()
        for seed, loss in enumerate(of)
    )
    result = ablate.compare(foreign, by="method", metric="loss", baseline={"method": "concat"})
    assert result.floor is None


@pytest.mark.slow
def test_in_a_tuned_study_each_arm_is_at_its_own_value():
    """Runs at values of others, far off, play no part."""
    own = rows().assign(phase="report", role="tuned", tuned="train.lr")
    own["lr"] = 0.01 + 0.001 * own.groupby("fusion", sort=False).ngroup()
    away = own.assign(role="baseline_rate", lr=0.05, val_loss=own["val_loss"] + 5 * (own["fusion"] == "sum"))
    both = pd.concat([away.assign(run_id="f" + away["run_id"].str[1:]), own], ignore_index=True)
    record = tuned_record(metric="val_loss", primary=[{"vary": "fusion", "baseline": "concat"}])
    found = floor_of(both, records=[record])
    assert found.pairs == 3 and found.value == pytest.approx(by_hand(of_class(LOSSES), 0.05 / 3))
    assert compare(own.assign(role="", tuned="")).floor is None  # of no tuned study: other trainings
    two_names = both.assign(form=both["form"].replace("mean", "sum"))
    assert floor_of(two_names, records=[record]).pairs == 1


@pytest.mark.parametrize("away, seeds", [(0.0, 12), (5.0, 4)])
def test_with_looks_a_pair_has_the_seeds_and_the_level_of_its_look(away, seeds):
    """Far from concat the three are decided at the first look, and their further runs are not judged."""
    losses = {name: of + away * (name != "concat") for name, of in LOSSES.items()}
    found = floor_of(rows(losses), records=[recorded(margin=1e-9, contrasts=3)])
    spent = {12: (12 - 8) / 12, 4: 4 / 12}[seeds]
    first = {name: of[:seeds] for name, of in of_class(losses).items()}
    least = by_hand(first, 0.05 * spent / 3)
    assert (found.pairs, found.seeds) == (3, seeds) and AT[-1] == 12
    # Before the last look, intervals take at least the median scatter.
    assert found.value == pytest.approx(least) if seeds == 12 else found.value >= least - 1e-12


# --- what does not clear it -------------------------------------------------------------------------


def marked(away: float) -> Comparison:
    """Three arms of one class, and two others: max `away` above concat, and median far above it."""
    others = {"max": LOSSES["concat"] + away + NOISE[1] / 2, "median": LOSSES["concat"] + 1 + NOISE[2] / 2}
    return compare(rows({**LOSSES, **others}))


def test_a_contrast_is_marked_unless_its_whole_interval_is_beyond_the_floor():
    result = marked(0.0175)
    found = by_fusion(result)
    assert result.floor and found["max"]["low"] > 0  # decided
    assert found["max"]["low"] < result.floor.value < found["median"]["low"]
    assert not found["max"]["clears_floor"] and found["median"]["clears_floor"]
    assert pd.isna(found["concat"]["clears_floor"])
    verdicts = {one.variant.name.split()[0]: words.verdict(one) for one in result.findings}
    assert verdicts["fusion=max"] == "worse, perhaps within the margin and the floor"
    assert verdicts["fusion=median"] == "worse" and "floor" not in verdicts["fusion=sum"]
    told = {line.partition(" is ")[0]: line for line in words.sentences(result)}
    assert ", perhaps within the margin of 0.02 and the floor, n = 12" in told["max"]
    assert "floor" not in told["median"]


def test_below_0_it_counts_likewise():
    result = marked(-1.0)
    found = by_fusion(result)
    assert found["max"]["verdict"] == "better" and found["max"]["clears_floor"]


def test_a_pair_of_the_floor_is_not_marked_against_itself():
    far = {**LOSSES, "mean": LOSSES["mean"] + 1}
    result = compare(rows(far), baseline={"fusion": "sum"})
    found = by_fusion(result)
    assert found["mean"]["verdict"] == "worse" and found["mean"]["same_class"]
    assert pd.isna(found["mean"]["clears_floor"]) and found["concat"]["clears_floor"] is not pd.NA


# --- where it is said -------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_is_said_under_the_answer_and_in_the_report(command):
    table = marked(0.0175).rows
    table.to_csv("rows.csv", index=False)
    found = floor_of(table)
    line = f"Arms of the same functions differ by at most {found.value:.3f} (95 %; 3 pairs of arms, 12 seeds)"
    for asked in ((), ("--why",), ("--format", "md")):
        code, out, err = command("compare", "rows.csv", *asked)
        assert code == 0 and " ".join((out + err).split()).count(line) == 1
    _, out, _ = command("compare", "rows.csv", "--format", "json")
    assert {row["fusion"]: row["clears_floor"] for row in json.loads(out)["rows"]}["median"] is True
    code, out, _ = command("report", "rows.csv", "--out", "page.html")
    with open("page.html", encoding="utf-8") as page:
        text = page.read()
    assert code == 0 and line.split(" by ")[1] in text and "perhaps within the margin and the floor" in text


def test_the_column_is_empty_where_there_is_nothing_to_say():
    table = render(marked(0.0175).table[["fusion", "clears_floor"]], "csv").splitlines()
    assert "concat," in table and "median,True" in table and "max,False" in table
