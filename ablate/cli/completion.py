"""What the shell offers after a tab. Without PyTorch and without Hydra, so that it comes at once."""

import contextlib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

import typer

ASKED = "_ABLATE_COMPLETE"  # how a shell asks, by Typer's scripts


def answer(program: Callable[..., Any]) -> None:
    """Print what goes on from the words that the shell hands over; nothing, if anything goes wrong."""
    offered, before = io.StringIO(), ""
    try:
        with (
            contextlib.suppress(Exception),
            contextlib.redirect_stdout(offered),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            before = _join_words() if os.environ[ASKED] == "complete_bash" else ""
            program(prog_name="ablate")
    finally:  # however it exits, by which some shells tell
        for line in offered.getvalue().splitlines():
            print(line.removeprefix(before))


def _join_words() -> str:
    """Bash splits words at = and :, and goes on from the last piece. This joins them for Typer, and returns
    what stands before that piece."""
    words: list[str] = []
    pieces = os.environ["COMP_WORDS"].split("\n")[: int(os.environ["COMP_CWORD"]) + 1]
    for last, piece in itertools.pairwise(["", *pieces]):
        if any(re.fullmatch("[=:]+", part) for part in (last, piece)):
            words[-1] += piece
        else:
            words.append(piece)
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return re.sub("[^=:]*$", "", words[-1])


# --- what may stand where ---------------------------------------------------------------------------


def overrides(context: typer.Context, incomplete: str) -> list[str]:
    from ablate.compose.offers import offers

    return offers(incomplete, context.params.get("overrides") or [])


def studies() -> list[str]:
    from ablate.store.store import Store

    return Store().study_names()


def runs() -> list[str]:
    """The names of those that are finished."""
    from ablate.store.store import Store

    return sorted(Store().finished())


def studies_and_runs() -> list[str]:
    return [*studies(), *runs()]


def results_columns(incomplete: str) -> list[str]:
    """One, or several that follow each other."""
    from ablate.store.columns import COLUMNS

    return _after_commas(incomplete, ("age", *COLUMNS))


def metrics() -> list[str]:
    from ablate.study.declared import METRICS

    return sorted(METRICS)


def columns(incomplete: str) -> list[str]:
    """One, or several that follow each other."""
    from ablate.store.columns import CONFIG_COLUMNS

    return _after_commas(incomplete, [column for column in CONFIG_COLUMNS if not column.endswith("_options")])


def _after_commas(incomplete: str, names: Iterable[str]) -> list[str]:
    before = incomplete.rpartition(",")[0] + "," * ("," in incomplete)
    return [f"{before}{name}" for name in names]
