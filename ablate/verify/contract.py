"""The contract of methods, as checks: tests run them on all methods, `ablate check` on those in a file.

Some hold for every method, the others for what a method claims of itself. A check raises Broken with a
message about what fails, with numbers. They compute in float64, with drawn weights and random inputs.
"""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from ablate import rng
from ablate.config.rules import ConfigError
from ablate.config.schema import PartConfig
from ablate.execution.plugins import KINDS, Method
from ablate.model import fusion
from ablate.model.attend import EVERYTHING, FORMULATIONS
from ablate.model.attention import Attention
from ablate.model.costs import flops_per_token, total_params
from ablate.model.function_class import function_class, slots_of
from ablate.model.spec import AttentionSpec
from ablate.phrases import error_line
from ablate.store.provenance import plugin_files
from ablate.training.group import in_bfloat16
from ablate.verify.attentions import (
    attention,
    attention_spec,
    build,
    fused,
    model_of,
    relative_error,
    specs_around,
    variants_of,
    with_random_weights,
)
from ablate.verify.fold import fold_error, mixing

EXACT = 1e-10  # relative to the largest entry
IN_FLOAT32 = 1e-6  # the same, of weights that start as float32
LONG = 70  # positions, where 11 might not be enough
NEAR = 0.1  # the same in bfloat16, through a whole attention
Check = Callable[[str, AttentionSpec], None]  # of one attention with a method of this kind


class Broken(AssertionError):
    """A method breaks the contract, or a property that it declares."""


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of one check of one variant. broken: what fails; spoils: what does not count for it. Both
    are empty if the check holds."""

    variant: str
    check: str
    broken: str
    spoils: str


def check_results(kind: str, name: str, only: Sequence[Check] = ()) -> Iterator[CheckResult]:
    """The results of these checks of a method, by default of all, on every variant of it."""
    for part in variants_of(kind, name):
        label = " ".join([f"{kind}={name}", *(f"{key}={value}" for key, value in part.options.items())])
        for check in only or checks_of(kind, name):
            broken, spoils = "", SPOILED.get(check, PROBES)
            try:
                require(check, kind, part)
            except Broken as error:
                broken = str(error)
            except Exception as error:  # of code that a run would meet, too
                broken, spoils = error_line(error, plugin_files()), LOSSES
            yield CheckResult(label, words_of(check), broken, spoils if broken else "")


def require(check: Check, kind: str, part: PartConfig) -> None:
    """Raises Broken unless the check holds for every attention around this variant of a method."""
    if not (specs := [*specs_around(kind, part)]):
        raise Broken("it refuses all sizes that were tried, so nothing was checked")
    for spec in specs:
        check(kind, spec)


def words_of(check: Check) -> str:
    """What a check requires, in words."""
    return (check.__doc__ or "").splitlines()[0].rstrip(".")


def require_sound(methods: Iterable[Method], only: Sequence[Check] = ()) -> list[str]:
    """Lines on what methods fail of these checks, by default of all, as far as losses and sizes stand. Raises
    ConfigError where they don't."""
    lines = []
    for one in (one for method in methods for one in check_results(method.kind, method.name, only)):
        why = f"{one.variant} fails its check, so {one.spoils}: {one.broken}"
        line = f"{why}; ablate check tries all that it has to do"
        if one.broken and one.spoils in (LOSSES, SIZES):
            raise ConfigError(line)
        lines += [line] if one.broken else []
    return lines


def shapes(kind: str, spec: AttentionSpec) -> None:
    """Outputs have the declared shape and are finite."""
    built, x_BTC = attention(spec), _input(spec)
    read = built.look(x_BTC, x_BTC).heads_BTHV
    wanted = (2, 11, spec.heads, spec.value_width)
    if read.shape != wanted:
        raise Broken(f"the heads read {tuple(read.shape)}, and (batch, time, heads, value width) is {wanted}")
    method, options = fusion.method_of(spec.fusion)
    made, width = fused(built, read, x_BTC), method.slots(spec.heads, options) * spec.value_width
    if not isinstance(made, Tensor):
        raise Broken(f"forward returns a {type(made).__name__}, and has to return a Tensor")
    if made.shape != (2, 11, width):
        raise Broken(
            f"forward returns {tuple(made.shape)}; with slots of {method.slots(spec.heads, options)} and"
            f" value_width={spec.value_width} it has to be {(2, 11, width)}"
        )
    if not (read.isfinite().all() and made.isfinite().all()):
        raise Broken(f"forward returns numbers that are not finite ({_sizes(spec)})")


