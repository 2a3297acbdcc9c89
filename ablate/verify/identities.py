"""What is equal in multi-head attention, and what is not: equations that are checked on ablate's own modules
against plain formulas, in float64.

The numbers follow the project's notes on head fusion. legend: as in ablate.verify.attentions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ablate.model.attention import Attention
from ablate.verify.attentions import Bench
from ablate.verify.fold import fold, operators

Sides = tuple[Tensor, Tensor]
Compute = Callable[[Bench], Sides]


@dataclass(frozen=True)
class Identity:
    """An equation. name: a number or a method; after `not`, the two sides are claimed to be unequal. sides:
    computes both."""

    name: str
    equation: str
    words: str
    question: str
    sides: Compute

    @property
    def number(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def differs(self) -> bool:
        return " not" in self.name


IDENTITIES: list[Identity] = []


def identity(name: str, equation: str, words: str, question: str = "") -> Callable[[Compute], Compute]:
    """Decorator that registers an identity; the function computes both sides, without gradients."""

    def add(sides: Compute) -> Compute:
        IDENTITIES.append(Identity(name, equation, words, question, torch.no_grad()(sides)))
        return sides

    return add


# --- concat, sum, mean, weights -----------------------------------------------------------------


@identity("1", "cat(Z) W_O = Σ z_i W_O^i", "concat with a projection is a sum over heads", "Q0")
def concat_is_a_sum(b: Bench) -> Sides:
    parts = zip(b.z.unbind(1), b.rows(b.concat, b.V), strict=True)
    return b.out(b.concat), sum(z @ rows for z, rows in parts)  # pyright: ignore[reportReturnType]


def _tiled(b: Bench, added: Attention, weights: Tensor) -> Sides:
    """The output of a fusion that adds heads with these weights, and that of concat with a tiled W_O."""
    return _with_rows(b, added, [weight * b.rows(added, b.V)[0] for weight in weights])


def _with_rows(b: Bench, attention: Attention, rows: list[Tensor]) -> Sides:
    """The output of an attention, and that of concat if these are the rows of W_O for each head."""
    return b.out(attention), b.z.transpose(1, 2).flatten(2) @ torch.cat(rows)


@identity("2", "(Σ z_i) W = cat(Z) tile(W)", "a sum is concat with the same rows for every head", "Q0")
def sum_is_tiled(b: Bench) -> Sides:
    return _tiled(b, b.attention(fusion="sum"), torch.ones(b.H).double())


@identity("2 mean", "(1/h Σ z_i) W = cat(Z) tile(W/h)", "so is a mean, with rows of W/h", "Q0")
def mean_is_tiled(b: Bench) -> Sides:
    return _tiled(b, b.attention(fusion="mean"), torch.full((b.H,), 1 / b.H, dtype=torch.float64))


@identity("3", "(Σ α_i z_i) W = cat(Z) (α ⊗ W)", "so is a sum with learned weights", "Q0")
def weights_are_tiled(b: Bench) -> Sides:
    added = b.attention(fusion="weighted_sum")
    return _tiled(b, added, added.get_parameter("fusion.alpha"))


@identity(
    "3 side", "cat(α_i z_i) W_O = cat(Z) diag(α ⊗ 1) W_O", "weights of heads fold into the projection", "Q0"
)
def head_scale_folds(b: Bench) -> Sides:
    scaled = b.attention(fusion="head_scale")
    weights = scaled.get_parameter("fusion.alpha")
    return _with_rows(b, scaled, [w * rows for w, rows in zip(weights, b.rows(scaled, b.V), strict=True)])


# --- many heads in one matrix product -------------------------------------------------------------


@identity("5", "cat(x W_Q^i) = x [W_Q^1 | … | W_Q^h]", "the projections of all heads are one product", "Q3")
def one_product(b: Bench) -> Sides:
    return b.concat.query(b.x), b.projected(b.concat, "query", b.K).transpose(1, 2).flatten(2)


@identity("6", "Q Kᵀ = Σ Q_i K_iᵀ", "scores of full width are the sum of those of all heads", "Q3")
def scores_add_up(b: Bench) -> Sides:
    full = b.concat.query(b.x) @ b.concat.key(b.x).mT
    return full, b.K**0.5 * b.scores(b.concat).sum(1)


@identity("6 not", "A(Σ Q_i K_iᵀ) ≠ A_i", "one softmax is no head's pattern", "Q3")
def patterns_are_many(b: Bench) -> Sides:
    own = b.concat.look(b.x, b.x).patterns_BHTS
    return _single(b).look(b.x, b.x).patterns_BHTS.expand_as(own), own


def _single(b: Bench) -> Attention:
    """An attention with one head that has the weights of all heads."""
    single = b.attention(heads=1, key_width=b.H * b.K, value_width=b.H * b.V)
    single.load_state_dict(b.concat.state_dict(), strict=False)
    return single


@identity("7", "A_single ∝ Π A_i^(1/√h)", "one head of full width is a product of the heads' patterns", "Q2")
def a_product_of_experts(b: Bench) -> Sides:
    product = b.concat.look(b.x, b.x).patterns_BHTS.pow(b.H**-0.5).prod(1, keepdim=True)
    return _single(b).look(b.x, b.x).patterns_BHTS, product / product.sum(-1, keepdim=True)


@identity("7 not", "one head ≠ many, same weights", "and it computes something else", "Q2")
def one_head_is_another(b: Bench) -> Sides:
    return b.out(_single(b)), b.out(b.concat)


# --- the output projection --------------------------------------------------------------------------


@identity("9", "cat(Z) W_O = Σ A_i x OV_i", "concat is a wide sum, W_V^i := W_V^i W_O^i", "Q0")
def concat_is_a_wide_sum(b: Bench) -> Sides:
    wide = b.attention(fusion="sum", out_proj=False, value_width=b.C)
    wide.load_state_dict({k: v for k, v in b.concat.state_dict().items() if k[0] in "qk"}, strict=False)
    wide.get_parameter("value.weight").copy_(operators(b.concat)[:, :-1].mT.flatten(0, 1))
    return b.out(wide), b.out(b.concat)


@identity(
    "9 not", "Σ A_i x W^i, no W_O ≠ cat(Z) W_O", "not the other way round: a wide head writes more", "Q0"
)
def a_wide_sum_is_more(b: Bench) -> Sides:
    return _folded(b, {"fusion": "sum", "out_proj": False, "value_width": b.C}, {})


@identity("10", "OV_i = W_V^i E_i without W_O", "without projection a head writes its own slice only", "Q2")
def without_out_proj(b: Bench) -> Sides:
    other = _square(b)
    bare = other.attention(out_proj=False)
    return other.out(bare), other.heads(bare).transpose(1, 2).flatten(2)


def _square(b: Bench) -> Bench:
    """The same with a stream as wide as the concatenated heads, as it has to be without a projection."""
    return Bench(b.B, b.T, b.H, b.K, b.V, b.H * b.V)


@identity("10 not", "cat(Z) W_O ≠ cat(Z), any W_V", "so several heads can do more with a projection", "Q2")
def a_projection_is_more(b: Bench) -> Sides:
    return _folded(_square(b), {}, {"out_proj": False})


@identity("20", "W_O on = W_O off at h = 1, d_v = d", "at one head the projection folds into W_V", "Q2")
def a_placebo_at_one_head(b: Bench) -> Sides:
    one_head = {"heads": 1, "value_width": b.C}
    return _folded(b, one_head, {**one_head, "out_proj": False})


# --- sharing --------------------------------------------------------------------------------------


@identity("11", "A_i = A ⇒ cat(Z) = A (x W_V)", "heads of one pattern are one head with wider values", "Q4")
def one_pattern(b: Bench) -> Sides:
    alike, one = b.attention(), b.attention(heads=1, key_width=b.K, value_width=b.H * b.V)
    for name in ("query", "key"):
        of_all = one.get_parameter(f"{name}.weight").repeat(b.H, 1)
        alike.get_parameter(f"{name}.weight").copy_(of_all)
    return b.out(alike), b.out(one)


# --- classes ------------------------------------------------------------------------------------------


def _folded(b: Bench, source: dict[str, Any], target: dict[str, Any]) -> Sides:
    """What the second attention computes with the weights of the first folded into it, and what the first
    does: equal if it can represent the same functions, otherwise the closest that it can."""
    one, other = b.attention(**source), b.attention(**target)
    fold(one, other)
    return b.out(other), b.out(one)


@identity(
    "18", "(Σ z_i) W = cat(Z) W_O, rank W_O = d_v", "a sum is concat with a projection of low rank", "Q0"
)
def sum_is_low_rank(b: Bench) -> Sides:
    return _folded(b, {"fusion": "sum"}, {"out_rank": min(b.V, b.C)})


@identity("18 back", "cat(Z) W_O = (Σ z_i) W, rank W_O = d_v", "and the other way round", "Q0")
def low_rank_is_sum(b: Bench) -> Sides:
    return _folded(b, {"out_rank": min(b.V, b.C)}, {"fusion": "sum"})


@identity("18 not", "cat(Z) W_O ≠ (Σ z_i) W", "concat writes with a higher rank than a sum can", "Q0")
def concat_is_more(b: Bench) -> Sides:
    return _folded(b, {}, {"fusion": "sum"})


@identity("19", "Σ α_i z_i = Σ z_i, W_V^i := α_i W_V^i", "static weights fold into the values", "Q0")
def weights_fold(b: Bench) -> Sides:
    return _folded(b, {"fusion": "weighted_sum", "fusion_per": "channel"}, {"fusion": "sum"})


@identity("22", "W_Q ↔ W_K transposes Q Kᵀ", "in the scores queries and keys change places", "Q1")
def swapped_scores(b: Bench) -> Sides:
    (q, k), (q_swapped, k_swapped) = (one.look(b.x, b.x)[:2] for one in (b.concat, _swapped(b)))
    return q_swapped @ k_swapped.mT, (q @ k.mT).mT


@identity("22 not", "W_Q ↔ W_K ⇏ same output", "not in attention: softmax runs over keys", "Q1")
def swapped_outputs(b: Bench) -> Sides:
    return b.out(_swapped(b)), b.out(b.concat)


def _swapped(b: Bench) -> Attention:
    other = b.attention()
    other.query.load_state_dict(b.concat.key.state_dict())
    other.key.load_state_dict(b.concat.query.state_dict())
    return other


for _place in ("outside", "both", "none"):

    @identity(f"25 {_place}", f"scale={_place} = scale=inside", "1/√d_k folds into W_Q and W_O", "Q1")
    def scale_folds(b: Bench, place: str = _place) -> Sides:
        return _folded(b, {"scale": place}, {})


@identity("alt", "Σ z_i W_iᵀ/√d = cat(Z) W_O, scale=both", "AttentionAlt is concat with another scale", "Q1")
def attention_alt(b: Bench) -> Sides:
    both = b.attention(scale="both")
    return b.out(both), b.written(b.heads(both) / b.K**0.5, both)
