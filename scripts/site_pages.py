"""The pages of the site that no file of docs/ holds: README, changes, methods, keys, the reference.

Loads no torch.
"""

import ast
import re
from collections.abc import Sequence
from pathlib import Path

from ablate.compose.keys import Key, sections
from ablate.files.svg import inline

ROOT = Path(__file__).parent.parent
KINDS = {"fusion": "How heads are brought together", "scores": "How queries and keys become patterns"}
REFERENCE = """# Reference

## In Python
{}

## What a method is
A fusion and a rule on scores are parts of attention. `ablate new` begins one.
{}
"""
FACE = ("run", "load", "load_model", "compare", "report")
CONTRACTS = (
    "ablate.model.parts.Part",  # what Fusion and Scores inherit
    *(f"ablate.methods.{name}" for name in ("register", "Fusion", "Scores", "Options", "Normalized")),
    *(f"ablate.methods.{name}" for name in ("HeadShape", "Linear", "Mask", "masked_softmax")),
)


def pages() -> dict[str, str]:
    """Markdown by path."""
    return {
        "index.md": _as_page("README.md"),
        "changes.md": _as_page("CHANGELOG.md"),
        "reference.md": REFERENCE.format(
            "\n".join(f"::: ablate.api.{name}" for name in FACE),
            "\n".join(f"::: {name}" for name in CONTRACTS),
        ),
        "keys.md": _keys(),
        "methods/index.md": _gallery(),
        **{f"methods/{kind}/{name}.md": _method(kind, name) for kind in KINDS for name in _names(kind)},
    }


def _as_page(name: str) -> str:
    """A file above docs/, whose links into docs/ are to hold from there."""
    return re.sub(r'(\]\(|")docs/', r"\1", (ROOT / name).read_text(encoding="utf-8"))


def _gallery() -> str:
    lines = [
        "# Methods",
        "",
        "The drawings show heads as boxes on the left, and what is made of them on the right.",
    ]
    for kind, title in KINDS.items():
        lines += ["", f"## {title}", "", f"| `{kind}` | | |", "| --- | --- | --- |"]
        for name in _names(kind):
            first = _plain(re.split(r"(?<=[.:])\s", _said(kind, name))[0].rstrip(":"))
            lines.append(f"| {_drawing(kind, name, '3em')} | [{_plain(name)}]({kind}/{name}.md) | {first} |")
    return "\n".join(lines)


def _method(kind: str, name: str) -> str:
    lines = [
        f"# {_plain(name)}",
        "",
        f"<div>{_drawing(kind, name, '8em')}</div>",
        "",
        _plain(_said(kind, name)),
    ]
    (options,) = [section.keys for section in sections() if section.choice == f"{kind}={name}"]
    lines += _table("option", options)
    return "\n".join([*lines, "", f"    ablate run {kind}={name}", "", "[All methods](../index.md)"])


def _keys() -> str:
    lines = ["# Keys", "", "What `ablate keys` prints, from the files of configs/."]
    for section in sections():
        if section.choice:
            lines += ["", f"## `{section.choice}`", "", _plain(section.about)]
        lines += _table("key", section.keys)
    return "\n".join(lines)


def _table(title: str, keys: Sequence[Key]) -> list[str]:
    rows = [f"| `{key.name}` | {key.default and f'`{key.default}`'} | {_plain(key.about)} |" for key in keys]
    return ["", f"| {title} | default | |", "| --- | --- | --- |", *rows] if rows else []


def _names(kind: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "configs" / kind).glob("*.yaml"))


def _said(kind: str, name: str) -> str:
    """The docstring of the class that is registered by this name."""
    tree = ast.parse((ROOT / "ablate" / "model" / kind / f"{name}.py").read_text(encoding="utf-8"))
    (method,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and _is_registered(node)]
    return ast.get_docstring(method) or ""


def _is_registered(node: ast.ClassDef) -> bool:
    return any(ast.unparse(decorator).startswith("register(") for decorator in node.decorator_list)


def _drawing(kind: str, name: str, height: str) -> str:
    drawing = inline(ROOT / "ablate" / "model" / kind / f"{name}.svg")
    return drawing.replace("\n", "").replace('height="1.5em"', f'height="{height}"')


def _plain(text: str) -> str:
    """Text whose signs mean nothing in Markdown."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)
