"""Every interval in docs/findings.md is looked up in the rows that it names.

A figure reads `+0.062 [+0.050, +0.074]`, and a comment follows in its sentence: `<!-- 001-flexible: sum -
concat -->`: the directory in docs/results, and a contrast of the claim or, of a study, `VARIANT | BASELINE`
by the names that `ablate compare` prints.
"""

import functools
import json
import re

import pytest

from ablate.analysis.compare import compare
from ablate.analysis.load import load
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "findings.md"
NUMBER = r"[+−]?\d+\.\d+"
INTERVAL = rf"\[{NUMBER}, {NUMBER}\]"
FIGURE = re.compile(
    rf"(?P<diff>{NUMBER}) \[(?P<low>{NUMBER}), (?P<high>{NUMBER})\](?P<words>[^\[<]*)"
    r"<!-- (?P<results>[\w-]+): (?P<contrast>[^>]+?) -->"
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
    table = compare(results.rows, records=results.records).family("primary")
    rows = table[table["baseline"].notna()].to_dict("records")
    return {f"{row['variant']} | {row['baseline']}": {**row, "n": row["pairs"]} for row in rows}


def test_every_interval_says_where_it_is_from():
    assert len(re.findall(INTERVAL, TEXT)) == len(FIGURE.findall(TEXT)) > 0


@pytest.mark.parametrize("figure", [*FIGURE.finditer(TEXT)], ids=lambda found: found["contrast"])
def test_a_figure_is_in_its_rows(figure):
    is_claim = figure["results"][:3].isdigit()
    found = (of_claim if is_claim else of_study)(figure["results"])[figure["contrast"]]
    decimals = len(figure["diff"].partition(".")[2])
    for name in ("diff", "low", "high"):
        assert number(figure[name]) == pytest.approx(found[name], abs=0.51 * 10**-decimals), name
    if seeds := re.search(r"n = (\d+)", figure["words"]):
        assert int(seeds[1]) == found["n"]
    if share := re.search(r"(\d+(?:\.\d+)?) % of what attention is worth", figure["words"]):
        assert float(share[1]) == pytest.approx(100 * abs(found["share"]), rel=0.06)
