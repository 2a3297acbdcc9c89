"""Which keys are part of the identity of a run: those that decide what it computes."""

import dataclasses
import functools
from typing import Any, get_args

from ablate.config.read import hints
from ablate.config.rules import OutsideIdentity


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, with their values, nested as in it."""
    values = {key: getattr(config, key) for key in deciding(type(config))}
    unsaid = {field.name: field.default for field in dataclasses.fields(config)}
    later = _marked(type(config), OutsideIdentity(at_default=True))
    return {
        key: identity_keys(of) if dataclasses.is_dataclass(of) else of
        for key, of in values.items()
        if key not in later or of != unsaid[key]
    }


@functools.cache
def deciding(cls: type) -> list[str]:
    """The keys of a configuration class that are part of the identity."""
    outside = _marked(cls, OutsideIdentity())
    return [key for key in hints(cls) if key not in outside]


@functools.cache
def _marked(cls: type, mark: OutsideIdentity) -> set[str]:
    return {key for key, hint in hints(cls).items() if mark in get_args(hint)[1:]}
