"""Attentions to verify: around the variants of a method, one for each combination of its options; and of
given sizes, with the plain formulas that they are compared with, in float64.

legend: B batch, T time, H heads, K key width, V value width, C model width, F fused width.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from ablate.compose.configs import defaults_of
from ablate.config.read import bare, hints
from ablate.config.rules import ConfigError
from ablate.config.schema import PARTS, PartConfig
from ablate.execution.plugins import KINDS
from ablate.model import scores
from ablate.model.attend import CAUSAL, Mask
from ablate.model.attention import Attention
from ablate.model.layers import Linear
from ablate.model.models import Model, build_model, draw_weights
from ablate.model.parts import Part
from ablate.model.spec import GPT2, AttentionSpec, ModelSpec, standard

SEEDS = {"backbone": 3, "fusion": 3, "data": 3}


def variants_of(kind: str, name: str) -> list[PartConfig]:
    """A method with each combination of its Literal options; other options have their defaults."""
    method = KINDS[kind].methods()[name]
    types = {key: bare(of) for key, of in hints(method.Options).items()}
    choices = [
        [(key, choice) for choice in (get_args(types[key]) if get_origin(types[key]) is Literal else [value])]
        for key, value in defaults_of(kind, name, method.Options).items()
    ]
    parts = []
    for picked in itertools.product(*choices):
        with contextlib.suppress(ConfigError):  # options that exclude each other
            KINDS[kind].method_of(part := PartConfig(name=name, options=dict(picked)))
            parts.append(part)
    return parts


def attention_spec(**given: Any) -> AttentionSpec:
    """A spec whose sizes all differ, except where heads have to agree, with an even key width if its rule on
    scores takes no odd one; `given` replaces fields."""
    sizes = {"d_model": 24, "key_width": 7, "value_width": 5, "bias": False}
    start = {"dropout": 0.0, "residual_scale": 0.5}
    spec = AttentionSpec(**{**standard(24, given.get("heads", 4)), **sizes, **start, **given})
    rule, options = scores.method_of(spec.scores)
    if not rule.compares:
        return dataclasses.replace(spec, key_width=0)
    try:
        rule.check(spec.head_shape(), options)
    except ConfigError:
        return spec if "key_width" in given else dataclasses.replace(spec, key_width=8)
    return spec


def specs_around(kind: str, part: PartConfig) -> Iterator[AttentionSpec]:
    """Attentions with this part: with 4 heads and 1, without and with biases, and of each two one with
    out_proj and, if widths allow it, one without, so that each two of these meet; where it refuses their
    sizes, with powers of two. Combinations whose options do not fit the heads are left out."""
    yield from [*_specs_of_width(24, kind, part)] or _specs_of_width(32, kind, part)


def _specs_of_width(d_model: int, kind: str, part: PartConfig) -> Iterator[AttentionSpec]:
    for heads, bias in itertools.product((4, 1), (False, True)):
        with contextlib.suppress(ConfigError):
            square = {"d_model": d_model, "value_width": d_model // heads} if d_model == 32 else {}
            spec = attention_spec(heads=heads, bias=bias, **square, **{kind: part})
            slots = spec.slots  # which refuses what does not fit these heads
            if bias == (heads == 4) and d_model % slots == 0:
                spec = dataclasses.replace(spec, out_proj=False, value_width=d_model // slots)
            spec.check_parts()
            yield spec


def model_of(spec: AttentionSpec, context: int = 11) -> ModelSpec:
    sizes = {"d_model": spec.d_model, "layers": 2, "context": context, "mlp_hidden": 48, "vocab": 59}
    shared = {"bias": spec.bias, "dropout": spec.dropout, "rope_base": spec.rope_base}
    one_text = {"name": "", "architecture": "decoder", "encoder_layers": 0, "at": "all"}
    return ModelSpec(**GPT2, **sizes, **shared, **one_text, attention=spec)


def build(spec: AttentionSpec) -> Model:
    """A language model around this attention, with its weights drawn, in float64."""
    return build_model(model_of(spec), SEEDS).double()


def attention(spec: AttentionSpec, mask: Mask = CAUSAL) -> Attention:
    """One attention with its weights drawn, in float64."""
    built = Attention(spec, mask)
    draw_weights(built, SEEDS)
    return built.double().eval()


def fused(built: Attention, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor:
    """What the fusion makes of these outputs of heads, for this input."""
    return built.fusion(z_BTHV, *built.look(x_BTC, x_BTC).inputs)


def with_random_weights(spec: AttentionSpec) -> Attention:
    """An attention with large random weights and no parameter at its initial value, so that no error
    hides."""
    built = attention(spec)
    with torch.no_grad():
        for name, param in built.named_parameters():
            param.copy_(torch.randn_like(param) * 0.5)
            if name.startswith(("fusion", "scores")):
                param.abs_().add_(0.3)
    return built


def relative_error(result: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry; 0 for empty tensors, infinite if a number is not
    finite."""
    if not expected.numel():
        return 0.0
    scale = expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny)
    error = ((result - expected).abs().max() / scale).item()
    return error if math.isfinite(error) else math.inf


