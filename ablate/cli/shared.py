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

from ablate.config.contrast import MARGIN
from ablate.printing import outlive_readers, put, say, wrapped

if TYPE_CHECKING:
    import pandas as pd

    from ablate.execution.plugins import Method

TERMINATED = 143  # the exit code after SIGTERM
INTERRUPTED = "ablate: interrupted; what is finished is kept, and the same command goes on from there"


Tracker = Literal["tensorboard", "wandb", "trackio", "mlflow"]
Format = Literal["table", "csv", "json", "md", "latex"]
# Formats for people: rounded, without the columns that only programs need.
READ = ("table", "md", "latex")

FormatOption = Annotated[Format, typer.Option("--format", help="How to print the table.")]
JsonOption = Annotated[
    Literal["table", "json"], typer.Option("--format", help="How to print it, for people or for programs.")
]
SCHEMA = 1  # raised when a program that reads the JSON of a command has to change (AGENTS.md)
WideOption = Annotated[
    bool, typer.Option("--wide", help="Show every column, however narrow the terminal is.", hidden=True)
]
MetricOption = Annotated[
    str | None,
    typer.Option(help="The column to compare; by default the study's metric, else val_loss."),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="COL[,COL]",
        help="The columns that define a variant.",
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="K=V[,K=V]",
        help="What each variant is compared with; by default fusion=concat.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="K=V",
        help="Only these rows: K=V[,V], K!=V[,V], K<V, K<=V, K>V or K>=V; given several times, all hold.",
    ),
]
PairByOption = Annotated[
    str | None,
    typer.Option(
        metavar="COL[,COL]", help="The columns by which runs pair, where that is not the seed.", hidden=True
    ),
]
BetterOption = Annotated[
    bool | None,
    typer.Option(
        "--higher-is-better/--lower-is-better",
        help="Which way a metric that is not ablate's is better; without it nothing is called better.",
        hidden=True,
    ),
]
FixedOption = Annotated[
    str | None,
    typer.Option(
        metavar="K=V[,K=V]",
        help="The variant whose one value is known, as of a deterministic baseline; it has no scatter.",
        hidden=True,
    ),
]
FinishedOption = Annotated[
    str | None,
    typer.Option(
        metavar="WORD[,WORD]",
        help="Words for the status of runs that count, besides finished and its like.",
        hidden=True,
    ),
]
MixedOption = Annotated[
    bool,
    typer.Option("--mixed", help="Allow rows from several corpora or versions of the code.", hidden=True),
]
MarginOption = Annotated[
    float | None,
    typer.Option(
        help="The largest difference that does not matter, in the metric's unit; by default the study's, else"
        f" {MARGIN} of what is in nats."
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
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file with methods of your own. May be repeated.",
        hidden=True,
    ),
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


def print_table(
    frame: "pd.DataFrame",
    format: Format,
    *,
    wide: bool = False,
    spare: Sequence[str] = (),
    all_of_it: str = "--wide",
) -> None:
    """Print a table: in a terminal only the columns that fit, elsewhere and with `wide` all of them.

    spare: columns of this table that may be left out too, the first one first. all_of_it: the option that
    shows every column.
    """
    from ablate.tables import lines_of, records, render

    if format == "json":
        return put_json(rows=records(frame))
    if format != "table":
        put(render(frame, format), end="")
        return
    in_terminal = sys.stdout is not None and sys.stdout.isatty()
    room = shutil.get_terminal_size().columns if in_terminal and not wide else None
    text, left_out = lines_of(frame, room, bold=in_terminal, spare=spare)
    put(text, end="", bold=in_terminal)
    if left_out:
        say(f"no room for {', '.join(left_out)}; {all_of_it} shows {'it' if len(left_out) == 1 else 'them'}")


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


def remark(text: str, format: Format) -> None:
    """Print text that goes with a table: a paragraph in Markdown, a comment in LaTeX."""
    if format == "latex":
        text = "\n".join(f"% {line}" for line in text.splitlines())
    put(f"{text}\n" if format == "md" else wrapped(text, sys.stdout))


def say_loading() -> None:
    """Say in a terminal that PyTorch is about to be loaded, unless it is: it takes seconds."""
    if "torch" not in sys.modules and sys.stderr is not None and sys.stderr.isatty():
        say("loading PyTorch …")


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Say of a command that is interrupted in the block that it goes on from there. Nobody need read its
    progress."""
    outlive_readers()
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, KeyboardInterrupt) or error.code == TERMINATED:
            say(INTERRUPTED)
        raise


# --- what the shell completes: names that nobody knows by heart ---------------------------------------


def known_keys() -> list[str]:
    from ablate.compose.keys import sections

    return [*dict.fromkeys(key.name for section in sections() for key in section.keys)]


def known_studies() -> list[str]:
    from ablate.store.store import Store

    return Store().study_names()


def known_runs() -> list[str]:
    """The names of the finished runs."""
    from ablate.store.store import Store

    return sorted(Store().finished())


def known_studies_and_runs() -> list[str]:
    return [*known_studies(), *known_runs()]
