"""Head-fusion ablations: what a transformer gains from the way it combines its attention heads.

The Python interface is run, load, load_model, compare and report (docs/notebook.md); ablate.methods is what
a method of one's own imports. All other modules are private and change without notice.
"""

from typing import TYPE_CHECKING, Any

from ablate.version import __version__

if TYPE_CHECKING:
    from ablate.api import compare, load, load_model, report, run
    from ablate.config.rules import ConfigError

__all__ = ["ConfigError", "__version__", "compare", "load", "load_model", "report", "run"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `ablate --help` stays fast."""
    import importlib

    if name in __all__:
        return getattr(importlib.import_module("ablate.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
