"""Options that several commands have."""

from typing import Annotated

import typer

from ablate.cli import completion

# Of the commands that compare in passing.
BaselineOption = Annotated[
    str | None, typer.Option(metavar="K=V[,K=V]", help="As in compare; else fusion=concat.")
]
MetricOption = Annotated[
    str | None,
    typer.Option(
        help="The column to compare, as in compare.", show_default=False, autocompletion=completion.metrics
    ),
]
