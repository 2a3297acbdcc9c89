"""Heads mixed by a fixed orthogonal matrix in place of out_proj."""

import pytest
import torch

from ablate.model.models import build_model
from tests.helpers import SEEDS, make_spec


@pytest.mark.parametrize("given", [(), ("heads=1",), ("value_width=32", "heads=2", "model.d_model=64")])
def test_it_starts_as_large_as_concat_without_out_proj(given):
    def added(fusion: str) -> float:
        spec = make_spec(f"fusion={fusion}", "out_proj=false", *given)
        attention = build_model(spec, SEEDS).sites()[0].attention
        x_BTC = torch.randn(4, 32, spec.d_model, generator=torch.Generator().manual_seed(1))
        return attention(x_BTC, x_BTC).std().item()

    assert added("hadamard") == pytest.approx(added("concat"), rel=0.15)


def test_each_head_writes_into_all_channels():
    spec = make_spec("fusion=hadamard", "out_proj=false")
    attention = build_model(spec, SEEDS).sites()[0].attention
    z_BTHV = torch.randn(2, 5, spec.attention.heads, spec.attention.value_width)
    parts_BTHF = attention.fusion.contributions(z_BTHV, z_BTHV)
    torch.testing.assert_close(parts_BTHF.sum(-2), attention.fusion(z_BTHV, z_BTHV))
    assert parts_BTHF.abs().amin((0, 1)).min() > 0 and parts_BTHF.shape[-1] == spec.d_model
