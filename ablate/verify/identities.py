"""What is equal in multi-head attention, and what is not: equations that are checked on ablate's own modules
against plain formulas, in float64.

The numbers follow the project's notes on head fusion. legend: as in ablate.verify.bench.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.model.attention import Attention
from ablate.model.masks import EVERYTHING
from ablate.training.optim import Moments, adamw_
from ablate.verify.bench import Bench, Pair
from ablate.verify.fold import fold, operators

QUESTIONS = {
    "Q0": "Why concatenate heads rather than sum, weigh or average them? Is information lost?",
    "Q1": "Why not a symmetric attention with a fourth matrix?",
    "Q2": "Does the output projection matter? Is one head the same as many, with the same weights?",
    "Q3": "Why many heads, if all are one matrix product?",
    "Q4": "Do heads look at different things?",
}
NARROWER = "value_width < d_model"  # a condition of some identities: a full rank can't be too low


@dataclass(frozen=True)
class Identity:
    """An equation. sides: computes both sides. differs: whether the two sides are claimed to be unequal.
    least: the smallest sizes for which it is meaningful."""

    name: str
    equation: str
    words: str
    question: str
    sides: Pair
    differs: bool
    least: dict[str, int]


IDENTITIES: list[Identity] = []


def identity(
    name: str, equation: str, words: str, question: str = "", *, differs: bool = False, **least: int
) -> Callable[[Pair], Pair]:
    """Decorator that registers an identity; the function computes both sides from a Bench."""

    def add(sides: Pair) -> Pair:
        IDENTITIES.append(Identity(name, equation, words, question, sides, differs, least))
        return sides

    return add


# --- concat, sum, mean, weights -----------------------------------------------------------------


@identity("1", "cat(Z) W_O = Σ z_i W_O^i", "concat with a projection is a sum over heads", "Q0")
def concat_is_a_sum(b: Bench) -> tuple[Tensor, Tensor]:
    parts = zip(b.z.unbind(1), b.rows(b.concat, b.V), strict=True)
    return b.out(b.concat), sum(z @ rows for z, rows in parts)  # pyright: ignore[reportReturnType]


def _tiled(b: Bench, added: Attention, weights: Tensor) -> tuple[Tensor, Tensor]:
    """The output of a fusion that adds heads with these weights, and that of concat with a tiled W_O."""
    readout = b.rows(added, b.V)[0]
    return b.out(added), b.z.transpose(1, 2).flatten(2) @ torch.cat([w * readout for w in weights])


@identity("2", "(Σ z_i) W = cat(Z) tile(W)", "a sum is concat with the same rows for every head", "Q0")
def sum_is_tiled(b: Bench) -> tuple[Tensor, Tensor]:
    return _tiled(b, b.attention(fusion="sum"), torch.ones(b.H).double())


@identity("2 mean", "(1/h Σ z_i) W = cat(Z) tile(W/h)", "so is a mean, with rows of W/h", "Q0")
def mean_is_tiled(b: Bench) -> tuple[Tensor, Tensor]:
    return _tiled(b, b.attention(fusion="mean"), torch.full((b.H,), 1 / b.H, dtype=torch.float64))


@identity("3", "(Σ α_i z_i) W = cat(Z) (α ⊗ W)", "so is a sum with learned weights", "Q0")
def weights_are_tiled(b: Bench) -> tuple[Tensor, Tensor]:
    alpha = b.random("alpha", b.H)
    added = b.attention(fusion="weighted_sum")
    added.get_parameter("fusion.alpha").data.copy_(alpha[:, None])
    return _tiled(b, added, alpha)


@identity(
    "3 side", "cat(α_i z_i) W_O = cat(Z) diag(α ⊗ 1) W_O", "weights of heads fold into the projection", "Q0"
)
def head_scale_folds(b: Bench) -> tuple[Tensor, Tensor]:
    alpha = b.random("alpha", b.H)
    scaled = b.attention(fusion="head_scale")
    scaled.get_parameter("fusion.alpha").data.copy_(alpha[:, None])
    rows = torch.cat([a * rows for a, rows in zip(alpha, b.rows(scaled, b.V), strict=True)])
    return b.out(scaled), b.z.transpose(1, 2).flatten(2) @ rows


def _turned_around(b: Bench, attention: Attention) -> Attention:
    """The same attention with its heads in reverse order."""
    for name, width in (("query", b.K), ("key", b.K), ("value", b.V)):
        weight = attention.get_parameter(f"{name}.weight").data
        weight.copy_(torch.cat([*weight.split(width)][::-1]))
    return attention


@identity("4", "Σ z_π(i) = Σ z_i", "a sum does not depend on the order of heads", "Q0")
def sum_has_no_order(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(_turned_around(b, b.attention(fusion="sum"))), b.out(b.attention(fusion="sum"))


@identity(
    "4 concat", "cat(Z_π) P W_O = cat(Z) W_O", "nor does concat, if the projection is reordered too", "Q0"
)
def concat_has_no_order(b: Bench) -> tuple[Tensor, Tensor]:
    other = _turned_around(b, b.attention())
    rows = torch.cat(b.rows(other, b.V)[::-1])
    other.get_parameter("out_proj.weight").data.copy_(rows.mT)
    return b.out(other), b.out(b.concat)


@identity(
    "4 not",
    "cat(Z_π) W_O ≠ cat(Z) W_O",
    "with the same projection, order counts",
    "Q0",
    differs=True,
    heads=2,
)
def order_counts(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(_turned_around(b, b.attention())), b.out(b.concat)


def _order_counts_without(what: str) -> Pair:
    def sides(b: Bench) -> tuple[Tensor, Tensor]:
        z = b.heads(b.concat, _patterns_without(b, what))
        rows = b.rows(b.concat, b.V)
        both = (zip(heads, rows, strict=True) for heads in (z.unbind(1), z.flip(1).unbind(1)))
        found, wanted = (sum(one @ row for one, row in pairs) for pairs in both)
        return found, wanted  # pyright: ignore[reportReturnType]

    return sides


def _patterns_without(b: Bench, what: str, heads: int = 0) -> Tensor:
    """Patterns without mask, scale or softmax. heads: split the same weights into this many; 0 for as
    given."""
    width = b.H * b.K // (heads or b.H)
    q, k = (b.projected(b.concat, name, width) for name in ("query", "key"))
    scale = 1.0 if what == "scale" else width**-0.5
    return b.patterns(q, k, scale=scale, masked=what != "mask", softmax=what != "softmax")


for _left_out in ("mask", "scale", "softmax"):
    identity(
        f"4 not, no {_left_out}",
        "cat(Z_π) W_O ≠ cat(Z) W_O",
        f"also without {_left_out}",
        "Q0",
        differs=True,
        heads=2,
    )(_order_counts_without(_left_out))


# --- many heads in one matrix product -------------------------------------------------------------


@identity("5", "cat(x W_Q^i) = x [W_Q^1 | … | W_Q^h]", "the projections of all heads are one product", "Q3")
def one_product(b: Bench) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return b.concat.query(b.x), b.projected(b.concat, "query", b.K).transpose(1, 2).flatten(2)


@identity("6", "Q Kᵀ = Σ Q_i K_iᵀ", "scores of full width are the sum of those of all heads", "Q3")
def scores_add_up(b: Bench) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        full = b.concat.query(b.x) @ b.concat.key(b.x).mT
    q, k = (b.projected(b.concat, name, b.K) for name in ("query", "key"))
    return full, (q @ k.mT).sum(1)


@identity(
    "6 not",
    "A(Σ Q_i K_iᵀ) ≠ A_i",
    "so each head needs a pattern of its own",
    "Q3",
    differs=True,
    heads=2,
    T=2,
)
def patterns_are_many(b: Bench) -> tuple[Tensor, Tensor]:
    own = b.concat.probabilities(b.x, b.x)
    return _single(b).probabilities(b.x, b.x).expand_as(own), own


def _single(b: Bench, **given: Any) -> Attention:
    """An attention with one head that has the weights of all heads."""
    wide: dict[str, Any] = {"key_width": b.H * b.K, "value_width": b.H * b.V}
    single = b.attention(heads=1, **wide, **given)
    single.load_state_dict(b.concat.state_dict(), strict=False)
    return single


@identity("7", "A_single ∝ Π A_i^(1/√h)", "one head of full width is a product of the heads' patterns", "Q2")
def a_product_of_experts(b: Bench) -> tuple[Tensor, Tensor]:
    product = b.concat.probabilities(b.x, b.x).pow(b.H**-0.5).prod(1, keepdim=True)
    return _single(b).probabilities(b.x, b.x), product / product.sum(-1, keepdim=True)


@identity(
    "7 not",
    "one head ≠ many, same weights",
    "and it computes something else",
    "Q2",
    differs=True,
    heads=2,
    T=2,
)
def one_head_is_another(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(_single(b)), b.out(b.concat)


@identity(
    "7 not, no mask", "one head ≠ many, same weights", "also without mask", "Q2", differs=True, heads=2, T=2
)
def one_head_is_another_without_mask(b: Bench) -> tuple[Tensor, Tensor]:
    many = b.attention(EVERYTHING)
    single = b.attention(EVERYTHING, heads=1, key_width=b.H * b.K, value_width=b.H * b.V)
    single.load_state_dict(many.state_dict(), strict=False)
    return b.out(single), b.out(many)


@identity(
    "7 not, no scale", "one head ≠ many, same weights", "also without scale", "Q2", differs=True, heads=2, T=2
)
def one_head_is_another_without_scale(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(_single(b, scale="none")), b.out(b.attention(scale="none"))


@identity(
    "7 not, no softmax",
    "(Q Kᵀ) V ≠ cat((Q_i K_iᵀ) V_i)",
    "also without softmax",
    "Q2",
    differs=True,
    heads=2,
    T=2,
)
def one_head_is_another_without_softmax(b: Bench) -> tuple[Tensor, Tensor]:
    many = b.heads(b.concat, _patterns_without(b, "softmax")).transpose(1, 2).flatten(2)
    with torch.no_grad():
        values = b.concat.get_submodule("value")(b.x)
    return _patterns_without(b, "softmax", heads=1)[:, 0] @ values, many


def _as_one_operator(b: Bench, attention: Attention) -> Tensor:
    """Singular values of Σ vec(A_i) vec(OV_i)ᵀ, relative to the largest: attention as a linear operator on
    the first text, with its patterns held fixed."""
    T, C, few = b.sizes.T, b.C, min(b.C, 32)
    t = min(T, 8)
    unit = torch.zeros(t * few, T, C, dtype=torch.float64)  # one unit input for each of the first numbers
    unit[:, :t, :few] = torch.eye(t * few, dtype=torch.float64).view(-1, t, few)
    with torch.no_grad():
        q, k = (one[:1].expand(t * few, -1, -1, -1) for one in attention.compared(b.x, b.x))
        values = attention.share.values(attention.value(unit))
        read = attention.share.heads(attention.scores(q, k, values, attention.mask, 0.0))
        written = attention.out_proj(attention.fusion(attention.gain(read), unit))[:, :t]
    of_pairs = written.view(t, few, t, C).permute(2, 0, 1, 3)  # a row for each query and source
    sizes = torch.linalg.svdvals(of_pairs.reshape(t * t, few * C))
    return sizes / sizes[0]


@identity(
    "8", "rank Σ vec(A_i) vec(OV_i)ᵀ = 1 at h = 1", "one head applies one map to one pattern", "Q3", T=2
)
def one_head_has_rank_one(b: Bench) -> tuple[Tensor, Tensor]:
    sizes = _as_one_operator(b, _single(b))
    return sizes, F.one_hot(torch.tensor(0), len(sizes)).double()


@identity(
    "8 not",
    "rank Σ vec(A_i) vec(OV_i)ᵀ ≠ 1 at h > 1",
    "many heads apply more than one",
    "Q3",
    differs=True,
    heads=2,
    T=3,
)
def many_heads_have_more(b: Bench) -> tuple[Tensor, Tensor]:
    sizes = _as_one_operator(b, b.concat)
    return sizes, F.one_hot(torch.tensor(0), len(sizes)).double()


# --- the output projection --------------------------------------------------------------------------


@identity("9", "cat(Z) W_O = Σ A_i x OV_i", "concat is a wide sum, W_V^i := W_V^i W_O^i", "Q0")
def concat_is_a_wide_sum(b: Bench) -> tuple[Tensor, Tensor]:
    wide = b.attention(fusion="sum", out_proj=False, value_width=b.C)
    wide.load_state_dict({k: v for k, v in b.concat.state_dict().items() if k[0] in "qk"}, strict=False)
    wide.get_parameter("value.weight").data.copy_(operators(b.concat)[:, :-1].mT.flatten(0, 1))
    return b.out(wide), b.out(b.concat)


@identity(
    "9 not",
    "Σ A_i x W^i, no W_O ≠ cat(Z) W_O",
    "not the other way round: a wide head writes more",
    "Q0",
    differs=True,
    **{NARROWER: 1},
)
def a_wide_sum_is_more(b: Bench) -> tuple[Tensor, Tensor]:
    wide = b.attention(fusion="sum", out_proj=False, value_width=b.C)
    of_head = operators(wide)[0, :-1]
    left, sizes, right = torch.linalg.svd(of_head)
    return (left[:, : b.V] * sizes[: b.V]) @ right[: b.V], of_head


@identity("10", "OV_i = W_V^i E_i without W_O", "without projection a head writes its own slice only", "Q2")
def without_out_proj(b: Bench) -> tuple[Tensor, Tensor]:
    width = b.H * b.V  # the stream is as wide as the concatenated heads
    other = Bench(type(b.sizes)(**{**vars(b.sizes), "d_model": width}))
    bare = other.attention(out_proj=False)
    return other.out(bare), other.heads(bare).transpose(1, 2).flatten(2)


@identity("20", "W_O on = W_O off at h = 1, d_v = d", "at one head the projection folds into W_V", "Q2")
def a_placebo_at_one_head(b: Bench) -> tuple[Tensor, Tensor]:
    given: dict[str, Any] = {"heads": 1, "value_width": b.C}
    source, target = b.attention(**given), b.attention(**given, out_proj=False)
    fold(source, target)
    return b.out(target), b.out(source)


# --- sharing --------------------------------------------------------------------------------------


@identity("11", "A_i = A ⇒ cat(Z) = A (x W_V)", "heads of one pattern are one product with the values", "Q4")
def one_pattern(b: Bench) -> tuple[Tensor, Tensor]:
    shared = b.attention(query_heads=1, key_heads=1)
    q, k = (b.projected(shared, name, b.K) for name in ("query", "key"))
    values = b.projected(shared, "value", b.H * b.V)
    return b.out(shared), (b.patterns(q, k, scale=b.K**-0.5) @ values)[:, 0] @ torch.cat(b.rows(shared, b.V))


@identity(
    "11 mean", "mean(A_i V) = (mean A_i) V", "with shared values, a mean of heads is one of patterns", "Q4"
)
def mean_of_patterns(b: Bench) -> tuple[Tensor, Tensor]:
    shared = b.attention(fusion="mean", value_heads=1)
    return b.out(shared), _of_patterns(b, shared, 1 / b.H)


@identity("21", "Σ A_i V W = (Σ A_i) V W", "and a sum of heads is a single pattern", "Q4")
def sum_of_patterns(b: Bench) -> tuple[Tensor, Tensor]:
    shared = b.attention(fusion="sum", value_heads=1)
    return b.out(shared), _of_patterns(b, shared, 1.0)


def _of_patterns(b: Bench, shared: Attention, weight: float) -> Tensor:
    q, k = (b.projected(shared, name, b.K) for name in ("query", "key"))
    pattern = weight * b.patterns(q, k, scale=b.K**-0.5).sum(1)
    return pattern @ b.projected(shared, "value", b.V)[:, 0] @ b.rows(shared, b.V)[0]


# --- what can't be told from outside ----------------------------------------------------------------


def _gauged(b: Bench) -> Attention:
    """The standard attention with W_V^i G_i and G_i⁻¹ W_O^i in place of W_V^i and W_O^i."""
    other = b.attention()
    value, out = (other.get_parameter(f"{name}.weight").data for name in ("value", "out_proj"))
    for head in range(b.H):
        gauge = b.random(f"gauge{head}", b.V, b.V) + 3 * torch.eye(b.V, dtype=torch.float64)
        at = slice(head * b.V, (head + 1) * b.V)
        value[at] = gauge.mT @ value[at]
        out[:, at] = out[:, at] @ torch.linalg.inv(gauge).mT
    return other


@identity("12", "(W_V^i G, G⁻¹ W_O^i) ⇒ same output", "the basis of a head's values is arbitrary", "Q4")
def gauge_changes_nothing(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(_gauged(b)), b.out(b.concat)


@identity(
    "12 not", "same output ⇏ same z_i", "so measure what it writes, not what it reads", "Q4", differs=True
)
def gauge_changes_what_is_read(b: Bench) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        return _gauged(b).read(b.x, b.x), b.concat.read(b.x, b.x)


@identity("13", "mean = sum with h·W, h·lr, wd/h, eps/h", "equal at every step of AdamW", "Q0")
def mean_trains_as_sum(b: Bench) -> tuple[Tensor, Tensor]:
    return _trained(b, "mean", float(b.H)), _trained(b, "sum", 1.0)


def _trained(b: Bench, name: str, factor: float, steps: int = 20) -> Tensor:
    """Losses of a few steps of AdamW with W_O scaled by a factor, and its rate, decay and eps adapted to
    it."""
    model, target = b.attention(fusion=name), b.random("target", *b.x.shape)
    params = dict(model.named_parameters())
    params["out_proj.weight"].data.mul_(factor)
    moments, losses = Moments.zeros(params), []
    for step in range(1, steps + 1):
        loss = (model(b.x, b.x) - target).square().mean()
        losses.append(loss.detach())
        grads = dict(zip(params, torch.autograd.grad(loss, [*params.values()]), strict=True))
        for of_readout in (False, True):
            c = factor if of_readout else 1.0
            own = {key: param for key, param in params.items() if (key == "out_proj.weight") == of_readout}
            rates = {"lr": 0.01 * c, "weight_decay": 0.1 / c, "eps": 1e-8 / c, "beta1": 0.9, "beta2": 0.99}
            adamw_(own, grads, moments, step, decayed=dict.fromkeys(own, True), **rates)
    return torch.stack(losses)


@identity("14", "min v_s ≤ z_t ≤ max v_s over s ≤ t", "a head's output lies in the range of the values", "Q1")
def in_the_range_of_the_values(b: Bench) -> tuple[Tensor, Tensor]:
    return _clamped(b, b.concat)


@identity(
    "14 not",
    "not so for talking heads",
    "a free mix of patterns leaves that range",
    "Q1",
    differs=True,
    heads=2,
    T=2,
)
def talking_leaves_the_range(b: Bench) -> tuple[Tensor, Tensor]:
    return _clamped(b, _talking(b, "post"))


def _clamped(b: Bench, attention: Attention) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        z = attention.read(b.x, b.x).transpose(1, 2)
    values = b.projected(attention, "value", b.V)
    slack = 1e-12 * values.abs().max()
    return z.clamp(values.cummin(-2).values - slack, values.cummax(-2).values + slack), z


@identity("16", "g · MHA for a constant gate g", "a constant gate is a factor", "Q0")
def a_constant_gate(b: Bench) -> tuple[Tensor, Tensor]:
    gated = b.attention(fusion="gated", fusion_input="static")
    gated.get_parameter("fusion.logits").data.fill_(0.7)
    return b.out(gated), 2 * torch.sigmoid(torch.tensor(0.7, dtype=torch.float64)) * b.out(b.concat)


@identity("16 mix", "M Z W_O = Z (Mᵀ ⊗ 1) W_O", "a static mix of heads folds into the projection", "Q0")
def a_static_mix(b: Bench) -> tuple[Tensor, Tensor]:
    mix = b.random("mix", b.H, b.H)
    other = b.attention()
    rows = torch.kron(mix.mT.contiguous(), torch.eye(b.V, dtype=torch.float64)) @ torch.cat(
        b.rows(b.concat, b.V)
    )
    other.get_parameter("out_proj.weight").data.copy_(rows.mT)
    mixed = (mix @ b.z.flatten(2)).view_as(b.z).transpose(1, 2).flatten(2)
    return b.out(other), mixed @ torch.cat(b.rows(b.concat, b.V))


@identity("17", "LN(Σ z_i; eps·h²) = LN(1/h Σ z_i; eps)", "after a norm, sum and mean are the same", "Q0")
def norm_of_sum_and_mean(b: Bench) -> tuple[Tensor, Tensor]:
    z_BTHV = b.z.transpose(1, 2)
    added, mean = (b.attention(fusion=name).fusion(z_BTHV, b.x) for name in ("sum", "mean"))
    return F.layer_norm(added, (b.V,), eps=1e-5 * b.H**2), F.layer_norm(mean, (b.V,), eps=1e-5)


# --- classes ------------------------------------------------------------------------------------------


def _folded(b: Bench, source: dict[str, Any], target: dict[str, Any]) -> tuple[Tensor, Tensor]:
    one, other = b.attention(**source), b.attention(**target)
    fold(one, other)
    return b.out(other), b.out(one)


@identity(
    "18", "(Σ z_i) W = cat(Z) W_O, rank W_O = d_v", "a sum is concat with a projection of low rank", "Q0"
)
def sum_is_low_rank(b: Bench) -> tuple[Tensor, Tensor]:
    return _folded(b, {"fusion": "sum"}, {"out_rank": min(b.V, b.C)})


@identity("18 back", "cat(Z) W_O = (Σ z_i) W, rank W_O = d_v", "and the other way round", "Q0")
def low_rank_is_sum(b: Bench) -> tuple[Tensor, Tensor]:
    return _folded(b, {"out_rank": min(b.V, b.C)}, {"fusion": "sum"})


@identity(
    "18 not",
    "cat(Z) W_O ≠ (Σ z_i) W",
    "concat writes with a higher rank than a sum can",
    "Q0",
    differs=True,
    heads=2,
    **{NARROWER: 1},
)
def concat_is_more(b: Bench) -> tuple[Tensor, Tensor]:
    written = operators(b.concat)[:, :-1].flatten(0, 1)
    left, sizes, right = torch.linalg.svd(written, full_matrices=False)
    return (left[:, : b.V] * sizes[: b.V]) @ right[: b.V], written


@identity("19", "Σ α_i z_i = Σ z_i, W_V^i := α_i W_V^i", "static weights fold into the values", "Q0")
def weights_fold(b: Bench) -> tuple[Tensor, Tensor]:
    one, other = b.attention(fusion="weighted_sum", fusion_per="channel"), b.attention(fusion="sum")
    one.get_parameter("fusion.alpha").data.copy_(b.random("alpha", b.H, b.V))
    fold(one, other)
    return b.out(other), b.out(one)


@identity("22", "W_Q ↔ W_K transposes Q Kᵀ", "scores are symmetric in queries and keys", "Q1")
def swapped_scores(b: Bench) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        (q, k), (q_swapped, k_swapped) = (one.compared(b.x, b.x) for one in (b.concat, _swapped(b)))
    return q_swapped @ k_swapped.mT, (q @ k.mT).mT


@identity(
    "22 not", "W_Q ↔ W_K ⇏ same output", "attention is not: softmax runs over keys", "Q1", differs=True, T=2
)
def swapped_outputs(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(_swapped(b)), b.out(b.concat)


def _swapped(b: Bench) -> Attention:
    other = b.attention()
    query, key = (other.get_parameter(f"{name}.weight").data for name in ("query", "key"))
    query_before = query.clone()
    query.copy_(key)
    key.copy_(query_before)
    return other


@identity("24", "softmax(Q_dec K_encᵀ) V_enc", "cross-attention: a row for each token of the target", "Q1")
def cross_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    cross, source = b.attention(EVERYTHING), b.source
    q = torch.stack([b.x @ part.mT for part in cross.get_parameter("query.weight").split(b.K)], 1)
    k, v = (
        torch.stack([source @ part.mT for part in cross.get_parameter(f"{name}.weight").split(width)], 1)
        for name, width in (("key", b.K), ("value", b.V))
    )
    z = torch.softmax(b.K**-0.5 * q @ k.mT, -1) @ v
    with torch.no_grad():
        return cross(b.x, source), z.transpose(1, 2).flatten(2) @ torch.cat(b.rows(cross, b.V))


@identity("23", "Σ R_i z_i = Σ z_i, W_V^i := W_V^i R_i", "rotations of heads fold into the values", "Q0")
def rotations_fold(b: Bench) -> tuple[Tensor, Tensor]:
    return _folded(b, {"fusion": "sum", "fusion_order": "rotate"}, {"fusion": "sum"})


@identity(
    "23 not",
    "Σ R_i z_i ≠ Σ z_i, same weights",
    "with the same weights, the order counts",
    "Q0",
    differs=True,
    heads=2,
    value_width=2,
)
def rotations_count(b: Bench) -> tuple[Tensor, Tensor]:
    return b.out(b.attention(fusion="sum", fusion_order="rotate")), b.out(b.attention(fusion="sum"))


for _place in ("outside", "both", "none"):

    def _scale_folds(b: Bench, place: str = _place) -> tuple[Tensor, Tensor]:
        return _folded(b, {"scale": place}, {})

    identity(f"24 {_place}", f"scale={_place} = scale=inside", "1/√d_k folds into W_Q and W_O", "Q1")(
        _scale_folds
    )


@identity("alt", "Σ z_i W_iᵀ/√d = cat(Z) W_O, scale=both", "AttentionAlt is concat with another scale", "Q1")
def attention_alt(b: Bench) -> tuple[Tensor, Tensor]:
    both = b.attention(scale="both")
    parts = zip(b.heads(both).unbind(1), b.rows(both, b.V), strict=True)
    return b.out(both), sum(z @ rows / b.K**0.5 for z, rows in parts)  # pyright: ignore[reportReturnType]


# --- each method against a plain formula ------------------------------------------------------------


@identity("15", "talking after softmax = Σ A_i x (Σ_j P_ji OV_j)", "talking heads mix what heads write", "Q4")
def talking_mixes_operators(b: Bench) -> tuple[Tensor, Tensor]:
    talking = _talking(b, "post")
    mix = talking.get_parameter("scores.post").detach()
    mixed = torch.einsum("ji,jcd->icd", mix, operators(talking)[:, :-1])
    q, k = (b.projected(talking, name, b.K) for name in ("query", "key"))
    patterns = b.patterns(q, k, scale=b.K**-0.5)
    return b.out(talking), (patterns @ (b.x[:, None] @ mixed)).sum(1)


def _talking(b: Bench, mix: str) -> Attention:
    talking = b.attention(scores="talking", scores_mix=mix)
    for name, param in talking.scores.named_parameters():
        param.data.copy_(b.random(name, b.H, b.H))
    return talking


@identity("talking", "P_post softmax(P_pre Q Kᵀ)", "by its formula", "")
def talking_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    talking = _talking(b, "both")
    q, k = (b.projected(talking, name, b.K) for name in ("query", "key"))
    pre, post = (talking.get_parameter(f"scores.{name}").detach() for name in ("pre", "post"))
    mixed = torch.einsum("ij,bjts->bits", pre, b.K**-0.5 * q @ k.mT)
    future = torch.ones(b.sizes.T, b.sizes.T, dtype=torch.bool).triu(1)
    patterns = torch.einsum("ij,bjts->bits", post, torch.softmax(mixed.masked_fill(future, -torch.inf), -1))
    return b.out(talking), b.heads(talking, patterns).transpose(1, 2).flatten(2) @ torch.cat(
        b.rows(talking, b.V)
    )


@identity("grouped", "[Σ_group z_i] W = cat(Z) (tile within groups)", "between sum and concat", "Q0")
def grouped_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    groups = next(g for g in range(min(2, b.H), b.H + 1) if b.H % g == 0)
    grouped = b.attention(fusion="grouped", fusion_groups=groups)
    rows = [rows for rows in b.rows(grouped, b.V) for _ in range(b.H // groups)]
    return b.out(grouped), b.z.transpose(1, 2).flatten(2) @ torch.cat(rows)


@identity("gated", "cat(2σ(x W_g)_i z_i) W_O", "by its formula", "")
def gated_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    gated = b.attention(fusion="gated")
    gates = 2 * torch.sigmoid(b.x @ gated.get_parameter("fusion.logits.weight").detach().mT)
    parts = zip(b.z.unbind(1), gates.unbind(-1), b.rows(gated, b.V), strict=True)
    return b.out(gated), sum(gate[..., None] * z @ rows for z, gate, rows in parts)  # pyright: ignore[reportReturnType]


@identity("head_norm", "cat(γ_i ⊙ z_i/√mean z_i²) W_O", "by its formula", "")
def head_norm_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    normed = b.attention(fusion="head_norm")
    gain = normed.get_parameter("fusion.gain").detach()
    eps = torch.finfo(torch.float64).eps
    heads = b.z / (b.z.square().mean(-1, keepdim=True) + eps).sqrt() * gain[:, None]
    return b.out(normed), heads.transpose(1, 2).flatten(2) @ torch.cat(b.rows(normed, b.V))


@identity("max", "(max_i z_i) W", "by its formula", "")
def max_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    largest = b.attention(fusion="max")
    return b.out(largest), b.z.max(1).values @ b.rows(largest, b.V)[0]


@identity("uniform", "z_t = mean of v_s over s ≤ t", "a running mean", "Q4")
def uniform_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    uniform = b.attention(scores="uniform")
    counts = torch.arange(1, b.sizes.T + 1, dtype=torch.float64)[:, None]
    means = b.projected(uniform, "value", b.V).cumsum(-2) / counts
    return b.out(uniform), means.transpose(1, 2).flatten(2) @ torch.cat(b.rows(uniform, b.V))


@identity("windows", "softmax over |t − s| < w_i", "by its formula", "Q4")
def windows_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    widths = [1 + head % b.sizes.T for head in range(b.H)]
    narrow = b.attention(scores="windows", scores_windows=widths)
    q, k = (b.projected(narrow, name, b.K) for name in ("query", "key"))
    every = torch.ones(b.sizes.T, b.sizes.T, dtype=torch.bool)
    hidden = torch.stack([~(every.tril() & every.triu(1 - width)) for width in widths])
    patterns = torch.softmax((b.K**-0.5 * q @ k.mT).masked_fill(hidden, -torch.inf), -1)
    return b.out(narrow), b.heads(narrow, patterns).transpose(1, 2).flatten(2) @ torch.cat(
        b.rows(narrow, b.V)
    )


@identity("qk_norm", "softmax(q/|q| · k/|k| · √d_k)", "by its formula", "Q4")
def qk_norm_by_hand(b: Bench) -> tuple[Tensor, Tensor]:
    normed = b.attention(scores="qk_norm")
    eps = torch.finfo(torch.float64).eps
    q, k = (
        heads / (heads.square().mean(-1, keepdim=True) + eps).sqrt()
        for heads in (b.projected(normed, name, b.K) for name in ("query", "key"))
    )
    heads = b.heads(normed, b.patterns(q, k, scale=b.K**-0.5))
    return b.out(normed), heads.transpose(1, 2).flatten(2) @ torch.cat(b.rows(normed, b.V))
