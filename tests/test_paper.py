"""Tables for papers."""

import json
import re

import pandas as pd
import pytest

from ablate.analysis.compare import compare
from ablate.config.rules import ConfigError
from ablate.reporting import paper, tables
from tests.helpers import call_cli
from tests.test_answers import SIZE
from tests.test_compare import hand_worked, table


def grid() -> pd.DataFrame:
    """Three fusions at 4 and 16 heads; mean at 16 is missing."""
    parts = []
    for heads in (16, 4):
        widths = {"key_width": 64 // heads, "value_width": 64 // heads}
        rows = table(*hand_worked()).assign(**SIZE, heads=heads, **widths)
        parts.append(rows.assign(run_id=rows["run_id"] + str(heads), val_loss=rows["val_loss"] + heads / 100))
    return pd.concat(parts).query("fusion != 'mean' or heads == 4")


def cell(found: paper.PaperTable, fusion: str, column: int) -> paper.Cell:
    (cells,) = [cells for stub, cells in found.rows if fusion in stub]
    one = cells[column]
    assert isinstance(one, paper.Cell)
    return one


def test_a_pivot_by_hand():
    result = compare(grid())
    found = paper.pivot(result, grid(), ["fusion", "heads"])
    assert (found.stub, found.over, found.columns) == (["fusion"], "heads", ["4", "16"])
    assert [stub for stub, _ in found.rows] == [["concat"], ["mean"], ["sum"]] and found.rows[1][1][1] == ""
    best = cell(found, "concat", 0)
    # 2.15 + 0.04 ± t(0.975; 3)·sd/2 with sd = √(0.05/3)
    assert best.mean == pytest.approx(2.19) and best.half == pytest.approx(3.182446 * (0.05 / 3) ** 0.5 / 2)
    assert best.best and not cell(found, "concat", 1).best
    assert cell(found, "sum", 0).differs and not cell(found, "mean", 0).differs
    text = paper.plain(found)
    assert [*text.loc[0]] == ["concat", "**2.190 ± 0.205**", "2.310 ± 0.205"]
    assert text.loc[2, "heads=4"] == "2.440 ± 0.184†" and text.loc[1, "heads=16"] == ""
    assert found.caption == (
        "Validation loss (nats per token), mean over 4 seeds ± half of its 95 % t-interval. On book.txt (2"
        " layers, 64 wide, 1,000 steps). Bold: the lowest mean. †: differs from its baseline"
        " (fusion=concat out_proj=true; simultaneous 95 % interval)."
    )


def test_its_latex_takes_booktabs_alone():
    found = paper.latex(paper.pivot(compare(grid()), grid(), ["fusion", "heads"]))
    assert re.findall(r"\\usepackage\{(\w+)\}", found) == ["booktabs"]
    assert r"& \multicolumn{2}{c}{heads} \\" in found and r"\cmidrule(lr){2-3}" in found
    assert r"concat & \textbf{2.190 $\pm$ 0.205} & 2.310 $\pm$ 0.205 \\" in found
    assert r"sum & 2.440 $\pm$ 0.184\textdagger & " in found
    assert r"95 \% t-interval" in found and found.count(r"\begin{") == found.count(r"\end{") == 2
    rows = [line for line in found.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in rows} == {2}


def test_without_a_pivot_a_row_a_variant():
    result = compare(grid(), where=["heads=4"])
    found = paper.latex(paper.by_variant(result, grid()))
    assert r"fusion & seeds & mean & difference \\" in found
    assert r"concat & 4 & \textbf{2.190 $\pm$ 0.205} &  \\" in found
    assert r"sum & 4 & 2.440 $\pm$ 0.184\textdagger & +0.250 {[}0.129, 0.371{]} \\" in found


def test_cells_hold_one_variant():
    two = pd.concat([grid(), grid().assign(out_proj=False, run_id=lambda r: r["run_id"] + "x")])
    with pytest.raises(
        ConfigError, match=r"--pivot fusion,heads: variants differ in out_proj too; add it, or --where"
    ):
        paper.pivot(compare(two), two, ["fusion", "heads"])
    found = paper.pivot(compare(two), two, ["out_proj", "fusion", "heads"])
    assert len(found.rows) == 6 and found.stub == ["out_proj", "fusion"]
    for keys in (["fusion"], ["fusion", "fusion"]):
        with pytest.raises(ConfigError, match="give two keys or more"):
            paper.pivot(compare(grid()), grid(), keys)
    with pytest.raises(ConfigError, match="did you mean heads"):
        paper.pivot(compare(grid()), grid(), ["fusion", "headss"])


def test_the_command(tmp_path):
    grid().to_csv(tmp_path / "mine.csv", index=False)
    latex = call_cli("compare", "mine.csv", "--pivot", "fusion,heads", "--format", "latex", cwd=tmp_path)
    assert latex.returncode == 0 and latex.stdout.startswith("% needs \\usepackage{booktabs}\n\\begin{table}")
    text = call_cli("compare", "mine.csv", "--pivot", "fusion,heads", cwd=tmp_path).stdout
    assert "heads=16" in text and "**2.190 ± 0.205**" in text
    numbers = json.loads(
        call_cli("compare", "mine.csv", "--pivot", "fusion,heads", "--format", "json", cwd=tmp_path).stdout
    )
    assert {row["fusion"]: round(row["mean"], 3) for row in numbers if row["heads"] == "4"} == {
        **{"concat": 2.19, "mean": 2.19, "sum": 2.44}
    }
    refused = call_cli("compare", "mine.csv", "--pivot", "fusion,heads", "--effects", cwd=tmp_path)
    assert refused.returncode == 2 and "--effects" in refused.stderr


def test_greek_letters_are_latex_too():
    assert tables.escaped("AdamW β1, ε; 1/√key_width …") == (
        r"AdamW $\beta$1, $\varepsilon$; 1/$\surd$key\_width \dots{}"
    )
