"""`ablate plan`: how many seeds a difference needs."""

from typing import Annotated, Any

import typer

from ablate.cli import completion
from ablate.cli.options import BaselineOption, MetricOption
from ablate.cli.output import Format, FormatOption, print_table, say


def plan(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="The pilot: a study, or a CSV file of results.", autocompletion=completion.studies
        ),
    ],
    difference: Annotated[
        float, typer.Option(help="The difference to be seen, in the metric's unit.")
    ] = 0.01,
    power: Annotated[float, typer.Option(help="The probability of seeing it.")] = 0.8,
    alpha: Annotated[float, typer.Option(help="The family-wise error of compare.")] = 0.05,
    contrasts: Annotated[
        int | None, typer.Option(help="How many comparisons there will be; else those of the pilot.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Say what this much time can see.")
    ] = None,
    metric: MetricOption = None,
    baseline: BaselineOption = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Only these rows, as in compare.")
    ] = None,
    format: FormatOption = Format.table,
) -> None:
    """How many seeds a difference needs, by the noise of a pilot study."""
    from ablate.analysis.contrasts import parse_baseline
    from ablate.analysis.load import load, records
    from ablate.analysis.power import seeds_needed
    from ablate.compute.cores import available

    reference = parse_baseline(baseline) if baseline else None
    chosen: Any = {"metric": metric, "where": where or (), "baseline": reference, "budget_min": budget}
    chosen |= {"power": power, "alpha": alpha, "contrasts": contrasts}
    chosen |= {"records": records(targets), "cores": available()}
    table, lines = seeds_needed(load(targets), difference=difference, **chosen)
    print_table(table, format)
    for line in lines:
        say(line)
