"""ablate's own configs: where they are, Hydra's loader for them, and the completions that they offer for an
override. Completions come from the files and the types of keys; Hydra would take half a second."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import yaml

from ablate.config.overrides import flatten
from ablate.config.rules import ConfigError, typed

if TYPE_CHECKING:
    from hydra.core.config_loader import ConfigLoader

PACKAGE = Path(__file__).parent.parent
SIZES = ("full", "demo")  # of a study


def configs_dir() -> Path:
    """configs/ inside the installed package, or beside it in a checkout."""
    return PACKAGE / "configs" if (PACKAGE / "configs").is_dir() else PACKAGE.parent / "configs"


def own_configs(directory: str) -> Path:
    """The directory of the user's configs that -cd names. Raises ConfigError."""
    if not Path(directory).is_dir():
        raise ConfigError(f"-cd {directory}: there is no such directory; correct it")
    return Path(directory)


def corpora(own: str | None = None) -> dict[str, dict[str, Any]]:
    """The keys in the YAML of each corpus, by name, sorted. own: a directory of the user's with further
    ones, which take the place of ablate's. Raises ConfigError."""
    directories = [configs_dir(), *([] if own is None else [own_configs(own)])]
    paths = {path.stem: path for folder in directories for path in (folder / "corpus").glob("*.yaml")}
    keys = {}
    for name, path in sorted(paths.items()):
        try:
            keys[name] = {"name": name, **_read(path)}
        except (OSError, UnicodeError, TypeError, yaml.YAMLError) as error:
            raise ConfigError(
                f"{path}: no config can be read from it ({' '.join(str(error).split())}); mend it"
            ) from None
    return keys


def downloads(own: str | None = None) -> list[str]:
    """The names of the corpora that are downloaded. own: as of `corpora`."""
    return [name for name, keys in corpora(own).items() if keys.get("recipe") == "download"]


def defaults_of(kind: str, name: str, options: type) -> dict[str, Any]:
    """The options of a method with their defaults: from its YAML, or else from its options class."""
    path = configs_dir() / kind / f"{name}.yaml"
    if path.is_file():
        return {key: value for key, value in _read(path).items() if key != "name"}
    return {field.name: field.default for field in dataclasses.fields(options)}


offered: set[tuple[str, str]] = set()  # (group, name) of the methods without a YAML


def offer(kind: str, name: str, defaults: Mapping[str, Any]) -> None:
    """Let configs choose a method that has no YAML by KIND=NAME."""
    from hydra.core.config_store import ConfigStore

    offered.add((kind, name))
    ConfigStore.instance().repo.get(kind, {}).pop(f"{name}.yaml", None)  # Hydra 1.4 warns of a second one
    ConfigStore.instance().store(group=kind, name=name, node={"name": name, **defaults})


def loader() -> "ConfigLoader":
    """A loader of ablate's own configs, independent of Hydra's global state."""
    from hydra._internal.config_loader_impl import ConfigLoaderImpl
    from hydra._internal.utils import create_config_search_path

    return ConfigLoaderImpl(create_config_search_path(str(configs_dir())))


# --- completions -----------------------------------------------------------------------------------


def offers(incomplete: str, arguments: Sequence[str], types: Mapping[str, Any]) -> list[str]:
    """Completions as KEY= or KEY=VALUE, also after a comma. arguments: the arguments before this one. types:
    those of the values, by key."""
    own = re.findall(r"(?:-cd|--config-dir)[= ](\S+)", " ".join(arguments))
    directories = [configs_dir(), *map(Path, own)]
    key, equals, value = incomplete.partition("=")
    if not equals:
        keys = [name for name in _defaults() if name.startswith(key)]
        if len(keys) != 1:
            return [f"{name}=" for name in keys]
        # Offer the values as well: a shell puts a space after an only choice.
        return [f"{keys[0]}={choice}" for choice in _choices(keys[0], directories, types) or ("", "null")]
    before = value.rpartition(",")[0] + "," * ("," in value)
    return [f"{key}={before}{choice}" for choice in _choices(key, directories, types)]


def _choices(key: str, directories: Sequence[Path], types: Mapping[str, Any]) -> list[str]:
    """The values of a key if they can be listed, else its default, if it has one."""
    groups = [path.stem for directory in directories for path in sorted((directory / key).glob("*.yaml"))]
    words = SIZES if key == "size" else _words(types.get(key))
    default = _defaults().get(key)
    return groups or [*words] or [typed(value) for value in (default,) if value is not None]


def _words(hint: Any) -> list[str]:
    """The words among the values of a type, such as those of a Literal."""
    if hint is bool:
        return ["true", "false"]
    if get_origin(hint) is Literal:
        return [str(word) for word in get_args(hint)]
    parts = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return [word for part in parts for word in _words(part)]


def _defaults() -> dict[str, Any]:
    """Every key of a run, and every group, with its default."""
    config = _read(configs_dir() / "config.yaml")
    chosen = {group: name for entry in config["defaults"][1:] for group, name in entry.items()}
    of_groups = (
        path for path in configs_dir().glob("*/*.yaml") if path.parent.name not in ("hydra", "study")
    )
    for path in sorted(of_groups, key=lambda path: path.stem == chosen[path.parent.name]):
        group = path.parent.name
        config[group] = {**config.get(group, {}), **_read(path), "name": path.stem}
    values = {k: v for k, v in flatten(config).items() if not re.match(r"hydra|(.*\.)?defaults", k)}
    return {**values, "study": None, "hydra/launcher": "auto"}


def _read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8-sig"))
