"""Whether train.precision=bfloat16 is faster on this machine."""

from collections.abc import Iterable
from dataclasses import replace

from ablate.compute.fastest import halves_are_faster
from ablate.execution.prepare import attention_of, linear_of
from ablate.execution.run import Resolved, Run

SLOWER = "train.precision=bfloat16: slower here than float32, since this processor has no bfloat16 products"


def gains(run: Run) -> bool:
    """Whether bfloat16 may be faster than this float32 run: on a CPU with bfloat16 matrix products."""
    return _is_of(run, "float32") and not run.config.train.compile and halves_are_faster()


def in_bfloat16(run: Run) -> Run:
    """The run with train.precision=bfloat16 instead, to be timed."""
    train = replace(run.config.train, precision="bfloat16")
    config = replace(run.config, train=train)
    linear, attention = linear_of(config, run.device), attention_of(config, run.device)
    return replace(run, config=config, linear=linear, attention=attention)


def remarks(runs: Iterable[Resolved]) -> list[str]:
    """A line if runs use bfloat16 here, on a processor that has no bfloat16 products; else none."""
    here = (run for run in runs if isinstance(run, Run))
    return [SLOWER] if any(_is_of(run, "bfloat16") for run in here) and not halves_are_faster() else []


def _is_of(run: Run, precision: str) -> bool:
    return run.device.type == "cpu" and run.config.train.precision == precision
