"""What can be trained on, by what the YAMLs of corpora say. Nothing is opened, and no torch is loaded."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

from ablate.config.read import read
from ablate.config.schema import CorpusConfig
from ablate.data.corpora import Recipe, Task, TextRecipe, registry
from ablate.data.corpora.copy import WordTask
from ablate.data.corpora.download import Download
from ablate.data.corpora.pairs import Pairs

COMMON = {key.name for key in dataclasses.fields(CorpusConfig)}  # keys that every corpus has
KINDS = {"text": TextRecipe, "task": Task, "pairs": WordTask | Pairs}  # by how a model reads it


def facts(name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """What a list says of a corpus, by the names of its columns; those that do not apply are None. keys: of
    its YAML. Raises ConfigError."""
    row: dict[str, Any] = dict.fromkeys(("name", "kind", "consists of", "licence", "bytes", "here"))
    row |= {"name": name, "kind": ", ".join(kinds(keys)) or None}
    if kind := _kind(keys):
        paragraph, _, _ = (inspect.getdoc(kind) or "").partition("\n\n")
        row["consists of"] = " ".join(paragraph.split()).partition(". ")[0].removesuffix(".")
    if kind is Download:
        own = {key: keys[key] for key in keys if key not in COMMON}
        text = read(Download, own, f"corpus={name}")
        size, here = sum(file.size for file in text.files), all(file.path.is_file() for file in text.files)
        row |= {"consists of": text.about, "licence": text.licence, "bytes": size, "here": here}
    return row


def kinds(keys: Mapping[str, Any]) -> list[str]:
    """How models can read the corpus of these keys, of KINDS."""
    kind = _kind(keys)
    return [word for word, base in KINDS.items() if kind and issubclass(kind, base)]


def _kind(keys: Mapping[str, Any]) -> type[Recipe] | None:
    """The class of a corpus; None if its YAML leaves to another what it is."""
    return registry.methods().get(keys.get("recipe", keys["name"]))
