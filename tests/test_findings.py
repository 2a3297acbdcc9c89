"""Every interval in docs/findings.md is looked up in the rows that it names.

A figure reads `+0.062 [+0.050, +0.074]`, and a comment follows in its sentence, with the directory in
docs/results: `<!-- 001-flexible: sum - concat -->` is a contrast of a claim. `<!-- rank: VARIANT against
BASELINE -->` is one of a study, by the names that `ablate compare` prints, without what is empty and without
the tuned learning rate. `, controlled` after it asks for what remains under the placebo of the study, `, at
one rate` for both at the baseline's rate. `<!-- out_proj: interaction -->` is that of heads and projection,
`interaction, at_few` its value at one head. `<!-- 001-flexible/heads: kept, VARIANT, layer 1, median -->` is
in a table of `ablate probe`. `<!-- book/trained: one_head where heads=8, layer=2 -->` is a mean over runs, in
a table of benchmarks/trained.py.
"""

import functools
import json
import re

import pandas as pd
import pytest

from ablate.analysis import stats
from ablate.analysis.compare import compare
from ablate.analysis.load import load
from ablate.analysis.probes import SORTED
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "findings.md"
FAMILIES = {"primary": "", "at the baseline's value": ", at one rate"}
NUMBER = r"[+−]?\d+\.\d+"
INTERVAL = rf"\[{NUMBER},\s{NUMBER}\]"
FIGURE = re.compile(
    rf"(?P<diff>{NUMBER})\s\[(?P<low>{NUMBER}),\s(?P<high>{NUMBER})\](?P<words>[^\[<]*)"
    r"<!--\s(?P<results>[\w/-]+):\s(?P<contrast>[^>]+?)\s-->"
)
TEXT = PAGE.read_text(encoding="utf-8")


def number(text: str) -> float:
    return float(text.replace("−", "-"))


@functools.cache
def of_claim(name: str) -> dict[str, dict]:
    verdict = json.loads((ROOT / "docs" / "results" / name / "verdict.json").read_text(encoding="utf-8"))
    return {found["contrast"]: found for found in verdict["found"]}


@functools.cache
def of_study(name: str) -> dict[str, dict]:
    results = load([str(ROOT / "docs" / "results" / name)])
    compared = compare(results.rows, records=results.records)
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
    table = pd.read_csv(ROOT / "docs" / "results" / f"{name}.csv")
    return {
        f"{row['probe']}, {row['variant']}, layer {row['layer']}, {head}": {
            **{"diff": row[head], "low": row[f"{head}_low"], "high": row[f"{head}_high"], "n": row["n"]}
        }
        for row in table.to_dict("records")
        for head in SORTED
    }


def of_runs(name: str, contrast: str) -> dict:
    column, where = contrast.split(" where ")
    runs = pd.read_csv(ROOT / "docs" / "results" / f"{name}.csv")
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
    there = found(figure["results"], " ".join(figure["contrast"].split()))
    decimals = len(figure["diff"].partition(".")[2])
    for name in ("diff", "low", "high"):
        assert number(figure[name]) == pytest.approx(there[name], abs=0.51 * 10**-decimals), name
    if seeds := re.search(r"n = (\d+)", figure["words"]):
        assert int(seeds[1]) == there["n"]
    if share := re.search(r"(\d+(?:\.\d+)?) % of what attention is worth", figure["words"]):
        assert float(share[1]) == pytest.approx(100 * abs(there["share"]), rel=0.06)
