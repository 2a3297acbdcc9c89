"""`ablate new`: which seam an idea fits, and the beginning of a method."""

import ast
import importlib.util
import keyword
import re
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from ablate.config.rules import NO_DEVICE, ConfigError
from ablate.files.owned import create
from ablate.printing import put

PACKAGE = Path(__file__).parent.parent
TEMPLATES = PACKAGE / "verify" / "templates"


SEAMS = """\
Which seam does an idea fit? docs/plugins.md has the smallest example of each.

fusion   how heads are combined: sees what each head read, the layer's input, on request the token's values
scores   where heads look, and what they read there: sees queries, keys, values and what is visible
readout  what stands in place of out_proj: sees the fused heads; linear, each token by itself
none     positions, norms, MLPs, sizes, sharing: keys of a config; ablate keys model

ablate new KIND NAME writes a file that works, to change."""


def new(
    kind: Annotated[
        Literal["fusion", "scores", "readout"] | None,
        typer.Argument(help="What it is; without it, what each of them sees is printed."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(help="Its name in configs; the file will be NAME.py."),
    ] = None,
    builtin: Annotated[
        bool,
        typer.Option("--builtin", help="In a checkout of ablate: begin a method of ablate's there."),
    ] = False,
) -> None:
    """Write a Python file with a working method of your own, for you to change; without arguments, say which
    kind of method an idea is."""
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
    if not re.fullmatch(NO_DEVICE, name):
        raise ConfigError(f"{name}: a device on Windows, where no file can have that name; give another")
    if (PACKAGE / "model" / kind / f"{name}.py").exists():
        raise ConfigError(f"{name}: ablate has a {kind} of this name; give yours another")
    template = (TEMPLATES / f"{kind}.py").read_text(encoding="utf-8")
    named = template.replace("MineOptions", f"{title}Options").replace("class Mine(", f"class {title}(")
    named = re.sub(r"\bmine\b", name, named)
    if builtin:
        return _begin_builtin(kind, name, named)
    if importlib.util.find_spec(name):
        raise ConfigError(
            f"{name}: a package of Python has that name, which {name}.py would hide; give another"
        )
    path = Path(f"{name}.py")
    if path.exists():
        raise ConfigError(f"{path}: is there already; give another name, or move it away")
    create(path, named)
    put(f"{path}: it passes; change it, then: ablate check {path}")


def _begin_builtin(kind: str, name: str, text: str) -> None:
    """Write the files of a method of ablate's, from a template that works. Raises ConfigError outside of a
    checkout."""
    from ablate.compose.configs import configs_dir

    checkout = PACKAGE.parent
    if not (checkout / "pyproject.toml").exists() or checkout not in (here := Path.cwd(), *here.parents):
        raise ConfigError(
            f"--builtin: it writes into ablate's own files, and those that run are in {checkout}; type it in"
            " a checkout that is installed with pip install -e"
        )
    exported = ast.parse((PACKAGE / "methods.py").read_text(encoding="utf-8")).body
    homes = {one.name: f.module or "" for f in exported if isinstance(f, ast.ImportFrom) for one in f.names}
    homes |= dict.fromkeys(("register", kind.capitalize()), f"ablate.model.{kind}.base")
    head, names, body = re.split(r"^from ablate\.methods import (.*)\n", text, flags=re.M)
    imports = defaultdict(list)
    for each in names.split(", "):
        imports[homes[each]].append(each)
    lines = [f"from {home} import {', '.join(of)}\n" for home, of in sorted(imports.items())]
    options, mark, method = body.partition("@register")
    keys = [("name", name), *re.findall(r"^    (\w+): .* = (.*)$", options, re.M)]
    options = re.sub(r"^(    \w+: .*) = .*$", r"\1", options, flags=re.M)  # its defaults are in the YAML
    method = method.replace("ablate.methods.Linear", "ablate.model.layers.Linear")
    source = "".join([head.split('"""\n\n', 1)[1], *lines, options, mark, method])
    files = {PACKAGE / "model" / kind / f"{name}.py": source}
    files[PACKAGE / "model" / kind / f"{name}.svg"] = (TEMPLATES / "new.svg").read_text(encoding="utf-8")
    if kind != "readout":
        files[configs_dir() / kind / f"{name}.yaml"] = "".join(f"{key}: {value}\n" for key, value in keys)
    for path, content in files.items():
        create(path, content)
        put(path)
    put("scripts/check fails until the rest is there, and says what; docs/architecture.md has the list")
