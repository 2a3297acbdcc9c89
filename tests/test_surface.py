"""How much there is to know and to read, counted from the program itself; nothing may be above surface.txt.

- options: of `ablate`, its commands and those below them, without --help and what Typer adds for completion
- run keys: keys of RunConfig that `ablate keys` shows, and names of groups; not those of methods and texts
- launcher keys: of each launcher that has a YAML here
- compare columns: of the table of `ablate compare docs/results/later`, without the variant, its config and
  params
- remarks: places in ablate/ that make a Note, or an instance of a subclass of it
- verdict words: the texts that stand as a verdict
- exports: what tests/public.txt lists
- lines: of Python; in benchmarks/ and scripts/ of all files. words of docs: README.md, and Markdown in docs/

A number that has become less: `python -m tests.test_surface` writes it down. One that is to become more takes
an issue that says so, and is raised by hand.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

import ablate
from ablate.analysis import stats
from ablate.cli.app import COMMANDS, build
from ablate.compose.configs import sections
from ablate.config.read import dotted
from ablate.config.schema import RunConfig
from ablate.store.columns import COLUMNS, CONFIG_COLUMNS
from ablate.study.study import KINDS
from tests.helpers import ROOT
from tests.test_public import surface

TABLE = Path(__file__).with_name("surface.txt")


def counts() -> dict[str, int]:
    """Each figure by its name."""
    keys = [key.name for section in sections() for key in section.keys]
    nodes = [
        node for path in files("ablate", "*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))
    ]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    notes = {"Note"} | {one.name for one in classes if "Note" in map(ast.unparse, one.bases)}
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    compared = {*ablate.compare(ROOT / "docs" / "results" / "later").table} - {
        *CONFIG_COLUMNS,
        "params",
        "variant",
    }
    return {
        "commands": len(COMMANDS),
        "options": len([*options(get_command(build()))]),
        "run keys": len({*keys} & {*dotted(RunConfig)}),
        "launcher keys": sum(key.startswith("hydra.launcher.") for key in keys),
        "result columns": len(COLUMNS),
        "compare columns": len(compared),
        "remarks": sum(call in notes for call in calls),
        "verdict words": len(stats.VERDICTS),
        "study kinds": len(KINDS),
        "classes": len(classes),
        "exports": len([*surface()]),
        "lines of ablate": lines("ablate", "*.py"),
        "lines of tests": lines("tests", "*.py"),
        "lines of benchmarks and scripts": lines("benchmarks", "*") + lines("scripts", "*"),
        "words of docs": sum(len(path.read_text("utf-8").split()) for path in documents()),
    }


def options(command: Any) -> Iterator[str]:
    """The options of a command and of those below it."""
    own = (one for one in command.params if one.param_type_name == "option")
    yield from (one.opts[0] for one in own if not one.name.endswith("_completion"))
    for one in getattr(command, "commands", {}).values():
        yield from options(one)


def files(folder: str, pattern: str) -> list[Path]:
    found = (ROOT / folder).rglob(pattern)
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def documents() -> list[Path]:
    return [ROOT / "README.md", *files("docs", "*.md")]


def lines(folder: str, pattern: str) -> int:
    return sum(path.read_text("utf-8").count("\n") for path in files(folder, pattern))


def written() -> dict[str, int]:
    rows = (line.rsplit(maxsplit=1) for line in TABLE.read_text("utf-8").splitlines())
    return {name.strip(): int(number) for name, number in rows}


def test_nothing_is_above_what_is_written_down():
    now, most = counts(), written()
    assert {*now} == {*most}
    above = {name: (now[name], most[name]) for name in now if now[name] > most[name]}
    assert not above, f"more than surface.txt says (now, at most): {above}"


def main() -> None:
    now, most = counts(), written()
    for name, number in now.items():
        print(f"{name:32} {number:6,}{f' of {most[name]:,}' if number != most[name] else ''}")
    least = {name: min(number, most[name]) for name, number in now.items()}
    TABLE.write_text("".join(f"{name:32} {number:6}\n" for name, number in least.items()), "utf-8")


if __name__ == "__main__":
    main()
