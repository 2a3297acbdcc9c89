"""The loops that train runs, for the pool and for Hydra's launchers."""

import time
from collections.abc import Iterable

from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.events import Listener, Noticed, Refused, Taken
from ablate.execution.execute import execute
from ablate.execution.prepare import prepare
from ablate.execution.run import Run
from ablate.launch.queue import AGAIN_S
from ablate.store.run_files import Busy, Stamp


def make(run: Run, listener: Listener, *, known: Stamp) -> None:
    """Train one run; if another process is working on it, wait. Raises ConfigError if it can't begin.

    known: the stamp of the result that existed when the command began.
    """
    waits = False
    while True:
        try:
            execute(run, listener, known=known)
            return
        except Busy as error:
            if not waits:
                listener(Noticed(f"{error}; waiting"))
            waits = True
            time.sleep(AGAIN_S)


def work(runs: Iterable[tuple[RunConfig, Stamp]], listener: Listener) -> None:
    """Train one run after the other. The listener gets the events of each, the last of which is Finished,
    Skipped, Taken or Refused.

    runs: each with the stamp of the result that existed when the command began.
    """
    for config, known in runs:
        try:
            execute(prepare(config), listener, known=known)
        except Busy as error:
            listener(Taken(str(error)))
        except ConfigError as error:
            listener(Refused(str(error)))
