"""From what was asked for to what became of it: the one way in for the command line and for Python."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ablate.compose.asked import Single, Sweep
from ablate.compose.launchers import Pool
from ablate.launch import server

if TYPE_CHECKING:
    from ablate.study.outcome import Outcome


def run(
    asked: Single | Sweep, *, dry_run: bool = False, begun: Callable[[], None] = lambda: None
) -> "Outcome":
    """Make the runs that are not there yet; or, as a dry run, say how many and how long.

    begun: called before the first run begins. Whatever ends this, results.csv then tells what is finished.
    Raises ConfigError.
    """
    if isinstance(asked, Sweep) and isinstance(asked.launcher, Pool) and not dry_run:
        server.start()  # it loads PyTorch while this process does
    from ablate.study.loop import run_sweep
    from ablate.study.single import run_single

    if isinstance(asked, Single):
        return run_single(asked, dry_run=dry_run, begun=begun)
    return run_sweep(asked, dry_run=dry_run, begun=begun)
