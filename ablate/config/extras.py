"""Packages that only some commands need: the extras of pyproject.toml."""

from importlib.util import find_spec

from ablate.config.rules import ConfigError
from ablate.version import DISTRIBUTION


def require(subject: str, package: str, *, extra: str) -> None:
    """Raises ConfigError if the package of an extra is not installed. subject: what needs it."""
    if find_spec(package) is None:
        way_out = f"pip install '{DISTRIBUTION}[{extra}]'"
        raise ConfigError(f"{subject}: needs {package}, which is not installed; {way_out}")
