"""`ablate compare`: variants against their baselines."""

from typing import Annotated, Any

import typer

from ablate.cli import completion
from ablate.cli.output import READ, CompareFormat, CompareFormatOption, print_table, remark, say


def compare(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Studies by name or directory, or CSV files; without any, every run there is.",
            autocompletion=completion.studies,
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="The column to compare: val_loss, or what the study reports on.",
            show_default=False,
            autocompletion=completion.metrics,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="COL[,COL]",
            help="The columns that make and name a variant.",
            autocompletion=completion.columns,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="K=V[,K=V]",
            help="Compare each variant with the one where K is V and all else equal; else fusion=concat.",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Only these rows: K=V[,V], K!=V, K<V or K>V. May be repeated."),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="What is too small to matter, in the metric's unit: 0.01, or the study's."),
    ] = None,
    marginal: Annotated[
        bool, typer.Option("--marginal", help="Add intervals that hold one by one, not together.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Main effects and interactions of the factors instead.")
    ] = False,
    mixed: Annotated[bool, typer.Option("--mixed", help="Allow rows of several texts or programs.")] = False,
    cost: Annotated[
        bool,
        typer.Option("--cost", help="Time a training step of each variant, alone and against its baseline."),
    ] = False,
    format: CompareFormatOption = CompareFormat.table,
) -> None:
    """Compare variants with their baselines over paired seeds.

    A row a variant: n, mean, difference, simultaneous interval, Holm's p, and a verdict: better, worse (or so
    but within the margin), equivalent, undecided. docs/statistics.md says how it is decided.
    """
    from dataclasses import replace

    from ablate.analysis.compare import compare, effects_of
    from ablate.analysis.contrasts import parse_baseline
    from ablate.analysis.load import load, records, stores
    from ablate.analysis.notes import not_begun
    from ablate.reporting import words

    if cost and effects:
        raise typer.BadParameter(
            "times variants, and --effects shows none; leave one of them out", param_hint="--cost"
        )
    rows = load(targets or [])
    reference = parse_baseline(baseline) if baseline else None
    chosen: Any = {"metric": metric, "by": by.split(",") if by else (), "baseline": reference}
    chosen |= {"where": where or (), "records": records(targets or []), "mixed": mixed}
    if effects:
        table, notes = effects_of(rows, **chosen)
        print_table(words.effects_for_reading(table) if format in READ else table, format)
    else:
        result = compare(rows, **chosen, margin=margin)
        notes = result.notes
        if cost:
            from ablate.execution.timing import with_cost  # loads torch

            table, line = with_cost(result.table, result.runs, stores(targets or []))
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
    for line in (*notes, *(line for record in chosen["records"] for line in not_begun(rows, record))):
        say(line)
