"""The contract holds for every method there is, unasked; and a method that breaks it is told how."""

import dataclasses
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

from ablate.compose.configs import configs_dir, defaults_of
from ablate.config.schema import PARTS, PartConfig
from ablate.execution.plugins import KINDS
from ablate.methods import Fusion, HeadShape, Linear, Normalized, Scores, masked_softmax
from ablate.model import fusion, scores
from ablate.model.function_class import function_class
from ablate.verify.attentions import attention, attention_spec, fused, variants_of
from ablate.verify.contract import (
    Broken,
    Check,
    check_results,
    checks_of,
    determinism,
    flops,
    pairing,
    parameters,
    require,
    variance,
    words_of,
)


def every_case() -> list[Any]:
    """Each method with its defaults, and with each other value of one option."""
    return [
        pytest.param(
            *(kind, part, check),
            id="-".join([name, *map(str, part.options.values()), check.__name__]),
            marks=[pytest.mark.slow] if place else [],  # the quick ones with the defaults
        )
        for kind in KINDS
        for name in KINDS[kind].methods()
        for place, part in enumerate(variants_of(kind, name))
        if sum(part.options[key] != value for key, value in usual(kind, name).items()) <= 1
        for check in checks_of(kind, name)
    ]


def usual(kind: str, name: str) -> dict[str, Any]:
    return defaults_of(kind, name, KINDS[kind].methods()[name].Options)


@pytest.mark.parametrize("kind, part, check", every_case())
def test_every_variant_of_every_method(kind: str, part: PartConfig, check: Check):
    require(check, kind, part)


@pytest.mark.parametrize("kind", PARTS)
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
    forms = []
    parts = [part for name in fusion.methods() for part in variants_of("fusion", name)]
    for part, heads in itertools.product(parts, range(1, 9)):
        groups = [g for g in range(1, heads + 1) if heads % g == 0] if "groups" in part.options else [None]
        for g in groups:
            config = PartConfig(name=part.name, options={**part.options, "groups": g} if g else part.options)
            method, options = fusion.method_of(config)
            forms.append((method.form(heads, options), heads, config))
    return forms


@pytest.mark.slow
def test_methods_of_equal_form_start_as_one_function():
    first: dict[tuple[str, int], Tensor] = {}
    for form, heads, part in every_form():
        z_BTHV = torch.randn(2, 3, heads, 8, generator=torch.Generator().manual_seed(heads)).double()
        spec = attention_spec(heads=heads, value_width=8, fusion=part)
        if part.name == "hadamard" and heads & (heads - 1):
            continue  # it takes powers of two
        made = fused(attention(spec), z_BTHV, torch.zeros(2, 3, 24).double())
        torch.testing.assert_close(made, first.setdefault((form, heads), made), msg=f"{part}: {form}")


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
    assert not Doubled.folds(4, options) and not Doubled.claims()
    assert Same.claims() == ["form"]
    assert Same.form(4, options) == "concat"


# --- methods that break it ------------------------------------------------------------------


class Side(Fusion):
    """Heads side by side; each mutant breaks one thing of it."""

    @classmethod
    def slots(cls, heads, options):
        return heads

    def forward(self, z_BTHV, x_BTC):
        return z_BTHV.flatten(-2)


def fusing(forward: Callable[[Any, Tensor, Tensor], Any], **own: Any) -> type[Side]:
    """A mutant that makes this of (self, z_BTHV, x_BTC). own: the rest of its class, such as claims."""
    return type("Mutant", (Side,), {"forward": forward, **own})


def weighing(weight: Callable[[HeadShape], Any], forward: Callable[[Any, Tensor, Tensor], Any]) -> type[Side]:
    """A mutant with a weight, too."""

    def __init__(self: Side, shape: HeadShape, options: Any) -> None:
        Side.__init__(self, shape, options)
        self.weight = weight(shape)

    return fusing(forward, __init__=__init__)


FOLDS = classmethod(lambda cls, heads, options: True)
WEIGHT_OF_ALL = nn.Parameter(torch.ones(1))  # the same in all layers

