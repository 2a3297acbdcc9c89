"""The figures behind ablate.compute.arithmetic: the time of each way to multiply and to attend, here.

    python benchmarks/arithmetic.py
    ONEDNN_MAX_CPU_ISA=AVX512_CORE python benchmarks/arithmetic.py     # as without bfloat16 instructions

Each way is computed forward and backward on one thread, in turn; a figure is the median of the ratios of its
processor time to that of the first.
"""

import statistics
import time
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F

from ablate.compute.arithmetic import in_float32, onednn
from ablate.compute.device import processor
from ablate.model.attend import CAUSAL, FORMULATIONS

# (rows, inputs, outputs) of the presets' products, and wider ones
PRODUCTS = ((2048, 64, 64), (2048, 64, 256), (768, 128, 512), (768, 512, 128), (4096, 256, 1024))
# (batch, heads, context, width of a head)
ATTENTIONS = (
    (32, 4, 64, 16),
    (32, 1, 64, 64),
    (12, 4, 64, 32),
    (8, 6, 256, 64),
    (4, 6, 512, 64),
    (2, 6, 1024, 64),
)
REPEATED, ROUNDS = 4, 9


def timed(
    function: Callable[..., torch.Tensor], *shapes: tuple[int, ...], dtype: torch.dtype
) -> Callable[[], float]:
    """Seconds for `function` of tensors of these shapes, forward and backward."""
    inputs = [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]

    def seconds() -> float:
        began = time.process_time()
        for _ in range(REPEATED):
            y = function(*inputs)
            torch.autograd.grad(y, inputs, torch.ones_like(y))
        return time.process_time() - began

    return seconds


def ratios(ways: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The time of each way over that of the first: the median over rounds, in which they take turns."""
    rows = [{name: seconds() for name, seconds in ways.items()} for _ in range(ROUNDS + 1)][1:]
    first = next(iter(ways))
    return {name: statistics.median(row[name] / row[first] for row in rows) for name in ways}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{processor()}, torch {torch.__version__}")
    half = torch.bfloat16
    for rows, inputs, outputs in PRODUCTS:
        shapes = (rows, inputs), (outputs, inputs)
        ways = {
            "MKL": timed(F.linear, *shapes, dtype=torch.float32),
            "oneDNN": timed(lambda x, w: onednn(x, w, None), *shapes, dtype=torch.float32),
            "bfloat16": timed(F.linear, *shapes, dtype=half),
            "bfloat16 in float32": timed(lambda x, w: in_float32(x, w, None), *shapes, dtype=half),
        }
        show(f"{rows} × {inputs} × {outputs}", ratios(ways))
    for dtype in (torch.float32, half):
        for B, H, T, W in ATTENTIONS:
            ways = {
                name: timed(
                    lambda q, k, v, f=f: f(q, k, v, CAUSAL, 0.0, 0.3), *[(B, H, T, W)] * 3, dtype=dtype
                )
                for name, f in FORMULATIONS.items()
            }
            show(f"{dtype}, {H} heads of {W}, context {T}", ratios(ways))


def show(what: str, of: Mapping[str, float]) -> None:
    print(f"{what}: " + ", ".join(f"{name} {ratio:.2f}" for name, ratio in of.items()), flush=True)


if __name__ == "__main__":
    main()
