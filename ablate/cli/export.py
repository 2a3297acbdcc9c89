"""`ablate export`: stored runs for trackers, and a GPT-2 or a Llama for transformers."""

from typing import Annotated, Literal

import typer

from ablate.cli.shared import RunsOption, Tracker, say_loading
from ablate.printing import put


def export(
    target: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|RUN", help="A study by its name, or a run by a prefix of its id or name."
        ),
    ],
    to: Annotated[
        Literal[Tracker, "hf"],
        typer.Option("--to", help="hf: one run as a GPT-2 or a Llama of Hugging Face's transformers."),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory to write in; for mlflow also a tracking URI. By default exports/TARGET beside"
            " the results, or where MLFLOW_TRACKING_URI says.",
        ),
    ] = None,
    runs_dir: RunsOption = None,
) -> None:
    """Write runs to a tracker, or one as a model of transformers.

    Trackers get settings, curves and final results. A run that is there already is skipped; delete it there
    to have it written anew. W&B replaces it. docs/export.md shows how each target looks.
    """
    if to == "hf":
        say_loading()
        from ablate.export import hf

        put(hf.export(target, out))
    else:
        from ablate.export import trackers

        put(trackers.export(target, to, out))
