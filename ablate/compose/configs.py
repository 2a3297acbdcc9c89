"""ablate's own configs: where they are, and what they hold."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ablate.compose.keys import configs_dir


def corpora() -> dict[str, dict[str, Any]]:
    """The keys in the YAML of each corpus, by name, sorted; a preset has those of its defaults, too."""
    return {path.stem: _with_defaults(path) for path in sorted((configs_dir() / "corpus").glob("*.yaml"))}


def _with_defaults(path: Path) -> dict[str, Any]:
    """The keys of a preset over those of the presets that it begins with."""
    own, inherited = _read(path), {"name": path.stem}
    for base in own.pop("defaults", []):
        inherited |= {} if base == "_self_" else _with_defaults(path.with_name(f"{base}.yaml"))
    return inherited | own


def defaults_of(kind: str, name: str, options: type) -> dict[str, Any]:
    """The options of a method with their defaults: from its YAML, or else from its options class."""
    path = configs_dir() / kind / f"{name}.yaml"
    if path.is_file():
        return {key: value for key, value in _read(path).items() if key != "name"}
    return {field.name: field.default for field in dataclasses.fields(options)}


def offer(kind: str, name: str, defaults: Mapping[str, Any]) -> None:
    """Let configs choose a method that has no YAML by KIND=NAME."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().repo.get(kind, {}).pop(f"{name}.yaml", None)  # Hydra 1.4 warns of a second one
    ConfigStore.instance().store(group=kind, name=name, node={"name": name, **defaults})


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))
