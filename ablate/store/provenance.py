"""The provenance of results: the version of what is computed, plugins, packages, machine. Loads no torch.

Results of another version of the numerics, of another torch, or of a plugin that has changed since are stale.
The digest of a plugin is of its file alone, which is named by its name (plugin/mine.py).
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.files.atomic import digest
from ablate.store.columns import RESULTS, Status
from ablate.version import NUMERICS, __version__

PACKAGE = Path(__file__).parent.parent
PLUGIN = "plugin/"  # prefix of the name of a plugin's file


@dataclass(frozen=True)
class Plugin:
    """A plugin. path: of its file, absolute. source: its content when it was read, which stays valid even if
    the file changes."""

    path: str
    source: bytes

    @property
    def name(self) -> str:
        """Its name in errors and in runs."""
        return Path(self.path).name


plugins: dict[str, Plugin] = {}  # those in use, by path


@functools.cache
def code() -> str:
    """12 hex digits over all files of the package. They tell one copy of it from another, and make no result
    stale."""
    files = sorted(PACKAGE.rglob("*.py"))
    return digest({path.relative_to(PACKAGE).as_posix(): hashed(path.read_bytes()) for path in files})[:12]


def parts_code(*files: str) -> Mapping[str, Any]:
    """The columns about the code of a run's methods that are not ablate's own. files: the source files of
    its methods.

    part_files: the digests of these files by name; parts: 12 hex digits over all of them, None without any.
    """
    own = [file for file in files if not Path(file).is_relative_to(PACKAGE)]  # a plugin may import others
    names = {PLUGIN + plugins[file].name if file in plugins else Path(file).as_posix() for file in own}
    digests = {name: part_digest(name) for name in sorted(names)}
    return {"parts": digest(digests)[:12] if digests else None, "part_files": digests}


def changes(row: Mapping[str, Any]) -> list[str]:
    """What made this row and is another now, so that it may compute something else: for each what it was and
    is. A plugin that is not loaded counts as unchanged."""
    held = [("numerics", row.get("numerics"), NUMERICS), ("torch", row.get("torch"), torch_version())]
    held += [(name, was, part_digest(name)) for name, was in (row.get("part_files") or {}).items()]
    return [
        f"{what} was {was}, is {now}"
        for what, was, now in held
        if was != now and not (now is None and what.startswith(PLUGIN))
    ]


def status_now(row: Mapping[str, Any]) -> str:
    """The row's status, or `stale` if it does not count any more (`changes`)."""
    return Status.STALE if row["status"] in RESULTS and changes(row) else row["status"]


@functools.cache
def torch_version() -> str:
    return importlib.metadata.version("torch")


def provenance() -> dict[str, Any]:
    """The columns that say which version of the program made a row."""
    return {"torch": torch_version(), "ablate": __version__, "numerics": NUMERICS, "code": code()}


@functools.cache
def machine() -> dict[str, Any]:
    """The facts about machine and packages that environment.json adds, for repeating the run."""
    packages = ("torch", "numpy", "hydra-core", "omegaconf", "pandas", "tokenizers", "safetensors")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        **provenance(),
    }


def plugin_files() -> dict[str, str]:
    """The name of each plugin, by the path of its file."""
    return {path: plugin.name for path, plugin in plugins.items()}


def part_digest(name: str) -> str | None:
    """16 hex digits over a file of methods; None if there is no such file, or no such plugin is loaded."""
    sources = {PLUGIN + plugin.name: plugin.source for plugin in plugins.values()}
    return hashed(sources[name]) if name in sources else _digest_of_file(name)


@functools.cache
def _digest_of_file(name: str) -> str | None:
    """The file is read once per process, since its module is also imported once."""
    with contextlib.suppress(OSError):
        return hashed(Path(name).read_bytes())
    return None


def hashed(data: bytes) -> str:
    """16 hex digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]
