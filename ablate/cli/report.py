"""`ablate report`: a study as one page."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.options import BaselineOption, MetricOption


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
        str | None, typer.Option(metavar="DIR", help="Write its charts there as well: PNG, SVG and PDF.")
    ] = None,
    baseline: BaselineOption = None,
    metric: MetricOption = None,
    margin: Annotated[
        float | None, typer.Option(help="What is too small to matter: 0.01, or the study's.")
    ] = None,
) -> None:
    """Write one HTML file that answers a study's question: verdicts, limits, charts, how to repeat it."""
    from ablate.analysis.contrasts import parse_baseline
    from ablate.reporting.html import write_report

    reference = parse_baseline(baseline) if baseline else None
    typer.echo(write_report(target, out=out, charts=charts, baseline=reference, metric=metric, margin=margin))
