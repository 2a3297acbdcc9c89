"""`ablate new`: write a template for a method of your own."""

import importlib.util
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
        Kind, typer.Argument(help="A way to combine heads (fusion), or a rule on attention scores (scores).")
    ],
    name: Annotated[str, typer.Argument(help="Its name, as in fusion=NAME; the file will be NAME.py.")],
) -> None:
    """Write a Python file with a working method of your own, for you to change."""
    from ablate.compose.configs import configs_dir

    title = "".join(part.capitalize() for part in name.split("_"))
    words = name, title  # of the file, and of its class
    if not name.isascii() or not all(word.isidentifier() and not keyword.iskeyword(word) for word in words):
        raise ConfigError(
            f"{name}: can't name a file and a class of Python; use another word, of a to z and _"
        )
    if (configs_dir() / kind.value / f"{name}.yaml").exists():
        raise ConfigError(f"{name}: ablate has {kind.value}={name}; give yours another name")
    if importlib.util.find_spec(name):
        raise ConfigError(
            f"{name}: a package of Python has that name, which {name}.py would hide; give another"
        )
    path = Path(f"{name}.py")
    if path.exists():
        raise ConfigError(f"{path}: is there already; give another name, or move it away")
    template = (TEMPLATES / f"{kind.value}.py").read_text(encoding="utf-8")
    named = template.replace("MineOptions", f"{title}Options").replace("class Mine(", f"class {title}(")
    named = named.replace("mine.py", f"{name}.py").replace("=mine", f"={name}").replace(",mine", f",{name}")
    path.write_text(named.replace('"mine"', f'"{name}"'), encoding="utf-8")
    typer.echo(f"{path}: it passes; change it, then: ablate check {path}")
