"""Each method by itself: answers worked by hand, and what only it does."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ablate.compose.configs import defaults_of
from ablate.config.rules import ConfigError
from ablate.config.schema import PartConfig
from ablate.model.fusion import Fusion, method_of, methods
from tests.helpers import make_shape, make_spec

# One token, four heads, two channels.
Z_BTHV = torch.tensor([[[[1.0, 2.0], [3.0, 5.0], [7.0, 11.0], [13.0, 17.0]]]])
SWAPPED_BTHV = Z_BTHV[:, :, [1, 0, 2, 3]]
X_BTC = torch.tensor([[[math.log(3), *[0.0] * 6]]])  # sigmoid of its first channel: 3/4


def make(name: str, params: dict[str, Any], **options: Any) -> Fusion:
    """With the options of its YAML but for these, and with these parameters; other weights are 0."""
    given = defaults_of("fusion", name, methods()[name].Options) | options
    method, checked = method_of(PartConfig(name=name, options=given))
    fusion = method(make_shape(4, value_width=2), checked)
    with torch.no_grad():
        for key, param in fusion.named_parameters():
            if key in params:
                param.copy_(torch.tensor(params[key]))
            elif key.endswith("weight"):
                param.zero_()
    return fusion


def case(
    name: str, fused: Sequence[float], *, z_BTHV: Tensor = Z_BTHV, params: Any = (), **options: Any
) -> Any:
    words = [f"{key}={value}" for key, value in options.items()] + ["trained"] * bool(params)
    return pytest.param(name, options, dict(params), z_BTHV, fused, id="-".join([name, *words]))


CONCAT, SUM, HALF_SUM, MEAN = [1, 2, 3, 5, 7, 11, 13, 17], [24, 35], [12, 17.5], [6, 8.75]
GATES = [[-100.0], [0.0], [math.log(3)], [math.log(9)]]
OF_SIZE = [(2.5, 1, 2), (17, 3, 5), (85, 7, 11), (229, 13, 17)]  # mean square, channels
NORMED = [0.02 * 7**0.5 * channel / size**0.5 for size, *channels in OF_SIZE for channel in channels]
COS = 0.5**0.5  # of 45°, by which the second head is rotated; the third by 90°, the last by 135°
ROTATED = [1 + COS * (3 - 5) - 11 - COS * (13 + 17), 2 + COS * (3 + 5) + 7 + COS * (13 - 17)]
EVERY_GATE = itertools.product(("head", "channel", "shared"), ("x", "static"), ("sigmoid", "softmax"))
VALUES_BTHV = torch.tensor([3.0, 4.0]) * torch.tensor([1.0, 0.1, 30, 1]).view(1, 1, 4, 1)
ALONG = [3 * a + 4 * b for a, b in ((1, 2), (3, 5), (7, 11), (13, 17)) for _ in range(2)]
EXCLUDED = [n - p * c / 25 for n, p, c in zip(CONCAT, ALONG, [3, 4] * 4, strict=True)]
BY_HAND = [
    case("concat", CONCAT),
    case("concat", CONCAT, normalize="variance"),
    case("sum", SUM),
    case("sum", SUM, z_BTHV=SWAPPED_BTHV),
    case("sum", HALF_SUM, normalize="variance"),  # /√4
    case("sum", ROTATED, order="rotate"),
    case("sum", [3 - COS - 11 - COS * 30, 5 + COS * 3 + 7 - COS * 4], z_BTHV=SWAPPED_BTHV, order="rotate"),
    case("mean", MEAN),
    case("mean", HALF_SUM, normalize="variance"),  # ·√4: the normalized sum
    case("grouped", [4, 7, 20, 28], groups=2),
    case("grouped", [n / 2**0.5 for n in (4, 7, 20, 28)], groups=2, normalize="variance"),
    case("grouped", SUM, groups=1),
    case("grouped", CONCAT, groups=4),
    case("weighted_sum", SUM),  # free: the sum
    case("weighted_sum", HALF_SUM, normalize="variance"),
    case("weighted_sum", MEAN, weights="convex"),
    case("weighted_sum", HALF_SUM, weights="convex", normalize="variance"),
    case("weighted_sum", [2 - 3 + 39, 4 - 5 + 51], params={"alpha": [[2.0], [-1.0], [0.0], [3.0]]}),
    case("weighted_sum", [2 - 3 + 39, 2 + 17], per="channel",
         params={"alpha": [[2.0, 1], [-1, 0], [0, 0], [3, 1]]}),
    case("weighted_sum", [(1 + 6 + 13) / 4, (2 + 10 + 17) / 4], weights="convex",
         params={"alpha": [[0.0], [math.log(2)], [-100.0], [0.0]]}),  # 1/4, 2/4, 0, 1/4
    *(case("gated", CONCAT, per=per, input=input, activation=activation)
      for per, input, activation in EVERY_GATE if (per, activation) != ("shared", "softmax")),
    case("gated", [0, 0, 3, 5, 10.5, 16.5, 23.4, 30.6], input="static", params={"logits": GATES}),
    case("gated", [n / 13 for n in (0, 0, 12, 20, 84, 132, 468, 612)], input="static", activation="softmax",
         params={"logits": GATES}),
    case("gated", [1, 2, 3, 5, 10.5, 16.5, 13, 17],
         params={"logits.weight": [[0.0] * 7, [0] * 7, [1, *[0] * 6], [0] * 7]}),
    case("head_scale", CONCAT),
    case("head_scale", [n / 4 for n in CONCAT], weights="convex"),
    case("head_scale", CONCAT, weights="convex", normalize="variance"),
    case("head_scale", [2, 4, 0, 0, -7, -11, 13, 17], params={"alpha": [[2.0], [0.0], [-1.0], [1.0]]}),
    case("gated", [1, 2, 3, 5, 10.5, 16.5, 13, 17], reads=1,
         params={"logits.weight": [[0.0], [0], [1], [0]]}),
    # Without its part along (3, 4)/5, each keeps the one along (4, −3)/5.
    case("exclusive", [k * c / 25 for k in (-2, -3, -5, 1) for c in (4, -3)]),
    case("exclusive", CONCAT, drop=0),
    case("exclusive", [2 * without - n for without, n in zip(EXCLUDED, CONCAT, strict=True)], drop=2),
    case("exclusive", [*EXCLUDED[:4], *CONCAT[4:]], drop="learned",
         params={"drop": [[1.0], [1.0], [0.0], [0.0]]}),
    case("head_norm", NORMED),
    case("head_norm", NORMED, z_BTHV=100 * Z_BTHV),
    case("head_norm", [n * 0.8 / (0.02 * 7**0.5) for n in NORMED], gain="differential"),
    case("hadamard", [n / 8**0.5 for n in (59, -11, -17, 1, -37, 5, 7, 1)]),
]  # fmt: skip


@pytest.mark.parametrize("name, options, params, z_BTHV, fused", BY_HAND)
def test_by_hand(name, options, params, z_BTHV, fused):
    method = make(name, params, **options)
    values = (VALUES_BTHV,) if method.reads_values else ()
    assert method(z_BTHV, X_BTC, *values).flatten().tolist() == pytest.approx(fused, abs=1e-5)


def test_every_method_has_an_answer_by_hand():
    """A new method adds what only it does to BY_HAND."""
    missing = {*methods()} - {case.values[0] for case in BY_HAND}
    assert not missing, f"{missing}: add to BY_HAND what it makes of two heads, reckoned by hand"


@pytest.mark.parametrize("name", ["weighted_sum", "head_scale"])
def test_free_weights_of_heads_are_the_parameters(name):
    weights = make(name, {"alpha": [[2.0], [-1.0], [0.0], [3.0]]}).head_weights()
    assert weights is not None and weights.tolist() == [2, -1, 0, 3]


def test_gates_that_read_nothing_or_more_than_there_is_are_refused():
    with pytest.raises(ConfigError, match=r"fusion.reads=3: with fusion.input=static the gates read nothing"):
        make("gated", {}, input="static", reads=3)
    with pytest.raises(ConfigError, match=r"fusion.reads=65: the input has model.d_model=64 channels"):
        make_spec("fusion=gated", "fusion.reads=65")
    with pytest.raises(ConfigError, match=r"fusion.reads=0: must be at least 1"):
        make_spec("fusion=gated", "fusion.reads=0")


def test_exclusive_attention_has_no_place_in_a_cross_attention():
    pair = ("corpus=copy", "model=pair", "fusion=exclusive")
    with pytest.raises(ConfigError, match="fusion=exclusive: it reads the value of the token itself"):
        make_spec(*pair)
    assert make_spec(*pair, "at=encoder").encoder


def test_one_gate_for_all_heads_weighs_none_against_another():
    with pytest.raises(ConfigError, match=r"fusion.activation=softmax: .* use fusion.activation=sigmoid, or"):
        make("gated", {}, per="shared", activation="softmax")
