"""docs/questions.md and `ablate questions`: each number of the page is made again from the rows."""

import re
import shlex
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import scipy.stats

from ablate.analysis.load import load
from ablate.config.contrast import Contrast
from ablate.data.corpora.votes import Votes
from ablate.verify.identities import IDENTITIES
from tests.helpers import call_cli, compared

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split("## All differences")[0].split())
ONE_MAP = {
    "wide_projected - wide": "**Q2** W_O in the wide sum =",
    "factors - concat": "two factors as W_O =",
    "one_factors - one": "two factors as W_O, one head = †",
    "one - one_bare": "W_O, one head = †",
    "rank - sum": "two factors in the sum = †",
}
MEAN = "+ ".join(f"0.2*{a} - 0.2*{b} " for a, b in (name.split(" - ") for name in ONE_MAP)).strip()
# The rows of the table, by the contrasts of studies; † where none planned it.
NAMES = {
    "sum_equal - concat": "**Q0** sum, equal size",
    "wide - concat": "wide sum without W_O, equal size",
    "both - concat": "**Q1** the proposal =",
    "tied - concat": "one matrix for queries and keys",
    **ONE_MAP,
    "mean": "mean of these five =",
    "concat_bare - concat": "no W_O, four heads",
    "one_bare - concat_bare": "one head, both without W_O",
    "one - concat": "**Q3** one head, equal size",
    "one_narrow - one": "one head with keys of 16",
    "sixteen - concat": "**Q4** sixteen heads with keys of 16",
    "mixed - concat": "two of four heads see eight tokens",
    "local - mixed": "all see eight, against two of four",
}


@cache
def findings(study: str) -> dict[str, object]:
    results = load([str(RESULTS / study)])
    found = compared(results.rows, records=results.records).findings
    return {"mean" if len(one.name) > 40 else one.name: one for one in found if one.is_planned}


@cache
def rows(study: str) -> pd.DataFrame:
    """The reporting runs, each with its arm."""
    (record,) = load([str(RESULTS / study)]).records
    arms = {run: side.arm for one in record.contrasts for side in one.sides for run in side.runs}
    table = pd.read_csv(RESULTS / study / "results.csv").query("phase == 'report'")
    return table.assign(arm=table["run_id"].map(arms))


def differences(contrast: str, metric: str, seeds: int | None = None) -> pd.Series:
    """Of each of the first seeds that all arms have, by pandas alone."""
    loss = rows("questions").pivot(index="seed", columns="arm", values=metric)
    return (
        sum(weight * loss[arm] for weight, arm in Contrast(arms=contrast).terms).dropna().sort_index()[:seeds]
    )


