"""One run of a sweep, as Hydra's own launchers make it."""

from ablate.config.schema import RunConfig


def job(config: RunConfig, *, threads: int, total: int | None) -> None:
    """Make it in this process, whichever a launcher started. Raises ConfigError.

    total: runs of the sweep, if this process makes all of them one after the other.
    """
    import torch  # in a process of its own, nothing is loaded yet

    from ablate.execution.prepare import prepare
    from ablate.launch.worker import make
    from ablate.live.progress import listener
    from ablate.store.store import Store

    torch.set_num_threads(threads)
    run = prepare(config)
    make(run, listener(total), known=Store().run(run.name).stamp())
