"""The parts of a backbone: positions, norms, MLPs. That they are a Llama together, test_export_hf.py has."""

from unittest import mock

import pytest
import torch

from ablate.model.attend import CAUSAL
from ablate.model.attention import Attention
from ablate.model.layers import RMSNorm, Rotary
from ablate.model.models import build_model, draw_weights
from ablate.model.parts import without_length
from ablate.model.sizing import resolve_spec
from tests.helpers import make_spec, quick_config

SEEDS = {"backbone": 5, "fusion": 5, "data": 5}
MODERN = ("model=modern", "model.d_model=48", "model.context=32")


# --- positions ----------------------------------------------------------------------------------------------


def shifted(overrides: tuple[str, ...], by: int) -> float:
    """By how much the output of an attention changes if all positions are later."""
    config = quick_config("heads=4", "model.d_model=24", *overrides)
    attention = Attention(resolve_spec(config, 59).attention, CAUSAL)
    draw_weights(attention, SEEDS)
    for param in attention.parameters():
        param.data = param.data * 10 + 0.3 * torch.rand_like(param)
    attention = attention.double()
    x_BTC = torch.randn(2, 13, 24, dtype=torch.float64)
    before = attention(x_BTC, x_BTC)
    turn = Rotary.forward
    with mock.patch.object(Rotary, "forward", lambda self, x: turn(self, x, by)):
        return (attention(x_BTC, x_BTC) - before).abs().max().item()


KEYS = [
    (),
    ("key_heads=2", "value_heads=1"),
    ("scores=windows",),
    ("scores=talking",),
    ("scores=qk_norm",),
    ("scale=both", "out_proj=false"),
    ("model.rope_base=50",),
]


@pytest.mark.parametrize("overrides", KEYS)
def test_scores_depend_on_distance_alone(overrides):
    assert shifted(("model.position=rope", *overrides), 1000) < 1e-10


def test_the_table_of_turns_is_no_state():
    model = build_model(make_spec(*MODERN), SEEDS)
    assert not any("position" in name or "turn" in name for name in model.state_dict())
    assert not [*model.named_buffers()]


def test_angles_are_of_float32_in_bfloat16():
    x = torch.randn(2, 3, 64, 16).to(torch.bfloat16)
    exact = Rotary(10000.0)(x.double())
    assert (Rotary(10000.0)(x).double() - exact).abs().max() < 2**-8 * exact.abs().max()


@pytest.mark.parametrize("kind", ["rope", "none"])
def test_without_learned_positions_a_model_is_causal_and_rope_knows_the_order(kind):
    model = build_model(make_spec(*MODERN, f"model.position={kind}", "model.layers=1"), SEEDS).double()
    for name, param in model.named_parameters():
        param.data *= 20 if name.endswith(("query.weight", "key.weight")) else 1
    tokens = torch.randint(0, 59, (2, 13))
    later = torch.cat([tokens[:, :7], tokens[:, 7:].flip(1)], 1)
    assert torch.equal(model(tokens)[:, :7], model(later)[:, :7])
    swapped = torch.cat([tokens[:, :12].flip(1), tokens[:, 12:]], 1)
    apart = (model(tokens)[:, -1] - model(swapped)[:, -1]).abs().max().item()
    assert apart > 1e-6 if kind == "rope" else apart < 1e-12


# --- norms and MLPs -----------------------------------------------------------------------------------------


def test_an_rms_norm_is_its_formula_with_eps_in_the_root():
    norm = RMSNorm(5).double()
    norm.weight.data = torch.randn(5, dtype=torch.float64)
    for size in (1.0, 1e-3):
        x = size * torch.randn(2, 5, dtype=torch.float64)
        wanted = norm.weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        torch.testing.assert_close(norm(x), wanted, rtol=1e-12, atol=0)
    outside = norm.weight * x / (x.square().mean(-1, keepdim=True).sqrt() + 1e-6)
    assert (outside - norm(x)).abs().max() > 0.05 * norm(x).abs().max()


@pytest.mark.parametrize(
    "dtype, eps", [(torch.float64, 2**-52), (torch.float32, 2**-23), (torch.bfloat16, 2**-23)]
)
def test_without_its_length_a_small_vector_is_that_of_its_formula(dtype, eps):
    x = (1e-4 * torch.randn(5, 7)).to(dtype)
    expected = x.double() / (x.double().square().mean(-1, keepdim=True) + eps).sqrt()
    torch.testing.assert_close(without_length(x), expected.to(dtype))


def test_an_rms_norm_is_computed_in_float32_under_bfloat16():
    x = (30 * torch.randn(64, 64)).to(torch.bfloat16)
    norm = RMSNorm(64).to(torch.bfloat16)
    assert norm(x).dtype == torch.bfloat16
    assert torch.equal(norm(x), RMSNorm(64)(x.float()).to(torch.bfloat16))


@pytest.mark.parametrize("kind", ["gelu", "relu2", "swiglu"])
def test_an_mlp_is_its_formula(kind):
    model = build_model(make_spec(*MODERN, f"model.mlp={kind}", "model.bias=true"), SEEDS).double()
    mlp, x = model.blocks[0].mlp, torch.randn(2, 3, 48, dtype=torch.float64)
    assert mlp is not None
    for param in mlp.parameters():
        param.data = torch.randn_like(param)
    p = dict(mlp.named_parameters())
    up = x @ p["up.weight"].T + p["up.bias"]
    if kind == "swiglu":
        gate = x @ p["gate.weight"].T + p["gate.bias"]
        hidden = gate / (1 + (-gate).exp()) * up
    elif kind == "relu2":
        hidden = up.clamp(min=0) ** 2
    else:
        hidden = up * (1 + torch.erf(up / 2**0.5)) / 2
    torch.testing.assert_close(mlp(x), hidden @ p["down.weight"].T + p["down.bias"], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("d", "hidden"), [(64, 168), (128, 344), (2, 8)])
def test_a_gated_mlp_costs_what_another_does(d, hidden):
    sizes = (f"model.d_model={d}", "heads=1")
    spec = make_spec("model=modern", *sizes)
    assert spec.mlp_hidden == hidden
    if d >= 48:
        assert 3 * d * hidden == pytest.approx(8 * d * d, rel=0.02)
    assert make_spec("model=modern", *sizes, "model.mlp_hidden=13").mlp_hidden == 13


# --- the keys -----------------------------------------------------------------------------------------------
