"""`ablate export`: stored runs for trackers, and a GPT-2 or a Llama for transformers."""

from typing import Annotated

import typer

from ablate.cli import completion
from ablate.cli.shared import PluginOption, RunsOption, say_loading, use_plugins
from ablate.printing import put, say


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
            help="tensorboard, mlflow, wandb, the name of an installed exporter, or hf: one run as a GPT-2 or"
            " a Llama of Hugging Face's transformers.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The directory to write in, which has to be new, empty or of an earlier export; for mlflow"
            " also a tracking URI. By default exports/TARGET beside the results, or where MLFLOW_TRACKING_URI"
            " says.",
        ),
    ] = None,
    plugin: PluginOption = None,
    runs_dir: RunsOption = None,
) -> None:
    """Write stored runs into a tracker, or one run as a model for transformers.

    Trackers get settings, curves, final results and the report. A run that is there already and equal is
    skipped, one that has changed is replaced. docs/export.md shows how each target looks.
    """
    from ablate.export.exporter import HF, exporter
    from ablate.export.runs import select

    if out == "":
        raise typer.BadParameter("name a directory", param_hint="--out")
    if to == HF:
        say_loading()
        from ablate.export.hf import export as export_model

        use_plugins(plugin)
        put(export_model(target, out))
        return
    exporter(to)  # an unknown name should not wait for the runs to be read
    from ablate.export.trackers import export as export_runs

    line, remarks = export_runs(select(target), to, out)
    put(line)
    for remark in remarks:
        say(remark)
