"""Sizes and costs: formulas against the real module, hand-worked answers, and what is refused."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.rules import ConfigError
from ablate.config.schema import PARTS, identity_keys
from ablate.execution.plugins import KINDS
from ablate.execution.run import prepare
from ablate.model import fusion, scores
from ablate.model.costs import attention_params, flops_per_token, reference, relative_cost, total_params
from ablate.model.models import Model, build_model
from ablate.model.sizing import resolve_spec, resolved
from ablate.model.spec import ModelSpec
from ablate.verify.attentions import attention_spec, model_of, variants_of
from tests.helpers import PRIMES, SEEDS, make_config, make_spec, quick_config, refusal_of
from tests.test_model import KEYS

# Those of every variant of a method: ablate.verify.contract.flops and parameters.
SHAPES = [
    *((f"fusion={fusion}", *PRIMES) for fusion in ("concat", "sum", "weighted_sum")),
    *(("heads=8", "model.mlp_hidden=0", f"model.bias={bias}") for bias in ("true", "false")),
    *(("fusion=hadamard", f"out_proj={out}", "model.bias=true") for out in ("true", "false")),
    ("model.position=rope", "key_width=10", "model.bias=true", "fusion=exclusive"),
]
OF_KEYS = [
    (
        *("heads=8", "model.context=11", f"scores={name}", f"model.bias={bias}"),
        *(key for key in keys if rule.compares or key.startswith(("value", "out"))),
    )
    for (name, rule), keys, bias in itertools.product(scores.methods().items(), KEYS, ("true", "false"))
]


@pytest.mark.parametrize("overrides", [*SHAPES, *OF_KEYS], ids="-".join)
def test_costs_are_those_of_the_module(overrides):
    require_costs(resolve_spec(quick_config(*overrides), 59), lambda model, tokens: model(tokens))


def require_costs(spec: ModelSpec, compute: Callable[[Model, torch.Tensor], object]) -> None:
    """That they are what the module has, and what is counted where it computes something of tokens."""
    model = build_model(spec, SEEDS)
    assert total_params(spec) == sum(p.numel() for p in model.parameters())
    assert attention_params(spec) == sum(p.numel() for s in model.sites() for p in s.attention.parameters())
    tokens = torch.zeros(3, spec.context, dtype=torch.long)
    # The counter sees no CPU flash attention, and nothing of it where gradients are kept.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        compute(model, tokens)
    assert flops_per_token(spec) * tokens.numel() == counter.get_total_flops()


# Parameters of an attention with 4 heads, queries and keys 7 wide, values 5, model 24: 24·28 for queries and
# for keys, 24·20 for values, and 24·20 or, for sums, 24·5 for out_proj; then those of the method.
CONCAT, SUM = 2304, 1944
OF_METHODS: dict[str, set[int]] = {
    **{name: {CONCAT} for name in ("concat", "softmax", "windows", "exclusive", "hadamard")},
    "differential": {CONCAT + 2 * 24 * 4 + 4 * 4},  # at a key width of 8 in place of 7; four vectors of 4
    **{name: {SUM} for name in ("sum", "mean")},
    "grouped": {SUM + 120},
    "weighted_sum": {SUM + 4, SUM + 20},  # a weight for each head, or for each channel of each
    "head_scale": {CONCAT + 4},
    "head_norm": {CONCAT + 20},
    "gated": {CONCAT + count for count in (4, 20, 5, 96, 480, 120)},  # per head, channel, shared; from x: ·24
    "qk_norm": {CONCAT + 14},
    "talking": {CONCAT + 16, CONCAT + 32},
    **{name: {CONCAT - 2 * 24 * 28} for name in ("uniform", "offsets")},
}


@pytest.mark.parametrize("kind", PARTS)
def test_parameters_of_every_method_by_hand(kind):
    for name in KINDS[kind].methods():
        parts = variants_of(kind, name)
        assert name in OF_METHODS, f"{name}: write its parameters into OF_METHODS, reckoned by hand"
        assert {attention_params(model_of(attention_spec(**{kind: part}))) for part in parts} == {
            2 * count
            for count in OF_METHODS[name]  # in two layers
        }, name


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
        ("fusion=concat", "key_width=40"),
        ("fusion=hadamard", "out_proj=false"),
    ],
)
def test_a_matched_model_costs_what_its_reference_costs(cost, overrides):
    config = make_config(*overrides, f"match={cost}")
    spec = resolve_spec(config, 97)
    count = {"params": total_params, "flops": flops_per_token}[cost]
    assert count(spec) == pytest.approx(count(reference(spec)), rel=0.01)
    assert relative_cost(spec, cost) == pytest.approx(count(spec) / count(reference(spec)) - 1)
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


def test_what_says_the_same_in_other_words_has_the_same_identity():
    def content(*overrides: str) -> dict:
        config = make_config("fusion=sum", *overrides)
        return identity_keys(resolved(config, resolve_spec(config, 59)))

    same = ("key_heads=4", "value_heads=4", "scores=softmax", "out_rank=null")
    assert content(*same) == content()
    assert content()["fusion"] == {"name": "sum", "options": {"normalize": "none", "order": "none"}}
    used = content("fusion.order=rotate", "key_heads=2", "scores=talking")
    assert used["fusion"]["options"] == {"normalize": "none", "order": "rotate"}
    assert (used["key_heads"], used["scores"]["options"]) == (2, {"mix": "both"})


@pytest.mark.parametrize(
    "overrides",
    [
        ("fusion=sum", "match=params"),
        ("fusion=sum", "out_proj=false"),
        ("scores=uniform",),
        ("key_heads=1", "match=params"),
        ("fusion=sum", "out_rank=4"),
        ("model.position=rope", "match=flops"),
        ("fusion=hadamard", "out_proj=false"),
    ],
)
def test_what_was_resolved_resolves_to_the_same(overrides):
    config = make_config(*overrides)
    spec = resolve_spec(config, 59)
    assert resolve_spec(resolved(config, spec), 59) == spec


@pytest.mark.parametrize(
    "overrides, parts",
    [
        (("heads=5",), ("heads=5", "model.d_model=64", "heads=4 or heads=8", "key_width")),
        (("heads=5", "key_width=16"), ("heads=5", "value_width=auto")),
        (("fusion=sum", "out_proj=false", "value_width=narrow"), ("value_width=64", "out_proj=true")),
        (("fusion=grouped", "fusion.groups=3"), ("fusion.groups=3", "heads=4", "1 or 2 or 4")),
        (("fusion=sum", "match=params", "model.mlp_hidden=999"), ("mlp_hidden=999", "%")),
        (("key_heads=3", "heads=8"), ("key_heads=3: does not divide heads=8; use one of 1, 2, 4, 8",)),
        (
            ("heads=5", "key_width=4", "value_width=9", "out_proj=false"),
            ("no value_width fits, so use out_proj=true",),
        ),
        (("out_rank=0",), ("out_rank=0: must be at least 1",)),
        (("out_rank=4", "out_proj=false"), ("out_rank=4: with out_proj=false",)),
        (("fusion=hadamard", "value_width=5"), ("are 20 wide; use value_width=4 or value_width=8",)),
        (("tie_qk=true", "key_heads=2"), ("tie_qk=true: key_heads=2 can't have the weight of as many",)),
        (("scale=outisde",), ("scale=outisde: not a choice; did you mean outside?",)),
        (("scores=windows", "scores.windows=[0,1,2,3]"), ("windows=[0,1,2,3]: give each head a width of",)),
        (("scores=differential", "key_width=7"), ("and a head has 7; use key_width=8",)),
        (("model.position=rope", "key_width=5"), ("a head has 5 (key_width=5); use key_width=6",)),
        (("model=pair", "corpus=copy", "model.position=rope"), ("model=pair reads two texts",)),
        (("model.mlp=swiglu", "model.mlp_hidden=0"), ("model.mlp_hidden=0 leaves the MLPs out",)),
        (("scores=uniform", "key_width=8"), ("key_width=8: scores=uniform has no queries and keys",)),
        (("scores=uniform", "scale=none"), ("scores=uniform has no queries and keys; use scale=inside",)),
    ],
)
def test_what_cannot_be_built_is_refused_with_the_way_out(overrides, parts):
    refusal = refusal_of(*overrides)
    assert all(part in refusal for part in parts), refusal


CHANGES = [
    {},
    {"key_heads": 1, "value_heads": 1},
    {"key_heads": 2},
    {"tie_qk": True},
    {"scale": "both"},
    {"out_rank": 8},
]


@pytest.mark.slow
@pytest.mark.parametrize("name", fusion.methods())
def test_every_cell_is_matched_within_a_percent_or_refused_by_name(name):
    starts = {rule: quick_config(f"fusion={name}", f"scores={rule}") for rule in scores.methods()}
    matched = 0
    grid = itertools.product(scores.methods(), (1, 4, 8), (True, False), CHANGES, ("params", "flops"))
    for rule, heads, out_proj, change, match in grid:
        config = replace(starts[rule], heads=heads, out_proj=out_proj, match=match, **change)
        try:
            spec = resolve_spec(config, 59)
        except ConfigError as refusal:
            assert "=" in str(refusal).partition(":")[0] and ";" in str(refusal), refusal
        else:
            assert abs(relative_cost(spec, match)) <= 0.01
            matched += 1
    assert matched > 150


def test_a_cost_that_no_mlp_reaches_is_refused_with_how_near_it_comes():
    with pytest.raises(ConfigError, match=r"match=params: .* at model\.mlp_hidden=1, and 1% is allowed; use"):
        make_spec("fusion=sum", "out_proj=false", "heads=16", "match=params")
    assert make_spec("fusion=sum", "out_proj=false", "heads=8", "match=params").mlp_hidden > 1


def test_parameters_that_can_not_fit_are_refused_with_the_number(monkeypatch):
    text = ("corpus=grammar", "corpus.characters=20000")
    run = prepare(make_config(*text))
    needed = 16 * total_params(run.spec) + 2 * 30_000
    monkeypatch.setattr("ablate.compute.device.memory_of", lambda _: needed)
    assert prepare(make_config(*text)).spec == run.spec
    monkeypatch.setattr("ablate.compute.device.memory_of", lambda _: needed - 1)
    with pytest.raises(ConfigError, match="take a smaller model"):
        prepare(make_config(*text))
    monkeypatch.setattr("ablate.compute.device.memory_of", lambda _: 25e9)
    with pytest.raises(ConfigError) as refused:
        prepare(make_config(*text, "model.d_model=1000000"))
    assert str(refused.value) == (
        "model.d_model=1000000 model.layers=2 model.mlp_hidden=4000000: 24,000,095,000,000 parameters take"
        " 384,001.5 GB to train, and this machine has 25.0 GB; take a smaller model"
    )
