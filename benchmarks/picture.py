"""Draw the pictures of README and docs/questions.md.

    python benchmarks/picture.py [RUN...]

writes docs/answer-*.svg from the table of docs/questions.md, and docs/votes-*.svg from patterns.csv of
docs/results/votes; with directories of runs of study=votes it makes that file first.
"""

import json
import re
import sys
from pathlib import Path

import altair as alt
import numpy as np
import pandas as pd
import vl_convert

DOCS = Path(__file__).parent.parent / "docs"
PATTERNS = DOCS / "results" / "votes" / "patterns.csv"
INK = {"light": "#1b1f24", "dark": "#e6e9ed"}
BLUE, ORANGE = "#3b82c4", "#d9822b"
MARGIN = 0.02
EXAMPLES = 2000
SHOWN = (100, 102)  # seeds: a run that learns the task with four heads, and the one that does not


def main() -> None:
    if runs := sys.argv[1:]:
        pd.concat(map(patterns, map(Path, runs))).to_csv(PATTERNS, index=False, float_format="%.4f")
    for scheme, ink in INK.items():
        _draw(DOCS / f"answer-{scheme}.svg", _differences(ink), ink)
        _draw(DOCS / f"votes-{scheme}.svg", _heat_maps(), ink)


def differences() -> pd.DataFrame:
    """The rows of the page's table: name, diff, low, high, whether both sides have the same functions, and
    whether the difference is undecided."""
    page = (DOCS / "questions.md").read_text(encoding="utf-8").split("## All differences")[1]
    found = re.findall(r"^\| (.+?) \| ([+−][\d.]+) \[(−?[\d.]+), (−?[\d.]+)] \| (\w+)", page, re.M)
    table = pd.DataFrame(found, columns=["name", "diff", "low", "high", "verdict"])
    table["same"] = table["name"].str.contains("=")
    table["name"] = table["name"].str.replace(
        r"\*\*| =|, \d+ % more.*|, \d+ % fewer parameters", "", regex=True
    )
    numbers = ["diff", "low", "high"]
    table[numbers] = table[numbers].map(lambda text: float(text.replace("−", "-")))
    table["undecided"] = table["verdict"].eq("undecided")
    return table


def patterns(run: Path) -> pd.DataFrame:
    """Of each head: the mean weight that the question puts on the last vote of each voter who has voted."""
    import torch

    import ablate
    from ablate.model.models import inputs_of_attention

    model, draws = ablate.load_model(run), np.random.default_rng(0)
    voters = model.config.corpus.options["voters"]
    votes_NT = draws.integers(2 * voters, size=(EXAMPLES, model.config.model.context))
    votes_NT[:, -1] = 2 * voters  # the question
    with torch.no_grad():
        (inputs,) = inputs_of_attention(model.network, torch.from_numpy(votes_NT))
        (site,) = model.network.sites()
        weights_NHT = site.attention.look(*inputs).patterns_BHTS[:, :, -1].numpy()
    rows = []
    for voter in range(voters):
        is_his_NT = votes_NT // 2 == voter
        voted_N = is_his_NT.any(1)
        last_N = votes_NT.shape[1] - 1 - is_his_NT[:, ::-1].argmax(1)
        of_his_last_NH = np.take_along_axis(weights_NHT, last_N[:, None, None], 2)[voted_N, :, 0]
        rows += [(head, voter, weight) for head, weight in enumerate(of_his_last_NH.mean(0))]
    table = pd.DataFrame(rows, columns=["head", "voter", "weight"])
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    about = {name: result[name] for name in ("run_id", "heads", "seed", "test_acc")}
    return table.assign(**about)[[*about, *table]]


def _differences(ink: str) -> alt.TopLevelMixin:
    """A row for each difference: a point on its interval, and the margin behind all."""
    data = differences()
    names = alt.Axis(grid=False, domain=False, ticks=False, labelLimit=400)
    color = alt.condition("datum.same", alt.value(ORANGE), alt.value(BLUE))
    base = alt.Chart(data).encode(
        y=alt.Y("name:N", sort=[*data["name"]], title=None, axis=names), color=color
    )
    x = alt.X(
        "low:Q",
        title="nats of loss (right: worse); orange: the same functions; hollow: undecided; grey: the margin",
        axis=alt.Axis(format=".2f", grid=False),
    )
    margin, zero = pd.DataFrame({"low": [-MARGIN], "high": [MARGIN]}), pd.DataFrame({"low": [0]})
    return alt.layer(
        alt.Chart(margin).mark_rect(color="#888", opacity=0.25).encode(x="low:Q", x2="high:Q"),
        alt.Chart(zero).mark_rule(color="#888").encode(x="low:Q"),
        base.mark_rule(strokeWidth=3).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(x="diff:Q"),
        base.transform_filter("datum.undecided")
        .mark_point(filled=True, size=22, opacity=1)
        .encode(x="diff:Q", color=alt.value("white")),
        base.mark_text(align="left", dx=6).encode(
            x="high:Q", text=alt.Text("diff:Q", format="+.3f"), color=alt.value(ink)
        ),
    ).properties(width=420, height=22 * len(data))


def _heat_maps() -> alt.TopLevelMixin:
    """A map for each model: how much each of its heads looks at each voter."""
    data = pd.read_csv(PATTERNS)
    data["head"], data["voter"] = data["head"] + 1, data["voter"].map(dict(enumerate("ABCD")))
    shade = alt.Color("weight:Q", scale=alt.Scale(domain=[0, 1], scheme="blues"), legend=None)
    maps = []
    for _, one in data[data["seed"].isin(SHOWN)].groupby(["heads", "seed"]):
        heads, right = one["heads"].iloc[0], 100 * one["test_acc"].iloc[0]
        base = alt.Chart(one).encode(
            x=alt.X("voter:N", title="voter", axis=alt.Axis(labelAngle=0)), y=alt.Y("head:O", title="head")
        )
        dark = alt.condition("datum.weight > 0.5", alt.value("white"), alt.value("black"))
        text = base.mark_text(fontSize=10).encode(text=alt.Text("weight:Q", format=".2f"), color=dark)
        title = f"{heads} heads: {right:.0f} % right"
        maps.append(
            alt.layer(base.mark_rect().encode(color=shade), text).properties(
                width=132, height=28 * heads, title=title
            )
        )
    return alt.hconcat(*maps)


def _draw(path: Path, chart: alt.TopLevelMixin, ink: str) -> None:
    quiet = {"gridColor": "#8884", "domainColor": "#888", "tickColor": "#888", "titleFontWeight": "normal"}
    config = {
        "background": "transparent",
        "padding": {"left": 60, "right": 45, "top": 5, "bottom": 5},  # another font may be wider
        "view": {"stroke": None},
        "axis": {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, **quiet},
        "title": {"color": ink, "fontSize": 12, "fontWeight": "normal"},
    }
    svg = vl_convert.vegalite_to_svg(json.dumps({**chart.to_dict(), "config": config}))
    path.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
