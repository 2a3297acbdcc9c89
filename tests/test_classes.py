"""function_class against float64: what is of one class folds into each other, the others have a witness."""

import itertools

import pytest
import torch
from torch import Tensor

from ablate.config.rules import ConfigError
from ablate.model.attend import CAUSAL
from ablate.model.attention import Attention
from ablate.model.function_class import function_class
from ablate.model.sizing import resolve_spec
from ablate.model.spec import AttentionSpec
from ablate.verify.attentions import relative_error, with_random_weights
from ablate.verify.fold import fold, operators
from tests.helpers import quick_config

FUSIONS = [
    *("concat", "sum", "sum fusion.order=rotate", "mean", "weighted_sum fusion.per=channel", "head_norm"),
    *(f"grouped fusion.groups={groups}" for groups in (1, 2)),
    *("exclusive", "exclusive fusion.drop=0"),
    *("head_scale fusion.weights=convex", "gated", "gated fusion.input=static"),
    "gated fusion.input=static fusion.activation=softmax fusion.per=channel",
]
OTHERS = [
    *("out_proj=true", "out_proj=false", "out_rank=3", "out_rank=8", "out_rank=99", "value_width=12"),
    *("scale=both", "scale=none value_heads=1", "scale=outside value_heads=1", "tie_qk=true scale=outside"),
    *("scores=talking", "scores=talking out_proj=false", "scores=windows scale=none", "scores=uniform"),
    *("scores=qk_norm", "scores=qk_norm scale=none", "key_width=12", "key_width=14 scale=both"),
    *("scores=differential key_width=4", "key_width=6 model.position=rope scale=both"),
]


def spec_of(*overrides: str) -> AttentionSpec:
    words = " ".join(overrides).split()
    return resolve_spec(quick_config("model.d_model=12", "model.context=9", *words), 59).attention


def grid() -> dict[str, list[AttentionSpec]]:
    """By class, each variant of a small grid that can be built."""
    classes: dict[str, list[AttentionSpec]] = {}
    of = itertools.product(enumerate(FUSIONS), enumerate(OTHERS), (1, 4))
    for (row, name), (column, other), heads in of:
        bias = ("false", "true")[(row + column + heads // 4) % 2]  # each value of each meets both
        try:
            spec = spec_of(f"fusion={name}", other, f"heads={heads}", f"model.bias={bias}")
        except ConfigError:
            continue
        classes.setdefault(f"{function_class(spec)} bias={bias}", []).append(spec)
    return classes


@pytest.mark.slow
def test_what_is_of_one_class_folds_into_each_other():
    x_BTC, pairs = torch.randn(2, 9, 12, dtype=torch.float64), 0
    for name, specs in grid().items():
        # Once round a ring: each into each by way of others.
        for source, target in itertools.pairwise([*specs, specs[0]]):
            a, b = with_random_weights(source), with_random_weights(target)
            fold(a, b)
            assert a.mask == b.mask == CAUSAL
            assert relative_error(b(x_BTC, x_BTC), a(x_BTC, x_BTC)) < 1e-10, (name, source, target)
            pairs += 1
    assert pairs > 125


SCALES = ("scale=outside", "scale=both", "scale=none")
CLASSES = [  # one a line: what is in a line is of one class, and of another than all other lines
    [
        "fusion=concat",
        "fusion=head_scale",
        "fusion=gated fusion.input=static",
        "fusion=grouped fusion.groups=4",
        "fusion=exclusive fusion.drop=0",
    ],
    [
        *("fusion=sum", "fusion=mean", "fusion=sum fusion.order=rotate", "fusion=concat out_rank=3"),
        "fusion=weighted_sum fusion.per=channel",
    ],
    ["fusion=grouped fusion.groups=2"],
    ["fusion=concat out_rank=6"],
    ["fusion=concat out_rank=8"],
    ["out_proj=false"],
    ["heads=1", "heads=1 fusion=weighted_sum", "heads=1 value_width=12", "heads=1 out_proj=false"],
    ["fusion=sum out_proj=false", "fusion=concat value_width=12"],  # each head writes what it likes
    ["fusion=gated", *(f"fusion=gated {scale}" for scale in SCALES)],
    ["value_heads=1", *(f"value_heads=1 {scale}" for scale in SCALES)],
    *(["fusion=head_norm"], ["fusion=head_norm scale=outside"]),
    *(["key_heads=1"], ["tie_qk=true"]),
    *(["scores=talking"], ["scores=uniform"], ["scores=windows"]),
    *(["scores=qk_norm"], ["scores=qk_norm scale=none"]),
    ["key_width=12", "key_width=13", "key_width=12 scale=none"],
    *(["fusion=exclusive"], ["fusion=exclusive fusion.drop=2"]),
    ["scores=differential key_width=4"],
    *(["key_width=12 model.position=rope"], ["key_width=4 model.position=rope"]),
    ["key_width=4 model.position=rope model.rope_base=9"],
    ["model.d_model=16 out_proj=false"],  # slices of 4
    ["model.d_model=16 out_proj=false fusion=hadamard"],
    ["model.d_model=16 heads=1", "model.d_model=16 heads=1 out_proj=false fusion=hadamard"],
]


def test_variants_of_one_line_are_of_one_class():
    found = [{function_class(spec_of(variant)) for variant in line} for line in CLASSES]
    assert [len(classes) for classes in found] == [1] * len(CLASSES)
    assert len(set.union(*found)) == len(CLASSES)


# --- witnesses: what one of the two can do, and the other can't come near ---------------------


def drawn(*overrides: str) -> Attention:
    return with_random_weights(spec_of(*overrides))


def share_beyond(rows: Tensor, rank: int) -> float:
    """How much of a matrix the best one of this rank leaves (Eckart and Young, 1936)."""
    sizes = torch.linalg.svdvals(rows)
    return (sizes[rank:].norm() / sizes.norm()).item()


@pytest.mark.parametrize(
    "one, other, rank, heads",
    [
        ("fusion=concat", "fusion=sum", 3, 4),
        ("fusion=concat", "fusion=concat out_rank=8", 8, 4),
        ("fusion=grouped fusion.groups=2", "fusion=sum", 3, 4),
        ("fusion=concat", "fusion=grouped fusion.groups=2", 3, 2),  # two heads of a group
        ("fusion=concat out_rank=6", "fusion=grouped fusion.groups=2", 3, 2),
    ],
)
def test_what_heads_write_has_a_rank_that_the_other_has_not(one, other, rank, heads):
    assert share_beyond(operators(drawn(one))[:heads].flatten(0, 1), rank) > 0.01
    assert share_beyond(operators(drawn(other))[:heads].flatten(0, 1), rank) < 1e-10
