"""The keys of attention: what they compute, what they cost, how they are matched, and what is refused."""

import dataclasses
import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.identity import identity_keys
from ablate.config.rules import ConfigError
from ablate.model import fusion, scores
from ablate.model.attention import Attention
from ablate.model.build import build_model, draw_weights
from ablate.model.costs import attention_params, flops_per_token, total_params
from ablate.model.masks import CAUSAL
from ablate.model.resolve import match_error, resolve_spec, resolved
from ablate.model.sharing import sharing
from ablate.model.spec import ModelSpec
from tests.helpers import make_config, quick_config

SEEDS = {"backbone": 5, "fusion": 5, "data": 5}
KEYS = [
    ("key_heads=1", "value_heads=1"),
    ("query_heads=1", "key_heads=1"),
    ("query_heads=2", "key_heads=4", "value_heads=8"),
    ("query_heads=4", "key_heads=2", "value_heads=1"),
    ("query_heads=2", "key_heads=2", "value_heads=4", "tie_qk=true"),
    ("scale=both",),
    ("scale=none", "tie_qk=true"),
    ("value_proj=false",),
    ("out_rank=3",),
    ("out_proj=false", "value_scale=matched", "scale=outside"),
]


def quick_spec(*overrides: str) -> ModelSpec:
    return resolve_spec(quick_config(*overrides), 59)


def keyed(*overrides: str) -> Any:
    """An attention, of whose parts a test may ask what only they have."""
    attention = Attention(quick_spec("heads=8", "model.d_model=24", *overrides).attention, CAUSAL)
    draw_weights(attention, SEEDS)
    for param in attention.parameters():
        param.data *= 10  # so that patterns are far from uniform
    return attention.double()


