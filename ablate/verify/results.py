"""What `ablate verify` reports: the verdict on each identity, and what no equation says, measured: the heads
of a trained run.

legend: as in ablate.verify.attentions.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ablate.config.rules import ConfigError
from ablate.config.schema import STANDARD_FUSION, STANDARD_SCORES
from ablate.execution.reopen import reopened
from ablate.execution.trained import in_float64, weights_of
from ablate.model.attend import CAUSAL
from ablate.model.attention import Attention
from ablate.model.models import Model, inputs_of_attention
from ablate.phrases import error_line
from ablate.store.provenance import plugin_files
from ablate.store.store import Store
from ablate.verify.attentions import Bench, relative_error
from ablate.verify.identities import IDENTITIES, Identity

EQUAL = 1e-10  # the largest error of an equation, relative to the largest entry
DIFFERENT = 1e-2  # the smallest error of two sides that are claimed to differ
PASS, FAIL = "pass", "FAIL"


@dataclass(frozen=True)
class IdentityResult:
    """error: relative to the largest entry; None if nothing could be compared. crash: why not: the error that
    was raised, in one line."""

    name: str
    equation: str
    words: str
    question: str
    error: float | None
    verdict: str
    crash: str = ""


def verify(only: Sequence[str] = (), bench: Bench | None = None) -> list[IdentityResult]:
    """The verdict on each identity. only: numbers, names or questions to check. Raises ConfigError."""
    ordered = sorted(IDENTITIES, key=lambda i: int(i.number) if i.number.isdecimal() else len(IDENTITIES))
    for wanted in only:
        if not any(wanted in _called(identity) for identity in ordered):
            numbers = dict.fromkeys(identity.number for identity in ordered)
            raise ConfigError(f"--only {wanted}: no such identity; choices: {', '.join(numbers)}")
    bench, chosen = bench or Bench(), [i for i in ordered if not only or {*_called(i)} & {*only}]
    return [_judged(identity, bench) for identity in chosen]


def _called(identity: Identity) -> tuple[str, str, str]:
    return identity.name, identity.number, identity.question


def _judged(identity: Identity, bench: Bench) -> IdentityResult:
    described = (identity.name, identity.equation, identity.words, identity.question)
    try:
        error = relative_error(*identity.sides(bench))
    except Exception as crash:  # a broken method may return tensors of the wrong shape
        return IdentityResult(*described, None, FAIL, error_line(crash, plugin_files()))
    if math.isinf(error):
        return IdentityResult(*described, None, FAIL, "the result has numbers that are not finite")
    holds = error >= DIFFERENT if identity.differs else error <= EQUAL
    return IdentityResult(*described, error, PASS if holds else FAIL)


# --- the heads of a trained run -------------------------------------------------------------------------

WINDOWS = 8  # windows of the validation split to evaluate


def of_run(run: str) -> list[dict[str, Any]]:
    """Measure each layer of a finished run on its validation text, before and after training: layer, from 1;
    when; one_head, the relative change of the output if the same weights are used as a single head, None if
    they can't be; outside, the share of the numbers in the heads' outputs that lie outside the range of the
    values that the head reads. run: a prefix of its id or name. Raises ConfigError."""
    directory = Store().find(run)
    weights, trained = weights_of(directory), reopened(directory, code=True).prepared("cpu")
    if trained.spec.encoder is not None:
        raise ConfigError(f"{directory.name}: a model of two texts; take a run of one text")
    split = trained.corpus.splits["validation"]
    tokens_BT = next(split.windows(context=trained.spec.context, windows=WINDOWS)).inputs
    start, end = in_float64(trained), in_float64(trained)
    end.load_state_dict(weights)
    return [*_layers(start, tokens_BT, "before training"), *_layers(end, tokens_BT, "after")]


@torch.no_grad()
def _layers(model: Model, tokens_BT: Tensor, when: str) -> list[dict[str, Any]]:
    inputs = inputs_of_attention(model, tokens_BT)
    attentions = [block.attention for block in model.blocks]
    return [
        {"layer": n, "when": when, "one_head": _from_one_head(a, x_BTC), "outside": _outside(a, x_BTC)}
        for n, (a, (x_BTC, _, _)) in enumerate(zip(attentions, inputs, strict=True), 1)
    ]


def _from_one_head(attention: Attention, x_BTC: Tensor) -> float | None:
    """‖one head − many‖ / ‖many‖ of the outputs; None if the weights can't be used as one head."""
    spec = attention.spec
    shares = {spec.query_heads, spec.key_heads, spec.value_heads} != {spec.heads} or spec.kv_rank
    if spec.fusion.name != STANDARD_FUSION or spec.scores.name != STANDARD_SCORES or shares or spec.tie_qk:
        return None
    widths = {"key_width": spec.heads * spec.key_width, "value_width": spec.heads * spec.value_width}
    alone = dict.fromkeys(("heads", "query_heads", "key_heads", "value_heads"), 1)
    single = Attention(dataclasses.replace(spec, **alone, **widths), CAUSAL).double().eval()
    single.load_state_dict(attention.state_dict())
    many = attention(x_BTC, x_BTC)
    return ((single(x_BTC, x_BTC) - many).norm() / many.norm()).item()


def _outside(attention: Attention, x_BTC: Tensor) -> float:
    """The share of numbers outside the range of the values: after the fusion if it keeps heads apart, else
    before it."""
    spec = attention.spec
    values = attention.value(attention.latent(x_BTC)).unflatten(-1, (spec.value_heads, -1))
    of_head = [head * spec.value_heads // spec.heads for head in range(spec.heads)]
    values_BTHV, read_BTHV = values[:, :, of_head], attention.read(x_BTC, x_BTC)
    fused = attention.fusion(read_BTHV, *attention.besides(x_BTC))
    handed = fused.view_as(read_BTHV) if fused.shape[-1] == read_BTHV[0, 0].numel() else read_BTHV
    slack = 1e-9 * values_BTHV.abs().max()
    low, high = values_BTHV.cummin(1).values - slack, values_BTHV.cummax(1).values + slack
    return ((handed < low) | (handed > high)).double().mean().item()
