"""One run of a sweep, as Hydra's own launchers make it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.config.schema import RunConfig

if TYPE_CHECKING:
    from ablate.execution.plugins import Plugin


def job(config: RunConfig, *, threads: int, total: int | None, own: "Sequence[Plugin]") -> None:
    """Make it in this process, whichever a launcher started. Raises ConfigError.

    total: runs of the sweep, if this process makes all of them one after the other. own: the plugins of the
    command.
    """
    import torch  # in a process of its own, nothing is loaded yet

    from ablate.execution import plugins
    from ablate.execution.prepare import prepare
    from ablate.launch.worker import make
    from ablate.live.progress import listener
    from ablate.store.store import Store

    torch.set_num_threads(threads)
    plugins.install(own)
    run = prepare(config)
    make(run, listener(total), known=Store().run(run.name).stamp())
