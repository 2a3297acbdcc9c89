"""A run on its way into its folder: what training tells becomes its files, and the row that it ends with."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from ablate.compute import device
from ablate.execution import formulas
from ablate.execution.events import Finished, Listener
from ablate.execution.run import Run
from ablate.files.atomic import StoreError, digest
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.run_folder import RunFolder
from ablate.training.events import Began, Diverged, Evaluation, Event, Final, Kept

Arguments = ParamSpec("Arguments")


def _unless_lost(method: Callable[Concatenate["Attempt", Arguments], None]) -> Callable[..., None]:
    """What the disk refuses, or another process that takes the run over, ends an attempt, and no other one
    of its group. Of an attempt that has ended nothing is written any more."""

    @functools.wraps(method)
    def guarded(attempt: "Attempt", *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        if attempt.error is None and not attempt.ended:
            try:
                method(attempt, *args, **kwargs)
            except StoreError as error:
                attempt.error = error
                attempt.release()

    return guarded


class Attempt:
    """row: of the run that begins. error: why it ends without a row, as when another process has taken it
    over; then nothing of it is written any more. release: gives up the lease, before others of its group end.
    """

    def __init__(self, run: Run, folder: RunFolder, listener: Listener, row: Row) -> None:
        self.run, self.folder, self.tell, self.row = run, folder, listener, row
        self.error: StoreError | None = None
        self.ended = False  # whether its row is the result
        self.release: Callable[[], None] = lambda: None
        self._metrics: list[Row] = []
        self._last: Evaluation | None = None
        # The size of its group, and that of the largest it was part of.
        self._together, self._members = 1, 1

    @property
    def trains(self) -> bool:
        """Whether it goes on: it has no outcome yet."""
        return self.error is None and self.row["status"] == Status.RUNNING

    @property
    def after(self) -> int:
        """The step after which it goes on; 0 from the start."""
        return self.folder.start.step if self.folder.start else 0

    @_unless_lost
    def begin(self, members: int, remark: str = "") -> None:
        """It is trained from here on in a group of so many. remark: for its log."""
        start = self.folder.start
        self._together = members
        self._metrics = list(start.metrics) if start else []
        self._members = max(members, start.members if start else 1)
        self.folder.log(f"going on after step {start.step}" if start else "begun")
        if start and start.members != members:
            self.folder.log(f"as one of {members}, before of {start.members}: sums are rounded otherwise")
        if remark:
            self.folder.log(remark)
        if members != self.row.get("members", 1):  # whoever looks meanwhile reads its pace by this
            self.row["members"] = members
            self.folder.write_json("result.json", self.row)

    @_unless_lost
    def go_back(self) -> None:
        """Its group failed: it goes on from its last checkpoint."""
        self.folder.go_back()

    @_unless_lost
    def take(self, event: Event) -> None:
        """What happens in training: to the group, or to this member of it."""
        if not self.trains:
            return
        self.folder.check()
        match event:
            case Began(how):
                self.folder.log(how)
            case Evaluation():
                self._evaluated(event)
            case Kept(checkpoint=kept):
                own = {"metrics": self._metrics, "members": self._members}
                self.folder.checkpoint(dataclasses.replace(kept, **own))
            case Final():
                self._trained(event)
            case Diverged():
                self.folder.log(str(event))
                self.row |= formulas.at_divergence(self.run, event, self._metrics)
                self.row |= {"status": Status.DIVERGED, "error": str(event)}
                self.end()

    def _evaluated(self, event: Evaluation) -> None:
        step, train_loss, val_loss = event.step, event.train_loss, event.validation.loss
        self._last = event
        self._metrics.append(formulas.at_evaluation(event))
        self.folder.metrics(self._metrics[-1])
        train = "" if train_loss is None else f" train_loss {train_loss:.4f}"
        self.folder.log(f"step {step}/{self.run.config.train.steps}{train} val_loss {val_loss:.4f}")
        if train_loss is not None:
            self.tell(event)

    def _trained(self, final: Final) -> None:
        assert self._last is not None, "training ends with an evaluation"
        row = formulas.at_end(self.run, self._last, self._metrics, final)
        if final.weights:
            self.folder.write_weights(final.weights)
        row |= {"status": Status.DONE}
        if not self.run.is_simulated:
            row["peak_memory_mb"] = round(device.peak_memory_mb(self.run.device) / self._together, 1)
        if lost := [column for column, value in row.items() if not _is_finite(value)]:  # of averages
            error = f"{' and '.join(lost)} not finite after the last step"
            row |= {**dict.fromkeys(lost), "status": Status.DIVERGED, "error": error}
        self.row |= row

    @_unless_lost
    def failed(self, reason: str, trace: str = "") -> None:
        self.folder.log(trace or reason)
        self.row |= {"status": Status.FAILED, "error": reason}

    @_unless_lost
    def end(self) -> None:
        """Make its row the result of the run. A failure never replaces an earlier result."""
        self.row["members"] = self._members
        self.ended = True
        before = self.folder.finished
        if self.row["status"] == Status.FAILED and before and before["status"] in RESULTS:
            aside, name = self.folder.give_up(), self.folder.directory.name
            raise StoreError(
                f"{name}: {self.row['error']}; its earlier result stays, and this attempt is in {aside}"
            )
        self.folder.finish(self.row)
        self.release()
        self.tell(Finished(self.row))

    @property
    def outcome(self) -> Row | StoreError:
        """Its row, or why there is none."""
        return self.error or self.row


def _is_finite(value: Any) -> bool:
    try:
        return bool(digest(value))
    except ValueError:
        return False
