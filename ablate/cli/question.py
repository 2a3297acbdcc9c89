"""What is asked of a table, as options of a command: declared once for compare, report and plan."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ablate.config.contrast import MARGIN

WhereOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="K=V",
        help="Only these rows: K=V[,V], K!=V[,V], K<V, K<=V, K>V or K>=V; given several times, all hold.",
    ),
]
OPTIONS = {
    "metric": Annotated[
        str | None, typer.Option(help="The column to compare; by default the study's metric, else val_loss.")
    ],
    "by": Annotated[str | None, typer.Option(metavar="COL[,COL]", help="The columns that define a variant.")],
    "pair_by": Annotated[
        str | None,
        typer.Option(
            metavar="COL[,COL]",
            help="The columns by which runs pair, where that is not the seed.",
            hidden=True,
        ),
    ],
    "baseline": Annotated[
        str | None,
        typer.Option(
            metavar="K=V[,K=V]", help="What each variant is compared with; by default fusion=concat."
        ),
    ],
    "where": WhereOption,
    "margin": Annotated[
        float | None,
        typer.Option(
            help="The largest difference that does not matter, in the metric's unit; by default the study's,"
            f" else {MARGIN} of what is in nats."
        ),
    ],
    "within": Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Whether a difference is the same at all levels of this key, two by two."
        ),
    ],
    "higher_is_better": Annotated[
        bool | None,
        typer.Option(
            "--higher-is-better/--lower-is-better",
            help="Which way a metric that is not ablate's is better; without it nothing is called better.",
            hidden=True,
        ),
    ],
    "fixed": Annotated[
        str | None,
        typer.Option(
            metavar="K=V[,K=V]",
            help="The variant whose one value is known, as of a deterministic baseline; it has no scatter.",
            hidden=True,
        ),
    ],
    "finished": Annotated[
        str | None,
        typer.Option(
            metavar="WORD[,WORD]",
            help="Words for the status of runs that count, besides finished and its like.",
            hidden=True,
        ),
    ],
    "mixed": Annotated[
        bool | None,
        typer.Option("--mixed", help="Allow rows from several corpora or versions of the code.", hidden=True),
    ],
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
