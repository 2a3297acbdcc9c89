"""ablate's own configs: where they are, and what they hold."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ablate.compose.keys import configs_dir
from ablate.config.rules import ConfigError


def own_configs(directory: str) -> Path:
    """The directory of the user's configs that -cd names. Raises ConfigError."""
    if not Path(directory).is_dir():
        raise ConfigError(f"-cd {directory}: there is no such directory; correct it")
    return Path(directory)


def corpora() -> dict[str, dict[str, Any]]:
    """The keys in the YAML of each corpus, by name, sorted; a preset has those of its defaults, too."""
    keys = {path.stem: _read(path) for path in sorted((configs_dir() / "corpus").glob("*.yaml"))}
    return {name: {"name": name, **_with_defaults(name, keys, {name})} for name in keys}


def _with_defaults(name: str, keys: Mapping[str, dict[str, Any]], seen: set[str]) -> dict[str, Any]:
    """The keys of a preset over those of the presets that it begins with; seen: those that are under way."""
    own, inherited = {**keys[name]}, dict[str, Any]()
    bases = own.pop("defaults", ())
    for base in bases if isinstance(bases, list) else ():
        if isinstance(base, str) and base in keys and base not in seen:
            inherited |= _with_defaults(base, keys, {*seen, base})
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
    return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
