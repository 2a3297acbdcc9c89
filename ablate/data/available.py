"""What can be trained on, by what the YAMLs of corpora say. Nothing is opened, and no torch is loaded."""

import inspect
from collections.abc import Mapping
from typing import Any

from ablate.config.read import hints, read
from ablate.data.corpora import Recipe, registry
from ablate.data.corpora.download import Download


def facts(name: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """What a list says of a corpus, by the names of its columns; those that do not apply are None. keys: of
    its YAML. Raises ConfigError."""
    row: dict[str, Any] = dict.fromkeys(("name", "kind", "consists of", "licence", "bytes", "here"))
    row["name"] = name
    if kind := kind_of(keys):
        row["kind"] = ", ".join(kind.read_as)
        row["consists of"] = (
            " ".join((inspect.getdoc(kind) or "").split()).partition(". ")[0].removesuffix(".")
        )
    if kind is Download:
        text = read(Download, {key: keys[key] for key in keys if key in hints(Download)}, f"corpus={name}")
        size, here = sum(file.size for file in text.files), all(file.path.is_file() for file in text.files)
        row |= {"consists of": text.about, "licence": text.licence, "bytes": size, "here": here}
    return row


def kind_of(keys: Mapping[str, Any]) -> type[Recipe] | None:
    """The class of a corpus; None if its YAML names none."""
    return registry.methods().get(keys.get("recipe", keys["name"]))
