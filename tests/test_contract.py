"""The contract holds for every method there is, unasked; and a method that breaks it is told how."""

import dataclasses
import itertools
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor, nn

from ablate.analysis import forms
from ablate.compose.configs import configs_dir
from ablate.config.identity import LATER_OPTIONS
from ablate.config.read import introduced
from ablate.config.schema import PartConfig
from ablate.execution.plugins import KINDS
from ablate.model import fusion, scores
from ablate.model.fusion.base import Fusion, Normalized, Options
from ablate.model.layers import Linear
from ablate.model.scores import Scores, masked_softmax
from ablate.verify.contract import CHECKS, Broken, Check, findings
from ablate.verify.variants import attention, attention_spec, variants_of


def every_case() -> list[Any]:
    return [
        pytest.param(kind, part, check, id="-".join([name, *map(str, part.options.values()), check.__name__]))
        for kind in KINDS
        for name in KINDS[kind].methods()
        for part in variants_of(kind, name)
        for check in CHECKS[kind]
    ]


@pytest.mark.parametrize("kind, part, check", every_case())
def test_every_variant_of_every_method(kind: str, part: PartConfig, check: Check):
    check(kind, part)


@pytest.mark.parametrize("kind", KINDS)
def test_yaml_files_and_registry_name_the_same_methods(kind):
    files = {path.stem for path in (configs_dir() / kind).glob("*.yaml")}
    assert files == {*KINDS[kind].methods()}
    for name in files:
        given = yaml.safe_load((configs_dir() / kind / f"{name}.yaml").read_text(encoding="utf-8"))
        assert given.pop("name") == name
        method, options = KINDS[kind].method_of(PartConfig(name=name, options=given))
        assert method.__module__ == f"ablate.model.{kind}.{name}"
        assert dataclasses.asdict(options) == given


# --- forms ----------------------------------------------------------------------------------


def every_form() -> list[tuple[str, int, PartConfig]]:
    """(form, heads, variant) at 1 to 8 heads, in as many groups as can be where a method has groups."""
    found = []
    parts = [part for name in fusion.methods() for part in variants_of("fusion", name)]
    for part, heads in itertools.product(parts, range(1, 9)):
        groups = [g for g in range(1, heads + 1) if heads % g == 0] if "groups" in part.options else [None]
        for g in groups:
            config = PartConfig(name=part.name, options={**part.options, "groups": g} if g else part.options)
            method, options = fusion.method_of(config)
            found.append((method.form(heads, options), heads, config))
    return found


def test_methods_of_equal_form_start_as_one_function():
    first: dict[tuple[str, int], Tensor] = {}
    for form, heads, part in every_form():
        z_BTHV = torch.randn(2, 3, heads, 5, generator=torch.Generator().manual_seed(heads)).double()
        fused = attention(attention_spec(heads=heads, fusion=part)).fusion(
            z_BTHV, torch.zeros(2, 3, 24).double()
        )
        torch.testing.assert_close(fused, first.setdefault((form, heads), fused), msg=f"{part}: {form}")


def test_a_form_bears_the_name_of_a_method_and_its_options():
    for form, _, part in every_form():
        name, *options = form.split(" ")
        assert name in fusion.methods() and all(len(option.split("=")) == 2 for option in options)
        if name == part.name:
            given = {key: str(value) for key, value in part.options.items()}
            assert dict(option.split("=") for option in options).items() <= given.items()


def test_a_method_built_on_another_declares_nothing_until_it_does():
    class Doubled(fusion.methods()["concat"]):
        name = "doubled"

        def forward(self, z_BTHV, x_BTC):
            return 2 * z_BTHV.flatten(-2)

    class Same(Doubled):
        @classmethod
        def form(cls, heads, options):
            return "concat"

    options = Doubled.Options(normalize="none")
    assert Doubled.form(4, options) == "doubled normalize=none"
    assert not Doubled.folds(4, options)
    assert Same.form(4, options) == "concat"


def test_rows_without_a_form_get_what_the_first_methods_declared():
    for form, heads, part in every_form():
        if part.name not in forms.METHODS or part.options.get("order") == "rotate":
            continue
        options = {key: str(value) for key, value in part.options.items() if key != "order"}
        found = forms.form_of(
            {"fusion": part.name, "heads": str(heads), **options}, sorted({*options} - {"normalize"})
        )
        assert found == ("concat" if (part.name, heads) == ("weighted_sum", 1) else form), part


def test_options_that_came_later_are_known_where_rows_are_read():
    later = {
        kind: {
            name: dict(came)
            for name, method in KINDS[kind].methods().items()
            if (came := introduced(method.Options))
        }
        for kind in KINDS
    }
    assert {kind: those for kind, those in later.items() if those} == LATER_OPTIONS


# --- methods that break it ------------------------------------------------------------------


class Side(Fusion):
    """Heads side by side; each mutant breaks one thing of it."""

    Options = Options

    @classmethod
    def slots(cls, heads, options):
        return heads

    @classmethod
    def folds(cls, heads, options):
        return True

    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.flatten(-2)


class Shrunk(Side):
    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.flatten(-2)[..., 1:]


class LooksAhead(Side):
    def forward(self, z_BTHV, x_BTC):
        return (z_BTHV + z_BTHV.roll(-1, 1)).flatten(-2)


class Idle(Side):
    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.weight = nn.Parameter(torch.ones(shape.heads))

    @classmethod
    def count_params(cls, shape, options):
        return shape.heads

    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.flatten(-2) + 0 * self.weight.sum()


class Drawn(Side):
    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.weight = nn.Parameter(torch.rand(1))

    @classmethod
    def count_params(cls, shape, options):
        return 1

    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.flatten(-2) * self.weight


