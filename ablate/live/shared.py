"""What a person sees of a study that helpers on other machines train: their jobs, and the store's runs."""

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ablate.launch.arrays import Array
from ablate.launch.pool import Job
from ablate.live.progress import ending
from ablate.live.watch import job_lines, look
from ablate.store.columns import Row
from ablate.store.status import Status
from ablate.store.store import Store


@contextlib.contextmanager
def shared_board(study: str, total: int) -> Iterator["Lines"]:
    """A board in a terminal, lines elsewhere."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield Lines(console, total)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Board(live, study, total)


class Lines:
    """Prints a line for each run that ends, and for each change of the jobs."""

    def __init__(self, console: Console, total: int) -> None:
        self.console = console
        self.total = total
        self.count = 0
        self.said = ""

    def show(self, arrays: Sequence[Array], trouble: str) -> None:
        if (line := "; ".join([*job_lines(arrays), *([trouble] if trouble else [])])) != self.said:
            self.said = line
            self.say(line)

    def made(self, job: Job, row: Row) -> None:
        self.count += 1
        if self.tells(row):
            self.say(f"[{self.count}/{self.total}] {ending(job.name, row)}")

    def tells(self, row: Row) -> bool:
        return True

    def say(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)


class Board(Lines):
    """The jobs and the runs under way, kept up to date; lines above it for runs that failed."""

    def __init__(self, live: Live, study: str, total: int) -> None:
        super().__init__(live.console, total)
        self.live = live
        self.study = study

    def show(self, arrays: Sequence[Array], trouble: str) -> None:
        runs = look(Store(), self.study)
        self.live.update(Group(runs.table, Text(trouble)), refresh=True)

    def tells(self, row: Row) -> bool:
        return row["status"] != Status.DONE
