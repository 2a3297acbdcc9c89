"""What every fusion method must do. Parametrized over the registry: a new method is tested here unasked."""

import dataclasses
import itertools
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import torch
import yaml

from ablate.analysis import forms
from ablate.compose.configs import configs_dir
from ablate.config.rules import ConfigError
from ablate.config.schema import PartConfig
from ablate.model.fusion import method_of, methods
from ablate.model.lm import build_model
from ablate.model.sizing import attention_params, total_params
from ablate.model.spec import HeadShape, ModelSpec
from tests.helpers import make_spec

SEEDS = {"backbone": 3, "fusion": 3, "data": 3}


def yaml_options(name: str) -> dict[str, Any]:
    return yaml.safe_load((configs_dir() / "fusion" / f"{name}.yaml").read_text(encoding="utf-8"))


def every_variant() -> list[PartConfig]:
    """Each method with each combination of its choices; numbers as the YAML has them."""
    variants = []
    for name, method in methods().items():
        given = {key: value for key, value in yaml_options(name).items() if key != "name"}
        hints = get_type_hints(method.Options)
        choices = [
            [
                (key, choice)
                for choice in (get_args(hints[key]) if get_origin(hints[key]) is Literal else [value])
            ]
            for key, value in given.items()
        ]
        variants += [PartConfig(name=name, options=dict(picked)) for picked in itertools.product(*choices)]
    return variants


def label(variant: PartConfig) -> str:
    return "-".join(map(str, [variant.name, *variant.options.values()]))


VARIANTS = pytest.mark.parametrize("variant", every_variant(), ids=label)


def make_fusion(variant: PartConfig, heads: int = 4, value_width: int = 5, d_model: int = 7):
    method, options = method_of(variant)
    return method(HeadShape(heads, value_width, d_model), options)


def models(variant: PartConfig) -> list[ModelSpec]:
    """Every model that can be built around the method: out_proj on or off, heads narrow, wide or neither."""
    specs = []
    for out_proj, width in itertools.product((True, False), ("narrow", "wide", "7", "auto")):
        with_options = [f"fusion.{key}={value}" for key, value in variant.options.items()]
        sizes = ["model.d_model=24", "model.context=11", f"out_proj={out_proj}", f"value_width={width}"]
        try:
            specs.append(make_spec(f"fusion={variant.name}", *with_options, *sizes))
        except ConfigError:  # no way into the residual stream
            assert not out_proj and width != "auto"
    return specs


def test_yaml_files_and_registry_name_the_same_methods():
    files = {path.stem for path in (configs_dir() / "fusion").glob("*.yaml")}
    assert files == set(methods())
    assert all(yaml_options(name)["name"] == name for name in files)


@pytest.mark.parametrize("name", methods())
def test_a_method_is_built_by_its_yaml_and_stands_in_a_file_of_its_name(name):
    given = {key: value for key, value in yaml_options(name).items() if key != "name"}
    method, options = method_of(PartConfig(name=name, options=given))
    assert method.__module__ == f"ablate.model.fusion.{name}"
    assert dataclasses.asdict(options) == given


@VARIANTS
def test_shapes(variant):
    fusion = make_fusion(variant)
    fused = fusion(torch.randn(2, 3, 4, 5), torch.randn(2, 3, 7))
    assert fused.shape == (2, 3, fusion.slots(4, fusion.options) * 5)


def every_form() -> list[tuple[str, int, PartConfig]]:
    """(form, heads, variant) at 1 to 8 heads, in as many groups as can be where a method has groups."""
    found = []
    for variant, heads in itertools.product(every_variant(), range(1, 9)):
        groups = [g for g in range(1, heads + 1) if heads % g == 0] if "groups" in variant.options else [None]
        for g in groups:
            chosen = {**variant.options, "groups": g} if g else variant.options
            config = PartConfig(name=variant.name, options=chosen)
            method, options = method_of(config)
            found.append((method.form(heads, options), heads, config))
    return found


def test_methods_of_equal_form_start_as_one_function():
    first: dict[tuple[str, int], torch.Tensor] = {}
    for form, heads, variant in every_form():
        z_BTHV = torch.randn(2, 3, heads, 5, generator=torch.Generator().manual_seed(heads))
        fused = make_fusion(variant, heads)(z_BTHV, torch.zeros(2, 3, 7))
        torch.testing.assert_close(fused, first.setdefault((form, heads), fused), msg=f"{variant}: {form}")


