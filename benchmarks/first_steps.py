"""The size of attention's branch without out_proj, and of its first step, as multiples of those with it.

    python benchmarks/first_steps.py

Both start from the standard initialization. One head without out_proj can represent the same functions as
with it, and yet starts larger and moves differently: a placebo with an effect. value_scale=matched removes
the difference at the start.
"""

import dataclasses

import torch
from torch import Tensor

from ablate.model.layers import STD
from ablate.model.models import build_model
from ablate.model.spec import AttentionSpec
from ablate.verify.attentions import SEEDS, attention_spec, model_of

WIDTH, CONTEXT = 64, 64


def norms(spec: AttentionSpec) -> tuple[float, float]:
    """The norm of the first layer's branch at the start, and of its change by one update of AdamW."""
    model = build_model(model_of(spec, CONTEXT), SEEDS).double()
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 59, (16, CONTEXT + 1), generator=random)
    x_BTC = torch.randn(4, CONTEXT, WIDTH, dtype=torch.float64, generator=random)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0, betas=(0.9, 0.99))
    model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    attention = model.blocks[0].attention

    def branch() -> Tensor:
        with torch.no_grad():
            return attention(x_BTC, x_BTC)

    before = branch()
    optimizer.step()
    return before.norm().item(), (branch() - before).norm().item()


def main() -> None:
    for heads in (1, 4):
        width = WIDTH // heads
        with_it = attention_spec(d_model=WIDTH, heads=heads, key_width=width, value_width=width)
        start, step = norms(with_it)
        for value_scale, gain in (("1", 1.0), ("matched", STD * WIDTH**0.5)):
            without = norms(dataclasses.replace(with_it, out_proj=False, value_gain=gain))
            print(
                f"heads={heads} value_scale={value_scale}: start {without[0] / start:.2f}, first step"
                f" {without[1] / step:.2f}"
            )


if __name__ == "__main__":
    main()
