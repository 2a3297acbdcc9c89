"""Carry out a sweep, and what it comes to: the entry point that the command line and the Python interface
share. It loads PyTorch only when it is called."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.compose.loading import offer
from ablate.compose.sweep import Pool, Sweep, compose
from ablate.launch.processes import start_server
from ablate.store.columns import Row
from ablate.store.store import Store

if TYPE_CHECKING:
    from ablate.execution.plugins import Method
    from ablate.study.estimate import Estimate


@dataclass(frozen=True)
class Outcome:
    """The outcome of a command that trains runs.

    study: its name in the store. run_ids: of the runs asked for, in that order. remarks: on runs left out
    since, and the closing lines of the study. refused: why runs could not begin. estimate: of a dry run."""

    study: str
    run_ids: Sequence[str] = ()
    remarks: Sequence[str] = ()
    refused: Sequence[str] = ()
    estimate: "Estimate | None" = None

    def rows(self) -> list[Row]:
        """One row for each run that was asked for and has begun, as in results.csv, in the order asked."""
        rows = {row["run_id"]: row for row in Store().rows(self.study)}
        return [rows[run_id] for run_id in self.run_ids if run_id in rows]


def run(sweep: Sweep, *, dry_run: bool = False, begun: Callable[[], object] = lambda: None) -> Outcome:
    """Train the runs of a sweep that have no result yet; as a dry run, only estimate how many there are and
    how long they take.

    A plain sweep is refused as a whole if one of its runs is impossible. A study leaves such runs out, and
    Outcome.remarks says why. begun: called before the first run begins. However this ends, results.csv
    is up to date then. Raises ConfigError.
    """
    began = time.monotonic()
    if isinstance(sweep.launcher, Pool) and not sweep.is_single:
        # It loads PyTorch at the same time as this process.
        start_server(trains=not any("simulated" in word for word in sweep.arguments))
    from ablate.study.loop import Loop

    loop = Loop(sweep)
    return loop.dry_run(began) if dry_run else loop.run(begun)


def declared_here(block: Mapping[str, Any], arguments: Sequence[str], *, command: str) -> Sweep:
    """The sweep of a study that no file of configs declares. block: its keys. arguments: overrides of every
    run, with name=NAME. Raises ConfigError."""
    return replace(compose(["-m", *arguments]), study=block, command=command)


def use_plugins(files: str | Path | Iterable[str | Path] = ()) -> "list[Method]":
    """Register the methods in this file, or in these, for models and for configs, and return them. Raises
    ConfigError."""
    from ablate.execution.plugins import install, methods, read

    named = [read(Path(file)) for file in ([files] if isinstance(files, str | Path) else files)]
    install(named)
    for method in methods(named):
        offer(method.kind, method.name, method.defaults)
    return methods(named)
