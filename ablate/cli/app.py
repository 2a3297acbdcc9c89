"""The command line: its commands, its exit codes, and errors as one line. Heavy imports are made inside the
commands."""

import importlib
import io
import os
import re
import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ablate.cli.shared import TERMINATED
from ablate.config.rules import ConfigError, line_on
from ablate.phrases import counted, error_line, out_of_memory
from ablate.printing import left_out, put, put_traceback, say
from ablate.version import __version__

HELP_ALL = "--help-all"  # --help with the options that few need, too, which their declarations hide

# What Pydantic asks for by the type of its error, in plain words.
NUMBERS = {
    "int_parsing": "expected a whole number",
    "float_parsing": "expected a number",
    "greater_than_equal": "out of range; give {ge:,.12g} or more",
    "less_than_equal": "out of range; give {le:,.12g} or less",
}

# The base class of all errors of usage; Typer does not export it.
WrongUsage: type[Exception] = typer.BadParameter.__bases__[0]

# The module beside this file that has the function of each command, and examples of its use.
COMMANDS = {
    "run": (
        "train",
        *("run fusion=sum heads=8", "run -m fusion=concat,sum heads=1,4 'seed=range(6)'", "run --cfg job"),
    ),
    "keys": ("keys", "keys train", "keys fusion=gated", "keys model.d"),
    "compare": (
        "compare",
        "compare sweep-1a2b3c4d",
        "compare fusion --baseline heads=1 --where out_proj=true",
        "compare table.csv --by method --metric loss --lower-is-better",
    ),
    "report": ("compare", "report fusion --charts figures"),
    "plan": ("compare", "plan fusion --difference 0.02"),
    "runs": ("runs", "runs --format csv", "runs fusion --watch", "runs fusion --delete"),
    "verify": ("methods", "verify", "verify --only 7"),
    "new": ("new", "new fusion mine"),
    "check": ("methods", "check mine.py"),
    "probe": ("trained", "probe fusion", "probe fusion --where seed=0,1 --all"),
    "corpus": ("corpus", "corpus list", "corpus show book.txt corpus.tokenizer=bpe train.steps=2000"),
    "export": (
        "export",
        *("export fusion --to tensorboard", "export concat-h4-d64x2-s0 --to hf --out my-gpt2"),
    ),
    "duel": ("duel", "duel sum concat", "duel mine.py concat --text book.txt --seeds 16"),
    "race": (
        "race",
        "race 'python train.py --seed {seed}' 'python new.py --seed {seed}' --metric loss --lower-is-better",
    ),
    "sample": ("trained", 'sample concat-h4-d64x2-s0 --prompt "The import statement"'),
}
GROUPS = {
    "Run": ("run", "duel", "race", "corpus", "keys"),
    "Look": ("runs", "sample", "probe", "export"),
    "Compare": ("compare", "report", "plan"),
    "Methods": ("new", "check", "verify"),
}

BEGIN = """\b
Begin with:
  ablate run
  ablate run -m fusion=concat,sum 'seed=range(6)'
docs/tour.md goes on from there.
Exit codes: 0 done; 1 a run or check failed; 2 refused; 130, 143 stopped."""


def build(chosen: str = "") -> typer.Typer:
    """The Typer program with the chosen command only (faster to import), or else with all of them."""
    app = typer.Typer(
        name="ablate",
        help="Train tiny language models that differ in one setting, and compare them.",
        callback=_root,
        invoke_without_command=True,
        rich_markup_mode=None,  # plain help takes half the time and reads the same in a pipe
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=BEGIN,
        cls=Group,
    )
    for name in [chosen] if chosen in COMMANDS else COMMANDS:
        module, *examples = COMMANDS[name]
        command = getattr(importlib.import_module(f"ablate.cli.{module}"), name)
        if isinstance(command, typer.Typer):
            for one in command.registered_commands:
                one.epilog = _shown(examples, f"{name} {one.name or getattr(one.callback, '__name__', '')}")
            app.add_typer(command, name=name, epilog=_shown(examples), cls=Group)
        else:
            settings = {"ignore_unknown_options": name == "run"}
            app.command(epilog=_shown(examples), context_settings=settings)(command)
    return app


# How often a thread looks whether the others have come, before it sleeps. With libgomp's 300,000, a program
# that begins beside a run with two threads on two cores makes it two to four times as slow.
SPINS = "1000"


