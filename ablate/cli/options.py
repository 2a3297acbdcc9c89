"""The options that commands share, most of which say what is compared."""

import importlib.metadata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ablate.cli import completion
from ablate.config.schema import ENTRY_POINTS

if TYPE_CHECKING:
    from ablate.analysis.compare import Question
    from ablate.execution.plugins import Method

MetricOption = Annotated[
    str | None,
    typer.Option(
        help="The column to compare; by default the study's metric, else val_loss.",
        show_default=False,
        autocompletion=completion.metrics,
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="COL[,COL]",
        help="The columns whose values define and name a variant.",
        autocompletion=completion.columns,
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="K=V[,K=V]",
        help="Compare each variant with the otherwise equal one that has K=V; by default fusion=concat.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="Only these rows: K=V[,V], K!=V, K<V or K>V. May be repeated."),
]
MixedOption = Annotated[
    bool, typer.Option("--mixed", help="Allow rows from several corpora or versions of the code.")
]
MarginOption = Annotated[
    float | None,
    typer.Option(
        help="The largest difference that does not matter, in the metric's unit; by default the study's, else"
        " 0.01."
    ),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with methods of your own. May be repeated."),
]


def use_plugins(files: Sequence[str] | None) -> "list[Method]":
    """Register the methods in these files and in installed packages; returns those from the files. Raises
    ConfigError."""
    if not files and not any(importlib.metadata.entry_points(group=group) for group in ENTRY_POINTS):
        return []
    from ablate.study.plugins import use  # loads torch

    return use(files or [])


def require_causal(methods: "Sequence[Method]") -> None:
    """Raises ConfigError for a method that sees the future, as its losses would mean nothing."""
    if methods:
        from ablate.verify import contract

        for method in methods:
            contract.require_causal(method.kind, method.name)


def question(
    metric: str | None, by: str | None, baseline: str | None, where: Sequence[str] | None, mixed: bool
) -> "Question":
    """These options as arguments of compare. Raises ConfigError."""
    from ablate.analysis.contrasts import parse_baseline

    return {
        "metric": metric,
        "by": [key for key in by.split(",") if key] if by else (),
        "baseline": parse_baseline(baseline) if baseline else None,
        "where": where or (),
        "mixed": mixed,
    }
