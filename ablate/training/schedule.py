"""The schedule of the learning rate. Loads no torch."""

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup: float, min_ratio: float) -> float:
    """The rate of update `step` (1 to steps): linear warm-up, then a half cosine down to peak·min_ratio.

    warmup: share of the steps. Equal to nanoGPT's get_lr at iteration step − 1, so the last update is one
    step short of the floor.
    """
    iteration, warmup_steps = step - 1, round(warmup * steps)
    if iteration < warmup_steps:
        return peak * (iteration + 1) / (warmup_steps + 1)
    progress = (iteration - warmup_steps) / (steps - warmup_steps)
    return peak * (min_ratio + (1 - min_ratio) * 0.5 * (1 + math.cos(math.pi * progress)))
