"""The identity of a run: what two runs share only if they compute the same thing."""

import dataclasses
import hashlib
import json
from typing import Annotated, Any, get_args, get_origin

from ablate.config.read import hints
from ablate.config.rules import IntroducedAt, OutsideIdentity
from ablate.config.schema import RunConfig


def run_id(config: RunConfig, *, vocab: int, corpus_sha256: str) -> str:
    """16 hex digits that two runs share only if they compute the same thing.

    config: with numbers in the place of `auto` and `match` (ablate.model.sizing.resolved). vocab: of the
    tokens. corpus_sha256: the fingerprint of the text.
    """
    content = identity_keys(config)
    content |= {"seeds": config.resolved_seeds(), "text": corpus_sha256, "vocab": vocab}
    return digest(content)[:16]


def run_name(config: RunConfig, identity: str) -> str:
    """The name of a run's directory: readable, and unique by the first half of the identity."""
    readout = "" if config.out_proj else "-noproj"
    size = f"d{config.model.d_model}x{config.model.layers}"
    return f"{config.fusion.name}-h{config.heads}{readout}-{size}-s{config.seed}-{identity[:8]}"


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, nested as they are."""
    content = {}
    for key, hint in hints(type(config)).items():
        value = getattr(config, key)
        rules = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if any(isinstance(rule, OutsideIdentity) for rule in rules):
            continue
        if any(isinstance(rule, IntroducedAt) and rule.value == value for rule in rules):
            continue
        content[key] = identity_keys(value) if dataclasses.is_dataclass(value) else value
    return content