def test_a_form_bears_the_name_of_a_method_and_its_options():
    for form, _, variant in every_form():
        name, *options = form.split(" ")
        assert name in methods() and all(
            key and value for key, _, value in (o.partition("=") for o in options)
        )
        if name == variant.name and options:
            assert dict(option.split("=") for option in options) == {
                key: str(value) for key, value in variant.options.items()
            }


def test_a_method_built_on_another_has_a_form_of_its_own_until_it_declares_one():
    class Doubled(methods()["concat"]):
        name = "doubled"

        def forward(self, z_BTHV, x_BTC):
            return 2 * z_BTHV.flatten(-2)

    class Same(Doubled):
        @classmethod
        def form(cls, heads, options):
            return "concat"

    options = Doubled.Options(normalize="none")
    assert Doubled.form(4, options) == "doubled normalize=none"
    assert Same.form(4, options) == "concat"


def test_rows_without_a_form_get_what_the_first_methods_declare():
    for form, heads, variant in every_form():
        if variant.name in forms.METHODS:
            options = {key: str(value) for key, value in variant.options.items()}
            row = {"fusion": variant.name, "heads": str(heads), **options}
            assert forms.form_of(row, sorted({*options} - {"normalize"})) == form, variant


@VARIANTS
def test_one_head_passes_through(variant):
    """The reduction that every method has: with one head there is nothing to bring together."""
    if "groups" in variant.options:
        variant = PartConfig(name=variant.name, options={**variant.options, "groups": 1})
    z_BTHV = torch.randn(2, 3, 1, 5)
    torch.testing.assert_close(make_fusion(variant, heads=1)(z_BTHV, torch.randn(2, 3, 7)), z_BTHV.squeeze(2))


@pytest.mark.parametrize(
    "variant", [v for v in every_variant() if v.options["normalize"] == "variance"], ids=label
)
def test_a_normalized_method_keeps_the_variance_of_a_head(variant):
    torch.manual_seed(1)
    fused = make_fusion(variant, heads=4, value_width=50)(torch.randn(40, 50, 4, 50), torch.randn(40, 50, 7))
    assert fused.var().item() == pytest.approx(1, rel=0.02)


@VARIANTS
def test_no_gradient_from_later_positions(variant):
    for spec in models(variant):
        model = build_model(spec, SEEDS).double()
        attention = model.blocks[0].attention
        x_BTC = torch.randn(2, 11, 24, dtype=torch.float64, requires_grad=True)
        for position in (0, 4, 9):
            (grad,) = torch.autograd.grad(attention(x_BTC, x_BTC)[:, position].sum(), x_BTC)
            assert grad[:, position + 1 :].abs().max() == 0
            assert grad[:, : position + 1].abs().amin(dim=(0, 2)).min() > 0


@VARIANTS
def test_every_parameter_gets_a_gradient(variant):
    for spec in models(variant):
        model = build_model(spec, SEEDS)
        tokens = torch.randint(0, spec.vocab, (5, 11))
        model.loss(tokens, tokens.roll(1)).backward()
        for name, param in model.named_parameters():
            assert param.grad is not None and param.grad.abs().max() > 0, name


@VARIANTS
def test_equal_weights_start_as_concats(variant):
    """Same draw for every tensor of the same name and shape, up to the stated factor on the values."""
    for spec in models(variant):
        mine = dict(build_model(spec, SEEDS).named_parameters())
        concat = make_spec("model.d_model=24", "model.context=11")
        theirs = dict(build_model(concat, SEEDS).named_parameters())
        shared = [name for name in mine if name in theirs and mine[name].shape == theirs[name].shape]
        assert len(shared) >= len(theirs) - 2 * spec.layers  # all but the values' and the readout's
        for name in shared:
            factor = 0.5 if name.endswith("value.weight") and not spec.out_proj else 1  # 1/√(2·2 layers)
            torch.testing.assert_close(mine[name], theirs[name] * factor, rtol=1e-6, atol=0)


@VARIANTS
def test_same_seed_same_model_other_seed_another(variant):
    spec = models(variant)[0]
    first, again, other = (
        torch.cat([p.flatten() for p in build_model(spec, {**SEEDS, "backbone": seed}).parameters()])
        for seed in (3, 3, 4)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


@VARIANTS
def test_parameter_formulas_hold(variant):
    for spec in models(variant):
        for bias in (False, True):
            spec = dataclasses.replace(spec, bias=bias)
            model = build_model(spec, SEEDS)
            counted = sum(p.numel() for block in model.blocks for p in block.attention.parameters())
            assert counted == attention_params(spec)
            assert sum(p.numel() for p in model.parameters()) == total_params(spec)
