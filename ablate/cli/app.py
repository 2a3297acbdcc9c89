"""The command line: its commands and exit codes. Heavy imports are made inside the commands."""

import importlib
import os
import signal
import sys
from typing import Annotated, Any

import typer

from ablate.cli import completion
from ablate.cli.output import TERMINATED, say

# The base class of all errors of usage; Typer does not export it.
WrongUsage: type[Exception] = typer.BadParameter.__bases__[0]

# Each command is the function of that name in the module of that name, beside this file.
COMMANDS: dict[str, dict[str, Any]] = {
    "run": {
        "context_settings": {"ignore_unknown_options": True},
        "epilog": "\b\nExamples:\n  ablate run fusion=sum heads=8\n  ablate run -m fusion=concat,sum,mean"
        " heads=1,4 seed=0,1,2\n  ablate run --cfg job",
    },
    "compare": {
        "epilog": "\b\nExamples:\n  ablate compare sweep-1a2b3c4d\n  ablate compare fusion --baseline heads=1"
        " --where out_proj=true\n  ablate compare a.csv b.csv --metric val_bpb --format latex"
    },
    "report": {"epilog": "Example: ablate report fusion --charts figures"},
    "plan": {"epilog": "Example: ablate plan fusion --difference 0.01 --budget 60"},
    "runs": {"epilog": "\b\nExamples:\n  ablate runs --format csv\n  ablate runs fusion --watch"},
    "verify": {
        "epilog": "\b\nExamples:\n  ablate verify\n  ablate verify --sizes T=10,heads=8,key_width=8,d_model=8"
        "\n  ablate verify --only 7"
    },
    "new": {"epilog": "Example: ablate new fusion mine"},
    "check": {"epilog": "Example: ablate check mine.py"},
    "probe": {
        "epilog": "\b\nExamples:\n  ablate probe fusion\n  ablate probe concat-h4-d64x2-s0 --prune"
        "\n  ablate probe fusion --where seed=0,1 --only kept,previous"
    },
    "claims": {
        "epilog": "\b\nExamples:\n  ablate claims\n  ablate claims show 001\n"
        "  ablate claims run 001 --dry-run"
    },
    "duel": {
        "epilog": "\b\nExamples:\n  ablate duel sum concat\n"
        "  ablate duel mine.py concat --text book.txt --budget 2h"
    },
    "sample": {"epilog": 'Example: ablate sample concat-h4-d64x2-s0 --prompt "The import statement"'},
}


def build(asked: str = "") -> typer.Typer:
    """The Typer program with the requested command only (faster to import), or else with all of them."""
    app = typer.Typer(
        name="ablate",
        help="Head-fusion ablations: train tiny language models that differ in how they combine their"
        " attention heads, and compare them.",
        callback=_root,
        invoke_without_command=True,
        rich_markup_mode=None,  # plain help takes half the time and reads the same in a pipe
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in [asked] if asked in COMMANDS else COMMANDS:
        module = importlib.import_module(f"ablate.cli.{name}")
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, **COMMANDS[name])
        else:
            app.command(**COMMANDS[name])(command)
    return app


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from ablate.version import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """The console script. Exit codes: 0 success; 1 a run, check or equation failed; 2 the command could not
    be carried out (wrong usage, a system error, a bug in ablate); 130 Ctrl-C; 143 SIGTERM."""
    if os.environ.get(completion.ASKED, "").startswith("complete_"):
        return completion.answer(build())
    signal.signal(signal.SIGTERM, _terminated)
    try:
        sys.exit(build(*sys.argv[1:2])(prog_name="ablate", standalone_mode=False))
    except WrongUsage as error:
        say(f"ablate: {_explained(error)}")
        sys.exit(2)
    except BrokenPipeError:  # `ablate runs | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        from ablate.cli.faults import in_a_line  # imported late, so that --help stays fast

        say(f"ablate: {in_a_line(error)}")
        sys.exit(2)


def _explained(error: Any) -> str:
    """Typer's message about wrong usage as one line that ends with where to look."""
    reason = error.format_message()
    if checked := getattr(error.__cause__, "errors", None):  # from Pydantic, whose message omits the value
        reason = (
            f"{error.param.opts[0]} {checked()[0]['input']}: {error.message.removeprefix('Value error, ')}"
        )
    reason = " ".join(reason.split()).rstrip(".")
    command = " ".join(["ablate", *(name for name in sys.argv[1:2] if name in COMMANDS)])
    return f"{reason[0].lower()}{reason[1:]}; see {command} --help"


def _terminated(*_: Any) -> None:
    raise SystemExit(TERMINATED)
