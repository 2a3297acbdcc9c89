"""What a person sees while runs go on, on stderr: a bar in a terminal, quiet lines elsewhere."""

import functools
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ablate.columns import Row
from ablate.execute import Listener, Run
from ablate.train import Evaluation, Step

REFRESH_S = 0.2  # looking at a loss waits for the device: not at every step


@functools.cache
def listener(total: int | None) -> Listener:
    """The one listener of this process. total: runs of the sweep, None for a single run."""
    console = Console(stderr=True, highlight=False)
    return Bar(console, total) if console.is_terminal else Lines(console, total)


class _Counting(Listener):
    """Numbers the runs of a sweep, and says how each ended."""

    def __init__(self, console: Console, total: int | None) -> None:
        self.console = console
        self.total = total
        self.count = 0

    def started(self, run: Run) -> None:
        self.count += 1
        self.name = self._numbered(run.name)

    def finished(self, row: Row) -> None:
        ending = f"val_loss {row['val_loss']:.4f}" if row["status"] == "done" else row["error"]
        seconds = f", {row['wall_s']:.1f} s" if row.get("wall_s") else ""
        self.console.print(f"{self.name}: {row['status']}, {ending}{seconds}", markup=False, soft_wrap=True)

    def skipped(self, row: Row) -> None:
        self.count += 1
        way_out = "force=stale runs it again" if row["status"] == "stale" else "force=true runs it again"
        why = "made by other code or another torch" if row["status"] == "stale" else "finished before"
        name = self._numbered(f"{row['fusion']} heads={row['heads']} seed={row['seed']} ({row['run_id']})")
        self.console.print(f"{name}: {why}; {way_out}", markup=False, soft_wrap=True)

    def noticed(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _numbered(self, name: str) -> str:
        return f"[{self.count}/{self.total}] {name}" if self.total else name


class Lines(_Counting):
    """A line for each evaluation of a single run, a line for each run of a sweep."""

    def evaluated(self, evaluation: Evaluation) -> None:
        if self.total is None:
            speed = evaluation.tokens / (evaluation.seconds - evaluation.evaluation_seconds)
            self.console.print(
                f"step {evaluation.step}: train_loss {evaluation.train_loss:.4f},"
                f" val_loss {evaluation.validation.loss:.4f}, {speed:,.0f} tokens/s",
                soft_wrap=True,
            )


class Bar(_Counting):
    """A progress bar with loss, tokens a second and the time left."""

    def started(self, run: Run) -> None:
        super().started(run)
        self.tokens_a_step = run.config.train.batch * run.config.model.context
        self.bar = Progress(  # what fits into 80 columns
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=8),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(compact=True),
            console=self.console,
            transient=True,
        )
        short_name = self._numbered(f"{run.spec.fusion.name}-h{run.spec.heads}")
        self.task = self.bar.add_task(short_name, total=run.config.train.steps, figures="")
        self.val_loss = ""
        self.shown = self.began = time.monotonic()
        self.bar.start()

    def stepped(self, step: Step) -> None:
        now = time.monotonic()
        if now - self.shown > REFRESH_S:
            self.shown = now
            speed = step.step * self.tokens_a_step / (now - self.began)
            figures = f"loss {step.loss.item():.3f}{self.val_loss} {speed:,.0f} tok/s"
            self.bar.update(self.task, completed=step.step, figures=figures)

    def evaluated(self, evaluation: Evaluation) -> None:
        self.val_loss = f" val {evaluation.validation.loss:.3f}"

    def ended(self) -> None:
        self.bar.stop()
