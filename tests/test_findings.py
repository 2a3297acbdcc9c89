"""Every interval in docs/findings.md is looked up in the rows that it names.

A figure reads `+0.062 [+0.050, +0.074]`, and a comment follows in its sentence, with the directory in
docs/results: `<!-- 001-flexible: sum - concat -->` is a contrast of a claim. `<!-- rank: VARIANT against
BASELINE -->` is one of a study, by the names that `ablate compare` prints, without what is empty and without
the tuned learning rate. `, controlled` after it asks for what remains under the placebo of the study, `, at
one rate` for both at the baseline's rate. `<!-- out_proj: interaction -->` is that of heads and projection,
`interaction, at_few` its value at one head. `<!-- 001-flexible/heads: kept, VARIANT, layer 1, median -->` is
in a table of `ablate probe`. `<!-- book/trained: one_head where heads=8, layer=2 -->` is a mean over runs, in
a table of benchmarks/trained.py.

All other decimals and percentages are in `OTHERS`, with what they must be.
"""

import functools
import json
import math
import re
from typing import Literal

import pandas as pd
import pytest
from scipy.stats import ttest_rel

import ablate
from ablate.analysis import stats
from ablate.analysis.notes import FIRST_TEXT
from ablate.analysis.probes import SORTED
from ablate.ledger.entry import find_entry
from ablate.ledger.page import FIRST_EDITION
from ablate.phrases import Doubt
from benchmarks.first_text import WIDTH, first_text, of_test_split, sha256, verbatim
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "findings.md"
RESULTS = ROOT / "docs" / "results"
FAMILIES = {"primary": "", "exploratory": "", "at the baseline's value": ", at one rate"}
NUMBER = r"[+−]?\d+\.\d+"
INTERVAL = rf"\[{NUMBER},\s{NUMBER}\]"
FIGURE = re.compile(
    rf"(?P<diff>{NUMBER})\s\[(?P<low>{NUMBER}),\s(?P<high>{NUMBER})\](?P<words>[^\[<]*)"
    r"<!--\s(?P<results>[\w/-]+(?:\s--\w+\s\S+)*):\s(?P<contrast>[^>]+?)\s-->"
)
TEXT = PAGE.read_text(encoding="utf-8")
CONCAT = "fusion=concat scores=softmax heads=8 out_proj=true"
RANK_16 = f"{CONCAT} out_rank=16 against {CONCAT}"
SETTLED = r"Python 3\.11|95 %|0\.01 nats"


def number(text: str) -> float:
    return float(text.replace("−", "-"))


@functools.cache
def of_claim(name: str) -> dict[str, dict]:
    verdict = json.loads((RESULTS / name / "verdict.json").read_text(encoding="utf-8"))
    return {found["contrast"]: found for found in verdict["predictions"]}


@functools.cache
def of_study(command: str) -> dict[str, dict]:
    """command: a study, and options of `ablate compare`."""
    name, *options = command.split(" --")
    asked = dict(option.split() for option in options)
    compared = ablate.compare(RESULTS / name, baseline=asked.get("baseline"), where=asked.get("where", ()))
    table = compared.table[compared.table["baseline"].notna()]
    found = {
        f"{short(row['variant'])} against {short(row['baseline'])}{FAMILIES[row['family']]}": row
        | {"n": row["pairs"]}
        for row in table[table["family"].isin(FAMILIES)].to_dict("records")
    }
    for row in compared.interaction.to_dict("records"):
        found["interaction"] = row
    of = {"low": "{}_low", "high": "{}_high", "diff": "{}", "n": "n"}
    return found | {
        f"{name}, {part}": {key: row[column.format(part)] for key, column in of.items()}
        for name, row in found.items()
        for part in ("controlled", "at_few")
        if part in row
    }


def short(variant: str) -> str:
    return re.sub(r" (\w+=(?=\s|$)|lr=\S+)", "", variant)


