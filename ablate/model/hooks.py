"""Intermediate results of a model, read with hooks.

legend: B batch, T time of the queries, S time of the keys and values, C model width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from ablate.model.blocks import Model


class Given(NamedTuple):
    """The inputs of an attention: x_BTC gives the queries, source_BSC the keys and values. filled_BS: true
    where the source is no padding; None if it has none."""

    x: Tensor
    source: Tensor
    filled: Tensor | None = None


def inputs_of_attention(model: Model, tokens_BT: Tensor, source_BS: Tensor | None = None) -> list[Given]:
    """The normalized inputs of each attention, in the order of `sites`."""
    inputs: dict[int, Given] = {}
    sites = model.sites()

    def recording(at: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def hook(_: nn.Module, given: tuple[Any, ...]) -> None:
            inputs[at] = Given(*given)

        return hook

    hooks = [site.attention.register_forward_pre_hook(recording(at)) for at, site in enumerate(sites)]
    try:
        model(tokens_BT, None, source_BS)
    finally:
        for hook in hooks:
            hook.remove()
    return [inputs[at] for at in range(len(sites))]
