"""Which keys are part of the identity of a run: those that decide what it computes."""

import dataclasses
from dataclasses import dataclass
from typing import Any, get_args

from ablate.config.read import hints


@dataclass(frozen=True)
class OutsideIdentity:
    """The key does not change what a run computes, so it stays out of the run's identity. at_default: that is
    so at the default of its field alone, which is what runs did before there was the key."""

    at_default: bool = False


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, with their values, nested as in it."""
    kept = {}
    for field in dataclasses.fields(config):
        value, marks = getattr(config, field.name), get_args(hints(type(config))[field.name])[1:]
        if OutsideIdentity(at_default=value == field.default) not in marks and OutsideIdentity() not in marks:
            kept[field.name] = identity_keys(value) if dataclasses.is_dataclass(value) else value
    return kept