def no_leak(kind: str, spec: AttentionSpec) -> None:
    """No position sees later ones."""
    # With weights as training may make them: a learned scale may hide it where it starts, at 0.
    built, x_BTC = with_random_weights(spec), _input(spec).requires_grad_()
    for position in (0, 4, 9):
        (grad,) = torch.autograd.grad(built(x_BTC, x_BTC)[:, position].square().sum(), x_BTC)
        later = grad[:, position + 1 :].abs().amax((0, 2))
        if not grad.isfinite().all():
            raise Broken("the gradient of its input is not finite")
        if later.max() > 0:
            source = position + 1 + int(later.argmax())
            raise Broken(
                f"it sees the future: position {position} changes with position {source}"
                f" (gradient {later.max():.2g})"
            )
    # By values, too, as a gradient may be detached; at a length like that of runs, as it may see far ahead.
    for T, is_training in itertools.product((11, LONG), (False, True)):
        built.train(is_training)
        x_BTC = _input(spec, T)
        before_BTC = _computed(built, x_BTC)
        if not torch.equal(_computed(built, x_BTC), before_BTC):
            return  # it keeps state, as `resumable` says
        for position in (0, 4, T - 2):
            other_BTC = torch.cat([x_BTC[:, : position + 1], _input(spec, T)[:, position + 1 :]], 1)
            so_far = slice(0, position + 1)
            change = (_computed(built, other_BTC)[:, so_far] - before_BTC[:, so_far]).abs().amax((0, 2))
            if change.max() > EXACT * before_BTC.abs().max():
                raise Broken(
                    f"it sees the future: position {int(change.argmax())} changes with positions after"
                    f" {position}, by {change.max():.2g}"
                )


def no_mixing(kind: str, spec: AttentionSpec) -> None:
    """The rows of a batch do not affect each other."""
    built, x_BTC = with_random_weights(spec), _input(spec)
    if relative_error(built(x_BTC, x_BTC), built(x_BTC, x_BTC)) > EXACT:
        raise Broken("it draws while it is evaluated, too: draw if self.training alone")
    alone = built(x_BTC[:1], x_BTC[:1])
    _require_equal(built(x_BTC, x_BTC)[:1], alone, "a text gives another result in a batch than alone,")


def gradients(kind: str, spec: AttentionSpec) -> None:
    """Every parameter gets a gradient."""
    if spec.heads == 1:
        return  # weights that compare heads have nothing to learn with one head
    model = build(spec)
    tokens = torch.randint(0, 59, (5, 11))
    model.loss(tokens, tokens.roll(1)).backward()
    for name, param in model.named_parameters():
        if param.numel() and (param.grad is None or not param.grad.abs().max() > 0):
            raise Broken(f"{name} gets no gradient: nothing that is computed depends on it")
        if param.numel() and param.grad is not None and not param.grad.isfinite().all():
            raise Broken(f"the gradient of {name} is not finite")


def pairing(kind: str, spec: AttentionSpec) -> None:
    """Weights that standard attention has too start at the same values."""
    standard = attention_spec(heads=spec.heads, bias=spec.bias, d_model=spec.d_model)
    mine, theirs = (dict(build(one).named_parameters()) for one in (spec, standard))
    for name in mine.keys() & theirs.keys():
        factor = spec.value_start if "value" in name else 1.0
        if (
            mine[name].shape == theirs[name].shape
            and relative_error(mine[name], factor * theirs[name]) > 1e-6
        ):
            raise Broken(f"{name} starts with another draw than in the standard attention")


def determinism(kind: str, spec: AttentionSpec) -> None:
    """The same seed gives the same model."""
    first, again = build(spec), build(spec)
    for name, param in first.named_parameters():
        if not torch.equal(param, again.get_parameter(name)):
            raise Broken(
                f"{name} starts differently each time; draw no weights in the method, use Linear for them"
            )


