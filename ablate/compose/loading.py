"""Hydra's loader of configs, as ablate uses it. Of Hydra itself, `hydra.…`, a config may set the mode alone;
all else is as ablate's own configs and the command line give it. Every composition is judged before anything
else of Hydra's sees it."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from ablate.compose.configs import configs_dir
from ablate.compose.private import ConfigLoaderImpl, create_config_search_path
from ablate.config.read import defaults, require_keys
from ablate.config.rules import ConfigError, as_override, flatten
from ablate.config.schema import RunConfig

# Of `hydra`: what a config may set, and what Hydra itself sets after all configs.
FREE = re.compile(r"(mode|overrides|runtime|job\.(config_name|override_dirname))(\..*)?")


class Loader(ConfigLoaderImpl):
    """own: the directory of the user's configs."""

    def __init__(self, own: Path | None = None) -> None:
        path = create_config_search_path(str(configs_dir()))
        if own is not None:
            path.prepend("command-line", str(own.absolute()), SearchPathQuery(provider="schema"))
        super().__init__(path)
        self.own = own

    def _process_config_searchpath(self, *_: Any) -> None:
        """Look nowhere else: to look into a package that a config names, Hydra would import it."""

    def load_configuration(self, config_name: Any, overrides: Any, *more: Any, **named: Any) -> DictConfig:
        later = defaults(RunConfig)  # of keys that came later, which older files lack
        words = [f"++{word}" if word.partition("=")[0] in later else word for word in overrides]
        config = super().load_configuration(config_name, words, *more, **named)
        for key, value in later.items():
            group, _, name = key.rpartition(".")
            if isinstance(keys := config.get(group) if group else config, DictConfig) and name not in [*keys]:
                OmegaConf.update(config, key, value, force_add=True)
        if self.own is not None:
            require_keys(RunConfig, map(str, config))
            usual = _usual(*(word for word in overrides if word.lstrip("+").startswith("hydra")))
            for key, value in _of_hydra(config).items():
                if not FREE.fullmatch(key) and value != usual.get(key, ...):
                    instead = "leave it out, or type hydra/launcher=NAME, and its settings"
                    raise ConfigError(f"hydra.{key}={as_override(value)}: a config may not set it; {instead}")
        return config


@functools.cache
def _usual(*words: str) -> dict[str, Any]:
    """The settings of Hydra in ablate's own configs, with these words of the command."""
    return _of_hydra(Loader().load_configuration("config", overrides=[*words], run_mode=RunMode.RUN))


def _of_hydra(config: DictConfig) -> dict[str, Any]:
    """The settings of Hydra by their dotted keys."""
    settings: Any = OmegaConf.to_container(config.hydra)
    return flatten(settings)


def without(config: DictConfig, *keys: str) -> DictConfig:
    """A config without some of its keys."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key not in keys])


def offer(kind: str, name: str, defaults: Mapping[str, Any]) -> None:
    """Let configs choose a method that has no YAML by KIND=NAME."""
    ConfigStore.instance().repo.get(kind, {}).pop(f"{name}.yaml", None)  # Hydra 1.4 warns of a second one
    ConfigStore.instance().store(group=kind, name=name, node={"name": name, **defaults})
