"""What can be trained on, by what the YAMLs of corpora say. Nothing is opened, and no torch is loaded."""

import inspect
from collections.abc import Mapping
from typing import Any

from ablate.data.corpora import Recipe, registry


def about(keys: Mapping[str, Any]) -> str:
    """What a corpus consists of, in a line; keys: of its YAML."""
    said, _, _ = (inspect.getdoc(kind_of(keys) or object) or "").partition("\n\n")
    return keys.get("about") or " ".join(said.split()).partition(". ")[0].removesuffix(".")


def kind_of(keys: Mapping[str, Any]) -> type[Recipe] | None:
    """The class of a corpus; None if its YAML names none."""
    return registry.methods().get(keys.get("recipe", keys["name"]))
