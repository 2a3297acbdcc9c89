"""The language model: equal to the reference architecture, causal as a whole, open where it has to be."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ablate import rng
from ablate.model.attend import CAUSAL, EVERYTHING, Mask
from ablate.model.attention import Attention
from ablate.model.fusion import Fusion
from ablate.model.layers import Linear
from ablate.model.models import Model, build_model, decayed, draw_weights
from ablate.model.sizing import resolve_spec
from tests.helpers import PRIMES, make_spec, quick_config

SEEDS = {"backbone": 5, "fusion": 5, "data": 5}
KEYS = [
    ("key_heads=1", "value_heads=1"),
    ("key_heads=4", "value_heads=8"),
    ("key_heads=2", "value_heads=1"),
    ("value_heads=4", "tie_qk=true"),
    ("scale=both",),
    ("scale=none", "tie_qk=true"),
    ("out_rank=3",),
    ("out_proj=false", "scale=outside"),
]


def make_attention(mask: Mask, *overrides: str) -> Any:
    """An attention, of whose parts a test may ask what only they have."""
    attention = Attention(resolve_spec(quick_config(*overrides), 59).attention, mask)
    draw_weights(attention, SEEDS)
    for param in attention.parameters():
        param.data *= 10  # so that patterns are far from uniform
    return attention.double()


EIGHT = ("heads=8", "model.d_model=24")
EQUATIONS = [
    *((mask, (f"fusion={fusion}", *PRIMES)) for mask in (CAUSAL, EVERYTHING) for fusion in ("concat", "sum")),
    *((CAUSAL, (*EIGHT, *keys)) for keys in KEYS),
]


@pytest.mark.parametrize("mask, overrides", EQUATIONS)
def test_attention_is_its_equation(mask, overrides):
    """Against loops over heads and positions: head i uses queries, keys and values ⌊i·count/heads⌋."""
    attention = make_attention(mask, *overrides)
    spec, S = attention.spec, 13 if mask == CAUSAL else 17
    x_BTC = torch.randn(2, 13, spec.d_model, dtype=torch.float64)
    source_BSC = torch.randn(2, S, spec.d_model, dtype=torch.float64)
    query, key, value = (getattr(attention, name).weight.detach() for name in ("query", "key", "value"))
    inside, outside = (
        spec.key_width**-0.5 if spec.scale in (place, "both") else 1.0 for place in ("inside", "outside")
    )
    heads = []
    for head in range(spec.heads):
        q, k, v = (
            x_BXC[1] @ weight.unflatten(0, (count, -1))[head * count // spec.heads].T
            for x_BXC, weight, count in (
                (x_BTC, query, spec.heads),
                (source_BSC, key, spec.key_heads),
                (source_BSC, value, spec.value_heads),
            )
        )
        read = torch.zeros(13, v.shape[1], dtype=torch.float64)
        for t in range(13):
            shown = slice(t + 1 if mask == CAUSAL else S)
            read[t] = torch.softmax(inside * k[shown] @ q[t], 0) @ v[shown] * outside
        heads.append(read)
    fused = torch.stack(heads).sum(0) if "fusion=sum" in overrides else torch.cat(heads, -1)
    if spec.out_rank:
        fused = fused @ attention.out_proj.down.weight.T @ attention.out_proj.up.weight.T
    elif spec.out_proj:
        fused = fused @ attention.out_proj.weight.T
    torch.testing.assert_close(attention(x_BTC, source_BSC)[1], fused, rtol=0, atol=1e-12)


def test_a_causal_mask_refuses_queries_and_keys_of_other_positions():
    with pytest.raises(ValueError, match="not 13 and 17") as refusal:
        make_attention(CAUSAL, *PRIMES)(torch.randn(2, 13, 11).double(), torch.randn(2, 17, 11).double())
    assert "\n" not in str(refusal.value)


def test_weights_are_drawn_from_the_stream_of_the_part_that_holds_them():
    class Gated(Fusion):
        stream = "gates"

        def __init__(self, shape, options):
            super().__init__(shape, options)
            self.gate = Linear(shape.d_model, shape.heads, bias=False)

        @classmethod
        def slots(cls, heads, options):
            return heads

        def forward(self, z_BTHV, x_BTC):
            return (z_BTHV * self.gate(x_BTC).sigmoid()[..., None]).flatten(-2)

    spec = make_spec(*PRIMES)
    model, seeds = Model(spec), {"backbone": 5, "gates": 7}
    model.blocks[1].attention.fusion = Gated(spec.attention.head_shape(), options=None)
    draw_weights(model, seeds)
    for name, stream in (("fusion.gate", "gates"), ("query", "backbone")):
        weight = model.get_parameter(f"blocks.1.attention.{name}.weight")
        draw = rng.generator(seeds[stream], stream, f"blocks.1.attention.{name}.weight").standard_normal(
            tuple(weight.shape), "f4"
        )
        torch.testing.assert_close(weight.detach(), 0.02 * torch.from_numpy(draw))


def test_residual_writers_start_at_gpt2s_scale():
    model = build_model(make_spec("model=nano"), SEEDS)
    block = model.blocks[0]
    assert block.get_parameter("mlp.up.weight").std().item() == pytest.approx(0.02, rel=0.02)
    for writer in ("mlp.down.weight", "attention.out_proj.weight"):
        assert block.get_parameter(writer).std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)
    alone = build_model(make_spec("model=nano", "model.mlp_hidden=0"), SEEDS).blocks[0].attention
    assert alone.get_parameter("out_proj.weight").std().item() == pytest.approx(0.02 / 4**0.5, rel=0.02)
    without = build_model(make_spec("model=nano", "out_proj=false"), SEEDS).blocks[0].attention
    assert without.get_parameter("value.weight").std().item() == pytest.approx(0.02 / 8**0.5, rel=0.02)


def test_only_weights_of_linear_layers_and_embeddings_decay():
    spec = make_spec("fusion=weighted_sum", "fusion.per=channel", "model.bias=true", "model.layers=1")
    kept = {name for name, pulled in decayed(build_model(spec, SEEDS)).items() if not pulled}
    layer = "blocks.0."
    assert kept == {
        layer + "attention.fusion.alpha",
        *(f"{layer}attention.{part}.bias" for part in ("query", "key", "value", "out_proj")),
        *(f"{layer}mlp.{part}.bias" for part in ("up", "down")),
        *(f"{layer}norm_{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")),
        "norm.weight",
        "norm.bias",
    }


def test_products_and_attention_can_be_replaced():
    model = build_model(make_spec(*PRIMES), SEEDS)
    tokens = torch.randint(0, 59, (2, 13))
    before, calls = model(tokens), {"product": 0, "attend": 0}

    def product(x, weight, bias):
        calls["product"] += 1
        return F.linear(x, weight, bias)

    def own_attend(q, k, v, mask, dropout, scale):
        calls["attend"] += 1
        scores = scale * q @ k.mT + mask.visible(13, 13).log()
        return torch.softmax(scores, -1) @ v

    model.use(product=product, attend=own_attend)
    torch.testing.assert_close(model(tokens), before)
    assert calls == {"product": 2 * (4 + 2) + 1, "attend": 2}  # q, k, v, out; up, down; the output layer
