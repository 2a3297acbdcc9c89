"""Make a user's own methods available to models and to configs."""

from collections.abc import Iterable
from pathlib import Path

from ablate.compose.configs import offer
from ablate.execution.plugins import Method, install, installed, methods, read


def use(files: Iterable[str | Path] = ()) -> list[Method]:
    """Register the methods in these files and in installed packages; returns those from the files. Raises
    ConfigError."""
    named = [read(Path(file)) for file in files]
    everything = [*installed(), *named]
    install(everything)
    for method in methods(everything):
        offer(method.kind, method.name, method.defaults)
    return methods(named)
