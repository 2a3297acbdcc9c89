"""docs/questions.md: each number of the page is made again from the rows."""

import re
import shlex
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from ablate.analysis import stats
from ablate.analysis.findings import Finding
from ablate.analysis.load import load
from ablate.config.contrast import MARGIN, Contrast
from ablate.data.corpora.votes import Votes
from ablate.verify.identities import IDENTITIES
from tests.helpers import call_cli, compared

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
WHOLE = " ".join(PAGE.split())
PROSE = WHOLE.split("## All differences")[0]
GPT2 = "later-tiny"  # the study of GPT-2's backbone
ONE_MAP = {
    "wide_projected - wide": "**Q2** wide sum: W_O − none =",
    "factors - concat": "four heads: W_O of two factors − of one =",
    "one_factors - one": "one head: W_O of two factors − of one = †",
    "one - one_bare": "one head: W_O − none = † (on GPT-2's backbone planned)",
    "rank - sum": "sum: W_O of two factors − of one = †",
}
# Contrasts of gpt2.csv, by the row that they stand in.
OLDER = {f"one_narrow - {other}": f"one_narrow_equal - {other}" for other in ("concat", "one")}
OLDER |= {name: name for name in ("sum_equal - concat", "both - concat", "mixed - concat", "local - mixed")}
UNPLANNED = "one_bare - concat"  # of GPT2
# The rows of the table, by the contrasts of studies; † where none planned it.
NAMES = {
    "sum_equal - concat": "**Q0** sum − concatenation, equal size",
    "wide - concat": "wide sum without W_O − concatenation, equal size",
    "rank - concat": "concatenation, W_O of rank d/h − of full rank, 3 % fewer parameters †",
    "rank - factors": "concatenation, W_O of two factors: rank d/h − full, 7 % fewer parameters †",
    "both - concat": "**Q1** the proposal − the usual scale =",
    "tied - concat": "one matrix for queries and keys − two, 5 % fewer parameters",
    **ONE_MAP,
    "mean": "mean of the five above (planned) =",
    "concat_bare - concat": "four heads: no W_O − W_O, 5 % fewer parameters",
    "one_bare - concat_bare": "no W_O: one head − four",
    "one_bare - concat": "one head without W_O − four with, 5 % fewer parameters †",
    "one - concat": "**Q3** one head − four, equal size",
    "one_narrow - one": "one head: keys of 16 − of 64, 8 % fewer parameters",
    "sixteen - concat": "sixteen heads (keys of 16, values of 4) − four, 30 % more parameters, "
    "41 % more computation",
    "one_narrow - concat": "**Q4** one head with keys of 16 (four heads of one pattern) − four, "
    "8 % fewer parameters †",
    "mixed - concat": "two of four heads see only eight tokens − none",
    "local - mixed": "all four heads see only eight tokens − two",
}


@cache
def findings(study: str) -> dict[str, Finding]:
    results = load([str(RESULTS / study)])
    found = compared(results.rows, records=results.records).findings
    return {one.name: one for one in found if one.is_planned}


@cache
def rows(study: str) -> pd.DataFrame:
    """The reporting runs, each with its arm."""
    record = load([str(RESULTS / study)]).record
    arms = {run: side.arm for one in record.contrasts for side in one.sides for run in side.runs}
    table = pd.read_csv(RESULTS / study / "results.csv").query("phase == 'report'")
    return table.assign(arm=table["run_id"].map(arms))


def differences(contrast: str, metric: str, seeds: int | None = None, study: str = "questions") -> pd.Series:
    """Of each of the first seeds that all arms have, by pandas alone."""
    loss = rows(study).pivot(index="seed", columns="arm", values=metric)
    weights = pd.Series({arm: weight for weight, arm in Contrast(arms=contrast).terms})
    return (loss[weights.index] * weights).sum(axis=1, skipna=False).dropna().sort_index()[:seeds]


