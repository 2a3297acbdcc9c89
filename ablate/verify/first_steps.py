"""The size of attention's branch and of its first step, without out_proj relative to that with it.

Both have the standard initialization. One head without out_proj can represent the same functions as with it,
and yet starts larger and moves differently: a placebo with an effect. value_scale=matched removes the
difference at the start.
"""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.model.build import build_model
from ablate.model.layers import STD
from ablate.model.spec import AttentionSpec
from ablate.training.optim import Moments, adamw_
from ablate.verify.variants import SEEDS, attention_spec, model_of

WIDTH, CONTEXT, LR = 64, 64, 1e-3


@dataclass(frozen=True)
class FirstStep:
    """start, step: the norms of the branch and of its first change without out_proj, as multiples of those
    with it."""

    heads: int
    value_scale: str
    start: float
    step: float


def first_steps() -> list[FirstStep]:
    found = []
    for heads in (1, 4):
        width = WIDTH // heads
        with_it = attention_spec(d_model=WIDTH, heads=heads, key_width=width, value_width=width)
        start, step = _sizes(with_it)
        for value_scale, gain in (("1", 1.0), ("matched", STD * WIDTH**0.5)):
            without = dataclasses.replace(with_it, out_proj=False, value_gain=gain)
            start_without, step_without = _sizes(without)
            found.append(FirstStep(heads, value_scale, start_without / start, step_without / step))
    return found


def _sizes(spec: AttentionSpec) -> tuple[float, float]:
    """The norm of the first layer's branch at the start, and of its change by one update of AdamW."""
    model = build_model(model_of(spec, CONTEXT), SEEDS).double()
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 59, (16, CONTEXT + 1), generator=random)
    x_BTC = torch.randn(4, CONTEXT, WIDTH, dtype=torch.float64, generator=random)
    params = dict(model.named_parameters())
    loss = model.loss(tokens[:, :-1], tokens[:, 1:])
    grads = dict(zip(params, torch.autograd.grad(loss, [*params.values()]), strict=True))
    attention = model.blocks[0].attention

    def branch() -> Tensor:
        with torch.no_grad():
            return attention(x_BTC, x_BTC)

    before = branch()
    rates = {"lr": LR, "weight_decay": 0.0, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    adamw_(params, grads, Moments.zeros(params), 1, decayed=dict.fromkeys(params, False), **rates)
    return before.norm().item(), (branch() - before).norm().item()
