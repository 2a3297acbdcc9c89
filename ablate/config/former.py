"""What files of before say of keys that are gone (config/gone.py): such a key is ignored at its former
default, and stands for what can no longer be trained at any other value."""

from collections.abc import Mapping
from typing import Any

from ablate.config.conditions import as_text, column_for
from ablate.config.gone import FORMER_DEFAULTS, GONE, line_on
from ablate.config.rules import ConfigError, as_override


def is_former_default(column: str, value: Any) -> bool:
    """Whether this value of a key that is gone, plain or as text, says nothing. column: the key's."""
    return as_text(value) in ("", FORMER_DEFAULTS[column])


def config_without_gone(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A stored config without keys that are gone. Raises ConfigError for one that is not at its former
    default."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        name = path if key == "options" else f"{path}.{key}" if path else key
        if name not in GONE:
            kept[key] = config_without_gone(value, name) if isinstance(value, Mapping) else value
        elif (column := column_for(name)) in FORMER_DEFAULTS and not is_former_default(column, value):
            raise ConfigError(f"{name}={as_override(value)}: {line_on(name)}")
    return kept
