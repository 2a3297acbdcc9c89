"""Keys and plain values as Hydra's command line writes them: train.lr, 0.003 -> train.lr=0.003."""

import re
from collections.abc import Mapping
from typing import Any

from ablate.config.rules import as_override

_PLAIN = re.compile(r"[\w./@+-]+", re.ASCII)
# Hydra reads these as numbers and truth values, so as text they need quotes, as null does.
OTHER_TYPES = r"(?i:true|false|[+-]?(?:nan|inf|[\d._]+(?:e[+-]?[\d_]+)?))"


def flatten(nested: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones. A group's `name` becomes the value of the group, and the `options` of a
    fusion become keys of the group itself: {"fusion": {"name": "sum"}} -> {"fusion": "sum"}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        dotted = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            flat |= flatten(value, path if key == "options" else dotted)
        else:
            flat[path if path and key == "name" else dotted] = value
    return flat


def as_value(value: Any) -> str:
    """A plain or nested value in the syntax of overrides. Sequences become lists, not sweeps."""
    return as_override(value, _quoted)


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text) and not re.fullmatch(f"(?i:null)|{OTHER_TYPES}", text):
        return text
    escaped = re.sub(r'(\\*)"', r'\1\1\\"', text)  # backslashes count only before a quote
    escaped = re.sub(r"(\\+)$", r"\1\1", escaped)
    return f'"{escaped}"'
