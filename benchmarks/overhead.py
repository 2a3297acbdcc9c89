"""The share of a run's time that is not forward pass, backward pass or optimizer.

    python benchmarks/overhead.py --steps 900

It times one whole run, as by `ablate run model=nano train=nanogpt` (corpus, training, evaluations, files),
without process start. Not counted as overhead are the model's forward passes (also those of evaluations), the
backward pass and the optimizer; all else is: batches, targets, metrics, files, Python between the steps.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import torch

from ablate.compose.composer import to_run_config
from ablate.compose.configs import configs_dir
from ablate.execution.events import ignore
from ablate.execution.execute import execute
from ablate.execution.run import prepare
from ablate.model.models import LM
from ablate.training import optim


class Timer:
    """Wraps functions and adds up the seconds that go by inside the outermost of them."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inside = False

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.inside:
                return function(*args, **kwargs)
            self.inside, began = True, time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.inside = False
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

        return timed


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--model", default="nano")
    arguments = parser.parse_args()
    timer = Timer()
    LM.loss = timer.around("forward", LM.loss)
    LM.forward = timer.around("forward", LM.forward)
    torch.autograd.grad = timer.around("backward", torch.autograd.grad)  # pyright: ignore
    for name in ("clipping_divisor", "adamw_"):
        setattr(optim, name, timer.around("optimizer", getattr(optim, name)))
    with hydra.initialize_config_dir(str(configs_dir()), version_base="1.3"):
        overrides = [f"model={arguments.model}", "train=nanogpt", f"train.steps={arguments.steps}"]
        config = to_run_config(hydra.compose("config", overrides=overrides))
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        execute(prepare(config), ignore, Path(directory))
        total = time.perf_counter() - began
    for name, seconds in timer.seconds.items():
        print(f"{name:>10}: {seconds:6.1f} s  {seconds / total:6.1%}")
    outside = total - sum(timer.seconds.values())
    print(f"   outside: {outside:6.1f} s  {outside / total:6.1%}\n     total: {total:6.1f} s")


if __name__ == "__main__":
    main()
