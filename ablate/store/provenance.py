"""The provenance of results: code, versions, machine. Loads no torch."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from typing import Any

from ablate.store import code
from ablate.version import __version__

# The source files that determine the result of every run: a change in one of them makes all runs stale.
CORE = (
    "training/train.py",
    "training/computing.py",
    "training/optim.py",
    "model/attend.py",
    "model/attention.py",
    "model/blocks.py",
    "model/build.py",
    "model/costs.py",
    "model/encoder_decoder.py",
    "model/function_class.py",
    "model/layers.py",
    "model/lm.py",
    "model/masks.py",
    "model/parts.py",
    "model/resolve.py",
    "model/sharing.py",
    "model/sizing.py",
    "model/spec.py",
    "compute/products.py",
    "rng.py",
    "data/splits.py",
    "data/episodes.py",
    "data/paired.py",
    "data/pairs/base.py",
    "data/tokenizers.py",
    "data/tokenized.py",
    "execution/run.py",
    "execution/checkpoints.py",
    "execution/formulas.py",
)
# The folders of parts: a change in one of their files makes only the runs stale that use that part.
PART_FOLDERS = ("model/fusion", "model/scores")


@functools.cache
def core_code() -> str:
    """12 hex digits over the files of CORE. Raises ConfigError."""
    return code.combined(code.tree_digests(CORE))


@functools.cache
def parts_code(*files: str) -> Mapping[str, Any]:
    """The columns about the code of a run's own parts. files: their source files, as paths in the package or
    absolute ones.

    part_files: the digests, by name, of these files and of the files of other parts that they import; parts:
    12 hex digits over all of them.
    """
    names = {name for file in files for name in code.with_imports(file, PART_FOLDERS)}
    digests = code.tree_digests(sorted(names))
    return {"parts": code.combined(digests), "part_files": digests}


def is_of_now(row: Mapping[str, Any]) -> bool:
    """Whether the current code and torch are those that made this row."""
    files = row.get("part_files")  # missing in rows that are older than this column
    return (
        (row.get("code"), row.get("torch")) == (core_code(), torch_version())
        and bool(files)
        and all(_is_as_it_was(name, digest) for name, digest in files.items())
    )


def _is_as_it_was(file: str, digest: str) -> bool:
    """Whether a file still has this digest. A plugin that is not loaded counts as unchanged."""
    now = code.tree_digest(file)
    return now == digest or (now is None and code.is_of_plugin(file))


@functools.cache
def torch_version() -> str:
    return importlib.metadata.version("torch")


@functools.cache
def git_state() -> str:
    """The commit of ablate's own checkout, with `-dirty` if it was changed; empty if it is not a checkout."""
    checkout = code.PACKAGE.parent
    if not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def provenance() -> dict[str, str]:
    """The columns that say which version of the program made a row."""
    return {
        "torch": torch_version(),
        "ablate": __version__,
        "code": core_code(),
        "git": git_state(),
    }


@functools.cache
def machine() -> dict[str, Any]:
    """The facts about machine and packages that environment.json adds, for repeating the run."""
    packages = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "tokenizers", "safetensors")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        **provenance(),
    }