@functools.cache
def of_heads(name: str) -> dict[str, dict]:
    table = pd.read_csv(RESULTS / f"{name}.csv")
    return {
        f"{row['probe']}, {row['variant']}, layer {row['layer']}, {head}": {
            **{"diff": row[head], "low": row[f"{head}_low"], "high": row[f"{head}_high"], "n": row["n"]}
        }
        for row in table.to_dict("records")
        for head in SORTED
    }


def of_runs(name: str, contrast: str) -> dict:
    column, where = contrast.split(" where ")
    runs = pd.read_csv(RESULTS / f"{name}.csv")
    for key, value in (one.split("=") for one in where.split(", ")):
        runs = runs[runs[key].astype(str) == value]
    low, high = stats.t_interval(runs[column].to_numpy()[None])
    return {"diff": runs[column].mean(), "low": low[0], "high": high[0], "n": runs["run_id"].nunique()}


def found(results: str, contrast: str) -> dict:
    if results.endswith("/trained"):
        return of_runs(results, contrast)
    of = of_heads if "/" in results else of_claim if results[:3].isdigit() else of_study
    return of(results)[contrast]


def test_every_interval_says_where_it_is_from():
    assert len(re.findall(INTERVAL, TEXT)) == len(FIGURE.findall(TEXT)) > 0


@pytest.mark.parametrize("figure", [*FIGURE.finditer(TEXT)], ids=lambda figure: figure["contrast"])
def test_a_figure_is_in_its_rows(figure):
    of_rows = found(*(" ".join(figure[part].split()) for part in ("results", "contrast")))
    decimals = len(figure["diff"].partition(".")[2])
    for name in ("diff", "low", "high"):
        assert number(figure[name]) == pytest.approx(of_rows[name], abs=0.51 * 10**-decimals), name
    if seeds := re.search(r"n = (\d+)", figure["words"]):
        assert int(seeds[1]) == of_rows["n"]
    if share := re.search(r"(\d+(?:\.\d+)?) % of what attention is worth", figure["words"]):
        assert float(share[1]) == pytest.approx(100 * abs(of_rows["share"]), rel=0.06)


def predicted(number: str, column: Literal["published", "of_attention"]) -> float:
    value = getattr(find_entry(number).predictions[0], column)
    assert value is not None
    return value


def quoted(number: str) -> list[float]:
    """The numbers in a claim's words on what was published."""
    return [float(one) for one in re.findall(r"\d+\.\d+", find_entry(number).published)]


def rows(name: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / f"{name}.csv", low_memory=False)


def two_groups() -> list[float]:
    """The ends of six losses, and the larger one of two."""
    runs = rows("symmetric/results").query("phase == 'report' and role == 'tuned' and tie_qk")
    losses = sorted(runs["test_loss"])
    return [losses[2], losses[7], losses[1]]


def untrained(name: str, probe: str, method: str) -> float:
    table = rows(name).query(f"probe == '{probe}' and layer == 1")
    return table[table["variant"].str.startswith(method)]["untrained"].item()


def steps_more() -> list[float]:
    table = rows("weights/steps")
    own = table[(table["fusion"] == "concat") & (table["scores"] == "softmax")]
    channels, constant = (
        table[table["fusion"].eq("gated") & table[column].eq(value)].iloc[0]
        for column, value in (("per", "channel"), ("input", "static"))
    )
    return [
        *(channels["diff"], channels["low"], channels["high"], own["mean"].item()),
        *(constant["diff"], constant["low"], constant["high"], constant["pairs"]),
    ]


def fewer(name: str, variant: str) -> float:
    """The share of parameters that a variant lacks, compared with concat as it is, the largest."""
    params = rows(f"{name}/results")["params"]
    return 1 - rows(f"{name}/results").query(variant)["params"].max() / params.max()


def outside(when: str) -> float:
    return rows("011-symmetric/trained").query(f"scale == 'both' and when == '{when}'")["outside"].mean()


def every_result() -> pd.DataFrame:
    """The rows of all results, each run once."""
    tables = [rows(f"{path.parent.name}/results") for path in RESULTS.glob("*/results.csv")]
    return pd.concat(tables).drop_duplicates("run_id")


