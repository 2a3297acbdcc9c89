"""The report as one HTML file, which fetches nothing when it is opened and never executes text of its data.

Its Content-Security-Policy allows only the scripts in the file, by their digests, and no network access.
"""

import base64
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ablate.analysis.compare import Comparison, Question
from ablate.files.svg import inline
from ablate.reporting import own_files, words
from ablate.reporting.page import gather
from ablate.reporting.subject import find
from ablate.reporting.tables import readable, render
from ablate.store.provenance import PACKAGE, PART_FOLDERS

HERE = Path(__file__).parent


class Cell(NamedTuple):
    """text: as shown. key: a number to sort by; empty if there is none."""

    text: str
    key: str


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
    from ablate.reporting.charts import figures  # imported late, since altair is slow to import

    page = gather(subject, margin=margin, **question)
    drawn = figures(page)
    specs = {stem: spec for figure in drawn for stem, spec in figure.charts.items()}
    bundle, script = _bundle() if drawn else "", (HERE / "script.js").read_text(encoding="utf-8")
    content = _template("page.html.j2").render(
        page=page,
        generator=Markup(own_files.GENERATOR),
        figures=drawn,
        drawings=drawings(subject.rows, subject.directories),
        comparison=[comparison_table(page.comparison, family) for family in page.comparison.families],
        data={figure.key: table(figure.data, f"{figure.title}: the numbers") for figure in drawn},
        specs=specs,
        sentences=words.sentences(page.comparison),
        glossary=GLOSSARY,
        hyperparameters=table(page.hyperparameters, "Hyper-parameters"),
        latex=render(page.hyperparameters, "latex"),
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        scripts=[Markup(text) for text in (bundle, script) if text],
        digests=[_digest(text) for text in (bundle, script) if text],
    )
    if charts is not None:
        own_files.write_charts(specs, Path(charts))
    own_files.write(path, content.encode(), "html")
    return path


def comparison_table(comparison: Comparison, family: str) -> Table:
    """One family as a terminal shows it, with numbers to sort by."""
    read = words.for_reading(comparison, family).drop(columns="best", errors="ignore")
    raw = comparison.family(family)
    if "verdict" in read:  # far to the left, to be visible on a phone
        read.insert([*read.columns].index("n"), "verdict", read.pop("verdict"))
    if "params" not in read:  # if anything is matched, it is there already
        read.insert([*read.columns].index("n"), "params", raw["params"].astype(float).tolist())
    keys = {name: name for name in ("n", "match_error", "diff", "p_holm")} | {"[low, high]": "low"}
    numbers = {name: raw[column] for name, column in keys.items() if name in read}
    return table(read, words.caption(comparison, family), numbers, raw["best"].tolist())


def comparison_html(comparison: Comparison, answer: Sequence[str]) -> str:
    """A comparison as HTML for a notebook: its answer, one table per family, and notes."""
    return _template("comparison.html.j2").render(
        tables=[comparison_table(comparison, family) for family in comparison.families],
        answer=answer,
        notes=comparison.notes,
    )


def table(
    frame: pd.DataFrame,
    caption: str,
    numbers: Mapping[str, pd.Series] | None = None,
    strong: Sequence[bool] = (),
) -> Table:
    """A DataFrame as a table for readers. numbers: those to sort by, of columns that are text."""
    names, numbers = [str(name) for name in frame.columns], numbers or {}
    frame = frame.astype(object).where(frame.notna(), None)
    columns = [
        [
            Cell(readable(name, value), _key(key))
            for value, key in zip(frame[name].tolist(), numbers.get(name, frame[name]).tolist(), strict=True)
        ]
        for name in names
    ]
    numeric = [
        name in numbers or (len(frame) > 0 and all(not cell.text or cell.key for cell in column))
        for name, column in zip(names, columns, strict=True)
    ]
    rows = [[*row] for row in zip(*columns, strict=True)]
    return Table(caption, names, numeric, rows, [*strong] or [False] * len(rows))


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


# --- drawings of methods ---------------------------------------------------------------------------------

FOLDERS = {Path(folder).name: PACKAGE / folder for folder in PART_FOLDERS}  # by kind, also a column's name


def drawings(rows: pd.DataFrame, directories: Mapping[str, Path]) -> dict[tuple[str, str], Markup]:
    """The drawings of the methods in these rows that have one, by kind and name.

    directories: of finished runs, by run_id; each keeps a copy of the drawings of its plugins.
    """
    drawings = {}
    for kind in {*FOLDERS} & {*rows.columns}:
        for name, runs in rows.groupby(rows[kind].astype(str))["run_id"]:
            if str(name).isidentifier():  # so that no name can lead to another directory
                places = [FOLDERS[kind], *(directories[run] for run in runs if run in directories)]
                shown = (inline(place / f"{name}.svg") for place in places)
                drawings[kind, str(name)] = Markup(next(filter(None, shown), ""))
    return {method: drawing for method, drawing in drawings.items() if drawing}


# --- terms, explained as tooltips in the text and as a list at its end ------------------------------------

GLOSSARY = {
    "nats": "The unit of a loss: −ln of the probability that the model gave to what came next. 0.01 nats less"
    " is 1 % less perplexity.",
    "perplexity": "exp of the loss: between how many equally likely tokens the model hesitates.",
    "paired seeds": "Runs of two variants with the same seed see the same batches and start alike, so their"
    " difference is taken seed by seed.",
    "interval": "Where the true difference lies, by the scatter over seeds. Simultaneous intervals hold all"
    " together, so that of many comparisons none is wrong by chance alone.",
    "margin": "A difference that makes no difference, named before anything was run. Within it two variants"
    " are called equivalent.",
    "p_holm": "How often chance alone would give such a difference, corrected by Holm for the number of"
    " comparisons in the table.",
    "verdict": "better, worse or equivalent, if the whole interval says so; else undecided, with the number"
    " of seeds that would decide it.",
    "parametrization": "How the same functions are written as weights, which decides where training starts"
    " and how it moves. Variants that can learn the same functions differ in nothing else.",
    "what attention is worth": "How much worse the baseline does if its heads average all earlier tokens"
    " instead of choosing.",
    "baseline": "What a variant is compared with: the same in all but one thing.",
}
# Patterns of the terms that are spelled in several ways.
SPELLINGS = {
    "paired seeds": "paired seeds?",
    "interval": "simultaneous|intervals?|low, high",
    "p_holm": "p_holm|Holm",
    "verdict": "verdict|equivalent|undecided",
}
_TERMS = re.compile("|".join(rf"\b({SPELLINGS.get(term, term)})\b" for term in GLOSSARY))


def explained(text: str) -> Markup:
    """The text as HTML: text between backticks becomes code, and each term gets its meaning as a tooltip at
    its first occurrence."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an unpaired backtick
        return _with_tooltips(text)
    code = Markup("<code>{}</code>").format
    return Markup("").join(code(piece) if i % 2 else _with_tooltips(piece) for i, piece in enumerate(pieces))


def _with_tooltips(text: str) -> Markup:
    left = {**GLOSSARY}

    def tip(match: re.Match[str]) -> str:
        meaning = left.pop([*GLOSSARY][(match.lastindex or 1) - 1], None)
        return f'<abbr title="{escape(meaning)}">{match[0]}</abbr>' if meaning else match[0]

    return Markup(_TERMS.sub(tip, escape(text)))
