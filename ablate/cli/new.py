"""`ablate new`: which seam an idea fits, and the beginning of a method."""

import importlib.util
import keyword
import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from ablate.config.rules import ConfigError
from ablate.files.owned import create
from ablate.printing import put

PACKAGE = Path(__file__).parent.parent
TEMPLATES = PACKAGE / "verify" / "templates"


SEAMS = """\
Which seam does an idea fit? docs/plugins.md has the smallest example of each.

fusion  how heads are combined: sees what each head read, the layer's input, on request the token's values
scores  where heads look, and what they read there: sees queries, keys, values and what is visible
none    positions, norms, MLPs, sizes, sharing: keys of a config; ablate keys model

ablate new KIND NAME writes a file that works, to change."""


def new(
    kind: Annotated[
        Literal["fusion", "scores"] | None,
        typer.Argument(help="What it is; without it, what each of them sees is printed."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="Its name in configs; the file will be NAME.py."),
    ] = None,
) -> None:
    """Write a Python file with a working method, for you to change.

    Without arguments, say which kind of method an idea is."""
    if kind is None:
        return put(SEAMS)
    if name is None:
        raise typer.BadParameter(f"name it, as: ablate new {kind} mine", param_hint="NAME")
    title = "".join(part.capitalize() for part in name.split("_"))
    words = name, title  # of the file, and of its class
    if (
        not name.isascii()
        or name.startswith("__")
        or not all(word.isidentifier() and not keyword.iskeyword(word) for word in words)
    ):
        raise ConfigError(
            f"{name}: can't name a file and a class of Python; use another word, of a to z and _"
        )
    if (PACKAGE / "model" / kind / f"{name}.py").exists():
        raise ConfigError(f"{name}: ablate has a {kind} of this name; give yours another")
    template = (TEMPLATES / f"{kind}.py").read_text(encoding="utf-8")
    named = template.replace("MineOptions", f"{title}Options").replace("class Mine(", f"class {title}(")
    named = re.sub(r"\bmine\b", name, named)
    if importlib.util.find_spec(name):
        raise ConfigError(
            f"{name}: a package of Python has that name, which {name}.py would hide; give another"
        )
    path = Path(f"{name}.py")
    if path.exists():
        raise ConfigError(f"{path}: is there already; give another name, or move it away")
    create(path, named)
    put(f"{path}: it passes; change it, then: ablate check {path}")
