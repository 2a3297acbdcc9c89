"""`ablate new`: a file to begin a method of one's own with."""

import keyword
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate.config.rules import ConfigError

TEMPLATES = Path(__file__).parent.parent / "verify" / "templates"


class Kind(StrEnum):
    fusion = "fusion"
    scores = "scores"


def new(
    kind: Annotated[
        Kind, typer.Argument(help="What it is: how heads are brought together, or a rule on scores.")
    ],
    name: Annotated[str, typer.Argument(help="What it is called, as in fusion=NAME; the file is NAME.py.")],
) -> None:
    """Write a file with a method of your own, which you then change."""
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f"{name}: can't name a method; use letters, digits and _, a letter first")
    path = Path(f"{name}.py")
    if path.exists():
        raise ConfigError(f"{path}: is there already; give another name, or move it away")
    title = "".join(part.capitalize() for part in name.split("_"))
    template = (TEMPLATES / f"{kind.value}.py").read_text(encoding="utf-8")
    named = template.replace("MineOptions", f"{title}Options").replace("class Mine(", f"class {title}(")
    named = named.replace("mine.py", f"{name}.py").replace("=mine", f"={name}").replace(",mine", f",{name}")
    path.write_text(named.replace('"mine"', f'"{name}"'), encoding="utf-8")
    typer.echo(f"{path}: it passes; change it, then: ablate check {path}")
