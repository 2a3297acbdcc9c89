"""Carry out what was asked for: the entry point that the command line and the Python interface share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ablate.compose.asked import Single, Sweep
from ablate.compose.hydra_app import compose
from ablate.compose.launchers import Pool
from ablate.launch import server

if TYPE_CHECKING:
    from ablate.study.outcome import Outcome


def declared_here(
    block: Mapping[str, Any], arguments: Sequence[str], *, command: str, claim: str = ""
) -> Sweep:
    """The sweep of a study that no file of configs declares. block: its keys. arguments: overrides of every
    run, with name=NAME. Raises ConfigError."""
    sweep = compose(["-m", *arguments])
    assert isinstance(sweep, Sweep)
    return replace(sweep, study=block, command=command, claim=claim)


def run(
    asked: Single | Sweep, *, dry_run: bool = False, begun: Callable[[], None] = lambda: None
) -> "Outcome":
    """Train the runs that have no result yet; as a dry run, only estimate how many there are and how long
    they take.

    begun: called before the first run begins. However this ends, results.csv is up to date then. Raises
    ConfigError.
    """
    if isinstance(asked, Sweep) and isinstance(asked.launcher, Pool) and not dry_run:
        server.start()  # it loads PyTorch at the same time as this process
    from ablate.study.loop import run_sweep
    from ablate.study.single import run_single

    if isinstance(asked, Single):
        return run_single(asked, dry_run=dry_run, begun=begun)
    return run_sweep(asked, dry_run=dry_run, begun=begun)
