"""The report as one HTML file, which fetches nothing when it is opened and never executes text of its data.

Its Content-Security-Policy allows only the scripts in the file, by their digests, and no network access.
"""

import base64
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ablate.analysis.compare import Comparison, Question
from ablate.reporting import own_files, words
from ablate.reporting.drawings import drawings
from ablate.reporting.glossary import GLOSSARY, explained
from ablate.reporting.page import gather
from ablate.reporting.subject import find
from ablate.reporting.tables import readable, render

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Cell:
    """text: as shown. key: a number to sort by; empty if there is none."""

    text: str
    key: str = ""


@dataclass(frozen=True)
class Table:
    """names: of the columns. numeric: which of them hold numbers. rows: of cells. strong: which rows are
    emphasized."""

    caption: str
    names: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    strong: list[bool]


def write_report(
    target: str | Path | pd.DataFrame,
    *,
    out: str | Path | None = None,
    charts: str | Path | None = None,
    margin: float | None = None,
    **question: Unpack[Question],
) -> Path:
    """Write the report of a study, a store, a CSV file or rows; returns its path.

    out: by default beside the results. charts: a directory for its charts as PNG, SVG and PDF. margin,
    question: as for `compare`. Raises ConfigError, before any work is done if it can't be written.
    """
    subject = find(target)
    path = subject.page if out is None else Path(out)
    own_files.check_file(path, "html")
    if charts is not None:
        own_files.check_directory(charts)
    from ablate.reporting.charts import figures, save  # imported late, since altair is slow to import

    page = gather(subject, margin=margin, **question)
    drawn = figures(page)
    bundle, script = _bundle() if drawn else "", (HERE / "script.js").read_text(encoding="utf-8")
    content = _template("page.html.j2").render(
        page=page,
        generator=Markup(own_files.GENERATOR),
        figures=drawn,
        drawings=drawings(subject.rows, subject.directories),
        comparison=[comparison_table(page.comparison, family) for family in page.comparison.families],
        data={figure.key: table(figure.data, f"{figure.title}: the numbers") for figure in drawn},
        specs={stem: spec for figure in drawn for stem, spec in figure.charts.items()},
        sentences=words.sentences(page.comparison),
        glossary=GLOSSARY,
        hyperparameters=table(page.hyperparameters, "Hyper-parameters"),
        latex=render(page.hyperparameters, "latex"),
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        scripts=[Markup(text) for text in (bundle, script) if text],
        digests=[_digest(text) for text in (bundle, script) if text],
    )
    if charts is not None:
        save(drawn, Path(charts))
    own_files.write(path, content.encode(), "html")
    return path


def comparison_table(comparison: Comparison, family: str) -> Table:
    """One family as a terminal shows it, with numbers to sort by."""
    read = words.for_reading(comparison, family)
    raw = comparison.family(family)
    best = raw["best"].tolist()
    keys = {name: name for name in ("n", "match_error", "diff", "p_holm")} | {"[low, high]": "low"}
    read = read.drop(columns="best", errors="ignore")
    if "verdict" in read:  # far to the left, to be visible on a phone
        read.insert([*read.columns].index("n"), "verdict", read.pop("verdict"))
    if "params" not in read:  # if anything is matched, it is there already
        read.insert([*read.columns].index("n"), "params", raw["params"].astype(float).tolist())
    made = table(read, words.caption(comparison, family))
    columns = [raw[keys[name]].tolist() if name in keys else None for name in made.names]
    rows = [
        [
            Cell(cell.text, _key(column[i])) if column else cell
            for cell, column in zip(row, columns, strict=True)
        ]
        for i, row in enumerate(made.rows)
    ]
    numeric = [number or name in keys for name, number in zip(made.names, made.numeric, strict=True)]
    return Table(made.caption, made.names, numeric, rows, best)


def comparison_html(comparison: Comparison, answer: Sequence[str]) -> str:
    """A comparison as HTML for a notebook: its answer, one table per family, and notes."""
    return _template("comparison.html.j2").render(
        tables=[comparison_table(comparison, family) for family in comparison.families],
        answer=answer,
        notes=comparison.notes,
    )


def table(frame: pd.DataFrame, caption: str) -> Table:
    """A DataFrame as a table for readers."""
    names = [str(name) for name in frame.columns]
    rows = [
        [Cell(readable(name, value), _key(value)) for name, value in zip(names, row, strict=True)]
        for row in frame.astype(object).where(frame.notna(), None).itertuples(index=False)
    ]
    numeric = [all(not cell.text or cell.key for cell in column) for column in zip(*rows, strict=True)]
    return Table(caption, names, numeric or [False] * len(names), rows, [False] * len(rows))


def _key(value: Any) -> str:
    """A value as a number to sort by; empty if it is not a number."""
    if isinstance(value, bool | np.bool) or value is None or pd.isna(value):
        return ""
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        return ""


@functools.cache
def _bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version).replace(
        "</script", "<\\/script"
    )


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _template(name: str) -> Any:
    environment = Environment(
        loader=PackageLoader("ablate.reporting", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["explained"] = explained
    return environment.get_template(name)
