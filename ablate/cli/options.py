"""The options that decide what is compared, of every command that compares."""

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
        help="The column to compare: val_loss, or what the study reports on.",
        show_default=False,
        autocompletion=completion.metrics,
    ),
]
ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="COL[,COL]",
        help="The columns that make and name a variant.",
        autocompletion=completion.columns,
    ),
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="K=V[,K=V]",
        help="Compare each variant with the one where K is V and all else equal; else fusion=concat.",
    ),
]
WhereOption = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="Only these rows: K=V[,V], K!=V, K<V or K>V. May be repeated."),
]
MixedOption = Annotated[bool, typer.Option("--mixed", help="Allow rows of several texts or programs.")]
MarginOption = Annotated[
    float | None,
    typer.Option(help="What is too small to matter, in the metric's unit: 0.01, or the study's."),
]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file with methods of your own. May be repeated."),
]


def use_plugins(files: Sequence[str] | None) -> "list[Method]":
    """Make methods of these files, and of installed packages, known; returns those of the files. Raises
    ConfigError."""
    if not files and not any(importlib.metadata.entry_points(group=group) for group in ENTRY_POINTS):
        return []
    from ablate.study.plugins import use  # loads torch

    return use(files or [])


def require_causal(methods: "Sequence[Method]") -> None:
    """Raises ConfigError for a method that sees what it is to predict: what it trains would mean nothing."""
    if methods:
        from ablate.verify import contract

        for method in methods:
            contract.require_causal(method.kind, method.name)


def question(
    metric: str | None, by: str | None, baseline: str | None, where: Sequence[str] | None, mixed: bool
) -> "Question":
    """What these options ask. Raises ConfigError."""
    from ablate.analysis.contrasts import parse_baseline

    return {
        "metric": metric,
        "by": [key for key in by.split(",") if key] if by else (),
        "baseline": parse_baseline(baseline) if baseline else None,
        "where": where or (),
        "mixed": mixed,
    }
