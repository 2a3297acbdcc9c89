"""Each method by itself: answers worked by hand, its reduction to a known case, and what only it does."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ablate.model.fusion import Fusion, methods
from ablate.model.lm import build_model
from tests.helpers import make_spec
from tests.test_fusion_contract import SEEDS, PartConfig, make_fusion, yaml_options

# One token, four heads, two channels.
Z_BTHV = torch.tensor([[[[1.0, 2.0], [3.0, 5.0], [7.0, 11.0], [13.0, 17.0]]]])
X_BTC = torch.zeros(1, 1, 7)


def fuse(name: str, z_BTHV: Tensor = Z_BTHV, **options) -> list[float]:
    given = {key: value for key, value in yaml_options(name).items() if key != "name"} | options
    fusion = make_fusion(PartConfig(name=name, options=given), heads=z_BTHV.shape[2], value_width=2)
    return fusion(z_BTHV, X_BTC).flatten().tolist()


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
    given = {"normalize": "none", "weights": "free", "per": "head", **options}
    fusion = make_fusion(PartConfig(name="weighted_sum", options=given), heads=4, value_width=2)
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
    return same(fusion(z, X_BTC), torch.cat(z.unbind(2), -1))


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


ONLY: dict[str, Callable[[Fusion, Tensor], bool]] = {
    "concat": is_concat,
    "sum": is_sum,
    "mean": is_mean,
    "weighted_sum": is_weighted_sum,
    "grouped": is_grouped,
}


@pytest.mark.parametrize("name", methods())
def test_each_method_does_what_no_other_does(name):
    """A new method adds to ONLY what it alone does."""
    z_BTHV = torch.randn(1, 1, 4, 2)
    passing = []
    for other in methods():
        given = {key: value for key, value in yaml_options(other).items() if key != "name"}
        fusion = make_fusion(PartConfig(name=other, options=given), heads=4, value_width=2)
        if ONLY[name](fusion, z_BTHV):
            passing.append(other)
    assert passing == [name]


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-6)
