"""Each method by itself: answers worked by hand, its reduction to a known case, and what only it does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ablate.compose.configs import defaults_of
from ablate.config.rules import ConfigError
from ablate.config.schema import PartConfig
from ablate.model.build import build_model
from ablate.model.fusion import Fusion, method_of, methods
from ablate.model.fusion.max import sd_of_largest
from ablate.verify.variants import SEEDS
from tests.helpers import make_shape, make_spec

# One token, four heads, two channels.
Z_BTHV = torch.tensor([[[[1.0, 2.0], [3.0, 5.0], [7.0, 11.0], [13.0, 17.0]]]])
X_BTC = torch.zeros(1, 1, 7)


def make(name: str, heads: int = 4, **options: Any) -> Fusion:
    """With the options of its YAML but for these; weights that are drawn are 0."""
    given = defaults_of("fusion", name, methods()[name].Options) | options
    method, checked = method_of(PartConfig(name=name, options=given))
    fusion = method(make_shape(heads, value_width=2), checked)
    for param in (param for name, param in fusion.named_parameters() if name.endswith("weight")):
        nn.init.zeros_(param)
    return fusion


def fuse(name: str, z_BTHV: Tensor = Z_BTHV, **options: Any) -> list[float]:
    return make(name, z_BTHV.shape[2], **options)(z_BTHV, X_BTC).flatten().tolist()


def test_concat_by_hand():
    assert fuse("concat") == [1, 2, 3, 5, 7, 11, 13, 17]
    assert fuse("concat", normalize="variance") == [1, 2, 3, 5, 7, 11, 13, 17]


def test_sum_by_hand():
    assert fuse("sum") == [24, 35]
    assert fuse("sum", normalize="variance") == [12, 17.5]  # /√4


def test_mean_by_hand():
    assert fuse("mean") == [6, 8.75]
    assert fuse("mean", normalize="variance") == [12, 17.5]  # ·√4: the normalized sum


def test_grouped_by_hand():
    assert fuse("grouped", groups=2) == [4, 7, 20, 28]
    assert fuse("grouped", groups=2, normalize="variance") == pytest.approx(
        [4 / 2**0.5, 7 / 2**0.5, 20 / 2**0.5, 28 / 2**0.5]
    )


def test_weighted_sum_starts_by_hand():
    assert fuse("weighted_sum") == [24, 35]  # free: the sum
    assert fuse("weighted_sum", normalize="variance") == [12, 17.5]
    assert fuse("weighted_sum", weights="convex") == [6, 8.75]  # convex: the mean
    assert fuse("weighted_sum", weights="convex", normalize="variance") == [12, 17.5]


def weighted_sum(alpha: list[list[float]], **options) -> tuple[Fusion, list[float]]:
    fusion = make("weighted_sum", **options)
    with torch.no_grad():
        fusion.get_parameter("alpha").copy_(torch.tensor(alpha))
    return fusion, fusion(Z_BTHV, X_BTC).flatten().tolist()


def test_weighted_sum_weighs_by_hand():
    fusion, fused = weighted_sum([[2.0], [-1.0], [0.0], [3.0]])
    assert fused == [2 - 3 + 39, 4 - 5 + 51]
    assert fusion.head_weights().tolist() == [2, -1, 0, 3]  # pyright: ignore[reportOptionalMemberAccess]
    fusion, fused = weighted_sum([[2.0, 1.0], [-1.0, 0.0], [0.0, 0.0], [3.0, 1.0]], per="channel")
    assert fused == [2 - 3 + 39, 2 + 17]
    _, fused = weighted_sum([[0.0], [torch.log(torch.tensor(2.0)).item()], [-100.0], [0.0]], weights="convex")
    assert fused == pytest.approx([(1 + 6 + 13) / 4, (2 + 10 + 17) / 4])  # 1/4, 2/4, 0, 1/4


SIDE_BY_SIDE = [1, 2, 3, 5, 7, 11, 13, 17]


@pytest.mark.parametrize("per", ["head", "channel", "shared"])
@pytest.mark.parametrize("input", ["x", "static"])
@pytest.mark.parametrize("activation", ["sigmoid", "softmax"])
def test_gated_starts_as_concat(per, input, activation):
    if (per, activation) != ("shared", "softmax"):
        assert fuse("gated", per=per, input=input, activation=activation) == pytest.approx(SIDE_BY_SIDE)


def test_one_gate_for_all_heads_weighs_none_against_another():
    with pytest.raises(ConfigError, match=r"fusion.activation=softmax: .* use fusion.activation=sigmoid, or"):
        make("gated", per="shared", activation="softmax")


def test_gated_by_hand():
    gates = torch.tensor([0.0, 1.0, 3.0, 9.0]).log()[:, None].clamp(min=-100)
    for activation, expected in (("softmax", [0, 4 / 13, 12 / 13, 36 / 13]), ("sigmoid", [0, 1, 1.5, 1.8])):
        fusion = make("gated", input="static", activation=activation)
        with torch.no_grad():
            fusion.get_parameter("logits").copy_(gates)
        weights = torch.tensor(expected)[:, None]
        torch.testing.assert_close(fusion(Z_BTHV, X_BTC), (Z_BTHV * weights).flatten(-2))


def test_gates_read_the_input():
    fusion = make("gated")
    with torch.no_grad():
        fusion.get_parameter("logits.weight")[2, 0] = 1.0
    x_BTC = torch.zeros(1, 1, 7)
    x_BTC[..., 0] = torch.tensor(3.0).log()  # sigmoid of it: 3/4
    assert fusion(Z_BTHV, x_BTC).flatten().tolist() == pytest.approx([1, 2, 3, 5, 10.5, 16.5, 13, 17])


def test_head_scale_by_hand():
    assert fuse("head_scale") == SIDE_BY_SIDE
    assert fuse("head_scale", weights="convex") == [n / 4 for n in SIDE_BY_SIDE]
    assert fuse("head_scale", weights="convex", normalize="variance") == SIDE_BY_SIDE
    fusion = make("head_scale")
    with torch.no_grad():
        fusion.get_parameter("alpha").copy_(torch.tensor([[2.0], [0.0], [-1.0], [1.0]]))
    assert fusion(Z_BTHV, X_BTC).flatten().tolist() == [2, 4, 0, 0, -7, -11, 13, 17]
    weights = fusion.head_weights()
    assert weights is not None and weights.tolist() == [2, 0, -1, 1]


def test_head_norm_by_hand():
    sizes = [(2.5, 1, 2), (17, 3, 5), (85, 7, 11), (229, 13, 17)]  # mean square, channels
    expected = [0.02 * 7**0.5 * channel / size**0.5 for size, *channels in sizes for channel in channels]
    assert fuse("head_norm") == pytest.approx(expected)
    assert fuse("head_norm", 100 * Z_BTHV) == pytest.approx(expected)


def test_max_by_hand():
    mixed = torch.tensor([[[[1.0, -2.0], [-3.0, 5.0], [7.0, -11.0], [-13.0, 17.0]]]])
    assert fuse("max", mixed) == [7, 17]
    assert fuse("max", mixed, normalize="variance") == pytest.approx([7 / 0.70122, 17 / 0.70122], rel=1e-4)


@pytest.mark.parametrize("count, variance", [(1, 1), (2, 0.6816901), (4, 0.4917152), (8, 0.3728971)])
def test_the_largest_of_several_normal_numbers_varies_less(count, variance):
    """Variances of normal order statistics: Teichroew, 1956; 1 − 1/π for two."""
    assert sd_of_largest(count) ** 2 == pytest.approx(variance, abs=1e-6)


def test_a_sum_that_knows_the_order_turns_each_head():
    half, full = 0.5**0.5, 1.0  # cos and sin of 45°, 90°, 135°
    x = 1 + half * (3 - 5) + 0 * 7 - full * 11 - half * 13 - half * 17
    y = 2 + half * (3 + 5) + full * 7 + 0 * 11 + half * 13 - half * 17
    assert fuse("sum", order="rotate") == pytest.approx([x, y], abs=1e-5)
    swapped = Z_BTHV[:, :, [1, 0, 2, 3]]
    assert fuse("sum", swapped) == fuse("sum") and fuse("sum", swapped, order="rotate") != fuse(
        "sum", order="rotate"
    )


def test_grouped_spans_from_sum_to_concat():
    assert fuse("grouped", groups=1) == fuse("sum")
    assert fuse("grouped", groups=4) == fuse("concat")


@pytest.mark.parametrize(
    "name, row_weights",
    [("sum", [1, 1, 1, 1]), ("mean", [0.25] * 4), ("weighted_sum", [2, -1, 0.5, 3])],
)
def test_adding_heads_is_concat_with_a_readout_of_tiled_rows(name, row_weights):
    """(Σ α_i z_i) W_r = [z_1; …; z_H] · (α ⊗ W_r), in whole models, in float64."""
    added = build_model(make_spec(f"fusion={name}"), SEEDS).double()
    concat = build_model(make_spec("fusion=concat"), SEEDS).double()
    for mine, theirs in zip(added.blocks, concat.blocks, strict=True):
        if name == "weighted_sum":
            mine.get_parameter("attention.fusion.alpha").data.copy_(torch.tensor(row_weights)[:, None])
        readout = mine.get_parameter("attention.out_proj.weight").data  # (C, V)
        tiled = torch.cat([weight * readout for weight in row_weights], dim=1)
        theirs.get_parameter("attention.out_proj.weight").data.copy_(tiled)
    tokens = torch.randint(0, 59, (3, 64))
    torch.testing.assert_close(added(tokens), concat(tokens), rtol=0, atol=1e-12)


def is_concat(fusion: Fusion, z: Tensor) -> bool:
    return not list(fusion.parameters()) and same(fusion(z, X_BTC), torch.cat(z.unbind(2), -1))


def is_sum(fusion: Fusion, z: Tensor) -> bool:
    return not list(fusion.parameters()) and same(fusion(z, X_BTC), z[:, :, 0] + z[:, :, 1:].sum(2))


def is_mean(fusion: Fusion, z: Tensor) -> bool:
    return same(fusion(z, X_BTC), (z[:, :, 0] + z[:, :, 1:].sum(2)) / 4)


def is_weighted_sum(fusion: Fusion, z: Tensor) -> bool:
    if [tuple(p.shape) for p in fusion.parameters()] != [(4, 1)]:
        return False
    next(fusion.parameters()).data.copy_(torch.tensor([[2.0], [-3.0], [5.0], [7.0]]))
    heads = z.unbind(2)
    return same(fusion(z, X_BTC), 2 * heads[0] - 3 * heads[1] + 5 * heads[2] + 7 * heads[3])


def is_grouped(fusion: Fusion, z: Tensor) -> bool:
    heads = z.unbind(2)
    return same(fusion(z, X_BTC), torch.cat([heads[0] + heads[1], heads[2] + heads[3]], -1))


def is_gated(fusion: Fusion, z: Tensor) -> bool:
    if [tuple(p.shape) for p in fusion.parameters()] != [(4, 7)]:
        return False
    nn.init.constant_(next(fusion.parameters()), 1.0)
    gates = 2 * torch.full((4, 1), 7.0).sigmoid()
    return same(fusion(z, torch.ones(1, 1, 7)), (gates * z).flatten(-2))


def is_head_scale(fusion: Fusion, z: Tensor) -> bool:
    if [tuple(p.shape) for p in fusion.parameters()] != [(4, 1)]:
        return False
    next(fusion.parameters()).data.copy_(torch.tensor([[2.0], [-3.0], [5.0], [7.0]]))
    heads = z.unbind(2)
    return same(fusion(z, X_BTC), torch.cat([2 * heads[0], -3 * heads[1], 5 * heads[2], 7 * heads[3]], -1))


def is_head_norm(fusion: Fusion, z: Tensor) -> bool:
    sizes = z.square().mean(-1, keepdim=True).sqrt()
    return same(fusion(z, X_BTC), (0.02 * 7**0.5 * z / sizes).flatten(-2))


def is_max(fusion: Fusion, z: Tensor) -> bool:
    return same(fusion(z, X_BTC), z.max(2).values)


ONLY: dict[str, Callable[[Fusion, Tensor], bool]] = {
    "concat": is_concat,
    "sum": is_sum,
    "mean": is_mean,
    "weighted_sum": is_weighted_sum,
    "grouped": is_grouped,
    "gated": is_gated,
    "head_scale": is_head_scale,
    "head_norm": is_head_norm,
    "max": is_max,
}


@pytest.mark.parametrize("name", methods())
def test_each_method_does_what_no_other_does(name):
    """A new method adds to ONLY what it alone does."""
    z_BTHV = torch.randn(1, 1, 4, 2)
    passing = []
    for other in methods():
        if ONLY[name](make(other), z_BTHV):
            passing.append(other)
    assert passing == [name]


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-6)
