"""A run on its way into its folder: what training tells becomes its files, and the row that it ends with."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

from ablate.compute import device
from ablate.execution import formulas, plugins
from ablate.execution.run import Run
from ablate.files.atomic import StoreError, digest
from ablate.lazy import torch
from ablate.store.columns import RESULTS, Row, Status
from ablate.store.provenance import machine, parts_code, provenance, status_now
from ablate.store.run_files import as_json
from ablate.store.store import Store
from ablate.training.events import Began, Diverged, Evaluation, Event, Final, Kept, Listener


def _unless_lost(method: Callable[..., None]) -> Callable[..., None]:
    """What the disk refuses, or another process that takes the run over, ends an attempt, and no other one
    of its group. Of an attempt that has ended nothing is written any more."""

    @functools.wraps(method)
    def guarded(attempt: "Attempt", *args: Any, **kwargs: Any) -> None:
        if attempt.error is None and not attempt.ended:
            try:
                method(attempt, *args, **kwargs)
            except StoreError as error:
                attempt.error = error
                attempt.close()
                attempt.tell(error)

    return guarded


class Attempt:
    """error: why it ends without a row, as when another process has taken it over; then nothing of it is
    written any more. ended: whether its row is the result."""

    def __init__(self, run: Run, listener: Listener, store: Store) -> None:
        self.run, self.tell, self.folder = run, listener, store.run(run.name)
        self.row: Row = {}
        self.error: StoreError | None = None
        self.ended = False
        self._lease = contextlib.ExitStack()
        self._metrics: list[Row] = []
        self._last: Evaluation | None = None
        self._members = 1  # of the largest group that it was part of

    @_unless_lost
    def open(self, *, anew: bool = False, ended: bool = False) -> None:
        """Begin it, unless the run is finished; what is damaged, a result or an earlier attempt, is put aside
        first. anew, ended: as for RunFolder.attempt."""
        self.row, config = describe(self.run), dataclasses.asdict(self.run.config)
        files = {"environment.json": as_json(machine()), "tokenizer.json": self.run.corpus.tokenizer.dump()}
        files |= plugins.copies(self.run.spec.chosen)
        how = {"is_over": self.run.is_over, "anew": anew, "ended": ended}
        self._lease.enter_context(self.folder.attempt(config, self.row, files, self.tell, **how))
        if self.folder.is_over and (row := self.folder.finished):
            self.row, self.ended = {**row, "status": status_now(row)}, True
            self.close()
            self.tell(None)

    def close(self) -> None:
        """Give up its lease."""
        self._lease.close()

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
        self._metrics = list(start.metrics) if start else []
        self._members = max(members, start.members if start else 1)
        lines = [f"going on after step {start.step}" if start else "begun"]
        if start and start.members != members:
            lines.append(f"as one of {members}, before of {start.members}: sums are rounded otherwise")
        self.folder.log("\n".join([*lines, remark]))
        if members != self.row.get("members", 1):  # whoever looks meanwhile reads its pace by this
            self.row["members"] = members
            self.folder.write("result.json", as_json(self.row))

    @_unless_lost
    def take(self, event: Event) -> None:
        """What happens in training: to the group, or to this member of it."""
        if not self.trains:
            return
        match event:
            case Began(how):
                self.folder.log(how)
            case Evaluation():
                self._last = event
                self._metrics.append(formulas.at_evaluation(event))
                self.folder.metrics(self._metrics[-1])
                if event.train_loss is not None:
                    self.tell(event)
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

    def _trained(self, final: Final) -> None:
        assert self._last is not None, "training ends with an evaluation"
        row = {**formulas.at_end(self.run, self._last, self._metrics, final), "status": Status.DONE}
        if final.weights:
            import safetensors.numpy

            self.folder.write("model.safetensors", safetensors.numpy.save(dict(final.weights)))
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
            raise StoreError(
                f"{self.run.name}: {self.row['error']}; its earlier result stays, and this attempt is in"
                f" {self.folder.attempts}"
            )
        self.folder.finish(self.row)
        self.close()
        self.tell(self.row)


def describe(run: Run) -> Row:
    """The row of a run that begins: its config and sizes, where it computes, and the program's version."""
    parts = [part for spec, _ in run.spec.kinds.values() for part, _ in spec.parts]
    return {
        **formulas.before_training(run),
        "status": Status.RUNNING,
        "device": device.describe(run.device),
        "processor": device.processor(run.device),
        "threads": torch.get_num_threads() if run.device.type == "cpu" else None,
        "tokenizer_sha256": run.corpus.tokenizer.sha256,
        **provenance(),
        **parts_code(*(inspect.getfile(method) for method in dict.fromkeys(parts))),
    }


def _is_finite(value: Any) -> bool:
    try:
        return bool(digest(value))
    except ValueError:
        return False
