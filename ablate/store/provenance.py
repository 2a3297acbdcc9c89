"""Where results come from: versions, code, machine. Loads no torch."""

import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import ablate

PACKAGE = Path(__file__).parent.parent
# The source that decides what a run computes: a change here makes older results stale.
DECIDES_RESULTS = ("model/**/*.py", "data/**/*.py", "training/**/*.py", "rng.py")


@functools.cache
def code_hash() -> str:
    """12 hex digits over the source that decides results."""
    files = sorted({path for pattern in DECIDES_RESULTS for path in PACKAGE.glob(pattern)})
    content = hashlib.sha256()
    for path in files:
        content.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0")
        content.update(path.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return content.hexdigest()[:12]


@functools.cache
def torch_version() -> str:
    return importlib.metadata.version("torch")


@functools.cache
def git_state() -> str:
    """Commit of ablate's own checkout, `-dirty` if it was changed; empty if it is not one."""
    if not (PACKAGE.parent / ".git").exists():
        return ""
    command = ["git", "-C", str(PACKAGE.parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def provenance() -> dict[str, str]:
    """The columns that say which program made a row."""
    return {
        "torch": torch_version(),
        "ablate": ablate.__version__,
        "code": code_hash(),
        "git": git_state(),
    }


@functools.cache
def machine() -> dict[str, Any]:
    """What environment.json adds for whoever repeats the run."""
    packages = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "tokenizers", "safetensors")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpu_count": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        **provenance(),
    }
