"""`ablate new`: the beginning of a method."""

import re
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Literal

import typer

from ablate.config.registry import TAKEN
from ablate.config.rules import ConfigError
from ablate.files.owned import create
from ablate.printing import put
from ablate.store.provenance import PACKAGE


def new(
    kind: Annotated[
        Literal["fusion", "scores"],
        typer.Argument(help="fusion: how heads are combined; scores: where they look (docs/plugins.md)."),
    ],
    name: Annotated[str, typer.Argument(help="Its name in configs; the file will be NAME.py.")],
) -> None:
    """Write a Python file with a working method, for you to change."""
    path, title = Path(f"{name}.py"), "".join(part.capitalize() for part in name.split("_"))
    if not (name.isascii() and name.isidentifier() and title.isidentifier()) or iskeyword(title):
        raise ConfigError(f"{name}: no name of a file and a class of Python; give a word of a to z and _")
    if (PACKAGE / "model" / kind / path).exists():  # as the registry finds it, which would load torch
        raise ConfigError(TAKEN.format(kind, name, "method"))
    if path.exists():
        raise ConfigError(f"{path}: is there already; give another name, or move it away")
    template = (PACKAGE / "verify" / "templates" / f"{kind}.py").read_text(encoding="utf-8")
    named = template.replace("MineOptions", f"{title}Options").replace("class Mine(", f"class {title}(")
    create(path, re.sub(r"\bmine\b", name, named))
    put(f"{path}: it passes; change it, then: ablate check {path}")
