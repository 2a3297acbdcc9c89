"""Sizes and costs: formulas against the real module, hand-worked answers, and what is refused."""

import itertools

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.rules import ConfigError
from ablate.model.build import build_model
from ablate.model.costs import attention_params, flops_per_token, total_params
from ablate.model.lm import LM
from ablate.model.resolve import match_error, reference, resolve_spec
from tests.helpers import PRIMES, make_config, make_spec

SEEDS = {"backbone": 0, "fusion": 0, "data": 0}
SHAPES = [
    (f"fusion={fusion}", f"out_proj={out_proj}", f"heads={heads}", f"model={model}")
    for fusion, out_proj, heads, model in itertools.product(
        ("concat", "sum", "mean", "weighted_sum", "grouped"), ("true", "false"), (2, 8), ("tiny", "nano")
    )
] + [(f"fusion={fusion}", *PRIMES) for fusion in ("concat", "sum", "weighted_sum")]
SHAPES += [("fusion=concat", "model.mlp_hidden=0", f"model.bias={bias}") for bias in ("true", "false")]


@pytest.mark.parametrize("overrides", SHAPES, ids="-".join)
def test_formulas_agree_with_the_module(overrides):
    spec = make_spec(*overrides)
    model = build_model(spec, SEEDS)
    assert total_params(spec) == sum(p.numel() for p in model.parameters())
    counted = sum(p.numel() for block in model.blocks for p in block.attention.parameters())
    assert attention_params(spec) == counted
    tokens = torch.zeros(3, spec.context, dtype=torch.long)
    # The counter sees no CPU flash attention, and nothing of it where gradients are kept.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model(tokens)
    assert flops_per_token(spec) * tokens.numel() == counter.get_total_flops()


def test_tiny_by_hand():
    spec = make_spec("fusion=concat", vocab=97)
    assert (spec.attention.key_width, spec.attention.value_width, spec.mlp_hidden) == (16, 16, 256)
    attention, mlp, norms = 4 * 64 * 64, 2 * 64 * 256, 2 * 64
    assert attention_params(spec) == 2 * attention
    assert total_params(spec) == (97 + 64) * 64 + 2 * (attention + mlp + norms) + 64
    layer = 2 * 64 * 4 * (2 * 16 + 16) + 2 * 64 * 4 * (16 + 16) + 2 * 64 * 64 + 4 * 64 * 256
    assert flops_per_token(spec) == 2 * layer + 2 * 64 * 97


def test_nanogpt_cpu_setting_has_its_published_number_of_parameters():
    """nanoGPT prints 0.80M for it: without positions, 65 characters."""
    spec = make_spec("model=nano", vocab=65)
    assert round((total_params(spec) - 64 * 128) / 1e6, 2) == 0.80


@pytest.mark.parametrize(
    "overrides, width",
    [
        (("fusion=sum",), 16),
        (("fusion=sum", "out_proj=false"), 64),
        (("fusion=concat", "out_proj=false"), 16),
        (("fusion=grouped", "fusion.groups=2", "out_proj=false"), 32),
        (("fusion=mean", "value_width=wide"), 64),
        (("fusion=mean", "value_width=narrow"), 16),
        (("fusion=mean", "value_width=23"), 23),
    ],
)
def test_value_widths(overrides, width):
    assert make_spec(*overrides).attention.value_width == width


@pytest.mark.parametrize("cost", ["params", "flops"])
@pytest.mark.parametrize(
    "overrides",
    [
        ("fusion=sum",),
        ("fusion=concat", "out_proj=false"),
        ("fusion=sum", "out_proj=false", "heads=4", "model=nano"),
        ("fusion=weighted_sum", "fusion.per=channel"),
        ("fusion=sum", "match_by=value_width", "model=nano"),
        ("fusion=concat", "key_width=40"),
    ],
)
def test_a_matched_model_costs_what_its_reference_costs(cost, overrides):
    config = make_config(*overrides, f"match={cost}")
    spec = resolve_spec(config, 97)
    count = {"params": total_params, "flops": flops_per_token}[cost]
    assert count(spec) == pytest.approx(count(reference(spec)), rel=0.01)
    assert match_error(config, spec) == pytest.approx(count(spec) / count(reference(spec)) - 1)
    standard = make_spec(f"model={config.model.name}", f"heads={config.heads}", vocab=97)
    assert count(reference(spec)) == count(standard)


@pytest.mark.parametrize(
    "overrides, hidden",
    [  # SCIENCE: concat without W_O +d/2; narrow sum with W_O +d(1−1/h)/2; wide sum without −d(h−2)/2
        (("fusion=concat", "out_proj=false"), 256 + 32),
        (("fusion=sum", "heads=8"), 256 + 28),
        (("fusion=sum", "heads=4", "out_proj=false"), 256 - 64),
    ],
)
def test_matched_mlp_widths_by_algebra(overrides, hidden):
    assert make_spec(*overrides, "match=params").mlp_hidden == hidden


def test_resolving_what_was_resolved_changes_nothing():
    for overrides in (("match=params",), ("match=flops", "match_by=value_width"), ("out_proj=false",)):
        spec = make_spec("fusion=sum", *overrides)
        sizes = [f"{key}={getattr(spec.attention, key)}" for key in ("value_width", "key_width")]
        assert make_spec("fusion=sum", *overrides, *sizes, f"model.mlp_hidden={spec.mlp_hidden}") == spec


@pytest.mark.parametrize(
    "overrides, parts",
    [
        (("heads=5",), ("heads=5", "model.d_model=64", "heads=4 or heads=8", "key_width")),
        (("heads=100",), ("heads=100", "heads=64")),
        (("heads=5", "key_width=16"), ("heads=5", "value_width=auto")),
        (("fusion=sum", "out_proj=false", "value_width=narrow"), ("value_width=64", "out_proj=true")),
        (("fusion=concat", "out_proj=false", "value_width=wide"), ("value_width=16", "out_proj=true")),
        (("fusion=grouped", "fusion.groups=3"), ("fusion.groups=3", "1 or 2 or 4")),
        (("fusion=sum", "out_proj=false", "heads=16", "match=params"), ("match_by=mlp", "heads=8")),
        (("fusion=sum", "out_proj=false", "match=params", "match_by=value_width"), ("match_by=mlp",)),
        (("fusion=sum", "match=params", "match_by=value_width", "value_width=wide"), ("auto",)),
        (("fusion=sum", "match=params", "model.mlp_hidden=999"), ("mlp_hidden=999", "%")),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_way_out(overrides, parts):
    with pytest.raises(ConfigError) as refusal:
        make_spec(*overrides)
    assert all(part in str(refusal.value) for part in parts), refusal.value
    assert "\n" not in str(refusal.value)


def test_the_match_that_a_refusal_names_can_be_made():
    with pytest.raises(ConfigError, match="nearest that can be matched: heads=8 match_by=mlp"):
        make_spec("fusion=sum", "out_proj=false", "heads=16", "match=params")
    assert make_spec("fusion=sum", "out_proj=false", "heads=8", "match=params", "match_by=mlp").mlp_hidden > 0


def test_any_number_of_heads_with_widths_of_their_own():
    spec = make_spec("fusion=sum", *PRIMES)
    assert LM(spec).blocks[0].attention.out_proj.weight.shape == (11, 5)
