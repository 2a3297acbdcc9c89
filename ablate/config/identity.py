"""The identity of a run, a hash that two runs share only if they compute the same thing."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, get_args

from ablate.config.read import bare, hints, introduced, read_value
from ablate.config.rules import OutsideIdentity
from ablate.config.schema import PartConfig, RunConfig, SeedsConfig

# What keys that are gone had by default: inside the identity, so that older runs keep theirs.
FORMER = {"train": {"translate": False, "average": None}, "corpus": {"long": None}}
FORMER_FACTORS = {"query_heads": "auto", "value_proj": True, "value_scale": 1, "match_by": "mlp"}
_write = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def run_id(config: RunConfig, *, vocab: int, corpus_sha256: str) -> str:
    """16 hex digits that two runs share only if they compute the same thing.

    config: with `auto` and `match` resolved to numbers (ablate.model.sizing.resolved). vocab: the number of
    tokens. corpus_sha256: the fingerprint of the text.
    """
    content = identity_keys(config) | {"text": corpus_sha256, "vocab": vocab}
    return digest(_with_former(content) | {"seeds": config.resolved_seeds()})[:16]


def id_of_row(row: Mapping[str, str]) -> str:
    """The run_id of the settings and seeds in a row of results.csv.

    row: its cells; other programs may have written them anew (8.0 for 8, True for true). Raises ConfigError
    for a value that no run has, and KeyError for a missing column, unless its key was introduced later.
    """
    seed = _cell(row["seed"])
    own = {stream: _cell(row[f"seed_{stream}"]) for stream in hints(SeedsConfig)}
    seeds = {stream: seed if own[stream] is None else own[stream] for stream in own}
    text = {"text": row["corpus_sha256"], "vocab": _cell(row["vocab"])}
    content = _keys_of_row(RunConfig, _resolved(row)) | {"seed": seed, "seeds": seeds} | text
    return digest(_with_former(content))[:16]


def _with_former(content: dict[str, Any]) -> dict[str, Any]:
    return content | {group: content[group] | keys for group, keys in FORMER.items()} | FORMER_FACTORS


def run_name(config: RunConfig, identity: str) -> str:
    """The name of a run's directory: readable, and unique as it ends in the first half of the identity."""
    projected = "" if config.out_proj else "-noproj"
    size = f"d{config.model.d_model}x{config.model.layers}"
    return f"{config.fusion.name}-h{config.heads}{projected}-{size}-s{config.seed}-{identity[:8]}"


def short_id(name: str) -> str:
    """The first half of the identity, from the name of a run's directory."""
    return name.rpartition("-")[2]


def digest(content: Any) -> str:
    """SHA-256 of plain data, whatever the order of its keys."""
    return hashlib.sha256(_write(content).encode()).hexdigest()


def identity_keys(config: Any) -> dict[str, Any]:
    """The keys of a configuration that decide what a run computes, with their values, nested as in it."""
    came_later, content = introduced(type(config)), {}
    for key in deciding(type(config)):
        value = getattr(config, key)
        if key not in came_later or value != came_later[key]:
            content[key] = identity_keys(value) if dataclasses.is_dataclass(value) else value
    return content


def _keys_of_row(cls: type, row: Mapping[str, str], path: str = "") -> dict[str, Any]:
    """identity_keys but for the seeds, from a row."""
    came_later, content = introduced(cls), {}
    for key in [key for key in deciding(cls) if path + key not in ("seed", "seeds")]:
        hint = bare(hints(cls)[key])
        if hint is PartConfig:
            options = json.loads(row[f"{key}_options"])
            if key == "fusion" and row["normalize"]:
                options["normalize"] = row["normalize"]
            content[key] = {"name": row[key], "options": options}
        elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
            content[key] = _keys_of_row(hint, row, f"{key}.")
        elif row.get(key) or key not in came_later:  # empty in a row from before the key
            cell = _cell(row[key])
            value = None if cell is None else read_value(path + key, cell)
            if key not in came_later or value != came_later[key]:
                content[key] = value
    return content


def _resolved(row: Mapping[str, str]) -> dict[str, str]:
    """The row with settings that have no effect as ablate.model.sizing.resolved writes them."""
    without_keys = {"key_width": "auto"} if _cell(row["key_width"]) == 0 else {}
    unmatched = {"match_by": "mlp"} if row["match"] == "none" else {}
    return {**row, **without_keys, **unmatched}


def _cell(text: str) -> Any:
    """A cell of results.csv as the value that it was written for."""
    if text in ("", "True", "False", "TRUE", "FALSE"):
        return text.lower() == "true" if text else None
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return int(value) if isinstance(value, float) and value.is_integer() else value


@functools.cache
def deciding(cls: type) -> list[str]:
    """The keys of a configuration class that are part of the identity."""
    rules = {key: get_args(hint)[1:] for key, hint in hints(cls).items()}
    return [key for key, own in rules.items() if not any(isinstance(rule, OutsideIdentity) for rule in own)]