Shrunk = fusing(lambda self, z, x: z.flatten(-2)[..., 1:])
LooksAhead = fusing(lambda self, z, x: (z + z.roll(-1, 1)).flatten(-2))
Detached = fusing(lambda self, z, x: (z + x.detach().roll(-1, 1).mean(-1)[..., None, None]).flatten(-2))
FarAhead = fusing(lambda self, z, x: (z + z.roll(-40, 1) * (z.shape[1] > 40)).flatten(-2))
FromZero = weighing(  # a gradient and values at the start show nothing of it
    lambda shape: nn.Parameter(torch.zeros(())),
    lambda self, z, x: (z + self.weight * z.mean(1, keepdim=True)).flatten(-2),
)
CrowdFromZero = weighing(
    lambda shape: nn.Parameter(torch.zeros(())),
    lambda self, z, x: (z + self.weight * z.mean(0, keepdim=True)).flatten(-2),
)
DrawsAlways = fusing(lambda self, z, x: (z + torch.rand(4, 1)[: z.shape[2]]).flatten(-2))
Crowd = fusing(lambda self, z, x: (z - z.mean(0, keepdim=True)).flatten(-2))
NoNumber = fusing(lambda self, z, x: z.flatten(-2) * torch.nan, one_head_passes=True, homogeneous=True)
Doubled = fusing(lambda self, z, x: 2 * z.flatten(-2), one_head_passes=True)
AS_CONCAT: Any = {"Options": Normalized, "form": classmethod(lambda cls, heads, options: "concat")}
Louder = fusing(lambda self, z, x: 2 * z.flatten(-2), one_head_passes=True, **AS_CONCAT)
Squared = fusing(lambda self, z, x: z.square().flatten(-2), homogeneous=True)
Flat = fusing(lambda self, z, x: z.mean(-1, keepdim=True).expand_as(z).flatten(-2), folds=FOLDS)
# Homogeneous, as it claims, but no static map of the heads, as it claims, too.
Switched = fusing(
    lambda self, z, x: (z * x.mean(-1, keepdim=True)[..., None].sigmoid()).flatten(-2),
    homogeneous=True,
    folds=FOLDS,
)
Idle = weighing(
    lambda shape: nn.Parameter(torch.ones(shape.heads)),
    lambda self, z, x: z.flatten(-2) + 0 * self.weight.sum(),
)
UNSEEDED = np.random.default_rng()  # the generators that a process shares are seeded where a model is made
Drawn = weighing(
    lambda shape: nn.Parameter(torch.tensor([UNSEEDED.random()])),
    lambda self, z, x: z.flatten(-2) * self.weight,
)
Common = weighing(lambda shape: WEIGHT_OF_ALL, lambda self, z, x: (self.weight * z).flatten(-2))
Projected = weighing(
    lambda shape: Linear(shape.d_model, shape.heads, bias=False),
    lambda self, z, x: (z + self.weight(x)[..., None]).flatten(-2),
)
OwnDraws = weighing(
    lambda shape: random.Random(1), lambda self, z, x: z.flatten(-2) * (1 + self.weight.random())
)


class Kept(Side):
    """What may be: a buffer that counts, a cache, and draws of the generators that a process shares."""

    calls: Tensor

    def __init__(self, shape, options):
        super().__init__(shape, options)
        self.register_buffer("calls", torch.zeros(()))
        self.ones: list[Tensor] = []

    def forward(self, z_BTHV, x_BTC):
        self.calls = self.calls + 1
        self.ones = self.ones or [torch.ones(z_BTHV.shape[1], 1, 1)]
        factor = 1 + 0.01 * self.calls + 0.01 * random.random() + 0.01 * torch.rand(()).item()
        return (z_BTHV * self.ones[0] * factor).flatten(-2)


@pytest.fixture
def broken(monkeypatch):
    """Puts a method into its registry for one test: what is broken of it, by check; `only`: their words."""

    def broken(method: type, kind: str = "fusion", only: str = "", **defaults: Any) -> dict[str, str]:
        def defaults_for(kind: str, name: str, options: type) -> dict[str, Any]:
            return defaults if name == "mutant" else defaults_of(kind, name, options)

        KINDS[kind].methods()
        monkeypatch.setitem(KINDS[kind]._registry._methods, "mutant", method)
        monkeypatch.setattr(method, "name", "mutant", raising=False)
        monkeypatch.setattr("ablate.verify.attentions.defaults_of", defaults_for)
        checks = [check for check in checks_of(kind, "mutant") if only in words_of(check)]
        assert checks
        return {f.check: f.broken for f in check_results(kind, "mutant", checks) if f.broken}

    return broken


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, check, words",
    [
        (Shrunk, "shape", "forward returns (2, 11, 19); with slots of 4 and value_width=5 it has to be"),
        (LooksAhead, "No position", "it sees the future: position 0 changes with position 1 (gradient"),
        (Detached, "No position", "it sees the future: position 0 changes with positions after 0, by"),
        (FarAhead, "No position", "it sees the future: position 0 changes with positions after 0, by"),
        (FromZero, "No position", "it sees the future: position 0 changes with position"),
        (CrowdFromZero, "The rows of a batch", "a text gives another result in a batch than alone, by"),
        (DrawsAlways, "The rows of a batch", "it draws while it is evaluated, too"),
        (Idle, "gradient", "blocks.0.attention.fusion.weight gets no gradient"),
        (Drawn, "same seed", "fusion.weight starts differently each time"),
        (Common, "Each layer", "a parameter is used by several layers"),
        (Projected, "matrix products", "count_flops gives 0 per token and layer, and the matrix products take"
         " 192: let it return that number (heads=4 value_width=5 d_model=24 key_width=7)"),
        (NoNumber, "finite", "forward returns numbers that are not finite"),
        (Doubled, "one head", "with one head it is off by 1, relatively"),
        (Squared, "c·z", "homogeneous is true, and 3·z is not 3·fused, by 2"),
        (Flat, "folds", "folds is true, and what it does to a head's values has no inverse; return False"),
        (Switched, "folds", "folds is true, and fused is no sum over heads of values times a matrix that"),
        (Switched, "homogeneous", "folds is true, and fused is no sum"),
        (OwnDraws, "same buffers", "keeps state outside of buffers: register_buffer it, or a resumed run"),
        (Crowd, "The rows of a batch", "a text gives another result in a batch than alone, by"),
    ],
)  # fmt: skip
def test_a_fusion_that_breaks_it_is_told_how(broken, method, check, words):
    failures = broken(method, only=check)
    assert any(words in why for why in failures.values()), failures


