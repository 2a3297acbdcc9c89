"""One run of a sweep, as Hydra's own launchers make it."""

import os
import time

from ablate.config.schema import RunConfig

THREADS = "ABLATE_THREADS"  # of the study that the run belongs to; Hydra sets it in whichever process


def job(config: RunConfig) -> str:
    """Train it in this process, whichever a launcher started; returns its id. Raises ConfigError."""
    import torch  # in a process of its own, nothing is loaded yet

    from ablate.compose.hydra_app import current
    from ablate.execution.execute import execute
    from ablate.execution.prepare import prepare
    from ablate.live.progress import listener
    from ablate.store.store import Busy

    if threads := os.environ.get(THREADS):
        torch.set_num_threads(int(threads))
    request, run = current.get(None), prepare(config)
    while True:
        try:
            return execute(run, listener(len(request.run_ids) if request else None))["run_id"]
        except Busy:  # another process is at it: its result will do
            time.sleep(0.5)
