"""Keys and values from one latent (kv_rank): costs, positions, gradients, what is refused."""

import pytest
import torch

from ablate.config.rules import ConfigError
from ablate.model.costs import attention_params
from ablate.model.models import build_model
from tests.helpers import SEEDS, make_spec, refusal_of


def test_parameters_by_hand():
    """Queries 64·64, latent 64·24, keys 24·64, values 24·64, out_proj 64·64; then the norm; then 8 turned
    channels, which take the place of as many of each head's keys."""
    plain = 64 * 64 + 64 * 24 + 24 * 64 + 24 * 64 + 64 * 64
    layers = 2
    assert attention_params(make_spec("kv_rank=24", "kv_norm=false")) == layers * plain
    assert attention_params(make_spec("kv_rank=24")) == layers * (plain + 24)
    turned = plain + 24 + 64 * 8 - 24 * 4 * 8
    assert attention_params(make_spec("kv_rank=24", "model.position=rope")) == layers * turned
    wide = make_spec("kv_rank=24", "model.position=rope", "rope_width=12")
    assert attention_params(wide) == layers * (plain + 24 + 64 * 12 - 24 * 4 * 12)


def scores_of(*overrides: str, shift: int) -> torch.Tensor:
    """q·k of each head where the same tokens stand so many places later."""
    spec = make_spec("kv_rank=24", "model.position=rope", "model.context=64", *overrides)
    attention = build_model(spec, SEEDS).double().sites()[0].attention
    x_BTC = torch.randn(1, 8, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([torch.zeros(1, shift, 64).double(), x_BTC], 1)
    q_BPTK, k_BPSK = attention.compared(padded, attention.latent(padded))
    return (q_BPTK @ k_BPSK.mT)[..., shift:, shift:]


def test_scores_know_distances_by_the_turned_channels_alone():
    torch.testing.assert_close(scores_of(shift=0), scores_of(shift=9))
    spec = make_spec("kv_rank=24", "model.position=rope")
    attention = build_model(spec, SEEDS).double().sites()[0].attention
    x_BTC = torch.randn(2, 6, 64, dtype=torch.float64)
    q_BPTK, k_BPSK = attention.compared(x_BTC, attention.latent(x_BTC))
    plain = attention.share.queries(attention.query(x_BTC))
    assert torch.equal(q_BPTK[..., :8], plain[..., :8]) and not torch.equal(q_BPTK[..., 8:], plain[..., 8:])
    assert torch.equal(k_BPSK[:, 0, :, 8:], k_BPSK[:, 3, :, 8:])  # one shared key
    assert not torch.equal(k_BPSK[:, 0, :, :8], k_BPSK[:, 3, :, :8])


def test_keys_and_values_start_as_large_as_plain_ones():
    x_BTC = torch.randn(8, 32, 64)
    plain, low = (
        build_model(make_spec(*given), SEEDS).sites()[0].attention for given in ((), ("kv_rank=16",))
    )
    for name in ("key", "value"):
        sizes = [getattr(a, name)(a.latent(x_BTC)).std().item() for a in (plain, low)]
        assert sizes[1] == pytest.approx(sizes[0], rel=0.15), name


REFUSED = [
    ("key_heads=1", "so there is no key_heads=1; use key_heads=auto, or kv_rank=null"),
    ("value_heads=2", "so there is no value_heads=2; use value_heads=auto"),
    ("tie_qk=true", "so there is no tie_qk=true; use tie_qk=false"),
    ("value_proj=false", "so there is no value_proj=false; use value_proj=true"),
    ("scores=uniform", "kv_rank=8: scores=uniform has no queries and keys; use kv_rank=null"),
    ("scores=offsets", "kv_rank=8: scores=offsets has no queries and keys; use kv_rank=null"),
    (
        "rope_width=4",
        "rope_width=4: it says what positions turn beside a latent, and there is no model.position=rope",
    ),
    ("model.position=rope rope_width=16", "leaves at least one to the latent; use rope_width=14"),
    ("model.position=rope rope_width=3", "rope_width=3: channels are turned in pairs"),
    (
        "model.position=rope scores=differential",
        "beside a latent positions turn 8 of them alone; use rope_width=0",
    ),
]


@pytest.mark.parametrize("overrides, words", REFUSED)
def test_what_does_not_go_with_a_latent_is_refused(overrides, words):
    assert words in refusal_of("kv_rank=8", *overrides.split())


def test_what_a_latent_brings_is_refused_without_one():
    with pytest.raises(ConfigError, match=r"rope_width=4: .* there is no kv_rank; use rope_width=auto"):
        make_spec("rope_width=4", "model.position=rope")
    with pytest.raises(ConfigError, match="kv_rank=0: must be at least 1"):
        make_spec("kv_rank=0")
