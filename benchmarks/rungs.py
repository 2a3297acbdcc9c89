"""What share of the processor's rate of matrix products a training step of each rung reaches.

    python benchmarks/rungs.py --rungs r1,r2,r3,r4,r5,r6

The rate is that of products of two 1024×1024 matrices in the same precision. Products and steps alternate in
one process; each figure is a median over the rounds. A step's FLOPs are those of its products alone.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import hydra
import torch

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.execution.run import PlacedRun, prepare
from ablate.execution.timing import endless_steps

SIDE, PRODUCTS, HEAD_WIDTH = 1024, 10, 16


def prepared(rung: str, precision: str) -> PlacedRun:
    keys = [
        f"model=rung/{rung}",
        "corpus=stdlib",
        "train=study",
        f"train.precision={precision}",
        "device=cpu",
    ]
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        width = to_run_config(hydra.compose("config", overrides=keys)).model.d_model
        return prepare(to_run_config(hydra.compose("config", [*keys, f"heads={width // HEAD_WIDTH}"])))


def seconds(work: Callable[[], object], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - began) / count


def measured(run: PlacedRun, rounds: int, steps: int) -> tuple[float, float]:
    """Seconds of a step, and FLOPs a second of products in its precision."""
    precision = getattr(torch, run.config.train.precision)
    one, other = torch.randn(2, SIDE, SIDE, dtype=precision)
    training = endless_steps(run)
    times = []
    for _ in range(rounds + 1):
        product_s = seconds(lambda: one @ other, PRODUCTS)
        times.append((seconds(lambda: next(training), steps), 2 * SIDE**3 / product_s))
    step_s, rate = map(statistics.median, zip(*times[1:], strict=True))  # the first round warms up
    return step_s, rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rungs", default="r1,r2,r3,r4,r5,r6")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5, help="of a round")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(
        "| rung | precision | ms a step | 10⁹ FLOPs/s | of the products' |\n| --- | --- | --- | --- | --- |"
    )
    for rung in arguments.rungs.split(","):
        for precision in ("float32", "bfloat16"):
            run = prepared(rung, precision)
            step_s, rate = measured(run, arguments.rounds, arguments.steps)
            speed = run.step_flops / step_s
            shown = f"{1e3 * step_s:.0f} | {speed / 1e9:.0f} | {speed / rate:.0%}"
            print(f"| {rung} | {precision} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
