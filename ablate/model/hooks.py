"""Intermediate results of a model, read with hooks.

legend: B batch, T time, C model width.
"""

from torch import Tensor

from ablate.model.lm import LM


def inputs_of_attention(model: LM, tokens_BT: Tensor) -> list[Tensor]:
    """The normalized input of each layer's attention, x_BTC."""
    inputs: list[Tensor] = []
    hooks = [
        block.attention.register_forward_pre_hook(lambda _, given: inputs.append(given[0]))
        for block in model.blocks
    ]
    try:
        model(tokens_BT)
    finally:
        for hook in hooks:
            hook.remove()
    return inputs
