"""`ablate compare`, `ablate report` and `ablate plan`: variants and their baselines over paired seeds."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ablate.cli.question import OPTIONS, asks
from ablate.cli.shared import Format, FormatOption, RunsOption, print_table, put_json, remark, separated
from ablate.config.contrast import MARGIN
from ablate.phrases import described, lines_if, texts
from ablate.printing import put, say

if TYPE_CHECKING:
    from ablate.analysis.question import Question


@asks(*OPTIONS)
def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Studies by name or directory, or CSV files; by default every run."),
    ] = None,
    *,
    question: "Question",
    why: Annotated[bool, typer.Option("--why", help="Show all comparisons, with all notes.")] = False,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY", help="Show a table of means: columns by the last key, rows by the others."
        ),
    ] = None,
    format: Annotated[
        Literal[Format, "latex"], typer.Option("--format", help="How to print the table.")
    ] = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Compare variants with their baselines over paired seeds.

    Prints doubts, the answer, a row per variant with its verdict, and the next command (docs/statistics.md).
    A table of another program needs columns as method,seed,loss (docs/elsewhere.md).
    """
    from ablate.analysis.compare import compare
    from ablate.analysis.load import load
    from ablate.reporting import answers, cells

    results = load(targets or [], question.finished)
    question = replace(question, shown=separated(pivot))
    result, records = compare(results.rows, question, results.records), results.records
    notes = [*results.notes, *result.notes]
    said = texts(notes)
    if pivot is not None or format == "latex":
        from ablate.reporting import paper

        found = answers.answer(result, records, results.notes)
        grid = paper.differences(result) if pivot is None else paper.pivot(result, separated(pivot))
        if format == "latex":
            doubts = lines_if(found.doubts, f"Doubts: {', '.join(found.doubts)}.")
            robust = lines_if(found.robust and pivot is None, found.robust)
            name = f"{results.name}-{pivot or ''}{question.suffix}"
            put(paper.latex(grid, name, [*doubts, *robust]), end="")
        else:
            if format == "table":
                remark(grid.caption)
            print_table(paper.plain(grid), format)
        said = [*lines_if(found.health, found.health), *described(notes)]
    elif format == "json":
        from ablate.tables import records as as_json

        answer = answers.lines(result, records, results.notes)
        put_json(answer=answer, rows=as_json(result.table, result.shown), notes=texts(notes))
    elif format == "csv":
        print_table(result.table, format)
    elif why:
        for line in answers.lines(result, records, results.notes, "explained below"):
            remark(line)
        put()
        for family in result.families:
            remark(cells.caption(result, family))
            print_table(cells.contrast_table(result, family, long=True), format)
            put()
    else:
        above, below = answers.around(result, records, results.notes)
        for line in above:
            remark(line)
        put()
        print_table(cells.contrast_table(result), format)
        for line in below:
            remark(line)
        said = []
    for line in said:
        say(line)


@asks(*OPTIONS)
def report(
    targets: Annotated[
        list[str], typer.Argument(help="A study by name or directory, or a CSV file of results.")
    ],
    *,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write it; else beside the results.")
    ] = None,
    charts: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Also write the charts to DIR: PNG, PDF; SVG without notes."),
    ] = None,
    question: "Question",
    runs_dir: RunsOption = None,
) -> None:
    """Write one HTML page on a study: verdicts, charts, how to repeat it."""
    from ablate.config.rules import ConfigError
    from ablate.reporting.html import write_report

    if len(targets) > 1:
        several = " ".join(map(shlex.quote, targets))
        raise ConfigError(f"a report is about one study; ablate compare {several} compares several")
    put(write_report(targets[0], question, out=out, charts=charts))


@asks("metric", "by", "pair_by", "baseline", "where", "higher_is_better")
def plan(
    targets: Annotated[list[str], typer.Argument(help="The pilot: a study, or a CSV file of results.")],
    *,
    difference: Annotated[
        float | None,
        typer.Option(
            help=f"The difference to detect, in the metric's unit; by default {MARGIN} of what is in nats."
        ),
    ] = None,
    question: "Question",
    format: FormatOption = "table",
    runs_dir: RunsOption = None,
) -> None:
    """Say how many seeds show a difference, given the noise of a pilot."""
    from ablate.analysis.load import load
    from ablate.analysis.power import seeds_needed

    results = load(targets)
    table, lines = seeds_needed(results.rows, question, results.records, difference=difference)
    print_table(table, format)
    for line in (*texts(results.notes), *lines):
        say(line)
