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
from ablate.cli.output import READ, Format, FormatOption, print_table, remark, say


def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies by name or directory, or CSV files; without any, every run there is.",
            autocompletion=completion.studies,
        ),
    ] = None,
    metric: MetricOption = None,
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
) -> None:
    """Compare variants with their baselines over paired seeds.

    A row a variant: n, mean, difference, simultaneous interval, Holm's p, and a verdict: better, worse (or so
    but within the margin), equivalent, undecided. docs/statistics.md says how it is decided.
    """
    from dataclasses import replace

    from ablate.analysis.compare import compare, effects_of
    from ablate.analysis.load import load
    from ablate.analysis.notes import not_begun
    from ablate.reporting import words

    if cost and effects:
        raise typer.BadParameter(
            "times variants, and --effects shows none; leave one of them out", param_hint="--cost"
        )
    results = load(targets or [])
    asked = question(metric, by, baseline, where, mixed)
    if effects:
        table, notes = effects_of(results.rows, records=results.records, **asked)
        print_table(words.effects_for_reading(table) if format in READ else table, format)
    else:
        result = compare(results.rows, records=results.records, margin=margin, **asked)
        notes = result.notes
        if cost:
            from ablate.execution.timing import with_cost  # loads torch

            use_plugins(plugin)
            table, line = with_cost(result.table, result.runs, results.stores)
            result, notes = replace(result, table=table), [*notes, line]
        if format not in READ:
            print_table(result.table, format)
        else:
            for family in result.families:
                remark(words.caption(result, family), format)
                print_table(words.for_reading(result, family, marginal=marginal), format)
                typer.echo()
            for sentence in words.sentences(result):
                remark(sentence, format)
    missing = [line for record in results.records for line in not_begun(results.rows, record)]
    for line in (*results.notes, *notes, *missing):
        say(line)
