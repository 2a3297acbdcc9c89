"""The identity of a run, a hash that two runs share only if they compute the same thing."""

import dataclasses
import functools
import hashlib
import json
from typing import Any, get_args

from ablate.config.read import hints, introduced
from ablate.config.rules import OutsideIdentity
from ablate.config.schema import RunConfig

_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


class Identity:
    """Computes run ids for one configuration and any seeds.

    config: with `auto` and `match` resolved to numbers (ablate.model.resolve.resolved). vocab: the number of
    tokens. corpus_sha256: the fingerprint of the text.
    """

    def __init__(self, config: RunConfig, *, vocab: int, corpus_sha256: str) -> None:
        content = {**identity_keys(config), "text": corpus_sha256, "vocab": vocab}
        self._written = {key: _write(value) for key, value in sorted(content.items())}

    def of(self, config: RunConfig) -> str:
        """The run_id for the seeds in `config`: 16 hex digits that two runs share only if they compute the
        same thing."""
        seeds = {"seed": _write(config.seed), "seeds": _write(config.resolved_seeds())}
        written = ",".join([f'"{key}":{value}' for key, value in (self._written | seeds).items()])
        return _sha256(f"{{{written}}}")[:16]


def run_name(config: RunConfig, identity: str) -> str:
    """The name of a run's directory: readable, and unique as it ends in the first half of the identity."""
    readout = "" if config.out_proj else "-noproj"
    size = f"d{config.model.d_model}x{config.model.layers}"
    return f"{config.fusion.name}-h{config.heads}{readout}-{size}-s{config.seed}-{identity[:8]}"


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return _sha256(_write(content))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, with their values, nested as in it."""
    came_later, content = introduced(type(config)), {}
    for key in _deciding(type(config)):
        value = getattr(config, key)
        if key not in came_later or value != came_later[key]:
            content[key] = identity_keys(value) if dataclasses.is_dataclass(value) else value
    return content


@functools.cache
def _deciding(cls: type) -> list[str]:
    """The keys of a configuration class that are part of the identity."""
    rules = {key: get_args(hint)[1:] for key, hint in hints(cls).items()}
    return [key for key, own in rules.items() if not any(isinstance(rule, OutsideIdentity) for rule in own)]
