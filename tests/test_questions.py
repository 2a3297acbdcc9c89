"""docs/questions.md and `ablate questions`: what is printed, each number looked up where it was measured."""

import json
import math
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import scipy.stats

from ablate.analysis import probes
from ablate.analysis.load import load
from ablate.verify.identities import IDENTITIES
from tests.helpers import call_cli, compared

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
MEASURED = re.compile(r"[−-]?\d+\.\d{3,}")
OF_OTHER_TESTS = re.compile(r"\d\.\d+ on validation|lose \d\.\d+ \[[^]]+\] to the two")
ERROR = re.compile(r"\d\.\de[-+]\d\d")


def prose(page: str) -> str:
    """The page without its blocks of code and its pictures."""
    return "\n".join(line for line in page.splitlines() if not line.startswith(("    ", "<")))


def measured(page: str) -> set[str]:
    """The numbers of all comparisons that a page names, as sentences write them, without signs."""
    numbers = set[str]()
    for command in {*re.findall(r"`ablate compare (docs/[^`]+)`", " ".join(page.split()))}:
        targets, *options = command.split(" --", 1)
        if options:
            said = call_cli("compare", *shlex.split(command), "--format", "json", cwd=ROOT).stdout
            rows = [row for row in json.loads(said)["rows"] if row["diff"] is not None]
            numbers |= {f"{abs(row[end]):.3f}" for row in rows for end in ("diff", "low", "high")}
            continue
        results = load([str(ROOT / target) for target in targets.split()])
        result = compared(results.rows, records=results.records)
        values = [
            *result.table["mean"],
            *(end for one in result.findings for end in (one.diff, one.low, one.high)),
        ]
        numbers |= {f"{abs(value):.3f}" for value in values if value == value}
    return numbers


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/questions.md"])
def test_every_number_is_one_of_a_comparison_that_the_page_names(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    words = OF_OTHER_TESTS.sub("", " ".join(prose(text).split()))
    found = {number.lstrip("−-") for number in MEASURED.findall(words)}
    assert found and found <= measured(prose(text))


def test_what_a_wide_sum_saves_on_validation():
    results = load([str(ROOT / "docs" / "results" / "why_cpu")])
    table = compared(results.rows, metric="val_loss", records=results.records).table
    assert f", {-table['diff'].min():.3f} on validation (" in " ".join(PAGE.split())


def test_how_much_weight_the_best_head_puts_on_the_token_before():
    late = load([str(ROOT / "docs" / "results" / "why_long")]).rows

    def weights(rows: pd.DataFrame) -> str:
        return f"{rows['previous_token'].min():.2f} to {rows['previous_token'].max():.2f}"

    concat, narrow = (
        late.query(f"fusion == '{fusion}' and value_width == 16") for fusion in ("concat", "sum")
    )
    lost = narrow.set_index("seed")["test_loss"] - concat.set_index("seed")["test_loss"]
    narrow = narrow.assign(lost=narrow["seed"].map(lost)).sort_values("previous_token")
    three, one = narrow[:3], narrow.iloc[3]
    assert (
        f"the token before is {weights(late.drop(three.index))} in concat, wide sums, and a narrow one that"
        f" loses {one['lost']:.2f}; {weights(three)} in the other three, which lose {three['lost'].min():.2f}"
        f" to {three['lost'].max():.2f}."
    ) in " ".join(PAGE.split())


def test_shares_that_are_kept_are_means_over_seeds_layers_and_heads():
    study = ROOT / "docs" / "results" / "why_cpu"
    runs = load([str(study)]).rows
    kept = probes.read(study / "probes.csv").query("probe == 'kept'").merge(runs, on="run_id")
    means = kept.groupby(["fusion", "value_width", "match"])[["value", "null"]].mean()
    chance = means["null"]["sum"].mean()
    assert means["value"]["concat", 16, "none"] == 1
    narrow, wide = (means["value"]["sum", width, "params"] for width in (16, 64))
    said = f"{narrow:.2f}, its wide sums {wide:.2f}, by chance {chance:.2f}."
    assert f"probes.csv) {said}" in " ".join(
        (ROOT / "docs" / "probes.md").read_text(encoding="utf-8").split()
    )


def test_how_far_patterns_diverge_is_the_mean_over_seeds_and_heads():
    rows = probes.read(ROOT / "docs" / "results" / "why_cpu" / "probes.csv").query("probe == 'jsd'")
    first, second = rows.groupby("layer")["value"].mean()
    untrained = f"{rows['untrained'].mean():.2f}"
    models = {5: "five"}[rows["run_id"].nunique()]
    said = (
        f"diverge by {first:.2f} and {second:.2f} of at most {math.log(2):.2f} nats in layers 1 and 2 of"
        f" {models} models, by {untrained} untrained"
    )
    assert said in " ".join(PAGE.split())


def test_what_one_head_in_the_decoder_costs_in_lines():
    rows = load([str(ROOT / "docs" / "results" / "cross")]).rows.query("phase == 'report'")
    exact = 100 * rows.groupby("at")["test_exact"].mean()
    assert f"({exact['decoder']:.0f} %, not {exact['all']:.0f} %; margin 0.5;" in " ".join(PAGE.split())


def test_what_divided_outputs_cost_is_the_mean_of_two_differences():
    """Of docs/results/alt: both − inside and outside − none, paired by seed."""
    rows = load([str(ROOT / "docs" / "results" / "alt")]).rows.query("phase == 'report'")
    loss = rows.pivot(index="seed", columns="scale", values="test_loss")
    cost = (loss["both"] - loss["inside"] + loss["outside"] - loss["none"]) / 2
    low, high = scipy.stats.t.interval(0.95, len(cost) - 1, cost.mean(), cost.sem())
    assert f"lose {cost.mean():.3f} [{low:.3f}, {high:.3f}] to the two that do not" in " ".join(PAGE.split())


def test_what_the_equations_print_is_what_the_page_shows():
    blocks = re.findall(r"    (ablate verify [^\n]+)\n\n((?:    .*\n)+)", PAGE)
    assert len(blocks) == 4
    for command, shown in blocks:
        done = call_cli(*shlex.split(command)[1:], cwd=ROOT)
        lines = [" ".join(ERROR.sub("E", line).split()) for line in done.stdout.splitlines()]
        for line in shown.strip().splitlines():
            assert " ".join(ERROR.sub("E", line).split()) in lines, line


def test_each_number_of_an_equation_is_one():
    """(9) and (6 not) behind a sentence are names that verify takes."""
    names = {one.name for one in IDENTITIES}
    for group in re.findall(r"\((\d+(?: not)?(?:, \d+(?: not)?)*|alt|uniform)\)", prose(PAGE)):
        assert {*group.split(", ")} <= names | {re.sub(r"\D.*", "", name) for name in names}, group


def test_questions_are_printed_one_by_one_or_in_short():
    short = call_cli("questions", cwd=ROOT).stdout
    assert [*re.findall(r"^Q(\d)\. ", short, re.M)] == ["0", "1", "2", "3", "4"]
    assert "**Proved.**" not in short and "](" not in short
    for number in range(5):
        whole = call_cli("questions", str(number), cwd=ROOT).stdout
        assert whole.startswith(f"Q{number}. ") and whole.count("\nQ") == 0
        for part in (
            "**Proved.**",
            "**Measured.**",
            "**Unknown.**",
            "**What would change this.**",
            "**See it**",
        ):
            assert part in whole
    assert call_cli("questions", "5", cwd=ROOT).returncode == 2


def test_each_answer_is_short_enough_to_be_read():
    for section in re.split(r"^## (?=Q\d)", PAGE, flags=re.M)[1:]:
        assert 200 <= len(prose(section).split()) <= 350, section.splitlines()[0]
