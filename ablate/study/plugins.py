"""What a command is given of methods of one's own, for models and for configs."""

from collections.abc import Iterable
from pathlib import Path

from ablate.compose.configs import offer
from ablate.execution.plugins import Method, install, installed, methods, read


def use(files: Iterable[str | Path] = ()) -> list[Method]:
    """Make the methods of these files, and of installed packages, known; returns those of the files. Raises
    ConfigError."""
    named = [read(Path(file)) for file in files]
    everything = [*installed(), *named]
    install(everything)
    for method in methods(everything):
        offer(method.kind, method.name, method.defaults)
    return methods(named)
