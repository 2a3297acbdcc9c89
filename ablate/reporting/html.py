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
from markupsafe import Markup

from ablate.analysis.compare import Comparison
from ablate.analysis.load import PAGE, read
from ablate.analysis.question import Question
from ablate.analysis.variant import Variant
from ablate.config.extras import require
from ablate.phrases import cleaned, texts
from ablate.reporting import cells, own_files, words
from ablate.reporting.answers import answer
from ablate.reporting.compared import Method, drawings, method_of
from ablate.reporting.page import Page, gather
from ablate.reporting.relations import STANDARD
from ablate.reporting.tables import readable, render
from ablate.reporting.terms import GLOSSARY, anchor, coded, explained, occurring
from ablate.store.store import Store

HERE = Path(__file__).parent


class Cell(NamedTuple):
    """text: as shown. key: a number to sort by; empty if there is none. drawing: inline SVG before it."""

    text: str
    key: str
    drawing: str = ""


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
    subject = read(target, question.get("metric"))
    path = subject.page if out is None else Path(out)
    own_files.check_file(path, "html")
    if charts is not None:
        own_files.check_directory(charts)
    require_charts()
    from ablate.reporting.charts import figures  # imported late, since altair is slow to import

    page = gather(subject, margin=margin, **question)
    drawn, comparison = figures(page), page.comparison
    by_method = drawings(subject.rows, subject.directories)
    specs = {stem: spec for figure in drawn for stem, spec in figure.charts.items()}
    bundle = _bundle() if drawn else ""
    content = _template("page.html.j2").render(
        page=page,
        figures=drawn,
        drawings={method: Markup(drawing) for method, drawing in by_method.items()},
        short=short_table(comparison, comparison.families[0], by_method),
        comparison=[comparison_table(comparison, family) for family in comparison.families],
        data={figure.key: table(figure.data, f"{figure.title}: the numbers") for figure in drawn},
        specs=specs,
        sentences=words.sentences(comparison),
        hyperparameters=table(page.hyperparameters, "Hyper-parameters"),
        latex=render(page.hyperparameters, "latex"),
        **_frame(page, bundle),
    )
    if charts is not None:
        own_files.write_charts(specs, Path(charts))
    own_files.write(path, cleaned(content).encode(), "html")
    return path


def write_reports(
    targets: Sequence[str | Path],
    *,
    out: str | Path | None = None,
    margin: float | None = None,
    **question: Unpack[Question],
) -> Path:
    """Write one page about several studies: the questions with their answers first, and their rows behind;
    returns its path. out: by default report.html of the store in the current directory. Otherwise as
    write_report."""
    subjects = [read(target, question.get("metric")) for target in targets]
    path = Store().root / PAGE if out is None else Path(out)
    own_files.check_file(path, "html")
    pages = [gather(subject, margin=margin, **question) for subject in subjects]
    content = _template("studies.html.j2").render(
        pages=pages,
        short=[answer(page.comparison, page.subject.record, brief=True).findings for page in pages],
        tables=[
            [comparison_table(page.comparison, family) for family in page.comparison.families]
            for page in pages
        ],
        specs={},
        **_frame(pages[0]),
    )
    own_files.write(path, cleaned(content).encode(), "html")
    return path


def _frame(page: Page, *bundles: str) -> dict[str, Any]:
    """What every page has around it (base.html.j2). bundles: scripts that its own one needs."""
    scripts = [*filter(None, bundles), (HERE / "script.js").read_text(encoding="utf-8")]
    return {
        "ablate": page.facts.get("ablate", ""),
        "generator": Markup(own_files.GENERATOR),
        "style": Markup((HERE / "style.css").read_text(encoding="utf-8")),
        "scripts": [*map(Markup, scripts)],
        "digests": [*map(_digest, scripts)],
    }


def require_charts() -> None:
    """Raises ConfigError if a package that draws charts is not installed."""
    for package in ("altair", "vl_convert"):
        require("the report", package, extra="report")


def short_table(comparison: Comparison, family: str, drawn: Mapping[Method, str]) -> Table:
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
    short = table(frame, about, {k: v for k, v in numbers.items() if k in frame}, raw["best"].tolist())
    for row, variant in zip(short.rows, variants, strict=True):
        row[0] = row[0]._replace(drawing=Markup(drawn.get(method_of(variant, comparison), "")))
    return short


def called(variant: Variant, columns: Sequence[str]) -> str:
    """A variant as in `sum · heads 4`; softmax, the standard rule on scores, is not named."""
    if variant.levels.get("scores") == STANDARD["scores"]:
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
    # A notebook shows the fragment alone, without the meanings of terms.
    environment.globals |= {"glossary": GLOSSARY, "anchor": anchor, "occurring": occurring}
    environment.filters["coded"] = coded
    environment.filters["explained"] = explained if name == "page.html.j2" else coded
    return environment.get_template(name)
