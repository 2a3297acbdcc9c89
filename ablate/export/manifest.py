"""Which runs a place already has: the file by which a second export skips what is equal. Loads no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ablate.config.identity import digest
from ablate.config.rules import ConfigError
from ablate.files.atomic import Garbled, explained, names, read_json, write_atomically
from ablate.store.run_files import as_json

FILE = "ablate-export.json"  # in a directory, it says that the directory is ours


@dataclass
class Manifest:
    """The digest of each run that one place holds, by STUDY/ID, in a file that is rewritten after each run.

    A run is added once its tracker has confirmed it, so what was interrupted is done again.
    """

    path: Path
    target: str
    place: str
    written: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, digest: str) -> None:
        """Raises StoreError."""
        self.written[key] = digest
        self._write()

    def clear(self) -> None:
        """Raises StoreError."""
        self.written.clear()
        self._write()

    def _write(self) -> None:
        content = {"target": self.target, "place": self.place, "runs": self.written}
        write_atomically(self.path, as_json(content))


def of_directory(directory: Path, target: str) -> Manifest:
    """The manifest in a directory of the target's own, which is made if there is none. Raises ConfigError if
    it holds anything that the target did not write."""
    path = directory / FILE
    with explained(directory):
        if directory.exists() and not directory.is_dir():
            raise ConfigError(f"{directory}: a file, and nothing is overwritten; name a directory")
        others = [name for name in names(directory) if not name.startswith(f".{FILE}.")]  # being written
        if others and not path.exists():
            raise ConfigError(
                f"{directory}: exists, and ablate export did not make it, so nothing is written there; name"
                " another with --out"
            )
        found = _read(path)
        if found and found.get("target") != target:
            raise ConfigError(
                f"{directory}: holds an export to {found.get('target')}; name another with --out"
            )
    manifest = Manifest(path, target, "", dict(found["runs"]) if found else {})
    manifest._write()
    return manifest


def of_server(place: str, target: str, beside: Path) -> Manifest:
    """The manifest of a place that is no directory. beside: the directory of all such files."""
    path = beside / f"{target}-{digest(place)[:8]}.json"
    found = _read(path)
    return Manifest(path, target, place, dict(found["runs"]) if found else {})


def _read(path: Path) -> Mapping | None:
    try:
        return read_json(path, {"target", "runs"})
    except FileNotFoundError:
        return None
    except Garbled:
        raise ConfigError(f"{path}: damaged; move it away, and what it lists is exported again") from None
