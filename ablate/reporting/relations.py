"""Why compared methods differ: the equations of `ablate verify` that relate them, in words for a report.

A test holds each to what verify checks, since that loads torch, and a report does not.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ablate.analysis.variant import Variant
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES

STANDARD = {"fusion": STANDARD_FUSION, "scores": STANDARD_SCORES}


@dataclass(frozen=True)
class Relation:
    """How two methods, or two levels of a factor, are related. column: in which they differ. pair: their
    levels there, of which an empty one stands for any other. name: of the identity of `ablate verify`."""

    column: str
    pair: tuple[str, str]
    name: str
    equation: str
    words: str


def _formulas(column: str, **given: tuple[str, str]) -> list[Relation]:
    """Relations of methods that have their own formula in `ablate verify` to the standard method."""
    standard = STANDARD.get(column, "true")  # what a readout takes the place of
    return [Relation(column, (standard, name), name, *words) for name, words in given.items()]


RELATIONS = [
    Relation(
        *("fusion", ("concat", "sum"), "2", "(Σ z_i) W = cat(Z) tile(W)"),
        "A sum is concat with the same rows of W_O for every head: all heads write into the same directions.",
    ),
    Relation(
        *("fusion", ("concat", "mean"), "2 mean", "(1/h Σ z_i) W = cat(Z) tile(W/h)"),
        "A mean is concat with the same rows of W_O for every head, divided by their number.",
    ),
    Relation(
        *("fusion", ("concat", "weighted_sum"), "3", "(Σ α_i z_i) W = cat(Z) (α ⊗ W)"),
        "A weighted sum is concat with rows of W_O that differ between heads by a factor only.",
    ),
    Relation(
        *("fusion", ("concat", "head_scale"), "3 side", "cat(α_i z_i) W_O = cat(Z) diag(α ⊗ 1) W_O"),
        "Weights of heads fold into W_O, so both can learn the same functions and only train differently.",
    ),
    Relation(
        *("fusion", ("sum", "weighted_sum"), "19", "Σ α_i z_i = Σ z_i, W_V^i := α_i W_V^i"),
        "Weights of heads fold into the values, so both can learn the same functions and only train"
        " differently.",
    ),
    Relation(
        *("fusion", ("sum", "mean"), "13", "mean = sum with h·W, h·lr, wd/h, eps/h"),
        "A mean trains as a sum would with another scale of W_O and another rate for it.",
    ),
    *_formulas(
        "fusion",
        grouped=(
            "[Σ_group z_i] W = cat(Z) (tile within groups)",
            "It is a sum within groups of heads and concat between them, so groups share rows of W_O.",
        ),
        gated=(
            "cat(2σ(x W_g)_i z_i) W_O",
            "A gate that reads the input x can switch a head off; a constant one would fold into W_O.",
        ),
        head_norm=(
            "cat(γ_i ⊙ z_i/√mean z_i²) W_O",
            "Dividing by its own size takes from a head how much it writes, and leaves the direction.",
        ),
        exclusive=(
            "cat(z_i − d (z_i·v̂_i) v̂_i), v̂ = v/|v|",
            "A head writes what others say alone, without its part along the value of the token itself.",
        ),
        max=("(max_i z_i) W", "Only the largest head is read in a channel, which no choice of W_O can do."),
    ),
    Relation(
        *("input", ("x", "static"), "16", "g · MHA for a constant gate g"),
        "A constant gate is a factor that folds into W_O; one that reads the input x can switch a head off.",
    ),
    *_formulas(
        "scores",
        uniform=(
            "z_t = mean of v_s over s ≤ t",
            "A head reads the mean of all it can see, so there is no choosing where to look.",
        ),
        offsets=(
            "z_t of head i = v_(t−i)",
            "Head i reads one fixed place, so nothing is learned about where to look.",
        ),
        windows=("softmax over |t − s| < w_i", "Softmax is the same, over the nearest w_i tokens only."),
        qk_norm=(
            "softmax((γ_q ⊙ q/|q|) · (γ_k ⊙ k/|k|) · √d_k)",
            "Scores depend on the directions of queries and keys, and can't grow with their length.",
        ),
        talking=(
            "P_post softmax(P_pre Q Kᵀ)",
            "Heads mix their scores before softmax and their patterns behind it.",
        ),
        differential=(
            "(1 − λ_0)(A_1 − λ A_2) V",
            "A pattern is the difference of two softmaxes, so that it can also subtract what it reads.",
        ),
    ),
    Relation(
        *("heads", ("1", ""), "7", "A_single ∝ Π A_i^(1/√h)"),
        "With the same weights, one head of full width is the product of the patterns of many: one pattern"
        " in place of several.",
    ),
    Relation(
        *("out_proj", ("true", "false"), "10", "OV_i = W_V^i E_i without W_O"),
        "Without the output projection a head writes into its own slice of the channels only; with a single"
        " head the projection folds into W_V.",
    ),
    *_formulas(
        "out_proj",
        hadamard=(
            "cat(Z) H/√d, H_ij = (−1)^(bits of i and j)",
            "A fixed orthogonal matrix takes the place of W_O: heads write into all channels, and nothing is"
            " learned about where.",
        ),
        hadamard_scaled=(
            "(cat(Z) H/√d) ⊙ s",
            "A fixed orthogonal matrix takes the place of W_O, and only the size of each channel is learned.",
        ),
    ),
    Relation(
        *("out_rank", ("", ""), "18", "(Σ z_i) W = cat(Z) W_O, rank W_O = d_v"),
        "A projection of rank d_v can write what a sum of heads can; a higher rank can write more.",
    ),
    Relation(
        *("order", ("none", "rotate"), "23", "Σ R_i z_i = Σ z_i, W_V^i := W_V^i R_i"),
        "Rotations of heads fold into the values, so both can learn the same functions and only train"
        " differently.",
    ),
    Relation(
        *("tie_qk", ("true", "false"), "22", "W_Q ↔ W_K transposes Q Kᵀ"),
        "With one matrix for queries and keys, the scores of two tokens are the same both ways.",
    ),
    Relation(
        *("query_proj", ("true", "false"), "30", "x W_Q^i W_K^iᵀ xᵀ = x W^i xᵀ, W^i (d, d)"),
        "W_Q folds into keys that are as wide as the input; narrow queries that are slices of it can compare"
        " less.",
    ),
    Relation(
        *("kv_rank", ("", ""), "latent", "k_i = [c W_i; R x W_R], v_i = c W_i′, c = norm(x W)"),
        "Keys and values of all heads are made of one latent c, which at full rank and without a norm is no"
        " limit.",
    ),
    *(
        Relation(
            *("scale", ("inside", place), f"25 {place}", f"scale={place} = scale=inside"),
            "The place of 1/√d_k folds into W_Q and W_O, so both can learn the same functions and only train"
            " differently.",
        )
        for place in ("outside", "both", "none")
    ),
]


def relations(pairs: Iterable[tuple[Variant, Variant]]) -> list[Relation]:
    """The equations that relate these pairs of variants, or each of a pair to what is standard."""
    found: dict[str, Relation] = {}
    for variant, baseline in pairs:
        for column in variant.differing(baseline):
            levels = variant.levels[column], baseline.levels.get(column, "")
            direct, standard = _between(column, *levels), STANDARD.get(column)
            if not direct and standard:
                direct = [one for level in levels for one in _between(column, standard, level)]
            found |= {one.name: one for one in direct}
    return [*found.values()]


def _between(column: str, one: str, other: str) -> list[Relation]:
    """The relations of these two levels, in either order."""
    return [
        relation
        for relation in RELATIONS
        if relation.column == column
        and any(
            all(wanted in ("", level) for wanted, level in zip(relation.pair, order, strict=True))
            for order in ((one, other), (other, one))
        )
    ]
