"""The report as one HTML file, which fetches nothing when it is opened and never executes text of its data.

Its Content-Security-Policy allows only the scripts in the file, by their digests, and no network access.
"""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ablate.analysis.compare import Comparison
from ablate.analysis.load import read
from ablate.analysis.question import Question
from ablate.analysis.variant import Variant
from ablate.config.extras import require
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_SCORES
from ablate.files.atomic import explained, write_atomically
from ablate.phrases import cleaned, texts
from ablate.reporting import cells, words
from ablate.reporting.page import gather
from ablate.reporting.tables import readable, render

HERE = Path(__file__).parent
GLOSSARY = {
    "nats": "The unit of a loss: −ln of the probability that the model gave to what came next. 0.01 nats less"
    " is 1 % less perplexity.",
    "perplexity": "exp of the loss: between how many equally likely tokens the model hesitates.",
    "baseline": "What a variant is compared with: the same in all but one thing.",
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
}


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
    question: as for `compare`. Raises ConfigError, before any work is done if a place is no HTML file or
    no directory.
    """
    subject = read(target, question.get("metric"))
    path = subject.page if out is None else Path(out)
    if path.suffix != ".html" or path.is_dir():
        raise ConfigError(f"--out {path}: a report is one HTML file; give a name that ends in .html")
    if charts is not None:
        with explained(Path(charts)):
            Path(charts).mkdir(parents=True, exist_ok=True)
    require_charts()
    from ablate.reporting.charts import figures  # imported late, since altair is slow to import
    from ablate.reporting.figures import write_charts

    page = gather(subject, margin=margin, **question)
    drawn, comparison = figures(page), page.comparison
    specs = {stem: spec for figure in drawn for stem, spec in figure.charts.items()}
    scripts = [*([_bundle()] if drawn else []), (HERE / "script.js").read_text(encoding="utf-8")]
    content = _template("page.html.j2").render(
        page=page,
        figures=drawn,
        short=short_table(comparison, comparison.families[0]),
        comparison=[comparison_table(comparison, family) for family in comparison.families],
        data={figure.key: table(figure.data, f"{figure.title}: the numbers") for figure in drawn},
        specs=specs,
        sentences=words.sentences(comparison),
        hyperparameters=table(page.hyperparameters, "Hyper-parameters"),
        latex=render(page.hyperparameters, "latex"),
        glossary=GLOSSARY,
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
        scripts=[*map(Markup, scripts)],
        digests=[*map(_digest, scripts)],
    )
    if charts is not None:
        write_charts(specs, Path(charts))
    write_atomically(path, cleaned(content))
    return path


def require_charts() -> None:
    """Raises ConfigError if a package that draws charts is not installed."""
    for package in ("altair", "vl_convert"):
        require("the report", package, extra="report")


def short_table(comparison: Comparison, family: str) -> Table:
    """What decides in one family: each variant, its difference with the interval, and the verdict."""
    raw = comparison.family(family)
    variants = [comparison.variants[name] for name in raw["variant"]]
    columns = comparison.varying or comparison.shown[:1]
    frame = pd.DataFrame({"variant": [called(variant, columns) for variant in variants]})
    if raw["diff"].notna().any():
        frame["difference"] = [text.replace(", ", ",\u00a0") for text in cells.differences(raw)]
        if comparison.table["n"].max() > 1:
            frame["verdict"] = cells.verdicts(comparison, raw, with_why=True)
    frame = frame.assign(n=cells.numbers_of_seeds(raw), mean=raw["mean"].tolist())
    numbers = {"difference": raw["diff"], "n": raw["n"]}
    level = words.confidence(comparison)
    about = (
        f"{family}: mean {comparison.metric}, and its difference to the baseline with the {level} interval"
    )
    return table(frame, about, {k: v for k, v in numbers.items() if k in frame}, raw["best"].tolist())


def called(variant: Variant, columns: Sequence[str]) -> str:
    """A variant as in `sum · heads 4`; softmax, the standard rule on scores, is not named."""
    if variant.levels.get("scores") == STANDARD_SCORES:
        variant = variant.without("scores")
    return variant.title(columns, pattern="{} {}", between=" · ", bare=("fusion", "scores"))


def comparison_table(comparison: Comparison, family: str) -> Table:
    """One family as a terminal shows it, with numbers to sort by."""
    read = cells.full_table(comparison, family).drop(columns="best", errors="ignore")
    raw = comparison.family(family)
    if "verdict" in read:  # far to the left, to be visible on a phone
        read.insert([*read.columns].index("n"), "verdict", read.pop("verdict"))
    if "params" not in read:  # if anything is matched, it is there already
        read.insert([*read.columns].index("n"), "params", raw["params"].astype(float).tolist())
    keys = {name: name for name in ("n", "match_error", "diff", "p_holm")} | {"[low, high]": "low"}
    numbers = {name: raw[column] for name, column in keys.items() if name in read}
    return table(read, cells.caption(comparison, family), numbers, raw["best"].tolist())


def comparison_html(comparison: Comparison, answer: Sequence[str]) -> str:
    """A comparison as HTML for a notebook: its answer, one table per family, and notes."""
    html = _template("comparison.html.j2").render(
        tables=[comparison_table(comparison, family) for family in comparison.families],
        answer=answer,
        notes=texts(comparison.notes),
    )
    return cleaned(html)


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
    environment.filters["coded"] = coded
    return environment.get_template(name)


def coded(text: str) -> Markup:
    """The text as HTML: text between backticks becomes code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an unpaired backtick
        return escape(text)
    code = Markup("<code>{}</code>").format
    return Markup("").join(code(piece) if i % 2 else escape(piece) for i, piece in enumerate(pieces))
