"""`ablate export`: stored runs for trackers, and a GPT-2 or a Llama for transformers."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.shared import RunsOption, say_loading, use_plugins
from ablate.printing import put


def export(
    target: Annotated[
        str,
        typer.Argument(
            metavar="STUDY|RUN",
            help="A study by name or directory, or a run by a prefix of its id or name.",
            autocompletion=completion.studies_and_runs,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TARGET",
            help="tensorboard, wandb, trackio, mlflow, or hf: one run as a GPT-2 or a Llama of Hugging Face's"
            " transformers.",
        ),
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
    """Write stored runs into a tracker, or one run as a model for transformers.

    Trackers get settings, curves and final results. A run that is there already is skipped; delete it there
    to have it written anew. docs/export.md shows how each target looks.
    """
    from ablate.config.rules import ConfigError, did_you_mean
    from ablate.export.trackers import TRACKERS
    from ablate.export.trackers import export as export_runs

    if out == "":
        raise typer.BadParameter("name a directory", param_hint="--out")
    if to not in (targets := [*TRACKERS, "hf"]):
        raise ConfigError(f"--to {to}: no such target{did_you_mean(to, targets)}")
    if to == "hf":
        say_loading()
        from ablate.export.hf import export as export_model

        use_plugins(None)
        put(export_model(target, out))
        return
    put(export_runs(target, to, out))
