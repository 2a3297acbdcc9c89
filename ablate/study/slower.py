"""What makes runs slower here than they could be."""

from collections.abc import Collection

from ablate.compute.arithmetic import bfloat16_is_slow
from ablate.execution.run import PlacedRun
from ablate.phrases import lines_if

SLOWER = (
    "train.precision=bfloat16: slower here than float32, since this processor has no bfloat16 products, which"
    " are computed in float32; add train.precision=float32"
)
DOES_NOT_PAY = "on a CPU, runs that are trained as one take longer than one after the other"


def slower(runs: Collection[PlacedRun], members: int | None) -> list[str]:
    """Lines on these runs; usually none. members: how many are trained as one, if the command says so."""
    in_bfloat16 = [run.device for run in runs if run.config.train.precision == "bfloat16"]
    on_cpu = any(run.device.type == "cpu" for run in runs)
    return [
        *lines_if(any(map(bfloat16_is_slow, in_bfloat16)), SLOWER),
        *lines_if(on_cpu and (members or 1) > 1, f"hydra.launcher.members={members}: {DOES_NOT_PAY}"),
    ]
