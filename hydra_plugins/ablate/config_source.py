"""Hydra finds plugins only below hydra_plugins: this one reads configs of one's own."""

from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf


class OwnConfigSource(FileConfigSource):
    """Files, as Hydra reads them, but also with the byte order mark that some editors write: behind it Hydra
    finds no `# @package`. What can't be read is named."""

    @staticmethod
    def scheme() -> str:
        return "own"

    def load_config(self, config_path: str) -> ConfigResult:
        from ablate.compose.messages import REFUSALS, explain  # Hydra imports every plugin, even for --help
        from ablate.config.rules import ConfigError

        path = Path(self.path, self._normalize_file_name(config_path))
        try:
            with path.open(encoding="utf-8-sig") as file:
                header = self._get_header_dict(file.read(512))
                file.seek(0)
                config = OmegaConf.load(file)
            if not isinstance(config, DictConfig):
                raise TypeError("it is a list; write KEY: VALUE")
            return ConfigResult(self.provider, self.full_path(), config, header)
        except (OSError, *REFUSALS) as error:
            raise ConfigError(
                f"{path}: no config can be read from it ({explain(error, [])}); mend it"
            ) from error
