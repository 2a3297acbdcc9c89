"""Checks on trained weights: how far many heads are from one head, and outputs outside the values' range.

legend: as in ablate.verify.bench.
"""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.kept import in_float64, prepared, weights_of
from ablate.model.attention import Attention
from ablate.model.blocks import Model
from ablate.model.hooks import inputs_of_attention
from ablate.model.layers import Linear
from ablate.model.masks import CAUSAL
from ablate.store.store import Store

WINDOWS = 8  # windows of the validation split to evaluate


@dataclass(frozen=True)
class OfLayer:
    """layer: from 1. one_head: the relative change of the output if the same weights are used as a single
    head; None if they can't be. outside: the share of the numbers in the heads' outputs that lie outside the
    range of the values that the head reads."""

    layer: int
    when: str
    one_head: float | None
    outside: float


def of_run(run: str) -> list[OfLayer]:
    """Measure each layer of a finished run on its validation text, before and after training. run: a prefix
    of its id or name. Raises ConfigError."""
    directory = Store().find(run)
    weights, trained = weights_of(directory), prepared(directory)
    if trained.spec.encoder is not None:
        raise ConfigError(f"{directory.name}: a model of two texts; take a run of one text")
    split = trained.corpus.splits["validation"]
    tokens_BT = next(split.windows(context=trained.spec.context, windows=WINDOWS)).inputs
    start, end = in_float64(trained), in_float64(trained)
    end.load_state_dict(weights)
    return [*_layers(start, tokens_BT, "before training"), *_layers(end, tokens_BT, "after")]


@torch.no_grad()
def _layers(model: Model, tokens_BT: Tensor, when: str) -> list[OfLayer]:
    inputs = inputs_of_attention(model, tokens_BT)
    return [
        OfLayer(number, when, _from_one_head(block.attention, x_BTC), _outside(block.attention, x_BTC))
        for number, (block, (x_BTC, _, _)) in enumerate(zip(model.blocks, inputs, strict=True), 1)
    ]


def _from_one_head(attention: Attention, x_BTC: Tensor) -> float | None:
    """‖one head − many‖ / ‖many‖ of the outputs; None if the weights can't be used as one head."""
    spec = attention.spec
    shares = {spec.query_heads, spec.key_heads, spec.value_heads} != {spec.heads}
    if spec.fusion.name != STANDARD_FUSION or spec.scores.name != STANDARD_SCORES or shares or spec.tie_qk:
        return None
    widths = {"key_width": spec.heads * spec.key_width, "value_width": spec.heads * spec.value_width}
    alone = dict.fromkeys(("heads", "query_heads", "key_heads", "value_heads"), 1)
    single = Attention(dataclasses.replace(spec, **alone, **widths), CAUSAL).double().eval()
    single.load_state_dict(attention.state_dict())
    many = attention(x_BTC, x_BTC)
    return ((single(x_BTC, x_BTC) - many).norm() / many.norm()).item()


def _outside(attention: Attention, x_BTC: Tensor) -> float:
    """The share of numbers outside the range of the values: after the fusion if it keeps heads apart, else
    before it."""
    spec, value = attention.spec, attention.value
    values = (value(x_BTC) if isinstance(value, Linear) else x_BTC).unflatten(-1, (spec.value_heads, -1))
    of_head = [head * spec.value_heads // spec.heads for head in range(spec.heads)]
    values_BTHV, read_BTHV = values[:, :, of_head], attention.read(x_BTC, x_BTC)
    fused = attention.fusion(read_BTHV, x_BTC)
    handed = fused.view_as(read_BTHV) if fused.shape[-1] == read_BTHV[0, 0].numel() else read_BTHV
    slack = 1e-9 * values_BTHV.abs().max()
    low, high = values_BTHV.cummin(1).values - slack, values_BTHV.cummax(1).values + slack
    return ((handed < low) | (handed > high)).double().mean().item()
