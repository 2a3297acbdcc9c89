"""The compared methods: of each its drawing and what it does, from its own files.

It loads no torch, and executes no code of a method.
"""

import ast
import contextlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ablate.analysis.compare import Comparison
from ablate.analysis.frames import as_texts
from ablate.analysis.load import Results
from ablate.analysis.variant import Variant
from ablate.config.schema import PARTS, STANDARD_SCORES
from ablate.files.svg import inline
from ablate.reporting.relations import STANDARD, Relation, relations
from ablate.store.provenance import PACKAGE

# By kind, also a column's name.
FOLDERS = {kind: PACKAGE / "model" / kind for kind in PARTS} | {"out_proj": PACKAGE / "model" / "readout"}
MOST = 6  # the most methods with a card, so that the answer stays on the first screen
Method = tuple[str, str]  # kind and name


@dataclass(frozen=True)
class Card:
    """A compared method. drawing: inline SVG, empty if it has none. about: the first paragraph of its
    docstring, empty if its source is not here. relation: to the method that it is compared with, if an
    equation states it."""

    name: str
    drawing: str
    about: str
    relation: Relation | None


def compared(comparison: Comparison) -> list[Variant]:
    """The compared variants, baselines first; all variants if nothing was tested."""
    tested = comparison.tested
    sides = [*(one.baseline for one in tested), *(one.variant for one in tested)]
    return list(dict.fromkeys(sides)) or [*comparison.variants.values()]


def cards(comparison: Comparison, subject: Results, related: Iterable[Relation]) -> list[Card]:
    """The compared methods, baselines first, at most MOST. related: the equations of this comparison."""
    methods = [*dict.fromkeys(method_of(variant, comparison) for variant in compared(comparison))]
    methods = [(kind, name) for kind, name in methods if name]  # a table of another program has none
    drawn = drawings(comparison.rows, subject.directories)
    found = {relation.pair[1]: relation for relation in related if relation.column in FOLDERS}
    return [
        Card(
            name,
            drawn.get((kind, name), ""),
            about(kind, name, subject.directories.values()),
            found.get(name),
        )
        for kind, name in itertools.islice(methods, MOST)
    ]


def equations(comparison: Comparison) -> list[Relation]:
    """The equations that relate the compared variants."""
    pairs = [(one.variant, one.baseline) for one in comparison.tested]
    if not pairs:  # each with the standard one, if that is among them
        variants = compared(comparison)
        standard = [one for one in variants if method_of(one, comparison) == ("fusion", STANDARD["fusion"])]
        pairs = [(variant, standard[0]) for variant in variants if standard]
    return relations(pairs)


def method_of(variant: Variant, comparison: Comparison) -> Method:
    """The part of a variant that tells it from others: its rule on scores if that is not the standard one and
    not that of all rows, else its fusion."""
    levels = {kind: _level(kind, variant, comparison) for kind in ("fusion", "scores")}
    varies = comparison.rows["scores"].nunique() > 1 if "scores" in comparison.rows else False
    kind = "scores" if varies and levels["scores"] not in (STANDARD_SCORES, "") else "fusion"
    return kind, levels[kind]


def _level(column: str, variant: Variant, comparison: Comparison) -> str:
    """The level of a column in a variant, which names it only if it varies."""
    found = variant.levels.get(column)
    if found is None and column in comparison.rows:
        found = next(iter(as_texts(comparison.rows[column])), "")
    return found or ""


# --- from the files of methods ---------------------------------------------------------------------------


def drawings(rows: pd.DataFrame, directories: Mapping[str, Path]) -> dict[Method, str]:
    """The drawings of the methods in these rows that have one, as inline SVG.

    directories: of finished runs, by run_id; each keeps a copy of the drawings of its plugins.
    """
    drawn = {}
    for kind in {*FOLDERS} & {*rows.columns}:
        for name, runs in rows.groupby(rows[kind].astype(str))["run_id"]:
            if str(name).isidentifier():  # so that no name can lead to another directory
                places = [FOLDERS[kind], *(directories[run] for run in runs if run in directories)]
                shown = (inline(place / f"{name}.svg") for place in places)
                drawn[kind, str(name)] = next(filter(None, shown), "")
    return {method: drawing for method, drawing in drawn.items() if drawing}


def about(kind: str, name: str, directories: Iterable[Path]) -> str:
    """The first paragraph of the docstring of a method, from its own file or from the copy that a run keeps;
    empty if there is none."""
    own = FOLDERS[kind] / f"{name}.py"
    if name.isidentifier() and own.is_file():
        return _docstring([own], name)
    return next(filter(None, (_docstring(sorted(place.glob("*.py")), name) for place in directories)), "")


def _docstring(files: Sequence[Path], name: str) -> str:
    for file in files:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef) and _registers(node, name):
                    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    return ""


def _registers(node: ast.ClassDef, name: str) -> bool:
    """Whether a decorator of the class is register(name)."""
    return any(
        isinstance(call, ast.Call) and any(isinstance(a, ast.Constant) and a.value == name for a in call.args)
        for call in node.decorator_list
    )
