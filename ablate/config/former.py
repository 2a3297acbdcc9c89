"""What files of before say of keys that are gone (config/gone.py): such a key is ignored at its former
default, and stands for what can no longer be trained at any other value."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ablate.config.conditions import as_text, column_for
from ablate.config.contrast import Contrast
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


def contrast_without_gone(contrast: Contrast) -> Contrast | None:
    """The contrast without conditions on keys that are gone; None if one of its sides can no longer be
    trained."""
    baseline, where = _kept(contrast.is_baseline), _kept(contrast.where)
    variants = [kept for one in contrast.variants if (kept := _kept(one)) is not None]
    if baseline is None or where is None or len(variants) < min(1, len(contrast.variants)):
        return None
    of_baseline = {key: value for key, value in contrast.baseline.items() if key in baseline}
    return replace(contrast, baseline=of_baseline, variants=variants, where=where)


def _kept(condition: Mapping[str, Any]) -> dict[str, Any] | None:
    """The condition without keys that are gone; None if it asks for another value than its former default."""
    kept = {}
    for key, values in condition.items():
        if (column := column_for(key)) not in FORMER_DEFAULTS:
            kept[key] = values
        elif not any(is_former_default(column, one) for one in _list(values)):
            return None
    return kept


def _list(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]
