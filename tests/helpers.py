"""What several test files build."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import hydra

from ablate.compose import configs_dir, to_run_config
from ablate.config import ModelSpec, RunConfig
from ablate.model.sizing import resolve_spec

ROOT = Path(__file__).parent.parent
VOCAB = 59


@functools.cache
def make_config(*overrides: str) -> RunConfig:
    """The RunConfig that these overrides give on the command line."""
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        return to_run_config(hydra.compose("config", overrides=list(overrides)))


def make_spec(*overrides: str, vocab: int = VOCAB) -> ModelSpec:
    return resolve_spec(make_config(*overrides), vocab)


# Sizes of which no two are equal and no one divides another, save where heads have to.
PRIMES = ("heads=3", "key_width=7", "value_width=5", "model.d_model=11", "model.context=13", "model.layers=2")


def run_cli(
    *arguments: str, cwd: Path, timeout_s: float = 120, piped: str | None = None, **env: str
) -> subprocess.CompletedProcess:
    """`ablate …` as a shell would start it. piped: what it finds on standard input."""
    return subprocess.run(
        [sys.executable, "-m", "ablate", *arguments],
        cwd=cwd,
        env={**os.environ, **env},
        input=piped,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
