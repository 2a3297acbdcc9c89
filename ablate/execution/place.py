"""What this machine offers a run: the faster products and attention."""

import functools
from functools import partial

import torch

from ablate.compute.fastest import (
    PRODUCTS,
    Function,
    agrees,
    bfloat16_is_faster,
    fastest,
    fastest_product,
    seconds,
    works,
)
from ablate.config.rules import ConfigError
from ablate.config.schema import TrainConfig
from ablate.model.attend import CAUSAL, FORMULATIONS, Attend, fused

SHAPES = ((12, 4, 64, 32), (32, 4, 64, 16), (8, 6, 256, 64))  # (B, P, T, K) of the presets, to time attention
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.03}  # of formulations, relative to the largest entry


def linear_of(train: TrainConfig, place: torch.device) -> str:
    """The implementation of matrix products for a run (Run.linear). There is a choice for float32 on a
    CPU, and for bfloat16 on one without bfloat16 products, which are then computed in float32. Raises
    ConfigError."""
    if place.type != "cpu" or (train.precision == "bfloat16" and bfloat16_is_faster()):
        return "torch"
    if train.linear == "onednn" and not works(PRODUCTS["onednn"]):
        raise ConfigError(
            "train.linear=onednn: this PyTorch lacks it, or it is not exact; use train.linear=mkl"
        )
    if train.linear != "auto":
        return train.linear
    return "mkl" if train.compile else fastest_product()


def attention_of(train: TrainConfig, place: torch.device) -> str:
    """The formulation of attention for a run (Run.attention); `auto` has a choice only for bfloat16 on the
    CPU."""
    if train.attention != "auto":
        return train.attention
    has_choice = place.type == "cpu" and train.precision == "bfloat16"
    return fastest_attention() if has_choice else "fused"


# --- the formulation of attention: the fastest one here, timed once, then remembered ---------------
# legend: as of ablate.model.attend


@functools.cache
def fastest_attention() -> str:
    """The fastest one for bfloat16 on one thread. In float32 `fused` never loses."""
    each = [4 * [shape] for shape in SHAPES]
    times = {name: partial(seconds, _causal(f), each, torch.bfloat16) for name, f in FORMULATIONS.items()}
    return fastest("attention", times, lambda name: is_exact(FORMULATIONS[name]))


def is_exact(attend: Attend, dtype: torch.dtype = torch.bfloat16) -> bool:
    """Whether `attend` in `dtype` agrees with the fused formulation in float64, within TOLERANCE."""
    shapes = ((2, 3, 17, 8), (2, 3, 17, 8), (2, 3, 17, 5), (2, 3, 17, 5))
    return agrees(_causal(attend), _causal(fused), shapes, dtype, TOLERANCE[dtype])


def _causal(attend: Attend) -> Function:
    return lambda q, k, v: attend(q, k, v, CAUSAL, 0.0, 0.3)
