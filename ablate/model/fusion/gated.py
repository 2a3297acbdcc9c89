import math
from dataclasses import dataclass
from typing import Literal

from ablate.config.rules import ConfigError
from ablate.config.schema import Size
from ablate.lazy import Tensor, nn, torch
from ablate.model.fusion import Options, register
from ablate.model.fusion.concat import Concat
from ablate.model.parts import HeadShape


@dataclass(frozen=True, kw_only=True)
class GatedOptions(Options):
    per: Literal["head", "channel", "shared"]
    input: Literal["x", "static"]
    activation: Literal["sigmoid", "softmax"]
    reads: Size | Literal["all"]

    def __post_init__(self) -> None:
        if self.input == "static" and self.reads != "all":
            raise ConfigError(
                f"fusion.reads={self.reads}: with fusion.input=static the gates read nothing; use"
                " fusion.input=x, or fusion.reads=all"
            )
        if (self.per, self.activation) == ("shared", "softmax"):
            raise ConfigError(
                "fusion.activation=softmax: it weighs heads against each other, and fusion.per=shared has one"
                " gate for all; use fusion.activation=sigmoid, or fusion.per=head or channel"
            )


@register("gated")
class Gated(Concat):
    """Heads concatenated, each multiplied by a gate: fused = [g_1 ⊙ z_1; …; g_H ⊙ z_H].

    g = 2·sigmoid(l) or H·softmax(l) over the heads, where l = x W_g or, with input=static, l is a parameter.
    W_g and l start at 0, where every gate is 1: it starts as concat. A gate that reads x can switch a head
    off; a constant one would fold into W_O.
    See: Qiu et al., "Gated attention for large language models", arXiv 2505.06708.
    """

    Options = GatedOptions
    one_head_passes = homogeneous = True

    def __init__(self, shape: HeadShape, options: GatedOptions) -> None:
        super().__init__(shape, options)
        heads, channels = self.gates = _gates(shape, options)
        if options.input == "x":
            from ablate.model.layers import Linear  # which loads torch

            self.logits = Linear(_read(shape, options), heads * channels, bias=False, scale=0.0)
        else:
            self.logits = nn.Parameter(torch.zeros(heads, channels))

    @classmethod
    def count_params(cls, shape: HeadShape, options: GatedOptions) -> int:
        return math.prod(_gates(shape, options)) * (_read(shape, options) if options.input == "x" else 1)

    @classmethod
    def count_flops(cls, shape: HeadShape, options: GatedOptions) -> int:
        heads, channels = _gates(shape, options)
        return 2 * _read(shape, options) * heads * channels if options.input == "x" else 0

    @classmethod
    def check(cls, shape: HeadShape, options: GatedOptions) -> None:
        if _read(shape, options) > shape.d_model:
            raise ConfigError(
                f"fusion.reads={options.reads}: the input has model.d_model={shape.d_model} channels; use at"
                " most so many, or fusion.reads=all"
            )

    @classmethod
    def folds(cls, heads: int, options: GatedOptions) -> bool:
        return options.input == "static"

    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
        logits = self.logits
        if isinstance(logits, nn.Module):
            logits = logits(x_BTC[..., : logits.weight.shape[1]]).unflatten(-1, self.gates)
        if self.options.activation == "sigmoid":
            gates = 2 * logits.sigmoid()
        else:
            gates = self.shape.heads * logits.softmax(-2)
        return (z_BTHV * gates).flatten(-2)


def _read(shape: HeadShape, options: GatedOptions) -> int:
    """How many channels of the input the gates read."""
    return shape.d_model if options.reads == "all" else options.reads


def _gates(shape: HeadShape, options: GatedOptions) -> tuple[int, int]:
    """How many heads and how many channels have gates of their own."""
    return 1 if options.per == "shared" else shape.heads, 1 if options.per == "head" else shape.value_width
