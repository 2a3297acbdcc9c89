"""The one loop in which runs are made, whichever launcher hands them over."""

from collections.abc import Iterable

from ablate.config.rules import ConfigError
from ablate.config.schema import RunConfig
from ablate.execution.events import Listener, Refused, Taken
from ablate.execution.execute import execute
from ablate.execution.prepare import prepare
from ablate.store.run_files import Busy, Stamp


def work(runs: Iterable[tuple[RunConfig, Stamp]], listener: Listener) -> None:
    """Make one run after the other; the listener hears what becomes of each: last of all that it is Finished,
    Skipped, Taken or Refused.

    runs: each with the stamp of the result that was there when the command began.
    """
    for config, known in runs:
        try:
            execute(prepare(config), listener, known=known)
        except Busy as error:
            listener(Taken(str(error)))
        except ConfigError as error:
            listener(Refused(str(error)))