# --- of given sizes ---------------------------------------------------------------------------------------


class Bench:
    """Builds attentions with the same input and the same weights: those of equal name and shape are equal.

    Weights have variance 2/(number of inputs): large enough for patterns that are far from uniform. B, T, H,
    K, V, C: the sizes.
    """

    def __init__(self, B: int = 3, T: int = 17, H: int = 8, K: int = 8, V: int = 8, C: int = 64) -> None:
        self.B, self.T, self.H, self.K, self.V, self.C = B, T, H, K, V, C
        self.x = self.random("x", B, T, C)

    def random(self, name: str, *shape: int) -> Tensor:
        seed = int.from_bytes(name.encode()) % 2**31 + sum(shape)
        return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))

    def spec(self, **given: Any) -> AttentionSpec:
        """A spec of these sizes. given: fields of AttentionSpec; parts by name, with their options as
        fusion_KEY or scores_KEY."""
        sizes = {"d_model": self.C, "heads": self.H, "key_width": self.K, "value_width": self.V}
        for kind in PARTS:
            if name := given.pop(kind, None):
                options = defaults_of(kind, name, KINDS[kind].methods()[name].Options)
                chosen = {key: given.pop(f"{kind}_{key}") for key in options if f"{kind}_{key}" in given}
                given[kind] = PartConfig(name=name, options={**options, **chosen})
        return attention_spec(**{**sizes, **given})

    def attention(self, **given: Any) -> Attention:
        """An attention with drawn weights. given: as for `spec`."""
        built = Attention(self.spec(**given), CAUSAL).double()
        with torch.no_grad():
            for name, module in built.named_modules():
                if isinstance(module, Linear):
                    shape = module.weight.shape
                    module.weight.copy_(self.random(name, *shape) * (2 / shape[1]) ** 0.5)
                for own, param in module.named_parameters(recurse=False) if isinstance(module, Part) else ():
                    param.copy_(self.random(own, *param.shape))
        return built.eval()

    def out(self, attention: Attention) -> Tensor:
        return attention(self.x, self.x)

    # --- the plain formulas ------------------------------------------------------------------

    def projected(self, attention: Attention, name: str, width: int) -> Tensor:
        """x W^i of each head: (B, H, T, width)."""
        weight = attention.get_parameter(f"{name}.weight")
        return torch.stack([self.x @ part.mT for part in weight.split(width)], 1)

    def scores(self, attention: Attention) -> Tensor:
        """QKᵀ/√K of each head: (B, H, T, T)."""
        q, k = (self.projected(attention, name, self.K) for name in ("query", "key"))
        return self.K**-0.5 * q @ k.mT

    def patterns(self, scores: Tensor) -> Tensor:
        """Their softmax with a causal mask."""
        future = torch.ones(self.T, self.T, dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(future, -torch.inf), -1)

    def heads(self, attention: Attention, patterns: Tensor | None = None) -> Tensor:
        """The output z of each head, by the formula: (B, H, T, V)."""
        patterns = self.patterns(self.scores(attention)) if patterns is None else patterns
        return patterns @ self.projected(attention, "value", self.V)

    def written(self, z: Tensor, attention: Attention) -> Tensor:
        """What out_proj makes of the concatenated heads: cat(Z) W_O, (B, T, C)."""
        return z.transpose(1, 2).flatten(2) @ attention.get_parameter("out_proj.weight").mT

    def rows(self, attention: Attention, width: int) -> list[Tensor]:
        """The W_O^i: `width` rows of out_proj for each head."""
        return [*attention.get_parameter("out_proj.weight").mT.split(width)]

    @functools.cached_property
    def concat(self) -> Attention:
        return self.attention()

    @functools.cached_property
    def z(self) -> Tensor:
        """The heads of the standard attention, by the formula: (B, H, T, V)."""
        return self.heads(self.concat)
