"""Draw the pictures of README and findings, from docs/noise.csv, docs/fresh.csv and docs/results.

    python benchmarks/picture.py

writes docs/answer-light.svg and docs/answer-dark.svg, and docs/findings-QUESTION.svg.
"""

import json
from pathlib import Path

import altair as alt
import pandas as pd
import vl_convert

import ablate
from ablate.ledger.entry import read_entries
from ablate.ledger.judge import RESULTS, VERDICT, Verdict

DOCS = Path(__file__).parent.parent / "docs"
INK = {"light": "#1b1f24", "dark": "#e6e9ed"}
MIDDLE = "#808790"  # an ink for light and dark pages
BLUE = "#3b82c4"
COLORS = {Verdict.REPLICATED: "#2e9e6b", Verdict.NOT: "#d9730d", Verdict.UNDECIDED: "#808790"}
TERMS = {"sum": "sum", "weighted_sum": "weighted sum", "mean": "mean"}
QUESTIONS = {
    "rank": ("001", "002", "003"),
    "weights": ("006", "007", "008", "009"),
    "symmetric": ("011",),
    "projection": ("004", "005"),
    "heads": ("010", "013", "014", "012"),
}


def main() -> None:
    rows = [pd.read_csv(DOCS / name, dtype={"run_id": str}) for name in ("noise.csv", "fresh.csv")]
    table = ablate.compare(pd.concat(rows, ignore_index=True)).table
    data = table[table["low"].notna()][["fusion", "diff", "low", "high", "pairs"]]
    data = data.assign(name=data["fusion"].map(TERMS), color=BLUE).sort_values("diff")
    seeds = int(data["pairs"].max())
    title = f"nats of loss more than concat (0 is concat; {seeds} paired seeds, simultaneous 95 % intervals)"
    for scheme, ink in INK.items():
        _draw(DOCS / f"answer-{scheme}.svg", data, title, ink, domain=[0, 0.08])
    verdicts = {
        filed.number: json.loads(path.read_text(encoding="utf-8"))
        for filed in read_entries(DOCS.parent / "claims")
        if (path := DOCS.parent / RESULTS / filed.name / VERDICT).is_file()
    }
    for question, numbers in QUESTIONS.items():
        rows = [
            {**found, "name": f"{found['contrast'].replace(' - ', ' − ')} ({number})"}
            for number in numbers
            if number in verdicts
            for found in verdicts[number]["predictions"]
        ]
        if rows:
            data = pd.DataFrame(rows)
            data["color"] = data["verdict"].map(COLORS)
            title = "nats of test loss; green: as claimed, orange: not, grey: undecided"
            _draw(DOCS / f"findings-{question}.svg", data, title, MIDDLE)


def _draw(path: Path, data: pd.DataFrame, title: str, ink: str, domain: list[float] | None = None) -> None:
    """A row for each difference: a point on its interval. data: name, diff, low, high, color."""
    names = alt.Axis(grid=False, domain=False, ticks=False, labelLimit=300)
    base = alt.Chart(data).encode(
        y=alt.Y("name:N", sort=[*data["name"]], title=None, axis=names),
        color=alt.Color("color:N", scale=None),
    )
    scale = alt.Scale(domain=domain) if domain else alt.Scale(zero=True, nice=True)
    x = alt.X("low:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5, format=".2f"))
    chart = alt.layer(
        base.mark_rule(strokeWidth=3).encode(x=x, x2="high:Q"),
        base.mark_point(filled=True, size=90, opacity=1).encode(x="diff:Q"),
        base.mark_text(align="left", dx=6).encode(
            x="high:Q", text=alt.Text("diff:Q", format="+.3f"), color=alt.value(ink)
        ),
    ).properties(width=460, height=30 * len(data))
    quiet = {"gridColor": "#8884", "domainColor": "#888", "tickColor": "#888", "titleFontWeight": "normal"}
    axis = {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, **quiet}
    config = {"background": "transparent", "view": {"stroke": None}, "axis": axis}
    svg = vl_convert.vegalite_to_svg(json.dumps({**chart.to_dict(), "config": config}))
    path.write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