def number(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def interval(low: float, high: float) -> str:
    return f"[{low:.3f}, {high:.3f}]".replace("-", "−")


def line(contrast: str) -> str:
    """A row of the table."""
    later, shown = findings("later").get(contrast), sum("†" in name for name in NAMES.values())
    arms = (
        next(one for one in findings("questions").values() if len(one.name) > 40).name
        if contrast == "mean"
        else contrast
    )
    if found := findings("questions").get(contrast):
        diff, low, high, seeds = found.diff, found.low, found.high, found.pairs
    else:
        sample = differences(arms, "test_loss")
        diff, seeds = sample.mean(), len(sample)
        level = 1 - 0.05 / (len(findings("questions")) + shown)
        low, high = scipy.stats.t.interval(level, seeds - 1, diff, sample.sem())
    cells = [
        NAMES[contrast],
        f"{number(diff)} {interval(low, high)}",
        *(number(differences(arms, metric, seeds).mean()) for metric in ("val_loss", "mix_loss")),
        f"{number(later.diff)} {interval(later.low, later.high)}" if later else "",
        str(seeds),
    ]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


@pytest.mark.slow
@pytest.mark.parametrize("contrast", NAMES)
def test_each_row_of_the_table(contrast):
    assert line(contrast) in PAGE.splitlines()


@pytest.mark.slow
def test_each_number_of_the_text_is_in_the_table_or_made_here():
    """What the answers round to three digits, but for the counting of votes, which has a test of its own."""
    bounds = [differences(name, "test_loss") for name in ONE_MAP]
    upper = [scipy.stats.t.interval(0.9, len(one) - 1, one.mean(), one.sem())[1] for one in bounds]
    low = sorted(one for one in upper if one < 0.005)
    assert f"two of the five upper bounds, {abs(low[0]):.3f} and {low[1]:.3f}, are below 0.005" in PROSE
    assert len(low) == 2
    means = rows("questions").groupby("arm")[["test_loss", "ngram_loss"]].mean()
    concat = means.loc["concat"]
    assert f"predicts better ({concat['ngram_loss']:.3f}) than" in PROSE
    assert f"than concatenation ({concat['test_loss']:.3f})" in PROSE
    same = [differences(name, "test_loss").mean() for name in ONE_MAP]
    said = {f"{max(same):.3f}", f"{concat['ngram_loss']:.3f}", f"{concat['test_loss']:.3f}", "0.000", "0.003"}
    table = {one.lstrip("+−") for one in re.findall(r"[+−\d]\d*\.\d{3}", PAGE.split("## All differences")[1])}
    found = {one.lstrip("+−") for one in re.findall(r"[+−]?\d\.\d{3}", PROSE)}
    assert found <= table | said | {"0.005"}, found - table - said


def test_pairs_of_the_same_functions_are_marked():
    same = {name for name, one in findings("questions").items() if one.same_class}
    marked = {contrast for contrast, name in NAMES.items() if " =" in name}
    assert marked == same | {*ONE_MAP, "mean"}
    classes = rows("questions").groupby("arm")["function_class"].first()
    for contrast in ONE_MAP:
        one, other = contrast.split(" - ")
        assert classes[one] == classes[other]


def test_sizes_and_computation_are_as_said():
    about = rows("questions").groupby("arm")[["params", "flops_per_token"]].first()
    params, flops = about["params"], about["flops_per_token"]
    assert (about.loc["one"] == about.loc["concat"]).all()
    assert f"{100 * (flops['wide'] / flops['concat'] - 1):.0f} % more computation" in PROSE
    for arm, said in {
        "tied": "0.078, with {} % fewer parameters",
        "concat_bare": "the margin, with {} % fewer",
    }.items():
        assert said.format(f"{100 * (1 - params[arm] / params['concat']):.0f}") in PROSE
    assert f"0.046, with {100 * (params['sixteen'] / params['concat'] - 1):.0f} % more parameters" in PROSE
    assert f"{params['concat']:,}".replace(",", "")[:3] + ",000 parameters" in PROSE


def test_one_run_copies_and_seven_wide_sums_are_ahead_after_16000_steps():
    later = rows("later")
    assert f"one run of {len(later)} copies" in PROSE and (later["induction"] > 0.05).sum() == 1
    loss = later.pivot(index="seed", columns="arm", values="test_loss")
    ahead = (loss["wide"] < loss["concat"]).sum()
    assert f"(in {ahead} of {len(loss)} seeds ahead)" in PROSE


def right(**of_arm: object) -> pd.Series:
    """The shares of right answers of an arm of study=votes, of four voters unless said."""
    usual = {"heads": 4, "fusion": "concat", "out_proj": True, "layers": 1, "context": 17}
    table = pd.read_csv(RESULTS / "votes" / "results.csv").query("phase == 'report'")
    for column, value in {**usual, "mlp_hidden": 256, "steps": 3000, **of_arm}.items():
        table = table[table[column] == value]
    assert len(table) == 6
    return table["test_acc"]


def shares(*arms: pd.Series) -> str:
    both = pd.concat(arms)
    return f"{100 * both.min():.0f} to {100 * both.max():.0f} %"


def seeds(arm: pd.Series) -> str:
    return f"{(arm >= 0.999).sum()} of {len(arm)}"


def test_votes():
    voted = {
        (heads, context): right(heads=heads, context=context)
        for heads in (1, 2, 3, 4, 8)
        for context in (17, 25)
        if (heads, context) != (8, 17)
    }
    voted[8, 17] = right(heads=8)
    for heads in (1, 2, 3, 4, 8):
        cells = []
        for context, voters in ((17, 4), (25, 8)):
            arm = voted[heads, context]
            cells.append(shares(arm) + (f"; {seeds(arm)} seeds over 99.9 %" if heads >= voters else ""))
        assert f"| {heads} | {' | '.join(cells)} |" in PAGE
    few = pd.concat([arm for (heads, context), arm in voted.items() if heads <= (2 if context == 17 else 4)])
    enough = pd.concat(
        [arm for (heads, context), arm in voted.items() if heads >= (4 if context == 17 else 8)]
    )
    assert f"no seed reaches 99 %; none of {len(few)} does." in PROSE and few.max() < 0.99
    assert f"refuted, {(enough >= 0.999).sum()} of {len(enough)} do." in PROSE
    alone = [right(heads=1, out_proj=False), right(heads=1, mlp_hidden=1024), right(heads=1, steps=9000)]
    assert (
        f"four heads without W_O {seeds(right(out_proj=False))}, summed {seeds(right(fusion='sum'))},"
        f" averaged {seeds(right(fusion='mean'))}; one head without W_O, with an MLP four times as wide, or"
        f" after 9,000 steps {shares(*alone)}; two layers of two heads {seeds(right(heads=2, layers=2))},"
        f" of one head {shares(right(heads=1, layers=2))}."
    ) in PROSE
    guesses = [
        Votes(length=length, voters=voters, vocabulary=99, seed=0, examples=None, held_out=1).best_guess(4)
        for length, voters in ((17, 4), (25, 8))
    ]
    assert f"The last four votes alone give {100 * guesses[0]:.0f} % and {100 * guesses[1]:.0f} %." in PROSE


def test_heads_follow_voters_in_the_picture():
    table = pd.read_csv(RESULTS / "votes" / "patterns.csv")
    four = table[table["test_acc"] == 1]
    follows = four.loc[four.groupby("head")["weight"].idxmax()]
    assert sorted(follows["voter"]) == [0, 1, 2, 3] and follows["weight"].min() > 0.99


def test_each_number_of_an_equation_is_one():
    """(9) and (6 not) behind a sentence are names that verify takes."""
    names = {one.name for one in IDENTITIES}
    for group in re.findall(r"\((\d+(?: not)?(?:, (?:\d+(?: not)?|alt))*)\)", PAGE):
        assert {*group.split(", ")} <= names | {re.sub(r"\D.*", "", name) for name in names}, group


@pytest.mark.parametrize("command", re.findall(r"^    ablate (verify .+)$", PAGE, re.M))
def test_equations_that_the_page_names_hold(command):
    done = call_cli(*shlex.split(command), cwd=ROOT)
    assert done.returncode == 0 and "pass" in done.stdout


def test_questions_are_printed_one_by_one_or_in_short():
    short = call_cli("questions", cwd=ROOT).stdout
    assert [*re.findall(r"^Q(\d)\. ", short, re.M)] == ["0", "1", "2", "3", "4"]
    assert "**Proved.**" not in short and "](" not in short
    for number_ in range(5):
        whole = call_cli("questions", str(number_), cwd=ROOT).stdout
        assert whole.startswith(f"Q{number_}. ") and whole.count("\nQ") == 0
        assert all(f"**{part}.**" in whole for part in ("Answer", "Proved", "Open"))
    assert call_cli("questions", "5", cwd=ROOT).returncode == 2


def test_the_page_and_its_answers_are_short():
    text = "\n".join(line for line in PAGE.splitlines() if not line.startswith("<"))
    assert len(re.findall(r"\S*\w\S*", text)) <= 1300
    answers = re.findall(r"^\*\*Answer\.\*\* (.+?)\n\n", PAGE, re.M | re.S)
    assert len(answers) == 5 and max(len(answer.split()) for answer in answers) <= 60


if __name__ == "__main__":
    for contrast in NAMES:
        print(line(contrast))