def test_buffers_and_a_cache_and_draws_are_no_state_beside_them(broken):
    assert not broken(Kept, only="same buffers") and not broken(Kept, only="same seed")


@pytest.mark.slow
def test_a_fusion_that_is_not_what_it_says(broken):
    failures = broken(Louder, normalize="variance")
    assert "its form at heads=4 is concat, which it differs from by 1" in str(failures)
    assert any(f"of heads of variance 1 it makes {about}" in str(failures) for about in ("3.9", "4"))


class Halved(Scores):
    """Its patterns add up to ½, and it reads with others than it shows."""

    sums_to_one = True

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, dropout):
        return self.attend(q_BHTK, k_BHSK, v_BHSV, mask, dropout, self.shape.scale)

    def probabilities(self, q_BHTK, k_BHSK, mask):
        return masked_softmax(q_BHTK @ k_BHSK.mT, mask) / 2


def attending(score: Callable[[Tensor], Tensor], share: float, **claims: Any) -> type[Scores]:
    """A rule that reads with what it shows: softmax of scale · score(QKᵀ), times `share`."""

    def probabilities(self, q_BHTK, k_BHSK, mask):
        return masked_softmax(self.shape.scale * score(q_BHTK @ k_BHSK.mT), mask) * share

    def forward(self, q_BHTK, k_BHSK, v_BHSV, mask, dropout):
        return self.probabilities(q_BHTK, k_BHSK, mask) @ v_BHSV

    return type("Mutant", (Scores,), {"probabilities": probabilities, "forward": forward, **claims})


Faint = attending(lambda scores: scores, 0.5)  # its patterns add up to ½
Cubed = attending(lambda scores: scores**3, 1.0, scale_folds=True)
Late = attending(lambda scores: scores + torch.arange(scores.shape[-1]), 1.0, order_free=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, check, words",
    [
        (Halved, "probabilities", "forward reads something else than probabilities · v, by"),
        (Halved, "sums_to_one", "sums_to_one is true, and a row is off by 0.5"),
        (Cubed, "scale_folds", "scale_folds is true, and scale=inside does not become scale=none, by"),
        (Late, "order_free", "order_free is true, and sources in another order give another result, by"),
    ],
)
def test_a_rule_on_scores_that_breaks_it_is_told_how(broken, method, check, words):
    assert words in str(broken(method, "scores", only=check))


@pytest.mark.slow
def test_what_is_not_claimed_is_not_tested(broken):
    """Each of these breaks what it claims, and passes without the claim."""
    for method in (Doubled, Squared, Flat, Switched):
        silent = type("Silent", (method,), {})  # claims are not inherited
        assert not broken(silent), method
    assert not broken(Faint, "scores")


@pytest.mark.slow
def test_what_claims_nothing_is_a_class_of_its_own(broken):
    """No constant folds, and nothing is taken for concat or for a sum."""
    silent = type("Silent", (Side,), {})
    assert not broken(silent)
    part = PartConfig(name="mutant", options={})
    specs = [attention_spec(fusion=part, scale=scale) for scale in ("inside", "outside", "none", "both")]
    classes = {function_class(spec) for spec in specs}
    assert len(classes) == 4 and all("fusion=mutant" in one for one in classes)
    assert function_class(attention_spec()) not in classes


def test_not_a_number_fails_whatever_compares(broken):
    failed = broken(NoNumber)
    blind = {pairing, determinism, parameters, flops, variance}  # of weights, counts, an option it lacks
    assert {*failed} == {words_of(check) for check in {*checks_of("fusion", "mutant")} - blind}


def test_what_raises_is_a_finding(broken):
    class Raising(Side):
        def forward(self, z_BTHV, x_BTC):
            raise ZeroDivisionError("by my own fault")

    assert "ZeroDivisionError: by my own fault" in broken(Raising).values()
    assert issubclass(Broken, AssertionError) and scores.methods()
