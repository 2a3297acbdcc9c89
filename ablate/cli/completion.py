"""Shell completion. It imports neither PyTorch nor Hydra, so that it answers at once."""

import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable
from typing import Any

import typer

from ablate.printing import put

ASKED = "_ABLATE_COMPLETE"  # the variable by which Typer's shell scripts ask for completions


def answer(program: Callable[..., Any]) -> None:
    """Print the completions of the words that the shell passes in; nothing if anything goes wrong."""
    offered, before = io.StringIO(), ""
    try:
        with (
            contextlib.suppress(Exception),
            contextlib.redirect_stdout(offered),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            before = _join_words() if os.environ[ASKED] == "complete_bash" else ""
            program(prog_name="ablate")
    finally:  # however it exits: some shells look at the exit code
        for line in offered.getvalue().splitlines():
            put(line.removeprefix(before))


def _join_words() -> str:
    """Rejoin the words that bash split at = and :, for Typer. Returns the part of the last word before the
    piece that bash completes."""
    words: list[str] = []
    pieces = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
    for last, piece in itertools.pairwise(["", *pieces]):
        if any(re.fullmatch("[=:]+", part) for part in (last, piece)):
            words[-1] += piece
        else:
            words.append(piece)
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return re.sub("[^=:]*$", "", words[-1])


# --- keys, and names that nobody knows by heart -------------------------------------------------------


def overrides(context: typer.Context, incomplete: str) -> list[str]:
    from ablate.compose.configs import offers
    from ablate.config.read import dotted
    from ablate.config.schema import RunConfig

    types = {**dotted(RunConfig)}
    if incomplete.startswith("corpus."):
        from ablate.data.corpora.base import option_types  # takes a tenth of a second

        types |= option_types()
    return offers(incomplete, context.params.get("overrides") or [], types)


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