class Uncounted(Side):
    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.weight = nn.Parameter(torch.ones(shape.heads, 1))

    def forward(self, z_BTHV, x_BTC):
        return (self.weight * z_BTHV).flatten(-2)


class Projected(Side):
    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.gate = Linear(shape.d_model, shape.heads, bias=False)

    @classmethod
    def count_params(cls, shape, options):
        return shape.d_model * shape.heads

    def forward(self, z_BTHV, x_BTC):
        return (z_BTHV + self.gate(x_BTC)[..., None]).flatten(-2)


class Doubled(Side):
    def forward(self, z_BTHV, x_BTC):
        return 2 * z_BTHV.flatten(-2)


class Louder(Doubled):
    Options = Normalized

    @classmethod
    def form(cls, heads, options):
        return "concat"


class Squared(Side):
    @classmethod
    def folds(cls, heads, options):
        return True

    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.square().flatten(-2)


class Flat(Side):
    @classmethod
    def folds(cls, heads, options):
        return True

    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.mean(-1, keepdim=True).expand_as(z_BTHV).flatten(-2)


class Mixed(Side):
    """Each head times the size of all of them."""

    def forward(self, z_BTHV, x_BTC):
        return (z_BTHV * z_BTHV.square().mean((-1, -2), keepdim=True).sqrt()).flatten(-2)


class Pair(Side):
    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.flatten(-2), x_BTC


class Crowd(Side):
    def forward(self, z_BTHV, x_BTC):
        return (z_BTHV - z_BTHV.mean(0, keepdim=True)).flatten(-2)


@pytest.fixture
def broken(monkeypatch):
    """Puts a method into its registry for one test: what is broken of it, by check."""

    def findings_of(method: type, kind: str = "fusion", **defaults: Any) -> dict[str, str]:
        registry = KINDS[kind].base._registry
        KINDS[kind].methods()
        monkeypatch.setitem(registry._methods, "mutant", method)
        monkeypatch.setattr(method, "name", "mutant", raising=False)
        monkeypatch.setattr("ablate.verify.variants.defaults_of", defaults_for(defaults))
        return {f.check: f.broken for f in findings(kind, "mutant") if f.broken}

    return findings_of


def defaults_for(defaults: dict[str, Any]):
    from ablate.compose.configs import defaults_of

    return lambda kind, name, options: defaults if name == "mutant" else defaults_of(kind, name, options)


@pytest.mark.parametrize(
    "method, check, words",
    [
        (Shrunk, "shape", "forward returns (2, 11, 19); with slots of 4 and value_width=5 it has to be"),
        (LooksAhead, "No position", "it sees the future: position 0 changes with position 1 (gradient"),
        (Idle, "gradient", "blocks.0.attention.fusion.weight gets no gradient"),
        (Drawn, "same seed", "fusion.weight starts differently each time"),
        (Uncounted, "count_params", "it has 4 parameters, and count_params says 0 (heads=4 value_width=5"),
        (Projected, "matrix products", "it computes 192 FLOPs more than it counts, per token and layer"),
        (Doubled, "One head", "with one head it is off by 1, relatively"),
        (Squared, "c·z", "homogeneous is true, and 3·z is not 3·fused, by 2"),
        (Mixed, "The contributions", "adds_up is true, and fused is not the sum"),
        (Squared, "It can represent", "homogeneous is true, and scale=inside does not become"),
        (Flat, "It can represent", "folds is true, and"),
        (Pair, "shape", "forward returns a tuple, and has to return a Tensor"),
        (Crowd, "The rows of a batch", "a text gives another result in a batch than alone, by"),
    ],
)  # fmt: skip
def test_a_fusion_that_breaks_it_is_told_how(broken, method, check, words):
    found = broken(method)
    assert any(check in name and words in why for name, why in found.items()), found


def test_a_fusion_that_is_not_what_it_says(broken):
    found = broken(Louder, normalize="variance")
    assert "its form at heads=4 is concat, which it differs from by 1" in str(found)
    assert any(f"of heads of variance 1 it makes {about}" in str(found) for about in ("3.9", "4"))


class Halved(Scores):
    """Its patterns add up to ½, and it reads with others than it shows."""

    def forward(self, q_BPTK, k_BPSK, v_BPSW, mask, dropout):
        return self.attend(q_BPTK, k_BPSK, v_BPSW, mask, dropout, self.shape.scale)

    def probabilities(self, q_BPTK, k_BPSK, mask):
        return masked_softmax(q_BPTK @ k_BPSK.mT, mask) / 2


class Cubed(Halved):
    scale_folds = True

    def forward(self, q_BPTK, k_BPSK, v_BPSW, mask, dropout):
        return self.probabilities(q_BPTK, k_BPSK, mask) @ v_BPSW

    def probabilities(self, q_BPTK, k_BPSK, mask):
        return masked_softmax(self.shape.scale * (q_BPTK @ k_BPSK.mT) ** 3, mask)


@pytest.mark.parametrize(
    "method, words",
    [
        (Halved, "forward reads something else than probabilities · v, by"),
        (Halved, "sums_to_one is true, and a row is off by 0.5"),
        (Cubed, "scale_folds is true, and scale=inside does not become scale=none, by"),
    ],
)
def test_a_rule_on_scores_that_breaks_it_is_told_how(broken, method, words):
    assert words in str(broken(method, "scores"))


def test_what_raises_is_a_finding(broken):
    class Raising(Side):
        def forward(self, z_BTHV, x_BTC):
            raise ZeroDivisionError("by my own fault")

    assert "ZeroDivisionError: by my own fault" in broken(Raising).values()
    assert issubclass(Broken, AssertionError) and scores.methods()
