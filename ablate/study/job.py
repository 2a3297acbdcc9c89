"""One run of a sweep, as Hydra's own launchers make it."""

import time

from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig


def job(config: RunConfig, *, threads: int, total: int | None) -> None:
    """Make it in this process, whichever a launcher started. Raises ConfigError.

    total: runs of the sweep, if this process makes all of them one after the other.
    """
    import torch  # in a process of its own, nothing is loaded yet

    from ablate.execution.events import Event, Refused, Taken
    from ablate.execution.prepare import prepare
    from ablate.launch.queue import AGAIN_S
    from ablate.launch.worker import work
    from ablate.live.progress import listener
    from ablate.store.store import Store

    torch.set_num_threads(threads)
    known = Store().run(prepare(config).name).stamp()
    heard: list[Event] = []

    def listen(event: Event) -> None:
        heard[:] = [event]
        listener(total)(event)

    while True:
        work([(config, known)], listen)
        match heard[-1]:
            case Taken():  # another process is at it: its result will do
                time.sleep(AGAIN_S)
            case Refused(reason):
                raise ConfigError(reason)
            case _:
                return
