"""Write the events of training into the files of a run: rows, log lines, checkpoints, weights."""

import inspect
from collections.abc import Mapping

import numpy as np
import torch

from ablate.compute import device
from ablate.execution import formulas, translate
from ablate.execution.checkpoints import to_checkpoint, to_state
from ablate.execution.run import Run
from ablate.model import fusion, scores
from ablate.model.blocks import Model
from ablate.store.columns import Row
from ablate.store.provenance import parts_code, provenance
from ablate.store.run_files import RunWriter
from ablate.store.status import Status
from ablate.training.computing import in_precision
from ablate.training.train import Averaged, Diverged, Evaluation, Event, Kept, State


def describe(run: Run) -> Row:
    """The row of a run that begins: its config and sizes, where it computes, and the program's version."""
    specs = [spec for spec, _ in run.spec.kinds.values()]
    parts = [fusion.method_of(a.fusion)[0] for a in specs] + [scores.method_of(a.scores)[0] for a in specs]
    return {
        **formulas.before_training(run),
        "status": Status.RUNNING,
        "device": device.describe(run.device),
        "engine": "plain",
        "linear": run.linear,
        "attention": run.attention,
        "compile": run.config.train.compile,
        "threads": torch.get_num_threads() if run.device.type == "cpu" else None,
        **provenance(),
        **parts_code(*(inspect.getfile(method) for method in dict.fromkeys(parts))),
    }


class Recorder:
    """Records the events of one run and computes its resulting columns.

    start: the state from which training resumes; None for a new run.
    """

    def __init__(self, run: Run, writer: RunWriter) -> None:
        self.run = run
        self.writer = writer
        self.start = to_state(writer.start) if writer.start else None
        self.metrics = list(writer.start.metrics) if writer.start else []
        self.last: Evaluation | None = None
        self.averaged: Averaged | None = None

    def record(self, event: Event) -> None:
        """Record one event. Raises StoreError if the disk refuses."""
        self.writer.check()
        if isinstance(event, State):
            self.writer.checkpoint(to_checkpoint(event, self.metrics))
        elif isinstance(event, Evaluation):
            self.last = event
            self.metrics.append(formulas.at_evaluation(event))
            self.writer.metrics(self.metrics[-1])
            train_loss = "" if event.train_loss is None else f" train_loss {event.train_loss:.4f}"
            self.writer.log(
                f"step {event.step}/{self.run.config.train.steps}{train_loss}"
                f" val_loss {event.validation.loss:.4f}"
            )
        elif isinstance(event, Averaged):
            self.averaged = event
        elif isinstance(event, Kept):
            self.writer.write_weights(_arrays(event.params), event.step)

    def done(self, model: Model) -> Row:
        """The columns of a run that reached its last step; saves the weights if train.save asks for it."""
        assert self.last is not None, "training ends with an evaluation"
        row = formulas.at_end(self.run, model, self.last, self.metrics, self.averaged)
        if self.run.config.train.translate:
            row |= self._translated(model)
        peak_memory_mb = device.peak_memory_mb(self.run.device)
        if self.run.config.train.save == "model":
            self.writer.write_weights(_arrays(model.state_dict()))
        return {"status": Status.DONE, **row, "peak_memory_mb": peak_memory_mb}

    def _translated(self, model: Model) -> Row:
        """Write the sources, targets and translations of the test split, and return the columns of scores."""
        computing = in_precision(model, self.run.config.train.precision).eval()
        lines = translate.of_test(computing, self.run.corpus, self.run.spec.context)
        for name, texts in zip(translate.FILES, zip(*lines, strict=True), strict=True):
            self.writer.write(name, "".join(f"{text}\n" for text in texts))
        return translate.scores(lines)

    def diverged(self, error: Diverged) -> Row:
        """The columns of a run whose loss was not finite."""
        self.writer.log(str(error))
        row = formulas.at_divergence(self.run, error, self.metrics)
        return {"status": Status.DIVERGED, "error": str(error), **row}


def _arrays(weights: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().numpy() for name, value in weights.items()}
