"""What Hydra reads configs from: directories, what it has itself, and what installed plugins offer."""

from pathlib import Path

from hydra._internal.config_repository import ConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from ablate.compose.refusals import REFUSALS, explain
from ablate.compose.texts import restore
from ablate.config.read import PRESETS, of_a_group
from ablate.config.rules import ConfigError


class OwnConfigSource(FileConfigSource):
    """Files, as Hydra reads them, but also with the byte order mark that some editors write: behind it Hydra
    finds no `# @package`. Text stays as it is written. What can't be read is named."""

    def is_config(self, config_path: str) -> bool:
        path = Path(self.path, config_path)
        for other in (path, path.with_name(f"{path.name}.yml")):
            if other.suffix == ".yml" and other.is_file():
                raise ConfigError(f"{other}: Hydra reads files that end in .yaml; rename it")
        return super().is_config(config_path)

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path))
        try:
            with path.open(encoding="utf-8-sig") as file:
                header = self._get_header_dict(file.read(512))
                file.seek(0)
                config = OmegaConf.load(file)
            if not isinstance(config, DictConfig):
                raise TypeError("it is a list; write KEY: VALUE")
            where = header.get("package") or ".".join(Path(config_path).parent.parts)
            group, defaults = Path(config_path).parent.name, config.get("defaults") or ()
            if where == "_global_" and group in PRESETS and any(isinstance(one, str) for one in defaults):
                raise ValueError(of_a_group(group, PRESETS[group]))  # the default's keys would move, too
            restore(config, path, "" if where in ("", "_global_") else f"{where}.")
            return ConfigResult(self.provider, str(path), config, header)
        except (OSError, *REFUSALS) as error:
            raise ConfigError(
                f"{path}: no config can be read from it ({explain(error, [])}); mend it"
            ) from error


class Repository(ConfigRepository):
    """Hydra's repository, in which a config may add directories only (hydra.searchpath): to look into a
    package (pkg://), Hydra imports it."""

    def __init__(self, search_path: ConfigSearchPath) -> None:
        self._first = {one.path for one in search_path.get_path()}
        super().__init__(search_path)

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        self.sources = []
        for one in config_search_path.get_path():
            path = (one.path or "").removeprefix("file://")
            if one.path not in self._first and not Path(path).is_dir():
                raise ConfigError(f"hydra.searchpath: {path}: there is no such directory; correct it")
            is_file = one.path not in self._first or "://" not in path
            source = (
                OwnConfigSource if is_file else SourcesRegistry.instance().resolve(self._get_scheme(path))
            )
            self.sources.append(source(one.provider or "", path))
