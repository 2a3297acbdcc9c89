"""`ablate compare`: variants against their baselines."""

from typing import Annotated

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


def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies by name or directory, or CSV files; without any, every run there is.",
            autocompletion=completion.studies,
        ),
    ] = None,
    metric: MetricOption = None,
    steps_to: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="Compare the steps to this validation loss; baseline: where its last run arrives.",
        ),
    ] = None,
    by: ByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    margin: MarginOption = None,
    marginal: Annotated[
        bool, typer.Option("--marginal", help="Add intervals that hold one by one, not together.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Main effects and interactions of the factors instead.")
    ] = False,
    mixed: MixedOption = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Time a training step of each variant, alone and against its baseline."),
    ] = False,
    plugin: PluginOption = None,
    format: FormatOption = Format.table,
    wide: WideOption = False,
) -> None:
    """Compare variants with their baselines over paired seeds.

    A row a variant: n, mean, difference, simultaneous interval, Holm's p, and a verdict: better, worse (or so
    but within the margin), equivalent, undecided. docs/statistics.md says how it is decided.
    """
    from dataclasses import replace

    from ablate.analysis.compare import compare, effects_of
    from ablate.analysis.load import load, metrics
    from ablate.analysis.notes import not_begun
    from ablate.analysis.steps_to import with_steps_to
    from ablate.reporting import words

    if cost and effects:
        raise typer.BadParameter(
            "times variants, and --effects shows none; leave one of them out", param_hint="--cost"
        )
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
        if format not in READ:
            print_table(result.table, format, wide=wide)
        else:
            for family in result.families:
                remark(words.caption(result, family), format)
                print_table(words.for_reading(result, family, marginal=marginal), format, wide=wide)
                typer.echo()
            for sentence in words.sentences(result):
                remark(sentence, format)
    missing = [line for record in results.records for line in not_begun(results.rows, record)]
    for line in (*results.notes, *notes, *missing):
        say(line)
