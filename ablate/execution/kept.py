"""Read the config and the weights that a finished run kept."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import safetensors.torch
import yaml
from safetensors import SafetensorError
from torch import Tensor

from ablate.config.read import read
from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.plugins import require_the_same
from ablate.execution.prepare import prepare
from ablate.execution.run import Run
from ablate.model.blocks import Model
from ablate.model.build import build_model
from ablate.store.run_files import read_started, weights_on_the_way


def config_of(directory: Path) -> RunConfig:
    """The config of the run in this directory. Raises ConfigError if it is damaged, or if the run needs a
    plugin that is not loaded or has changed."""
    require_the_same(read_started(directory), directory.name)
    try:
        text = (directory / "config.yaml").read_text(encoding="utf-8")
        return read(RunConfig, yaml.safe_load(text))
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise damaged(directory, error) from error


def weights_of(directory: Path) -> dict[str, Tensor]:
    """The trained weights by name. Raises ConfigError if the run kept none, or they are damaged."""
    path = directory / "model.safetensors"
    if not path.exists():
        raise ConfigError(
            f"{directory.name}: it kept no weights (it did not finish, or train.save=none); take another run"
        )
    return _read(path)


def weights_by_step(directory: Path) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The weights that train.probe_every kept, with their steps. Raises ConfigError if they are damaged."""
    for step, path in weights_on_the_way(directory).items():
        yield step, _read(path)


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, SafetensorError) as error:
        raise damaged(path.parent, error) from error


def prepared(directory: Path) -> Run:
    """The run, prepared for the CPU, with its corpus open. Raises ConfigError."""
    return prepare(dataclasses.replace(config_of(directory), device="cpu"))


def in_float64(run: Run) -> Model:
    """The run's model before training, in float64, with the default product and attention, since the ones
    chosen for speed may only support float32."""
    return build_model(run.spec, run.config.resolved_seeds()).double().eval()


def damaged(directory: Path, error: Exception) -> ConfigError:
    reason = str(error).splitlines()[0]
    return ConfigError(f"{directory}: damaged ({reason}); remove it, and train the run again")