def resumable(kind: str, spec: AttentionSpec) -> None:
    """With the same buffers, draws and input it computes the same: nothing else is kept between steps."""
    model, tokens, calls = build(spec), torch.randint(0, 59, (2, 11)), []
    parts = [part for site in model.sites() for part in getattr(site.attention, kind).modules()]
    start = {name: buffer.clone() for name, buffer in model.named_buffers()}
    for _ in range(3):  # the first may fill a cache
        for name, buffer in model.named_buffers():
            buffer.copy_(start[name])
        with rng.drawing(0, "data", kind), torch.no_grad():
            loss = model.loss(tokens, tokens.roll(1)).item()
        calls.append((loss, [{key: repr(value) for key, value in vars(part).items()} for part in parts]))
    _, (_, before), (_, after) = calls
    changed = {key for was, now in zip(before, after, strict=True) for key in now if now[key] != was.get(key)}
    if changed or len({loss for loss, _ in calls}) > 1:
        named = "".join(f" ({key})" for key in sorted(changed - {"_buffers"}))
        raise Broken(f"keeps state outside of buffers{named}: register_buffer it, or a resumed run differs")


def parameters(kind: str, spec: AttentionSpec) -> None:
    """Each layer has parameters of its own."""
    if sum(param.numel() for param in build(spec).parameters()) != total_params(model_of(spec)):
        raise Broken("a parameter is used by several layers")


def flops(kind: str, spec: AttentionSpec) -> None:
    """count_flops gives the FLOPs of its matrix products."""
    from torch.utils.flop_counter import FlopCounterMode  # with its first use, torch._dynamo is imported

    model, tokens = build(spec), torch.zeros(3, 11, dtype=torch.long)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
        model(tokens)
    counted, declared = counter.get_total_flops() / tokens.numel(), flops_per_token(model_of(spec))
    if counted == declared:
        return
    method, options = KINDS[kind].method_of(getattr(spec, kind))
    own, off = method.count_flops(spec.head_shape(), options), (counted - declared) / len(model.blocks)
    name, of = "count_flops", "per token and layer"
    if kind == "scores" and off % 11 == 0:  # of each of the sources, as products of scores or patterns are
        name, of, off = "count_flops_per_source", "per token, layer and source", off / 11
        own = method.count_flops_per_source(spec.head_shape(), options)
    raise Broken(
        f"{name} gives {own:,.0f} {of}, and the matrix products take {own + off:,.0f}: let it return that"
        f" number ({_sizes(spec)} key_width={spec.key_width})"
    )


def variance(kind: str, spec: AttentionSpec) -> None:
    """normalize=variance gives the variance of one head."""
    if spec.fusion.options.get("normalize") != "variance":
        return
    wide = attention_spec(heads=spec.heads, value_width=50, fusion=spec.fusion)
    z_BTHV, x_BTC = torch.randn(40, 50, spec.heads, 50), torch.randn(40, 50, spec.d_model)
    measured = fused(attention(wide), z_BTHV.double(), x_BTC.double()).var().item()
    if not abs(measured - 1) <= 0.02:
        raise Broken(f"of heads of variance 1 it makes {measured:.3f} with normalize=variance")


def one_head(kind: str, spec: AttentionSpec) -> None:
    """With one head, fused = z at the start (one_head_passes)."""
    options = {key: 1 if key == "groups" else value for key, value in spec.fusion.options.items()}
    alone = attention_spec(heads=1, fusion=PartConfig(name=spec.fusion.name, options=options))
    z_BTHV, failure = _heads(alone), "one_head_passes is true, and with one head it is off"
    _require_equal(fused(attention(alone), z_BTHV, _input(alone)), z_BTHV.squeeze(2), failure, IN_FLOAT32)


def homogeneous(kind: str, spec: AttentionSpec) -> None:
    """c·z gives c·fused, so that constants fold into the weights (homogeneous)."""
    built, z_BTHV, x_BTC = with_random_weights(spec), _heads(spec), _input(spec)
    thrice, once = (fused(built, factor * z_BTHV, x_BTC) for factor in (3, 1))
    _require_equal(thrice, 3 * once, "homogeneous is true, and 3·z is not 3·fused,")
    _require_static(spec)
    _require_scale_folds(spec, "homogeneous")


def claimed_form(kind: str, spec: AttentionSpec) -> None:
    """At the start it computes the function that its form names (form)."""
    method, options = fusion.method_of(spec.fusion)
    form = method.form(spec.heads, options)
    for other in _of_form(form, spec.heads):
        both = (attention(one) for one in (spec, dataclasses.replace(spec, fusion=other)))
        z_BTHV, x_BTC = _heads(spec), _input(spec)
        mine, theirs = (fused(one, z_BTHV, x_BTC) for one in both)
        failure = f"its form at heads={spec.heads} is {form}, which it differs from"
        _require_equal(mine, theirs, failure, IN_FLOAT32)


