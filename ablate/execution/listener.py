"""What hears of a run while it goes on."""

from ablate.execution.run import Run
from ablate.store.columns import Row
from ablate.training.train import Evaluation, Step


class Listener:
    """Hears of a run while it goes on. Every method may be left as it is."""

    def started(self, run: Run) -> None: ...
    def stepped(self, step: Step) -> None: ...
    def evaluated(self, evaluation: Evaluation) -> None: ...
    def ended(self) -> None:
        """The run is over, by whatever end: a result, an error or Ctrl-C."""

    def finished(self, row: Row) -> None: ...
    def skipped(self, row: Row) -> None: ...
    def noticed(self, line: str) -> None:
        """Something that a person should know, in one line."""