def hours() -> list[float]:
    """Runs, and hours of one core and of two."""
    wall = every_result()["wall_s"] / 3600
    return [len(wall), wall.sum(), wall.sum() / 2, wall.nlargest(10).sum(), 10]


def times_as_long() -> list[float]:
    steps = rows("symmetric/cost").query("scale == 'both'")
    return [
        *(steps["step_ratio"].min(), steps["step_ratio"].max()),
        *(steps["step_ratio_low"].min(), steps["step_ratio_high"].max()),
    ]


def never_there() -> list[int]:
    runs = rows("weights/steps").set_index("variant")[["diverged", "n"]]
    return [
        number
        for method in ("fusion=gated input=x per=head ", "fusion=head_scale ")
        for never, reached in [runs[runs.index.str.startswith(method)].iloc[0]]
        for number in (never, never + reached)
    ]


def again(precision: str) -> pd.DataFrame:
    """Rows of this precision trained again, beside those that are kept."""
    table = pd.read_csv(ROOT / "docs" / "again.csv").query(f"precision == '{precision}'")
    return table.merge(every_result(), on="run_id", suffixes=("", "_kept"))


def test_float32_rows_trained_again_are_the_same():
    whole = again("float32")
    assert len(whole) == 4 and whole["test_loss"].equals(whole["test_loss_kept"])
    assert whole["val_loss"].equals(whole["val_loss_kept"])


def verbatim_in_first_text() -> list[float]:
    """Per cent of its test split. It takes the Python whose help topics were trained on."""
    pytest.importorskip("pydoc_data.topics")
    text = first_text()
    if sha256(text) != FIRST_TEXT:
        pytest.skip("the help topics of this Python are another text")
    return [100 * of_test_split(text)]


def test_what_is_verbatim_by_hand():
    """Of the stretches of 3, others have abc, bcd and xyz; the first x and the last xy lie in none."""
    assert verbatim("abcdxxyzxy", ["ab", "xabcd", "xyz"], 3) == 7 / 10


def test_every_result_is_on_the_first_text_and_the_pages_say_so():
    assert {*every_result()["corpus_sha256"]} == {FIRST_TEXT}
    for name, title in (("findings", "# Findings"), ("ledger", "# The ledger")):
        page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").replace("**", "")
        assert " ".join(page.split()).startswith(f"{title} {FIRST_EDITION}")
    assert f"stretches of {WIDTH} characters or more" in " ".join(TEXT.split())


def test_a_comparison_on_the_first_text_says_that_it_is_withdrawn():
    of_first = ablate.compare(ROOT / "docs" / "results" / "001-flexible")
    briefs = [note.brief for note in of_first.notes if isinstance(note, Doubt)]
    assert briefs.count("a withdrawn text") == 1
    assert not [line for line in ablate.compare(ROOT / "docs" / "noise.csv").notes if "withdrawn" in line]


def p_of_removal() -> list[float]:
    runs = rows("004-removable/results").query(
        "phase == 'report' and role == 'tuned' and scores == 'softmax'"
    )
    losses = runs.pivot(index="seed", columns="out_proj", values="test_loss")
    return [ttest_rel(losses[False], losses[True]).pvalue]


def seeds_below() -> list[int]:
    """In how many seeds four groups lose less than the matrix of rank 32, and of how many."""
    runs = rows("003-write-rank/results").query("phase == 'report' and role == 'tuned'")
    groups = runs[runs["fusion_options"] == '{"groups": 4}'].set_index("seed")["test_loss"]
    factored = runs[runs["out_rank"] == 32].set_index("seed")["test_loss"]
    return [int((groups - factored < 0).sum()), len(groups)]


def weight_of_uniform_attention() -> list[float]:
    table = rows("001-flexible/heads").query("probe == 'first' and layer == 1")
    return [table[table["variant"].str.contains("scores=uniform")]["largest"].item()]