def folds(kind: str, spec: AttentionSpec) -> None:
    """It only maps each head's values linearly, and adds heads up (folds)."""
    _require_static(spec)
    for name in ("concat", "sum"):
        other = dataclasses.replace(spec, fusion=variants_of("fusion", name)[0])
        _require_one_class(spec, other, f"folds is true, and it does not become fusion={name}")


def scale_folds(kind: str, spec: AttentionSpec) -> None:
    """Scaling W_Q has the same effect as scaling the scores (scale_folds)."""
    _require_scale_folds(spec, "scale_folds")


def patterns(kind: str, spec: AttentionSpec) -> None:
    """forward equals probabilities times the values, unless reads_more says that it reads more."""
    built, x_BTC = with_random_weights(spec), _input(spec)
    look = built.look(x_BTC, x_BTC)
    patterns_BHTS = built.scores.probabilities(look.queries_BHTK, look.keys_BHSK, built.mask)
    wanted, read = (patterns_BHTS @ look.values_BHSV).transpose(1, 2), look.heads_BTHV
    if not built.scores.reads_more:
        _require_equal(read, wanted, "forward reads something else than probabilities · v,")
    elif spec.heads > 1 and relative_error(read, wanted) <= EXACT:
        raise Broken("reads_more is true, and forward reads probabilities · v alone; probes could see that")


def sums(kind: str, spec: AttentionSpec) -> None:
    """Each row of a pattern sums to 1 (sums_to_one)."""
    x_BTC = _input(spec)
    rows = with_random_weights(spec).look(x_BTC, x_BTC).patterns_BHTS.sum(-1)
    _require_equal(rows, torch.ones_like(rows), "sums_to_one is true, and a row is off")


def bilinear(kind: str, spec: AttentionSpec) -> None:
    """Queries and keys matter by their products alone (bilinear)."""
    built, x_BTC = with_random_weights(spec), _input(spec)
    q_BHTK, k_BHSK, *_ = built.look(x_BTC, x_BTC)
    turn = torch.linalg.qr(torch.randn(spec.key_width, spec.key_width, dtype=torch.float64))[0]
    before = built.scores.probabilities(q_BHTK, k_BHSK, built.mask)
    after = built.scores.probabilities(q_BHTK @ turn, k_BHSK @ turn, built.mask)
    _require_equal(after, before, "bilinear is true, and queries and keys turned alike give other patterns,")


def order_free(kind: str, spec: AttentionSpec) -> None:
    """The order of sources has no effect where all are visible (order_free)."""
    built, x_BTC = with_random_weights(spec), _input(spec)
    built.mask, source_BSC = EVERYTHING, _input(spec).repeat(1, 2, 1)
    failure = "order_free is true, and sources in another order give another result,"
    _require_equal(built(x_BTC, source_BSC), built(x_BTC, source_BSC.roll(3, 1)), failure)


def bfloat16(kind: str, spec: AttentionSpec) -> None:
    """Results in bfloat16 agree with those in float64."""
    half = in_bfloat16(with_random_weights(spec))
    exact, x_BTC = copy.deepcopy(half).double(), _input(spec).bfloat16().requires_grad_()
    for attend in FORMULATIONS.values():
        half.scores.attend = attend
        result = half(x_BTC, x_BTC)
        _require_equal(result.double(), exact(x_BTC.double(), x_BTC.double()), "in bfloat16 it is off", NEAR)
        if not torch.autograd.grad(result.float().square().sum(), x_BTC)[0].isfinite().all():
            raise Broken("in bfloat16 a gradient is not finite")


