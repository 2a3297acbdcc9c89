"""The job that Hydra's own launchers run: train one run of a sweep."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.config.schema import RunConfig

if TYPE_CHECKING:
    from ablate.execution.plugins import Plugin


def job(config: RunConfig, *, threads: int, total: int | None, own: "Sequence[Plugin]") -> None:
    """Train a run in this process, which a launcher started. Raises ConfigError.

    total: the number of runs in the sweep, if this process trains all of them one after the other. own: the
    plugins of the command.
    """
    import torch  # imported here, as it may be a fresh process

    from ablate.execution import plugins
    from ablate.execution.prepare import prepare
    from ablate.launch.worker import make
    from ablate.live.progress import listener
    from ablate.store.store import Store

    torch.set_num_threads(threads)
    plugins.install(own)
    run = prepare(config)
    make(run, listener(total), known=Store().run(run.name).stamp())
