"""The one loop in which runs are made, whichever launcher hands them over."""

from collections.abc import Iterable

from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.events import Listener, Refused, Taken
from ablate.execution.execute import execute
from ablate.execution.prepare import prepare
from ablate.store.store import Busy

ANOTHERS_S = 1.0  # before asking again for a run that another process is at


def work(configs: Iterable[RunConfig], listener: Listener) -> None:
    """Make one run after the other; the listener hears what becomes of each: last of all that it is Finished,
    Skipped, Taken or Refused."""
    for config in configs:
        try:
            execute(prepare(config), listener)
        except Busy as error:
            listener(Taken(str(error)))
        except ConfigError as error:
            listener(Refused(str(error)))
