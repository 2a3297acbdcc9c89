"""What makes runs slower here than they could be."""

from collections.abc import Collection

from ablate.execution.run import PlacedRun
from ablate.phrases import lines_if

SLOWER = (
    "train.precision=bfloat16: slower here than float32, since this processor has no bfloat16 products, which"
    " are computed in float32; add train.precision=float32"
)
DOES_NOT_PAY = "on a CPU, runs that are trained as one take longer than one after the other"


def slower(runs: Collection[PlacedRun], members: int | None) -> list[str]:
    """Lines on these runs; usually none. members: how many are trained as one, if the command says so."""
    on_cpu = [run for run in runs if run.device.type == "cpu"]
    return [
        *lines_if(any(map(_is_slow, on_cpu)), SLOWER),
        *lines_if(bool(on_cpu) and (members or 1) > 1, f"hydra.launcher.members={members}: {DOES_NOT_PAY}"),
    ]


def _is_slow(run: PlacedRun) -> bool:
    from ablate.compute.arithmetic import bfloat16_is_slow  # which loads torch

    return run.config.train.precision == "bfloat16" and bfloat16_is_slow(run.device)
