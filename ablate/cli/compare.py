"""`ablate compare`: compare variants with their baselines."""

from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import (
    BaselineOption,
    ByOption,
    MarginOption,
    MetricOption,
    MixedOption,
    PluginOption,
    WhereOption,
    question,
    use_plugins,
)
from ablate.cli.output import READ, Format, FormatOption, WideOption, print_table, remark, say

if TYPE_CHECKING:
    import pandas as pd

    from ablate.analysis.compare import Comparison


def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies by name or directory, or CSV files; by default every run there is.",
            autocompletion=completion.studies,
        ),
    ] = None,
    metric: MetricOption = None,
    steps_to: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="Compare the steps until this validation loss is reached; with LOSS=baseline, the loss that"
            " every run of the baseline reaches.",
        ),
    ] = None,
    by: ByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    margin: MarginOption = None,
    marginal: Annotated[
        bool, typer.Option("--marginal", help="Add marginal intervals, which hold singly, not jointly.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Show main effects and interactions of the factors instead.")
    ] = False,
    mixed: MixedOption = False,
    pivot: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY",
            help="Show the means as a table for a paper: columns by the last key, rows by the others.",
            autocompletion=completion.columns,
        ),
    ] = None,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Time a training step of each variant, also relative to its baseline."),
    ] = False,
    plugin: PluginOption = None,
    format: FormatOption = Format.table,
    wide: WideOption = False,
) -> None:
    """Compare variants with their baselines over paired seeds.

    One row per variant: n, mean, difference, simultaneous interval, Holm's p, and a verdict: better, worse
    (either of them perhaps within the margin), equivalent or undecided. docs/statistics.md explains how
    verdicts are reached.
    """
    from dataclasses import replace

    from ablate.analysis.compare import compare, effects_of, report_rows
    from ablate.analysis.load import load, metrics
    from ablate.analysis.notes import not_begun
    from ablate.analysis.select import select, with_options
    from ablate.analysis.steps_to import with_steps_to
    from ablate.reporting import answers, words

    if cost and effects:
        raise typer.BadParameter(
            "times variants, and --effects shows none; leave one of them out", param_hint="--cost"
        )
    if pivot is not None and (effects or cost):
        raise typer.BadParameter("shows means alone; leave --effects and --cost out", param_hint="--pivot")
    if steps_to is not None and metric is not None:
        raise typer.BadParameter("is a metric itself; leave --metric out", param_hint="--steps-to")
    results = load(targets or [])
    asked = question(metric, by, baseline, where, mixed)
    if steps_to is not None:
        curves = metrics(results.directories)
        rows, asked["metric"], line = with_steps_to(results.rows, curves, steps_to, results.records, **asked)
        results = replace(results, rows=rows, notes=[*results.notes, line])
    if effects:
        table, notes = effects_of(results.rows, records=results.records, **asked)
        print_table(words.effects_for_reading(table) if format in READ else table, format, wide=wide)
    else:
        result = compare(results.rows, records=results.records, margin=margin, **asked)
        notes = result.notes
        if cost:
            from ablate.execution.timing import with_cost  # loads torch

            use_plugins(plugin)
            table, line = with_cost(result.table, result.runs, results.stores)
            result, notes = replace(result, table=table), [*notes, line]
        if pivot is not None or format is Format.latex:
            rows = select(with_options(report_rows(results.rows)[0]), where or ())
            _for_a_paper(result, rows, pivot, format, wide=wide)
        elif format not in READ:
            print_table(result.table, format, wide=wide)
        else:
            for line in answers.lines(result, results.rows, results.records, where or ()):
                remark(line, format)
            typer.echo()
            for family in result.families:
                remark(words.caption(result, family), format)
                print_table(words.for_reading(result, family, marginal=marginal), format, wide=wide)
                typer.echo()
    missing = [line for record in results.records for line in not_begun(results.rows, record)]
    for line in (*results.notes, *notes, *missing):
        say(line)


def _for_a_paper(
    result: "Comparison", rows: "pd.DataFrame", pivot: str | None, format: Format, *, wide: bool
) -> None:
    """Print the means with their intervals; with a pivot, as a grid."""
    from ablate.reporting import paper

    keys = [key.strip() for key in pivot.split(",") if key.strip()] if pivot is not None else []
    table = paper.pivot(result, rows, keys) if pivot is not None else paper.by_variant(result, rows)
    if format is Format.latex:
        typer.echo(paper.latex(table), nl=False)
    elif format not in READ:
        print_table(paper.tidy(result, keys), format)
    else:
        remark(table.caption, format)
        print_table(paper.plain(table), format, wide=wide)
