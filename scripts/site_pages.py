"""The pages of the site that are no files of docs/: README, changes, keys, the reference, drawn methods.

Loads no torch.
"""

import re
from pathlib import Path

from ablate.compose.configs import sections
from scripts.markdown import plain, table

ROOT = Path(__file__).parent.parent
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
        "methods.md": _with_drawings((ROOT / "docs" / "methods.md").read_text(encoding="utf-8")),
    }


def _as_page(name: str) -> str:
    """A file above docs/, whose links into docs/ are to hold from there."""
    return re.sub(r'(\]\(|")docs/', r"\1", (ROOT / name).read_text(encoding="utf-8"))


def _keys() -> str:
    lines = ["# Keys", "", "What `ablate keys` prints, from the files of configs/."]
    for section in sections():
        if section.choice:
            lines += ["", f"## `{section.choice}`", "", plain(section.about)]
        lines += table("key", section.keys)
    return "\n".join(lines)


def _with_drawings(page: str) -> str:
    """The page with its drawings in it, where they have the color of the text."""
    return re.sub(r"!\[[^]]*\]\(\.\./(ablate/\S+\.svg)\)", _drawn, page)


def _drawn(link: re.Match[str]) -> str:
    drawing = (ROOT / link[1]).read_text(encoding="utf-8").replace("\n", "")
    return "<div>" + drawing.replace('width="120" height="48"', 'height="4em" role="img"', 1) + "</div>"
