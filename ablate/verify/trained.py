"""What needs weights that were trained: how far many heads are from one, and from the range of the values.

legend: as of ablate.verify.bench.
"""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.kept import in_float64, prepared, weights_of
from ablate.model.attention import Attention
from ablate.model.hooks import inputs_of_attention
from ablate.model.layers import Linear
from ablate.model.lm import LM
from ablate.model.masks import CAUSAL
from ablate.store.store import Store

WINDOWS = 8  # of the validation split


@dataclass(frozen=True)
class OfLayer:
    """one_head: by how much the output changes, relatively, where the same weights make one head; None where
    they can't. outside: the share of the numbers that the heads hand on which lies outside the range of the
    values that they read."""

    layer: int
    when: str
    one_head: float | None
    outside: float


def of_run(run: str) -> list[OfLayer]:
    """Of each layer of a finished run, before training and after, on its validation text. run: the beginning
    of its id or name. Raises ConfigError."""
    directory = Store().find(run)
    weights, trained = weights_of(directory), prepared(directory)
    split = trained.corpus.splits["validation"]
    tokens_BT = next(split.windows(context=trained.spec.context, windows=WINDOWS)).inputs
    start, end = in_float64(trained), in_float64(trained)
    end.load_state_dict(weights)
    return [*_layers(start, tokens_BT, "before training"), *_layers(end, tokens_BT, "after")]


@torch.no_grad()
def _layers(model: LM, tokens_BT: Tensor, when: str) -> list[OfLayer]:
    inputs = inputs_of_attention(model, tokens_BT)
    return [
        OfLayer(number, when, _from_one_head(block.attention, x_BTC), _outside(block.attention, x_BTC))
        for number, (block, x_BTC) in enumerate(zip(model.blocks, inputs, strict=True))
    ]


def _from_one_head(attention: Attention, x_BTC: Tensor) -> float | None:
    """‖one head − many‖ / ‖many‖, of the outputs."""
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
    """Of what a fusion that keeps heads apart hands on, else of what the heads read."""
    spec, value = attention.spec, attention.value
    values = (value(x_BTC) if isinstance(value, Linear) else x_BTC).unflatten(-1, (spec.value_heads, -1))
    of_head = [head * spec.value_heads // spec.heads for head in range(spec.heads)]
    values_BTHV, read_BTHV = values[:, :, of_head], attention.read(x_BTC, x_BTC)
    fused = attention.fusion(read_BTHV, x_BTC)
    handed = fused.view_as(read_BTHV) if fused.shape[-1] == read_BTHV[0, 0].numel() else read_BTHV
    slack = 1e-9 * values_BTHV.abs().max()
    low, high = values_BTHV.cummin(1).values - slack, values_BTHV.cummax(1).values + slack
    return ((handed < low) | (handed > high)).double().mean().item()