of_readme = pd.concat([pd.read_csv(ROOT / "docs" / name) for name in ("noise.csv", "fresh.csv")])
of_readme = of_readme.groupby("fusion")["val_loss"].mean()
OTHERS = {
    "60 % of the test characters": verbatim_in_first_text,
    "against concat, a sum has 7 % fewer parameters, uniform attention 15 % fewer": lambda: [
        100 * fewer("001-flexible", "fusion == 'sum'"),
        100 * fewer("001-flexible", "scores == 'uniform'"),
    ],
    "1719 runs add up to 23.5 hours of one core, so 11.7 on two. 2.9 hours are of the 10 longest": hours,
    "README has 0.055": lambda: [of_readme["sum"] - of_readme["concat"]],
    "that rank costs, within 0.01 nats": lambda: [find_entry("001").margin],
    "intervals are within 0.02 nats": lambda: [find_entry("003").margin],
    "whole cost is 0.031 nats": lambda: [of_study("rank")[RANK_16]["diff"]],
    "in 21 of 24 seeds": seeds_below,
    "least squares predicts 0.454 in": lambda: [untrained("001-flexible/heads", "kept", "fusion=sum ")],
    "gain of 0.040 nats": lambda: [-predicted("006", "published")],
    "attention puts 0.059 there": weight_of_uniform_attention,
    "paper has −0.022 nats by our entry": lambda: [predicted("007", "published")],
    "and −0.021 by its perplexities": lambda: [math.log(quoted("007")[2] / quoted("007")[1])],
    "saw 3.086 instead of 3.087": lambda: quoted("008")[:0:-1],
    "6 of 8 runs with a gate on each head and 3 of 8 with weights": never_there,
    "−5 [−50, +40] steps of 960 and constant gates +5 [−52, +63], n = 8": steps_more,
    "report 15–40 % for": lambda: [
        float(one) for one in re.findall(r"\d+(?=–| ?%)", find_entry("009").published)
    ],
    "six at 1.44 to 1.45 and two at 1.42": two_groups,
    "Before training it is 0.026": lambda: [outside("before training")],
    "p = 0.003": p_of_removal,
    "rise of at most 0.01 nats": lambda: [of_claim("004-removable")["without - with"]["bound"]],
    "That is with 15 % fewer": lambda: [100 * fewer("005-identity", "value_proj == False")],
    "have +0.073 nats": lambda: [predicted("010", "published")],
    "have +0.048 nats": lambda: [predicted("013", "published")],
    "at most 2 % of what": lambda: [100 * predicted("014", "of_attention")],
    "13 % fewer": lambda: [100 * fewer("014-shared-keys", "key_heads == '1'")],
    "which leaves 15 % fewer": lambda: [100 * fewer("012-talking-heads", "scores == 'talking'")],
    "a step took 0.98 to 1.05 times as long, with rounds from 0.81 to 1.29": times_as_long,
    "3 % of its numbers do": lambda: [100 * outside("after")],
}


def unlooked(text: str) -> list[str]:
    """Decimals and percentages that are neither code nor in a figure nor settled by convention."""
    text = re.sub(r"^ {4}.*", "", FIGURE.sub("", text), flags=re.MULTILINE)
    text = re.sub(rf"<!--.*?-->|`[^`]*`|{SETTLED}", "", text, flags=re.DOTALL)
    return re.findall(r"\d+\.\d+|\d+ %", text)


def test_every_other_number_is_looked_up():
    text = " ".join(TEXT.split())
    assert all(text.count(phrase) == 1 for phrase in OTHERS)
    assert unlooked(TEXT) == unlooked(" ".join(OTHERS))


@pytest.mark.parametrize("phrase", OTHERS)
def test_another_number_is_in_its_rows(phrase):
    for text, value in zip(re.findall(r"[+−]?\d+(?:\.\d+)?", phrase), OTHERS[phrase](), strict=True):
        decimals = len(text.partition(".")[2])
        assert number(text) == pytest.approx(value, abs=0.51 * 10**-decimals)


def test_readme_has_the_costs_of_all_64_seeds():
    costs = (of_readme - of_readme["concat"]).round(3)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"summing narrow heads costs {costs['sum']} nats of validation loss a token against concat, averaging"
        f" them {costs['mean']}, weighting them {costs['weighted_sum']}"
    ) in readme
