"""`ablate plan`: how many seeds a difference needs."""

from collections.abc import Callable
from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.shared import (
    BaselineOption,
    BetterOption,
    ByOption,
    FormatOption,
    MetricOption,
    MixedOption,
    PairByOption,
    RunsOption,
    WhereOption,
    WideOption,
    print_table,
)
from ablate.config.contrast import MARGIN
from ablate.printing import say


def _between(low: float, high: float) -> Callable[[float | None], float | None]:
    """A Typer callback that accepts numbers strictly between the two, so neither nan nor infinity."""

    def check(value: float | None) -> float | None:
        if value is not None and not low < value < high:
            raise typer.BadParameter(f"{value:g} is not between {low:g} and {high:g}")
        return value

    return check


def plan(
    targets: Annotated[
        list[str],
        typer.Argument(
            help="The pilot: a study, or a CSV file of results.", autocompletion=completion.studies
        ),
    ],
    difference: Annotated[
        float | None,
        typer.Option(
            help=f"The difference to detect, in the metric's unit; by default {MARGIN} of what is in nats.",
            show_default=False,
            callback=_between(0, 1e9),
        ),
    ] = None,
    power: Annotated[
        float, typer.Option(help="The probability of detecting it.", callback=_between(0, 1))
    ] = 0.8,
    alpha: Annotated[
        float, typer.Option(help="The family-wise error rate of compare.", callback=_between(0, 1))
    ] = 0.05,
    contrasts: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="The number of comparisons planned; by default those of the pilot."
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            help="Also say how small a difference this much time can detect.",
            callback=_between(0, 1e9),
        ),
    ] = None,
    metric: MetricOption = None,
    by: ByOption = None,
    pair_by: PairByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    higher_is_better: BetterOption = None,
    mixed: MixedOption = False,
    format: FormatOption = "table",
    wide: WideOption = False,
    runs_dir: RunsOption = None,
) -> None:
    """Say how many seeds it takes to detect a difference, given the noise of a pilot study."""
    from ablate.analysis.load import load
    from ablate.analysis.power import seeds_needed
    from ablate.analysis.question import question
    from ablate.compute.limits import available_cores

    results = load(targets, metric)
    table, lines = seeds_needed(
        results.rows,
        difference=difference,
        power=power,
        alpha=alpha,
        contrasts=contrasts,
        budget_min=budget,
        records=results.records,
        cores=available_cores(),
        **question(metric, by, baseline or None, where, mixed, pair_by, higher_is_better),
    )
    print_table(table, format, wide=wide)
    for line in (*results.notes, *lines):
        say(line)
