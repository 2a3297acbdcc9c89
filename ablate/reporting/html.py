"""The report as one HTML file of text, tables and drawings, which fetches nothing when it is opened and
executes nothing: its Content-Security-Policy allows no script."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ablate.analysis.compare import Comparison
from ablate.analysis.load import read
from ablate.analysis.question import NOTHING_ASKED, Question
from ablate.config.rules import ConfigError, line_on
from ablate.files.atomic import explained, write_atomically
from ablate.phrases import capital, cleaned, lines_if, texts
from ablate.reporting.answers import around
from ablate.reporting.cells import caption, contrast_table
from ablate.reporting.page import gather
from ablate.store.frames import is_numeric
from ablate.store.record import StudyRecord
from ablate.tables import lines_of, readable
from ablate.version import __version__

HERE = Path(__file__).parent


def write_report(
    target: str | Path | pd.DataFrame,
    question: Question = NOTHING_ASKED,
    *,
    out: str | Path | None = None,
    charts: str | Path | None = None,
) -> Path:
    """Write the report of a study, a store, a CSV file or rows; returns its path.

    out: by default beside the results. charts: a directory for its charts as PNG, SVG and PDF. Raises
    ConfigError, before any work is done if a place is no HTML file or no directory.
    """
    subject = read(target, question.finished)
    path = subject.page.with_stem(subject.page.stem + question.suffix) if out is None else Path(out)
    if path.suffix != ".html" or path.is_dir():
        raise ConfigError(f"--out {path}: a report is one HTML file; give a name that ends in .html")
    if charts is not None:
        if Path(charts).is_file():
            raise ConfigError(f"--charts {charts}: charts are several files; name a directory")
        with explained(Path(charts)):
            Path(charts).mkdir(parents=True, exist_ok=True)
    require_charts()
    from ablate.reporting.charts import CHARTS  # imported late, since altair is slow to import
    from ablate.reporting.figures import drawn, write_chart

    page = gather(subject, question)
    shown = [figure for chart in CHARTS for figure in chart(page)]
    content = _template("page.html.j2").render(
        page=page,
        figures=shown,
        svg={figure.key: Markup(drawn(figure.spec)) for figure in shown},
        comparison=_tables(page.comparison),
        heads=table(page.heads, "The largest head of a layer, mean over seeds; in brackets, untrained"),
        version=__version__,
        style=Markup((HERE / "style.css").read_text(encoding="utf-8")),
    )
    if charts is not None:
        doubts = lines_if(page.answer.doubts, f"Doubts: {', '.join(page.answer.doubts)}.")
        for figure in shown:  # with the name of the study, since those of several may lie in one directory
            stem = Path(charts, f"{subject.name}{question.suffix}-{figure.key}")
            write_chart(figure.spec, stem, " ".join([figure.about, *doubts]))
    write_atomically(path, re.sub(r"\n\s*\n+", "\n", cleaned(content)))
    return path


def require_charts() -> None:
    """Raises ConfigError if a package that draws charts is not installed."""
    for package in ("altair", "vl_convert"):
        if find_spec(package) is None:
            raise ConfigError(f"the report: {line_on(f'package {package}')}")


def _tables(comparison: Comparison) -> list[dict[str, Any]]:
    """Each family as a terminal shows it, first the one that the answer is about."""
    families = comparison.families[:: 1 if any(one.is_planned for one in comparison.tested) else -1]
    return [table(contrast_table(comparison, of, long=True), caption(comparison, of)) for of in families]


def table(frame: pd.DataFrame, caption: str) -> dict[str, Any]:
    """A DataFrame as a table for readers: names of columns, which of them hold numbers, and rows of text.
    What all rows share stands in the caption."""
    plain = frame.astype(object).where(frame.notna(), None)
    cells = {name: [readable(name, value) for value in plain[name]] for name in frame.columns}
    shared = {name: of[0] for name, of in cells.items() if len({*of}) == 1 < len(of)}
    same = ", ".join(f"{name} = {value}" for name, value in shared.items() if value)
    names = [name for name in cells if name not in shared]
    return {
        "caption": "; in each row: ".join(filter(None, (caption, same))),
        "names": names,
        "numeric": [is_numeric(frame[name]) for name in names],
        "rows": [*zip(*(cells[name] for name in names), strict=True)],
    }


def _template(name: str) -> Any:
    how: dict[str, Any] = dict.fromkeys(("autoescape", "trim_blocks", "lstrip_blocks"), True)
    loader = PackageLoader("ablate.reporting", ".")
    environment = Environment(loader=loader, undefined=StrictUndefined, **how)
    environment.filters |= {"coded": coded, "capital": capital}
    return environment.get_template(name)


def coded(text: str) -> Markup:
    """The text as HTML: text between backticks becomes code."""
    return Markup(re.sub("`(.*?)`", r"<code>\1</code>", str(escape(text))))


@dataclass(frozen=True)
class ShownComparison(Comparison):
    """A comparison that displays its answer, tables and notes. answer: as lines. records: of its studies."""

    answer: list[str]
    records: Sequence[StudyRecord]

    def __repr__(self) -> str:
        """The text that `ablate compare` prints."""
        above, below = around(self, self.records)
        table, _ = lines_of(contrast_table(self), None)
        return cleaned("\n".join([*above, "", table, *below]))

    def _repr_html_(self) -> str:
        of = {"tables": _tables(self), "answer": self.answer, "notes": texts(self.notes)}
        return cleaned(_template("comparison.html.j2").render(of))
