"""`ablate report`: write a study as one HTML page."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import (
    BaselineOption,
    ByOption,
    MarginOption,
    MetricOption,
    MixedOption,
    WhereOption,
    question,
)


def report(
    target: Annotated[
        str,
        typer.Argument(
            help="A study by name or directory, or a CSV file of results.", autocompletion=completion.studies
        ),
    ],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where to write it; else beside the results.")
    ] = None,
    charts: Annotated[
        str | None, typer.Option(metavar="DIR", help="Also write the charts to DIR, as PNG, SVG and PDF.")
    ] = None,
    metric: MetricOption = None,
    by: ByOption = None,
    baseline: BaselineOption = None,
    where: WhereOption = None,
    margin: MarginOption = None,
    mixed: MixedOption = False,
) -> None:
    """Write one HTML file that answers a study's question: verdicts, limits, charts, how to repeat it."""
    from ablate.reporting.html import write_report

    asked = question(metric, by, baseline, where, mixed)
    typer.echo(write_report(target, out=out, charts=charts, margin=margin, **asked))