COMMON: tuple[Check, ...] = (
    *(shapes, no_leak, no_mixing, gradients, pairing, determinism, parameters, flops),
    *(resumable, bfloat16),
)
CHECKS: dict[str, tuple[Check, ...]] = {"fusion": (*COMMON, variance), "scores": (*COMMON, patterns)}
# What does not count if a check fails; what is said of probes and of classes, if it is not among these.
LOSSES, SIZES = "its losses mean nothing", "its parameters or FLOPs are miscounted"
PROBES = "what probes and classes say of it may be wrong, and its losses stand"
SPOILED: dict[Check, str] = {
    **dict.fromkeys((shapes, no_leak, no_mixing, pairing, determinism, resumable, bfloat16), LOSSES),
    **dict.fromkeys((gradients, parameters, flops), SIZES),
}
# What `ablate run` tries before it trains a method of one's own; a duel, which compares sizes, tries all.
BEFORE_A_RUN: tuple[Check, ...] = (shapes, no_leak, no_mixing, gradients, resumable)
CLAIMS: dict[str, Check] = {
    "one_head_passes": one_head,
    "homogeneous": homogeneous,
    "form": claimed_form,
    "folds": folds,
    "scale_folds": scale_folds,
    "sums_to_one": sums,
    "order_free": order_free,
    "bilinear": bilinear,
}


def checks_of(kind: str, name: str) -> list[Check]:
    """The checks that every method of this kind has to pass, and those of what this one claims."""
    return [*CHECKS[kind], *(CLAIMS[claim] for claim in KINDS[kind].methods()[name].claims())]


def _require_equal(result: Tensor, wanted: Tensor, failure: str, most: float = EXACT) -> None:
    """Raises Broken, with `failure` and the error, unless the two are equal to within `most`."""
    if (error := relative_error(result, wanted)) > most:
        raise Broken(f"{failure} by {error:.2g}, relatively")


def _require_static(spec: AttentionSpec) -> None:
    """Raises Broken if the fusion claims that it folds, and does not: fused = Σ_i z_i T_i, with invertible
    T_i, in the slot of head i."""
    H, V, slots = spec.heads, spec.value_width, slots_of(spec)
    if slots is None:
        return
    built, z_BTHV, x_BTC = with_random_weights(spec), _heads(spec), _input(spec)
    maps_HVF = mixing(built)
    mapped = torch.einsum("bthv,hvf->btf", z_BTHV, maps_HVF)
    if relative_error(mapped, fused(built, z_BTHV, x_BTC)) > EXACT:
        raise Broken(
            "folds is true, and fused is no sum over heads of values times a matrix that does not depend on"
            f" the input ({_sizes(spec)})"
        )
    for head, of_slot in enumerate(maps_HVF.unflatten(2, (slots, V)).unbind()):
        own = head * slots // H
        if of_slot.count_nonzero() != of_slot[:, own].count_nonzero():
            raise Broken(f"folds is true, and head {head + 1} writes into another slot than slot {own + 1}")
        if torch.linalg.matrix_rank(of_slot[:, own]) < V:
            raise Broken("folds is true, and what it does to a head's values has no inverse; return False")


def _require_scale_folds(spec: AttentionSpec, claim: str) -> None:
    """Raises Broken unless the place of 1/√key_width can be changed by a change of weights."""
    for scale in ("none", "outside") if spec.key_width else ():
        other = dataclasses.replace(spec, scale=scale)
        _require_one_class(spec, other, f"{claim} is true, and scale=inside does not become scale={scale}")


def _require_one_class(spec: AttentionSpec, other: AttentionSpec, failure: str) -> None:
    """Raises Broken, with `failure`, if the two have one function_class and one of them can't be set to
    compute what the other does."""
    if function_class(other) != function_class(spec):
        return
    for source, target in ((spec, other), (other, spec)):
        if (error := fold_error(source, target)) > EXACT:
            raise Broken(f"{failure}, by {error:.2g}, relatively ({_sizes(spec)})")


def _of_form(form: str, heads: int) -> list[PartConfig]:
    """The variants that have this form, among those of the method that it names."""
    if (name := form.partition(" ")[0]) not in fusion.methods():
        return []
    parts = variants_of("fusion", name)
    return [part for part in parts if fusion.methods()[name].form(heads, fusion.method_of(part)[1]) == form]


def _heads(spec: AttentionSpec) -> Tensor:
    return torch.randn(2, 11, spec.heads, spec.value_width, dtype=torch.float64)


def _input(spec: AttentionSpec, T: int = 11) -> Tensor:
    return torch.randn(2, T, spec.d_model, dtype=torch.float64)


@torch.no_grad()
def _computed(built: Attention, x_BTC: Tensor) -> Tensor:
    """What it makes of this input, with the same draws each time."""
    with rng.drawing(0, "data", "leak"):
        return built(x_BTC, x_BTC)


def _sizes(spec: AttentionSpec) -> str:
    return f"heads={spec.heads} value_width={spec.value_width} d_model={spec.d_model}"