def number(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def t_interval(sample: pd.Series, level: float) -> tuple[float, float]:
    return scipy.stats.t.interval(level, len(sample) - 1, sample.mean(), sample.sem())


def interval(low: float, high: float) -> str:
    """A bound that three digits would make 0 or ±0.02 has four, as its side decides."""
    bounds = (f"{bound:.{4 if round(abs(bound), 3) in (0, MARGIN) else 3}f}" for bound in (low, high))
    return f"[{', '.join(bounds)}]".replace("-", "−")


def verdict(sample: pd.Series, low: float, high: float, level: float) -> str:
    """By the rule of the page, from an interval and, if there are enough seeds, the signs of differences."""
    if low > -MARGIN and high < MARGIN:
        return "equal"
    if low <= 0 <= high:
        return "undecided"
    p, least = stats.by_sign_flips(sample.to_numpy())
    word = ("worse" if low > 0 else "better") + (
        ", perhaps < 0.02" if min(abs(low), abs(high)) < MARGIN else ""
    )
    return word + (" (not by sign flips)" if least < 1 - level < p else "")


def arms_of(contrast: str) -> str:
    """A contrast as it is in the study, where the mean is a sum of arms."""
    return next(name for name in findings("questions") if len(name) > 40) if contrast == "mean" else contrast


def judged(contrast: str, study: str = "questions") -> tuple[pd.Series, str, str]:
    """The differences in test loss, their mean with its interval, and the verdict on it, with that of
    validation where it is another; of what the study did not plan, corrected for all that is shown."""
    arms, shown = (
        arms_of(contrast),
        sum("†" in name for name in NAMES.values()) if study == "questions" else 1,
    )
    found = findings(study).get(arms)
    level = found.level if found else 1 - 0.05 / (len(findings(study)) + shown)
    seeds = found.pairs if found else None
    sample, again = (differences(arms, metric, seeds, study) for metric in ("test_loss", "val_loss"))
    low, high = (found.low, found.high) if found else t_interval(sample, level)
    said, other = verdict(sample, low, high, level), verdict(again, *t_interval(again, level), level)
    if re.split("[ ,]", other)[0] != re.split("[ ,]", said)[0]:
        said += f" (validation: {other})"
    return sample, f"{number(sample.mean())} {interval(low, high)}", said


def line(contrast: str) -> str:
    """A row of the table."""
    (sample, test, said), name = judged(contrast), arms_of(contrast)
    splits = (differences(name, metric, len(sample)).mean() for metric in ("val_loss", "mix_loss"))
    cells = [NAMES[contrast], test, said, *map(number, splits), str(len(sample))]
    for study, few in {"later": "sum_equal - ", GPT2: "one - "}.items():
        is_there = contrast in {*findings(study), *[UNPLANNED] * (study == GPT2)}
        one, *numbers = judged(contrast, study) if is_there else ((), "")
        assert len(one) == (6 if contrast.startswith(few) else 8) * is_there
        cells.append(" ".join(numbers))
    there = OLDER.get(contrast, contrast if contrast in {*findings(GPT2), UNPLANNED} else "")
    return re.sub(r" +", " ", f"| {' | '.join([*cells, of_older(there) if there else ''])} |")


@cache
def older() -> pd.DataFrame:
    """The test losses of GPT-2's backbone on the older text: seeds by arms."""
    table = pd.read_csv(RESULTS / "gpt2.csv").query("steps == 2500")
    return table.pivot(index="seed", columns="arm", values="test_loss")


def of_older(contrast: str) -> str:
    one, other = contrast.split(" - ")
    sample = (older()[one] - older()[other]).dropna()
    assert len(sample) == (12 if "bare" in contrast else 16)
    low, high = t_interval(sample, 0.95)
    is_equal = " at equal size" * one.endswith("_equal") * (one != "sum_equal")
    return f"{number(sample.mean())} {interval(low, high)} {verdict(sample, low, high, 0.95)}{is_equal}"


@pytest.mark.slow
@pytest.mark.parametrize("contrast", NAMES)
def test_each_row_of_the_table(contrast):
    assert line(contrast) in PAGE.splitlines()


@pytest.mark.slow
def test_each_number_of_the_text_is_in_the_table_or_made_here():
    """What the answers round to three digits."""
    limits = {name: differences(name, "test_loss") for name in ONE_MAP}
    upper = {
        name: scipy.stats.t.interval(0.9, len(one) - 1, one.mean(), one.sem())[1]
        for name, one in limits.items()
    }
    low = {name: value for name, value in upper.items() if value < 0.005}
    assert {*low} == {"one - one_bare", "rank - sum"} and low["one - one_bare"] < 0
    assert f"one head's W_O (bound below 0) and a sum's two factors ({low['rank - sum']:.3f})." in WHOLE
    arms = rows("questions")
    concat = arms.groupby("arm")["test_loss"].mean()["concat"]
    counting = arms["ngram_loss"].iloc[0]
    said = f"six-grams ({counting:.3f}) beats every variant (concatenation: {concat:.3f})"
    assert said in PROSE and arms.groupby("arm")["test_loss"].mean().min() > counting
    table = re.findall(r"\d\.\d{3,}", PAGE.split("## All differences")[1])
    said = {"0.005", f"{counting:.3f}", f"{concat:.3f}"}
    found = {*re.findall(r"\d\.\d{3,}", PROSE)}
    assert found <= {*table} | said, found - {*table} - said


def told(contrast: str, *, worse: str = "", better: str = "", equal: str = "") -> list[str]:
    """What an answer tells of a contrast here, on GPT-2's backbone and on the older text, by its verdicts."""
    cells = [cell.strip() for cell in line(contrast).split("|")]
    standings = filter(None, (" ".join(cells[2:4]), *cells[8:10]))
    each = [re.findall(r"^.([\d.]+) \[(.+), (.+)\] (\w+)", one)[0] for one in standings]
    words = {"worse": worse, "better": better, "equal": equal, "undecided": "undecided"}
    bounds = [sorted(bound.removeprefix("−") for bound in one[1:3]) for one in each]
    return [words[one[3]].format(f"{one[0]} [{', '.join(of)}]") for one, of in zip(each, bounds, strict=True)]


def test_tables_of_answers():
    equal = "no: equal without it (validation, 16,000 steps: undecided)"
    four = told("concat_bare - concat", worse="yes, by {}", equal=equal)
    bare = told("one_bare - concat_bare", worse="four, by {}", better="one, by {}")
    many = told("one - concat", worse="four, by {}")
    many[1] += " (validation: undecided)"
    for name in ("concat_bare - concat", "one - concat"):
        assert "(validation: undecided)" in line(name) and findings("later")[name].is_undecided
    for name, cells in {
        "Does W_O, 5 % of the parameters, help four heads?": four,
        "Does W_O help one head?": told("one - one_bare", worse="no, it costs {}"),
        "Which is better without W_O?": bare,
        "both with W_O": many,
        "both without": bare,
        "four with, one without (5 % fewer parameters)": told("one_bare - concat", worse="four, by {}"),
    }.items():
        assert f"| {name} | {' | '.join(cells)} |" in PAGE, name
    arms = "one", "one_bare", "one_narrow"
    one, bare, narrow = (told(f"{arm} - concat", worse="{}")[0][:5] for arm in arms)
    assert f"loses {one} at equal size (16,000 steps: undecided on test)" in PROSE
    assert f"So do smaller variants: without W_O it loses {bare}, with keys of 16 {narrow} |" in PROSE
    lost, gained = (told(f"one - {of}", worse="{}")[-2:] for of in ("concat", "one_bare"))
    assert f"one head loses {lost[0][:5]} (validation: undecided; older text: {lost[1][:5]})" in PROSE
    assert f"gains {gained[0][:5]} (older text: {gained[1][:5]}) by dropping" in PROSE
    left = re.findall(r"(\S+ \[[^]]+\]) undecided", line("one_bare - concat"))[0]
    assert f"the difference is then undecided: {left} |" in PROSE


def test_what_gpt2_s_backbone_says_besides():
    means = older().mean()
    for arm, name in {"sum": "sum", "mean": "average", "weighted_sum": "weighted sum"}.items():
        row = f"| {name} − concatenation, 4 % fewer parameters |{' |' * 7} {of_older(f'{arm} - concat')} |"
        assert row in PAGE.splitlines()
    lost = [number(means[arm] - means["concat"])[1:] for arm in ("mean", "weighted_sum", "sum")]
    assert f"on the older text all three lose {min(lost)} to {max(lost)} (4 % fewer" in PROSE
    of_one = np.sort(findings(GPT2)["one - one_bare"].differences)
    of_four = findings(GPT2)["concat_bare - concat"].differences
    assert of_one[1] < 0.03 and of_one[2] > 0.11 and (of_four > 0).sum() == 6
    assert "under 0.03 in two seeds, over 0.11 in four; it helps four heads in six of eight." in PROSE


def test_pairs_of_the_same_functions_are_marked():
    same = {name for name, one in findings("questions").items() if one.same_class and len(name) < 40}
    marked = {contrast for contrast, name in NAMES.items() if " =" in name}
    assert marked == same | {*ONE_MAP, "mean"}
    of = rows("questions").groupby("arm")["function_class"].first()
    assert all(of[contrast.split(" - ")].nunique() == 1 for contrast in ONE_MAP)


def test_sizes_and_computation_are_as_said():
    about = rows("questions").groupby("arm")[["params", "flops_per_token"]].first()
    assert {*about.index[about.eq(about.loc["concat"]).all(axis=1)]} >= {"one", "concat"}
    percent = (100 * (about / about.loc["concat"] - 1)).round()
    params, flops = percent["params"], percent["flops_per_token"]
    assert f"{flops['wide']:.0f} % more computation" in PROSE
    assert params["tied"] == -5 and "negative, 5 % fewer parameters or" in PROSE
    assert f"{params['sixteen']:.0f} % more parameters, {flops['sixteen']:.0f} % more computation |" in PAGE
    size, pairs = about["params"], [contrast.split(" - ") for contrast in ONE_MAP]
    added = [100 * (size[one] / size[other] - 1) for one, other in pairs]
    assert f"the matrix adds {min(added):.0f} to {max(added):.0f} % of parameters" in WHOLE
    assert f"no W_O − W_O, {-params['concat_bare']:.0f} % fewer parameters |" in PAGE
    assert f"of one pattern) − four, {-params['one_narrow']:.0f} % fewer parameters †" in PAGE
    assert f"of full rank, {-params['rank']:.0f} % fewer parameters †" in PAGE
    assert f"Does W_O, {-params['concat_bare']:.0f} % of the parameters, help" in PROSE
    fewer = 100 * (1 - size["rank"] / size["factors"])
    assert f"rank d/h − full, {fewer:.0f} % fewer parameters †" in PAGE
    assert size["concat"] // 1000 == 163


def right(**of_arm: object) -> pd.Series:
    """The shares of right answers of an arm of study=votes, of four voters unless said."""
    usual = {"heads": 4, "fusion": "concat", "out_proj": True, "layers": 1, "context": 17}
    table = pd.read_csv(RESULTS / "votes" / "results.csv").query("phase == 'report'")
    for column, value in {**usual, "mlp_hidden": 256, "steps": 3000, **of_arm}.items():
        table = table[table[column] == value]
    assert len(table) == 6
    return table["test_acc"]


def cell(arm: pd.Series, *, tells: bool) -> str:
    """What the table says of an arm; tells: with how many seeds are right in 99.9 %."""
    low, high = 100 * arm.min(), 100 * arm.max()
    share = f"{low:.1f}" if 99.5 <= low < 99.9 else f"{low:.0f}"
    of_seeds = f"; {(arm >= 0.999).sum()} of {len(arm)} seeds succeed" if tells else ""
    return (f"{share} %" if share == f"{high:.0f}" else f"{share} to {high:.0f} %") + of_seeds


def test_votes():
    four = {heads: right(heads=heads) for heads in (1, 2, 3, 4, 8)}
    eight = {heads: right(heads=heads, context=25) for heads in (1, 2, 3, 4, 8)}
    for heads in four:
        cells = cell(four[heads], tells=heads >= 4), cell(eight[heads], tells=heads >= 8)
        assert f"| {heads} | {cells[0]} | {cells[1]} |" in PAGE
    for name, arm in {
        "4, without W_O": right(out_proj=False),
        "4, summed": right(fusion="sum"),
        "4, averaged": right(fusion="mean"),
        "1, without W_O": right(heads=1, out_proj=False),
        "1, MLP four times as wide": right(heads=1, mlp_hidden=1024),
        "1, 9,000 steps; sequences of 8 votes; of 32": pd.concat(
            [right(heads=1, **other) for other in ({"steps": 9000}, {"context": 9}, {"context": 33})]
        ),
        "1, two layers": right(heads=1, layers=2),
        "2, two layers": right(heads=2, layers=2),
    }.items():
        assert f"| {name} | {cell(arm, tells=arm.max() > 0.999)} | |" in PAGE, name
    few = pd.concat([four[1], four[2], *(eight[heads] for heads in (1, 2, 3, 4))])
    enough = pd.concat([four[4], four[8], eight[8]])
    assert f"no seed reaches 99 %: held, 0 of {len(few)} did;" in PROSE and few.max() < 0.99
    assert f"every seed reaches 99.9 %: refuted, {(enough >= 0.999).sum()} of {len(enough)} did." in PROSE
    fewer = pd.concat([four[1], four[2], four[3]])
    learned = f"with four heads in {(four[4] >= 0.999).sum()} of 6 seeds, with fewer in 0 of {len(fewer)} "
    assert learned in PROSE and fewer.max() < 0.99
    guesses = [
        Votes(length=length, voters=voters, vocabulary=99, seed=0, examples=None, held_out=1).best_guess(4)
        for length, voters in ((17, 4), (25, 8))
    ]
    cells = " | ".join(f"{100 * guess:.0f} %" for guess in guesses)
    assert f"| (best guess from the last four votes) | {cells} |" in PAGE


def test_in_five_of_six_seeds_each_of_four_heads_follows_one_voter():
    four = pd.read_csv(RESULTS / "votes" / "patterns.csv").query("heads == 4")
    assert four["seed"].nunique() == 6
    for seed, one in four.groupby("seed"):
        follows = one.loc[one.groupby("head")["weight"].idxmax()]
        is_each_one = sorted(follows["voter"]) == [0, 1, 2, 3] and follows["weight"].min() > 0.99
        assert is_each_one == (one["test_acc"].iloc[0] > 0.999), seed


def test_how_far_patterns_lie_apart():
    look = pd.read_csv(RESULTS / "look.csv")
    first, second = look.groupby(["layer", "run_id"])["value"].mean().groupby("layer").mean()
    assert f"patterns diverge by {first:.2f} and {second:.2f} (the same: 0; disjoint: 0.69)" in PROSE
    assert look["run_id"].nunique() == 6 and f"{look['untrained'].max():.2f}" == "0.00"


def test_each_number_of_an_equation_is_one():
    """(9) and (6 not) behind a sentence are names that verify takes."""
    names = {one.name for one in IDENTITIES}
    for group in re.findall(r"\((\d+(?: not)?(?:, (?:\d+(?: not)?|alt))*)\)", PAGE):
        assert {*group.split(", ")} <= names | {re.sub(r"\D.*", "", name) for name in names}, group


@pytest.mark.parametrize("command", re.findall(r"^    ablate (verify .+)$", PAGE, re.M))
def test_equations_that_the_page_names_hold(command):
    done = call_cli(*shlex.split(command), cwd=ROOT)
    assert done.returncode == 0 and "pass" in done.stdout


def test_the_page_and_its_answers_are_short():
    text = "\n".join(line for line in PAGE.splitlines() if not line.startswith(("<", "|")))
    assert len(text.split()) <= 1300  # beside the tables
    answers = re.findall(r"^\*\*Answer\.\*\* (.+?)\n\n", PAGE, re.M | re.S)
    assert len(answers) == 5 and max(len(answer.split()) for answer in answers) <= 60


if __name__ == "__main__":
    for contrast in NAMES:
        print(line(contrast))
