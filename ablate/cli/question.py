"""What is asked of a table, as options of a command: declared once for compare, report and plan."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ablate.cli.shared import WhereOption
from ablate.config.contrast import MARGIN


def _option(kind: Any, help: str, *names: str, **given: Any) -> Any:
    return Annotated[kind | None, typer.Option(*names, help=help, **given)]


PAIRS = "K=V[,K=V]"
OPTIONS = {
    "metric": _option(str, "The column to compare; by default the study's metric, else val_loss."),
    "by": _option(str, "The columns that define a variant.", metavar="COL[,COL]"),
    "pair_by": _option(
        str, "The columns by which runs pair, where that is not the seed.", metavar="COL[,COL]", hidden=True
    ),
    "baseline": _option(
        str,
        "What each variant is compared with; by default fusion=concat, then defaults of what else varies.",
        metavar=PAIRS,
    ),
    "where": WhereOption,
    "margin": _option(
        float, f"The least difference that matters; by default the study's, else {MARGIN} nats or none."
    ),
    "within": _option(str, "Is a difference the same at all levels of KEY, two by two?", metavar="KEY"),
    "higher_is_better": _option(
        bool, "Which way a metric of others is better.", "--higher-is-better/--lower-is-better"
    ),
    "fixed": _option(
        str,
        "The variant whose one value is known, as of a deterministic baseline; it has no scatter.",
        metavar=PAIRS,
        hidden=True,
    ),
    "finished": _option(
        str,
        "Words for the status of runs that count, besides finished and its like.",
        metavar="WORD[,WORD]",
        hidden=True,
    ),
}


def asks(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these of OPTIONS in place of its parameter `question`, the Question that they make."""
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=OPTIONS[name])
        for name in names
    ]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def asked(**given: Any) -> None:
            from ablate.analysis.question import ask

            command(question=ask(**{name: given.pop(name) for name in names}), **given)

        own = inspect.signature(command).parameters.values()
        every = [one for mine in own for one in (options if mine.name == "question" else [mine])]
        asked.__signature__ = inspect.Signature(every)  # pyright: ignore[reportAttributeAccessIssue]
        asked.__annotations__ = {one.name: one.annotation for one in every}
        return asked

    return with_options