class Group(TyperGroup):
    """Lists its commands by what they are for, with the whole first sentence of their help, which Typer would
    cut to a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        helps = {name: " ".join((command.help or "").split()) for name, command in self.commands.items()}
        for title, names in GROUPS.items() if {*helps} >= {*COMMANDS} else [("Commands", helps)]:
            with formatter.section(title):
                formatter.write_dl([(name, re.split(r"(?<=\.) ", helps[name])[0]) for name in names])


def with_options(command: Any, path: str, *, every: bool) -> Any:
    """The command, and those below it, with every option in its help, or a line on how to see those that are
    hidden."""
    hidden = [one for one in command.params if one.hidden or one.name.endswith("_completion")]
    if hidden and not every:
        command.epilog += f"\n\n{counted(len(hidden), 'more option')}: {path} {HELP_ALL}"
    for one in hidden:
        one.hidden = not every
    for name, below in getattr(command, "commands", {}).items():
        with_options(below, f"{path} {name}", every=every)
    return command


def _shown(examples: Sequence[str], command: str = "") -> str:
    """The examples that begin with the command, for the end of its help."""
    lines = [f"ablate {example}" for example in examples if example.startswith(command)]
    return f"Example: {lines[0]}" if len(lines) == 1 else "\n  ".join(["\b\nExamples:", *lines])


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        put(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        put(context.get_help())


def main() -> None:
    """The console script. Exit codes: 0 success; 1 a run, check or equation failed; 2 the command could not
    be carried out (wrong usage, a system error, a bug in ablate); 130 Ctrl-C; 143 SIGTERM."""
    if os.environ.get("_ABLATE_COMPLETE", "").startswith("complete_"):
        return with_options(get_command(build()), "ablate", every=True)(prog_name="ablate")
    signal.signal(signal.SIGTERM, _end)
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & {*os.environ}:
        os.environ["GOMP_SPINCOUNT"] = SPINS  # read when PyTorch is loaded, also by workers
    sys.stderr = sys.stderr or open(os.devnull, "a")  # noqa: SIM115 - closed by `2>&-`, it would be None
    if isinstance(sys.stdout, io.TextIOWrapper):  # what it lacks, as cp1252 lacks Σ, is escaped as on stderr
        sys.stdout.reconfigure(errors="backslashreplace")
    warnings.showwarning = lambda message, category, *_: say(f"{category.__name__}: {message}")
    try:
        os.getcwd()  # raises if it is gone, which libraries report in many ways
        words = ["--help" if word == HELP_ALL else word for word in sys.argv[1:]]
        command = with_options(get_command(build(*words[:1])), "ablate", every=words != sys.argv[1:])
        _refuse_twice(command, words)
        code = command(words, prog_name="ablate", standalone_mode=False)
        for line in left_out():
            say(line)
        sys.exit(code)
    except BrokenPipeError:  # `ablate runs | head`
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        say(f"ablate: {in_a_line(error)}")
        sys.exit(2)


def _refuse_twice(command: Any, words: Sequence[str]) -> None:
    """Raises ConfigError for an option of one value that is given twice: Click would take the last."""
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    options = (one for one in command.params if one.param_type_name == "option")
    for one in (one for one in options if not (one.multiple or one.is_flag)):
        given = [word for word in words if word.partition("=")[0] in one.opts]
        if len(given) > 1:
            raise ConfigError(f"{' '.join(given)}: it takes one value; give it once")


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # which `timeout` and SLURM send twice
    sys.exit(TERMINATED)


# --- errors as one line ---------------------------------------------------------------------------


def in_a_line(error: Exception) -> str:
    """The message for the user; that of a bug in ablate stands below its traceback."""
    if isinstance(error, WrongUsage):
        return _of_usage(error)
    if isinstance(error, ConfigError):
        return str(error)
    if line := out_of_memory(error):
        return line
    if isinstance(error, FileNotFoundError) and not error.filename:
        return "the current directory was deleted; change to one that exists"
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output'}: {error.strerror or error}"
    from ablate.store.provenance import plugin_files

    line, own = error_line(error, {}), error_line(error, plugin_files())
    if own != line:
        return f"{own}; mend your method"
    put_traceback(error)
    return f"{line}; this is a bug in ablate"


def _of_usage(error: Any) -> str:
    """Typer's message about wrong usage as one line that ends with where to look."""
    reason = error.format_message()
    called = error.ctx.command_path if error.ctx else "ablate"
    unknown = re.search(r"No such command '([^']+)'|'(\w+)' is not one of", reason)
    option = getattr(error, "option_name", "")
    word = unknown[1] or unknown[2] if unknown else ""
    for name in (f"{called} {word}", f"{called} {option}".removeprefix("ablate ")):
        if line := line_on(name):
            return line
    if checked := getattr(error.__cause__, "errors", None):  # from Pydantic, whose message omits the value
        first = checked()[0]
        wrong = NUMBERS.get(first["type"], "").format(**first.get("ctx", {}))
        wrong = wrong or error.message.removeprefix("Value error, ")
        reason = f"{error.param.opts[0]} {first['input']}: {wrong}"
    below = getattr(getattr(error.ctx, "command", None), "commands", {})
    if unknown and "show" in below and "mean" not in reason:
        reason = f"{reason.rstrip('.')}; did you mean {called} show {shlex.quote(word)}?"
    for other in getattr(getattr(error, "param", None), "secondary_opts", ()):
        reason = reason.rstrip(".") + f" or '{other}'"  # the other half of a flag, which Typer leaves out
    reason = " ".join(reason.split()).rstrip(".").replace(". Did you mean", "; did you mean")
    command = " ".join(["ablate", *(name for name in sys.argv[1:2] if name in COMMANDS)])
    return f"{reason[0].lower()}{reason[1:]}{'' if reason.endswith('?') else ';'} see {command} --help"