@pytest.mark.parametrize("overrides", KEYS, ids="-".join)
def test_attention_is_its_equation(overrides):
    """Against loops over heads and positions: head i uses queries, keys and values ⌊i·count/heads⌋."""
    attention, x_BTC = keyed(*overrides), torch.randn(1, 9, 24, dtype=torch.float64)
    spec, x = attention.spec, x_BTC[0]
    query, key = (getattr(attention, name).weight.detach() for name in ("query", "key"))
    value = attention.value.weight.detach() if spec.value_proj else torch.eye(24, dtype=torch.float64)
    inside, outside = spec.scale in ("inside", "both"), spec.scale in ("outside", "both")
    constant = 0.02 * math.sqrt(24) if "value_scale=matched" in overrides else 1.0
    heads = []
    for head in range(8):
        q, k, v = (
            x @ weight.unflatten(0, (count, -1))[head * count // 8].T
            for weight, count in ((query, spec.query_heads), (key, spec.key_heads), (value, spec.value_heads))
        )
        read = torch.zeros(9, v.shape[1], dtype=torch.float64)
        for t in range(9):
            pattern = torch.softmax(k[: t + 1] @ q[t] / (3**0.5 if inside else 1), 0)
            read[t] = pattern @ v[: t + 1] * constant / (3**0.5 if outside else 1)
        heads.append(read)
    fused = torch.cat(heads, -1)
    if spec.out_rank:
        fused = fused @ attention.out_proj.down.weight.T @ attention.out_proj.up.weight.T
    elif spec.out_proj:
        fused = fused @ attention.out_proj.weight.T
    torch.testing.assert_close(attention(x_BTC, x_BTC)[0], fused, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", scores.methods())
@pytest.mark.parametrize(
    "heads", [("heads=4",), ("heads=8", "query_heads=2", "key_heads=4", "value_heads=8")]
)
def test_probabilities_are_those_of_each_head(method, heads):
    overrides = heads[:1] if method == "uniform" else heads
    attention, x_BTC = keyed(*overrides, f"scores={method}"), torch.randn(2, 9, 24, dtype=torch.float64)
    spec = attention.spec
    values = attention.value(x_BTC).unflatten(-1, (spec.value_heads, -1)).transpose(1, 2)
    values_BHTV = values[:, [head * spec.value_heads // spec.heads for head in range(spec.heads)]]
    patterns_BHTS = attention.probabilities(x_BTC, x_BTC)
    read_BTHV = attention.read(x_BTC, x_BTC)
    torch.testing.assert_close(read_BTHV, (patterns_BHTS @ values_BHTV).transpose(1, 2), rtol=0, atol=1e-12)


def test_uniform_is_a_running_mean():
    attention, x_BTC = keyed("scores=uniform"), torch.randn(2, 9, 24, dtype=torch.float64)
    values = attention.value(x_BTC)
    expected = values.cumsum(1) / torch.arange(1, 10)[:, None]
    torch.testing.assert_close(attention.read(x_BTC, x_BTC).flatten(2), expected, rtol=0, atol=1e-12)
    assert {name for name, _ in attention.named_parameters()} == {"value.weight", "out_proj.weight"}


def test_windows_by_hand():
    attention = keyed("heads=4", "model.d_model=24", "scores=windows", "scores.windows=[1,2,3,100]")
    x_BTC = torch.randn(1, 9, 24, dtype=torch.float64)
    seen_HTS = attention.probabilities(x_BTC, x_BTC)[0] > 0
    for seen_TS, width in zip(seen_HTS, (1, 2, 3, 100), strict=True):
        assert seen_TS.tolist() == [[0 <= t - s < width for s in range(9)] for t in range(9)]


def test_talking_starts_as_softmax_and_mixes_by_hand():
    x_BTC = torch.randn(1, 9, 24, dtype=torch.float64)
    talking, softmax = keyed("heads=2", "scores=talking"), keyed("heads=2")
    for mix in (talking.scores.pre, talking.scores.post):
        mix.data.copy_(torch.eye(2))
    torch.testing.assert_close(talking(x_BTC, x_BTC), softmax(x_BTC, x_BTC), rtol=0, atol=1e-12)
    talking.scores.post.data.copy_(torch.tensor([[2.0, -1.0], [0.5, 0.0]]))
    first, second = softmax.probabilities(x_BTC, x_BTC)[0]
    expected = torch.stack([2 * first - second, first / 2])
    torch.testing.assert_close(talking.probabilities(x_BTC, x_BTC)[0], expected, rtol=0, atol=1e-12)
    talking.scores.post.data.copy_(torch.eye(2))
    talking.scores.pre.data.copy_(torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    swapped = talking.probabilities(x_BTC, x_BTC)[0]
    torch.testing.assert_close(swapped, torch.stack([second, first]), rtol=0, atol=1e-12)


def test_qk_norm_depends_on_directions_alone():
    attention, x_BTC = keyed("scores=qk_norm"), torch.randn(1, 9, 24, dtype=torch.float64)
    before = attention.probabilities(x_BTC, x_BTC)
    attention.query.weight.data *= 7
    torch.testing.assert_close(attention.probabilities(x_BTC, x_BTC), before, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "heads, queries, keys", [(8, 8, 1), (8, 2, 4), (12, 4, 6), (12, 6, 4), (12, 1, 1), (6, 6, 6)]
)
def test_equal_patterns_are_computed_once(heads, queries, keys):
    """Where queries and keys change along the heads, patterns do: at queries + keys − gcd places."""
    config = quick_config("model.d_model=24", f"heads={heads}", f"query_heads={queries}", f"key_heads={keys}")
    shared = sharing(resolve_spec(config, 59).attention)
    assert len(shared.heads) == queries + keys - math.gcd(queries, keys)
    pairs = {(head * queries // heads, head * keys // heads) for head in range(heads)}
    assert {*zip(shared.queries, shared.keys, strict=True)} == pairs


@pytest.mark.parametrize("overrides", KEYS, ids="-".join)
@pytest.mark.parametrize("method", scores.methods())
def test_costs_are_those_of_the_module(overrides, method):
    if method == "uniform":
        overrides = tuple(o for o in overrides if o.startswith(("value", "out")))
    for bias in ("true", "false"):
        spec = quick_spec("heads=8", "model.context=11", f"scores={method}", f"model.bias={bias}", *overrides)
        model, tokens = build_model(spec, SEEDS), torch.zeros(3, 11, dtype=torch.long)
        assert total_params(spec) == sum(p.numel() for p in model.parameters())
        of_attention = sum(p.numel() for block in model.blocks for p in block.attention.parameters())
        assert attention_params(spec) == of_attention
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            model(tokens)
        assert flops_per_token(spec) * tokens.numel() == counter.get_total_flops()


CHANGES = [
    {},
    {"key_heads": 1, "value_heads": 1},
    {"query_heads": 2, "key_heads": 2},
    {"tie_qk": True},
    {"scale": "both"},
    {"value_proj": False},
    {"out_rank": 8},
    {"value_scale": "matched"},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", fusion.methods())
def test_every_cell_is_matched_within_a_percent_or_refused_by_name(name):
    starts = {rule: quick_config(f"fusion={name}", f"scores={rule}") for rule in scores.methods()}
    matched = 0
    grid = itertools.product(
        scores.methods(), (1, 4, 8), (True, False), CHANGES, ("params", "flops"), ("mlp", "value_width")
    )
    for rule, heads, out_proj, change, match, by in grid:
        config = dataclasses.replace(
            starts[rule], heads=heads, out_proj=out_proj, match=match, match_by=by, **change
        )
        try:
            error = match_error(config, resolve_spec(config, 59))
        except ConfigError as refusal:
            assert "=" in str(refusal).partition(":")[0] and ";" in str(refusal), refusal
        else:
            assert error is not None and abs(error) <= 0.01
            matched += 1
    assert matched > 300


@pytest.mark.parametrize(
    "overrides, words",
    [
        (("key_heads=3", "heads=8"), "key_heads=3: does not divide heads=8; use key_heads=2 or 4"),
        (("query_heads=16",), "query_heads=16: does not divide heads=4; use query_heads=2 or 4"),
        (("value_proj=false", "value_width=8"), "value_proj=false: heads=4 of value_width=8 would read"),
        (("value_proj=false", "value_heads=2"), "value_heads=2 would share them; use value_heads=auto"),
        (("value_proj=false", "fusion=sum", "out_proj=false"), "no value_width fits, so use out_proj=true"),
        (("value_proj=false", "match=flops", "match_by=value_width"), "match_by=value_width: with"),
        (("out_rank=0",), "out_rank=0: must be at least 1"),
        (("out_rank=4", "out_proj=false"), "out_rank=4: with out_proj=false"),
        (("value_scale=matched",), "value_scale=matched: it stands in for out_proj"),
        (("value_scale=2",), "value_scale=2: expected 1 or matched"),
        (("tie_qk=true", "key_heads=2"), "tie_qk=true: query_heads=4 and key_heads=2"),
        (("scale=outisde",), "scale=outisde: not a choice; did you mean outside?"),
        (("scores=windows", "scores.windows=[8,16]"), "scores.windows=[8,16]: 2 of them for heads=4"),
        (("scores=windows", "scores.windows=[0,1,2,3]"), "windows=[0,1,2,3]: give each head a width of"),
        (("scores=windows", "scores.windows=0"), "scores.windows=0: give each head a width of 1"),
        (("scores=uniform", "key_width=8"), "key_width=8: scores=uniform has no queries and keys"),
        (("scores=uniform", "scale=none"), "scores=uniform has no queries and keys; use scale=inside"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(overrides, words):
    with pytest.raises(ConfigError) as refusal:
        resolve_spec(make_config(*overrides), 59)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_what_uses_no_new_key_keeps_its_identity():
    """And what says the same in other words has the same."""
    new = {
        "scores",
        "query_heads",
        "key_heads",
        "value_heads",
        "tie_qk",
        "scale",
        "value_proj",
        "value_scale",
    }
    for overrides in (
        (),
        ("query_heads=4", "key_heads=4", "value_heads=4", "scores=softmax", "out_rank=null"),
    ):
        config = make_config("fusion=sum", *overrides)
        content = identity_keys(resolved(config, resolve_spec(config, 59)))
        assert not {*content} & (new | {"out_rank"})
        assert content["fusion"] == {"name": "sum", "options": {"normalize": "none"}}
    used = make_config("fusion=sum", "fusion.order=rotate", "key_heads=2", "scores=talking")
    content = identity_keys(resolved(used, resolve_spec(used, 59)))
    assert content["fusion"]["options"] == {"normalize": "none", "order": "rotate"}
    assert (content["key_heads"], content["scores"]["options"]) == (2, {"mix": "both"})


def test_what_was_resolved_resolves_to_the_same():
    for overrides in (("scores=uniform",), ("key_heads=1", "match=params"), ("fusion=sum", "out_rank=4")):
        config = make_config(*overrides)
        spec = resolve_spec(config, 59)
        assert resolve_spec(resolved(config, spec), 59) == spec
