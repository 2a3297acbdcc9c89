"""What commands share: options, plugins, and how they print. Tables go to stdout, remarks to stderr."""

import contextlib
import json
import math
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ablate.printing import put, say, wrapped

if TYPE_CHECKING:
    import pandas as pd

    from ablate.execution.plugins import Method

TERMINATED = 143  # the exit code after SIGTERM
INTERRUPTED = "ablate: interrupted; what is finished is kept, and the same command goes on from there"


Tracker = Literal["tensorboard", "wandb", "trackio", "mlflow"]
Format = Literal["table", "csv", "json"]

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the table.")]
JsonOption = Annotated[
    Literal["table", "json"], typer.Option("--format", help="How to print it, for people or for programs.")
]
SCHEMA = 1  # raised when a program that reads the JSON of a command has to change (AGENTS.md)


WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="K=V",
        help="Only rows with K=V[,V], K!=V[,V], K<V, K<=V, K>V or K>=V; all that are given hold.",
    ),
]


def keep_results_in(runs: str | None) -> None:
    """Set where this process, and those that it starts, find the store."""
    from ablate.phrases import PLACE
    from ablate.store.store import ABLATE_RUNS

    PLACE[:] = ["--runs", runs] if runs else []
    if runs == "":
        raise typer.BadParameter("name a directory", param_hint="--runs")
    if runs and os.path.exists(runs) and not os.path.isdir(runs):
        raise typer.BadParameter(f"{runs}: a file; name a directory", param_hint="--runs")
    if runs:
        os.environ[ABLATE_RUNS] = runs


RunsOption = Annotated[
    str | None,
    typer.Option(
        "--runs",
        metavar="DIR",
        help="Where results lie; by default as ABLATE_RUNS says, else in runs/.",
        callback=keep_results_in,
        is_eager=True,
        hidden=True,
    ),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with methods of your own. May be repeated."),
]


def use_plugins(files: Sequence[str] | None) -> "list[Method]":
    """Register the methods in these files, and return them. Raises ConfigError."""
    if not files:
        return []
    from ablate.study import run

    say_loading()
    return run.use_plugins(files)


def separated(text: str | None) -> list[str]:
    """The names in NAME,NAME; none without a text."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def print_table(frame: "pd.DataFrame", format: Format) -> None:
    """Print a table: in a terminal only the columns that fit, elsewhere all of them."""
    from ablate.tables import lines_of, records

    if format == "json":
        return put_json(rows=records(frame))
    if format == "csv":
        return put(frame.to_csv(index=False, lineterminator="\n"), end="")
    in_terminal = sys.stdout.isatty()
    room = shutil.get_terminal_size().columns if in_terminal else None
    text, left_out = lines_of(frame, room, bold=in_terminal)
    put(text, end="", bold=in_terminal)
    if left_out:
        say(f"no room for {', '.join(left_out)}; a wider terminal or --format json shows what is missing")


def put_json(**parts: Any) -> None:
    """Print what came of the command as one JSON object, with the version of its schema."""
    put(json.dumps(_finite({"schema": SCHEMA, **parts}), indent=2, ensure_ascii=False))


def _finite(value: Any) -> Any:
    """The value without numbers that JSON has not."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_finite, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def remark(text: str) -> None:
    """Print text that goes with a table."""
    put(wrapped(text, sys.stdout))


def say_loading() -> None:
    """Say in a terminal that PyTorch is about to be loaded, unless it is: it takes seconds."""
    if "torch" not in sys.modules and sys.stderr.isatty():
        say("loading PyTorch …")


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Say of a command that is interrupted in the block that it goes on from there."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or error.code == TERMINATED:
            say(INTERRUPTED)
        raise
