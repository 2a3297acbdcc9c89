"""The identity of a run, a hash that two runs share only if they compute the same thing."""

import dataclasses
import functools
import hashlib
import json
from typing import Any, get_args

from ablate.config.read import hints
from ablate.config.rules import OutsideIdentity
from ablate.config.schema import RunConfig

SIMULATED = "simulated-"  # begins the names of runs that are not trained

_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def run_id(config: RunConfig, *, vocab: int, corpus_sha256: str) -> str:
    """16 hex digits that two runs share only if they compute the same thing.

    config: with `auto` and `match` resolved to numbers (ablate.model.sizing.resolved). vocab: the number of
    tokens. corpus_sha256: the fingerprint of the text.
    """
    content = identity_keys(config) | {"text": corpus_sha256, "vocab": vocab}
    return digest(content | {"seeds": config.resolved_seeds()})[:16]


def run_name(config: RunConfig, identity: str) -> str:
    """The name of a run's directory: readable, and unique as it ends in the first half of the identity."""
    projected = "" if config.out_proj else "-noproj"
    size = f"d{config.model.d_model}x{config.model.layers}"
    kind = SIMULATED if config.train.simulated else ""
    return f"{kind}{config.fusion.name}-h{config.heads}{projected}-{size}-s{config.seed}-{identity[:8]}"


def short_id(name: str) -> str:
    """The first half of the identity, from the name of a run's directory."""
    return name.rpartition("-")[2]


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(_write(content).encode()).hexdigest()


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, with their values, nested as in it."""
    values = {key: getattr(config, key) for key in deciding(type(config))}
    return {
        key: identity_keys(of) if dataclasses.is_dataclass(of) else of
        for key, of in values.items()
        if of is not None or key not in _outside(type(config), null_only=True)
    }


@functools.cache
def deciding(cls: type) -> list[str]:
    """The keys of a configuration class that are part of the identity."""
    outside = _outside(cls, null_only=False)
    return [key for key in hints(cls) if key not in outside]


@functools.cache
def _outside(cls: type, *, null_only: bool) -> set[str]:
    rule = OutsideIdentity(null_only)
    return {key for key, hint in hints(cls).items() if rule in get_args(hint)[1:]}
