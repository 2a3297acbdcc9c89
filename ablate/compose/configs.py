"""Where ablate's own configs are, and Hydra's loader for them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader

PACKAGE = Path(__file__).parent.parent
SIZES = ("full", "demo")  # of a study


def configs_dir() -> Path:
    """configs/ inside the installed package, or beside it in a checkout."""
    return PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"


def defaults_of(kind: str, name: str, options: type) -> dict[str, Any]:
    """The options of a method with their defaults: from its YAML, or else from its options class."""
    path = configs_dir() / kind / f"{name}.yaml"
    if path.is_file():
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {key: value for key, value in given.items() if key != "name"}
    return {field.name: field.default for field in dataclasses.fields(options)}


offered: set[tuple[str, str]] = set()  # (group, name) of the methods without a YAML


def offer(kind: str, name: str, defaults: Mapping[str, Any]) -> None:
    """Let configs choose a method that has no YAML by KIND=NAME."""
    from hydra.core.config_store import ConfigStore

    offered.add((kind, name))
    ConfigStore.instance().store(group=kind, name=name, node={"name": name, **defaults})


def loader() -> "ConfigLoader":
    """A loader of ablate's own configs, independent of Hydra's global state."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_automatic_config_search_path
    from hydra.core.plugins import Plugins

    Plugins.instance()
    return ConfigLoaderImpl(create_automatic_config_search_path(None, None, str(configs_dir())))
