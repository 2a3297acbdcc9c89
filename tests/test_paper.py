"""Tables for papers."""

import json
import re
import shutil
import subprocess

import pandas as pd
import pytest

import ablate
from ablate.config.rules import ConfigError
from ablate.reporting import paper
from tests.helpers import call_cli, compared
from tests.test_answers import at

pytestmark = pytest.mark.usefixtures("two_seeds_decide")


def grid() -> pd.DataFrame:
    """Three fusions at 4 and 16 heads; mean at 16 is missing."""
    both = pd.concat([at(16), at(4)]).query("fusion != 'mean' or heads == 4")
    return both.assign(val_loss=both["val_loss"] + both["heads"] / 100)


def test_a_pivot_by_hand():
    result = compared(grid())
    found = paper.pivot(result, ["fusion", "heads"])
    text = paper.plain(found)
    assert [*text.columns] == ["fusion", "heads=4", "heads=16"]
    assert text.to_numpy().tolist() == [
        ["concat", "2.190 ± 0.205", "2.310 ± 0.205"],
        ["mean", "2.190 ± 0.195", ""],
        ["sum", "2.440 ± 0.184", "2.560 ± 0.184"],
    ]
    assert found.caption == (
        "Validation loss (nats per token; lower is better), mean over 4 seeds ± half the width of its 95 %"
        " t-interval. On book.txt (2 layers, 64 wide, 1,000 steps). Exploratory: no contrast was named"
        " beforehand."
    )


def test_its_latex_is_as_wide_as_the_text():
    found = paper.latex(paper.pivot(compared(grid()), ["fusion", "heads"]))
    assert re.findall(r"\\usepackage\{(.*)\}", found) == ["booktabs,tabularx"]
    assert r"& \multicolumn{2}{c}{heads} \\" in found and r"\cmidrule(lr){2-3}" in found
    assert r"concat & 2.190 $\pm$ 0.205 & 2.310 $\pm$ 0.205 \\" in found
    assert r"sum & 2.440 $\pm$ 0.184 & " in found
    assert r"95 \% t-interval" in found and found.count(r"\begin{") == found.count(r"\end{") == 2
    rows = [line for line in found.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in rows} == {2}


@pytest.mark.slow
def test_without_a_pivot_a_row_a_variant():
    result = compared(grid(), where=["heads=4"])
    found = paper.latex(paper.differences(result))
    assert r"variant & mean & difference \\" in found  # the caption has the seeds, as all have as many
    assert r"concat & 2.190 &  \\" in found
    each = r"with t-intervals at 98.33 \% each, 95 \% together"
    assert f"Differences to concat (positive is worse) over 4 paired seeds, {each}" in found
    assert found.count("to concat") == 1
    same = grid().assign(val_loss=lambda rows: rows["val_loss"] + (rows["fusion"] == "sum") * -0.25)
    close = paper.differences(compared(same, where=["heads=4", "fusion != 'mean'"], margin=0.5))
    assert "‡: equivalent, within ±0.5." in close.caption
    assert r"\textdaggerdbl{}" in paper.latex(close)
    assert r"sum & 2.440 & +0.250\textdagger{} {[}" in found
    uneven = pd.concat([grid(), grid().query("fusion == 'sum' and seed == 0").assign(seed=9, run_id="more")])
    assert r"variant & seeds & mean" in paper.latex(paper.differences(compared(uneven, where=["heads=4"])))


@pytest.mark.slow
def test_cells_hold_one_variant():
    two = pd.concat([grid(), grid().assign(out_proj=False, run_id=lambda r: r["run_id"] + "x")])
    differ = r"--pivot fusion,heads: variants differ in out_proj too; add that, or --where"
    with pytest.raises(ConfigError, match=differ):
        paper.pivot(compared(two), ["fusion", "heads"])
    found = paper.pivot(compared(two), ["out_proj", "fusion", "heads"])
    assert len(found.frame) == 6 and [*found.frame.columns] == ["out_proj", "fusion", "4", "16"]
    with pytest.raises(ConfigError, match="--pivot fusion: variants differ in heads too"):
        paper.pivot(compared(grid()), ["fusion"])
    with pytest.raises(ConfigError, match="give different keys"):
        paper.pivot(compared(grid()), ["fusion", "fusion"])
    with pytest.raises(ConfigError, match="did you mean heads"):
        paper.pivot(compared(grid()), ["fusion", "headss"])


@pytest.mark.slow
def test_the_command(tmp_path):
    grid().to_csv(tmp_path / "mine.csv", index=False)

    def pivot(*options: str):
        return call_cli("compare", "mine.csv", "--pivot", "fusion,heads", *options, cwd=tmp_path)

    latex = pivot("--format", "latex")
    assert latex.returncode == 0 and latex.stdout.startswith("% needs \\usepackage{booktabs,tabularx}")
    assert r"\label{tab:mine-fusion-heads}" in latex.stdout and "Verdicts" not in latex.stdout
    asked = ("compare", "mine.csv", "--within", "heads", "--format", "latex")
    assert r"\label{tab:mine-heads-val-loss}" in call_cli(*asked, "--metric", "val_loss", cwd=tmp_path).stdout
    text = pivot().stdout
    assert "heads=16" in text and "2.440 ± 0.184" in text
    rows = json.loads(pivot("--format", "json").stdout)["rows"]
    assert {row["fusion"]: row["heads=4"][:5] for row in rows} == {
        "concat": "2.190",
        "mean": "2.190",
        "sum": "2.440",
    }


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex compiles it")
def test_its_latex_compiles(tmp_path):
    names = ["base_line", "50%", "R&D", "é", "x^2~y", "[3] a", "C#", "{b}", "a\\b", "<3>", "“q”", "≤1…"]
    cells = [(name, at, s, s + len(name)) for name in names for at in ("s_1", "big") for s in range(2)]
    asked = {"by": ["my_method", "size"], "metric": "my_loss", "baseline": {"my_method": "base_line"}}
    found = ablate.compare(pd.DataFrame(cells, columns=["my_method", "size", "seed", "my_loss"]), **asked)
    made = [paper.differences(found), paper.pivot(found, ["my_method", "size"])]
    assert "my method & big & s\\_1" in paper.latex(made[1])
    head, end = "\\documentclass{article}\\usepackage{booktabs,tabularx}\\begin{document}", "\\end{document}"
    (tmp_path / "t.tex").write_text("\n".join([head, *map(paper.latex, made), end]), encoding="utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout
