"""The variants of a method, one for each combination of its options, and attentions that use them."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from ablate.compose.configs import defaults_of
from ablate.config.read import bare, hints
from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES, PartConfig
from ablate.execution.plugins import KINDS
from ablate.model import fusion, scores
from ablate.model.attention import Attention
from ablate.model.blocks import Model
from ablate.model.build import build_model, draw_weights
from ablate.model.masks import CAUSAL, Mask
from ablate.model.sizing import SHARED
from ablate.model.spec import AttentionSpec, ModelSpec

SEEDS = {"backbone": 3, "fusion": 3, "data": 3}
STANDARD = {
    "fusion": PartConfig(name=STANDARD_FUSION, options={"normalize": "none"}),
    "scores": PartConfig(name=STANDARD_SCORES, options={}),
}


def variants_of(kind: str, name: str) -> list[PartConfig]:
    """A method with each combination of its Literal options; other options have their defaults."""
    method = KINDS[kind].methods()[name]
    types = {key: bare(of) for key, of in hints(method.Options).items()}
    choices = [
        [(key, choice) for choice in (get_args(types[key]) if get_origin(types[key]) is Literal else [value])]
        for key, value in defaults_of(kind, name, method.Options).items()
    ]
    combined = (PartConfig(name=name, options=dict(picked)) for picked in itertools.product(*choices))
    return [part for part in combined if _is_allowed(kind, part)]


def _is_allowed(kind: str, part: PartConfig) -> bool:
    try:
        KINDS[kind].method_of(part)
    except ConfigError:  # options that exclude each other
        return False
    return True


def attention_spec(**given: Any) -> AttentionSpec:
    """A spec whose sizes all differ, except where heads have to agree; `given` replaces fields."""
    sizes = {"d_model": 24, "heads": 4, "key_width": 7, "value_width": 5, "out_proj": True, "bias": False}
    heads = given.get("heads", sizes["heads"])
    shared = dict.fromkeys(SHARED, heads)
    rest = {"tie_qk": False, "scale": "inside", "value_proj": True, "value_gain": 1.0, "out_rank": None}
    start = {"dropout": 0.0, "residual_scale": 0.5}
    spec = AttentionSpec(**{**sizes, **shared, **rest, **start, **STANDARD, **given})
    if not scores.method_of(spec.scores)[0].compares:
        spec = dataclasses.replace(spec, query_heads=1, key_heads=1, key_width=0)
    return spec


def specs_around(kind: str, part: PartConfig) -> Iterator[AttentionSpec]:
    """Attentions with this part: with 4 heads and 1, without and with biases, with out_proj and, if widths
    allow it, without. Combinations whose options do not fit the heads are left out."""
    for heads, bias, out_proj in itertools.product((4, 1), (False, True), (True, False)):
        try:
            spec = attention_spec(heads=heads, bias=bias, out_proj=out_proj, **{kind: part})
            method, options = fusion.method_of(spec.fusion)
            rule, rule_options = scores.method_of(spec.scores)
            slots = method.slots(heads, options)
            rule.rules(heads, rule_options)  # raises if the options do not fit the heads
        except ConfigError:
            continue
        if out_proj:
            yield spec
        elif spec.d_model % slots == 0:
            yield dataclasses.replace(spec, value_width=spec.d_model // slots)


def model_of(spec: AttentionSpec, context: int = 11) -> ModelSpec:
    return ModelSpec(vocab=59, layers=2, context=context, mlp_hidden=48, attention=spec)


def build(spec: AttentionSpec) -> Model:
    """A language model around this attention, with its weights drawn, in float64."""
    return build_model(model_of(spec), SEEDS).double()


def attention(spec: AttentionSpec, mask: Mask = CAUSAL) -> Attention:
    """One attention with its weights drawn, in float64."""
    built = Attention(spec, mask)
    draw_weights(built, SEEDS)
    return built.double().eval()


def stirred(spec: AttentionSpec) -> Attention:
    """An attention with large random weights and no parameter at its initial value, so that no error
    hides."""
    built = attention(spec)
    with torch.no_grad():
        for name, param in built.named_parameters():
            param.copy_(torch.randn_like(param) * 0.5)
            if name.startswith(("fusion", "scores")):
                param.abs_().add_(0.3)
    return built


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest entry; 0 for empty tensors."""
    if not wanted.numel():
        return 0.0
    scale = wanted.abs().max().clamp(min=torch.finfo(wanted.dtype).tiny)
    return ((found - wanted).abs().max() / scale).item()
