"""Shell completion: Typer completes commands and options, and here are names that nobody knows by heart. It
imports neither PyTorch nor Hydra, so that it answers at once."""

import contextlib
import io
from collections.abc import Callable
from typing import Any


def answer(program: Callable[..., Any]) -> None:
    """Print the completions of the words that the shell passes in; nothing if anything goes wrong."""
    with contextlib.suppress(Exception, SystemExit), contextlib.redirect_stderr(io.StringIO()):
        program(prog_name="ablate")


def keys() -> list[str]:
    from ablate.compose.keys import sections

    return [*dict.fromkeys(key.name for section in sections() for key in section.keys)]


def studies() -> list[str]:
    from ablate.store.store import Store

    return Store().study_names()


def runs() -> list[str]:
    """The names of the finished runs."""
    from ablate.store.store import Store

    store = Store()
    titles = store.titles()
    return sorted(titles.get(name, name) for name in store.finished())


def studies_and_runs() -> list[str]:
    return [*studies(), *runs()]
