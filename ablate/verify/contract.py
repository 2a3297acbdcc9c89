"""The contract of methods, as checks: tests run them on all methods, `ablate check` on those in a file.

A check raises Broken with a message about what fails, with numbers. They compute in float64, with drawn
weights and random inputs.
"""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.config.rules import ConfigError
from ablate.config.schema import PartConfig
from ablate.model import fusion, scores
from ablate.model.attend import FORMULATIONS
from ablate.model.costs import attention_params, flops_per_token, total_params
from ablate.model.function_class import function_class
from ablate.model.spec import AttentionSpec
from ablate.store.code import raised
from ablate.verify.fold import fold
from ablate.verify.variants import (
    attention,
    attention_spec,
    build,
    model_of,
    relative_error,
    specs_around,
    stirred,
    variants_of,
)

EXACT = 1e-10  # relative to the largest entry
NEAR = 0.1  # the same in bfloat16, through a whole attention
Check = Callable[[str, PartConfig], None]


class Broken(AssertionError):
    """A method breaks the contract, or a property that it declares."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check of one variant. broken: what fails; empty if the check holds."""

    variant: str
    check: str
    broken: str


def findings(kind: str, name: str) -> Iterator[Finding]:
    """The findings of all checks for this kind, on every variant of a method."""
    for part in variants_of(kind, name):
        label = " ".join([f"{kind}={name}", *(f"{key}={value}" for key, value in part.options.items())])
        for check in CHECKS[kind]:
            words = (check.__doc__ or "").splitlines()[0].rstrip(".")
            try:
                check(kind, part)
                yield Finding(label, words, "")
            except Broken as error:
                yield Finding(label, words, str(error))
            except Exception as error:
                yield Finding(label, words, raised(error))


def require_causal(kind: str, name: str) -> None:
    """Raises ConfigError for a method that sees future positions or other texts, as its losses mean
    nothing."""
    for part in variants_of(kind, name):
        for check in (no_leak, no_mixing):
            try:
                check(kind, part)
            except Broken as error:
                raise ConfigError(
                    f"{kind}={name}: {error}; ablate check tries all that it has to do"
                ) from error


def shapes(kind: str, part: PartConfig) -> None:
    """Outputs have the declared shape."""
    for spec in specs_around(kind, part):
        built, x_BTC = attention(spec), _input(spec)
        read = built.read(x_BTC, x_BTC)
        wanted = (2, 11, spec.heads, spec.value_width)
        if read.shape != wanted:
            raise Broken(
                f"the heads read {tuple(read.shape)}, and (batch, time, heads, value width) is {wanted}"
            )
        method, options = fusion.method_of(spec.fusion)
        fused, width = built.fusion(read, x_BTC), method.slots(spec.heads, options) * spec.value_width
        if not isinstance(fused, Tensor):
            raise Broken(f"forward returns a {type(fused).__name__}, and has to return a Tensor")
        if fused.shape != (2, 11, width):
            raise Broken(
                f"forward returns {tuple(fused.shape)}; with slots of {method.slots(spec.heads, options)} and"
                f" value_width={spec.value_width} it has to be {(2, 11, width)}"
            )


def no_leak(kind: str, part: PartConfig) -> None:
    """No position sees later ones."""
    for spec in specs_around(kind, part):
        built, x_BTC = attention(spec), _input(spec).requires_grad_()
        for position in (0, 4, 9):
            (grad,) = torch.autograd.grad(built(x_BTC, x_BTC)[:, position].square().sum(), x_BTC)
            if (later := grad[:, position + 1 :].abs().amax((0, 2))).max() > 0:
                seen = position + 1 + int(later.argmax())
                raise Broken(
                    f"it sees the future: position {position} changes with position {seen}"
                    f" (gradient {later.max():.2g})"
                )


def no_mixing(kind: str, part: PartConfig) -> None:
    """The rows of a batch do not affect each other."""
    for spec in specs_around(kind, part):
        built, x_BTC = attention(spec), _input(spec)
        if (error := relative_error(built(x_BTC, x_BTC)[:1], built(x_BTC[:1], x_BTC[:1]))) > EXACT:
            raise Broken(f"a text gives another result in a batch than alone, by {error:.2g}, relatively")


def gradients(kind: str, part: PartConfig) -> None:
    """Every parameter gets a gradient."""
    for spec in specs_around(kind, part):
        if spec.heads == 1:
            continue  # weights that compare heads have nothing to learn with one head
        model = build(spec)
        tokens = torch.randint(0, 59, (5, 11))
        model.loss(tokens, tokens.roll(1)).backward()
        for name, param in model.named_parameters():
            if param.numel() and (param.grad is None or not param.grad.abs().max() > 0):
                raise Broken(f"{name} gets no gradient: nothing that is computed depends on it")
            if param.numel() and param.grad is not None and not param.grad.isfinite().all():
                raise Broken(f"the gradient of {name} is not finite")


def pairing(kind: str, part: PartConfig) -> None:
    """Weights that standard attention has too start at the same values."""
    for spec in specs_around(kind, part):
        standard = attention_spec(heads=spec.heads, bias=spec.bias)
        mine, theirs = (dict(build(one).named_parameters()) for one in (spec, standard))
        for name in mine.keys() & theirs.keys():
            factor = spec.residual_scale if "value" in name and not spec.out_proj else 1.0
            if (
                mine[name].shape == theirs[name].shape
                and relative_error(mine[name], factor * theirs[name]) > 1e-6
            ):
                raise Broken(f"{name} starts with another draw than in the standard attention")


def determinism(kind: str, part: PartConfig) -> None:
    """The same seed gives the same model, and the same input the same output."""
    spec = next(specs_around(kind, part))
    first, again = build(spec), build(spec)
    for name, param in first.named_parameters():
        if not torch.equal(param, again.get_parameter(name)):
            raise Broken(
                f"{name} starts differently each time; draw no weights in the method, use Linear for them"
            )
    tokens = torch.randint(0, 59, (3, 11))
    if not torch.equal(first(tokens), first(tokens)):
        raise Broken("the same input gives another output each time")


def parameters(kind: str, part: PartConfig) -> None:
    """count_params gives the number of parameters."""
    for spec in specs_around(kind, part):
        model, sizes = build(spec), model_of(spec)
        there = sum(p.numel() for block in model.blocks for p in block.attention.parameters()) // sizes.layers
        said = attention_params(sizes) // sizes.layers
        if there != said:
            own = sum(p.numel() for p in getattr(model.blocks[0].attention, kind).parameters())
            raise Broken(
                f"it has {own} parameters, and count_params says {own - (there - said)} ({_sizes(spec)})"
            )
        if sum(p.numel() for p in model.parameters()) != total_params(sizes):
            raise Broken("a parameter is used by several layers")


def flops(kind: str, part: PartConfig) -> None:
    """count_flops gives the FLOPs of its matrix products."""
    for spec in specs_around(kind, part):
        model, tokens = build(spec), torch.zeros(3, 11, dtype=torch.long)
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            model(tokens)
        there, said = counter.get_total_flops() / tokens.numel(), flops_per_token(model_of(spec))
        if there != said:
            off = (there - said) / len(model.blocks)
            than = f"{abs(off):,.0f} FLOPs {'more' if off > 0 else 'fewer'} than it counts"
            raise Broken(f"it computes {than}, per token and layer ({_sizes(spec)}, 11 sources)")


def one_head(kind: str, part: PartConfig) -> None:
    """One head passes through at the start, where the method says so."""
    if "groups" in part.options:
        part = PartConfig(name=part.name, options={**part.options, "groups": 1})
    spec = attention_spec(heads=1, fusion=part)
    built, z_BTHV = attention(spec).fusion, _heads(spec)
    if (
        built.one_head_passes
        and (error := relative_error(built(z_BTHV, _input(spec)), z_BTHV.squeeze(2))) > 1e-6
    ):
        raise Broken(f"one_head_passes is true, and with one head it is off by {error:.2g}, relatively")


def variance(kind: str, part: PartConfig) -> None:
    """normalize=variance gives the variance of one head."""
    if part.options.get("normalize") != "variance":
        return
    spec = attention_spec(value_width=50, fusion=part)
    z_BTHV, x_BTC = torch.randn(40, 50, 4, 50), torch.randn(40, 50, spec.d_model)
    found = attention(spec).fusion(z_BTHV.double(), x_BTC.double()).var().item()
    if abs(found - 1) > 0.02:
        raise Broken(f"of heads of variance 1 it makes {found:.3f} with normalize=variance")


def scales(kind: str, part: PartConfig) -> None:
    """c·z gives c·fused, if the method declares it (homogeneous)."""
    spec = next(specs_around(kind, part))
    built, z_BTHV, x_BTC = attention(spec).fusion, _heads(spec), _input(spec)
    error = relative_error(built(3 * z_BTHV, x_BTC), 3 * built(z_BTHV, x_BTC))
    if built.homogeneous and error > EXACT:
        raise Broken(f"homogeneous is true, and 3·z is not 3·fused, by {error:.2g}, relatively")


def adds_up(kind: str, part: PartConfig) -> None:
    """The contributions of the heads sum to fused, if the method declares it (adds_up)."""
    for spec in specs_around(kind, part):
        built, z_BTHV, x_BTC = stirred(spec).fusion, _heads(spec), _input(spec)
        error = relative_error(built.contributions(z_BTHV, x_BTC).sum(-2), built(z_BTHV, x_BTC))
        if built.adds_up and error > EXACT:
            raise Broken(
                f"adds_up is true, and fused is not the sum of what it is of each head alone, by {error:.2g}"
            )


def claimed_form(kind: str, part: PartConfig) -> None:
    """At the start it computes the function that its form names."""
    method, options = fusion.method_of(part)
    for spec in specs_around(kind, part):
        form = method.form(spec.heads, options)
        for other in _of_form(form, spec.heads):
            mine, theirs = (attention(dataclasses.replace(spec, fusion=one)).fusion for one in (part, other))
            z_BTHV, x_BTC = _heads(spec), _input(spec)
            if (error := relative_error(mine(z_BTHV, x_BTC), theirs(z_BTHV, x_BTC))) > 1e-6:
                raise Broken(
                    f"its form at heads={spec.heads} is {form}, which it differs from by {error:.2g}"
                )


def claimed_class(kind: str, part: PartConfig) -> None:
    """It can represent the functions of its declared class (folds, scale_folds, homogeneous)."""
    for spec in specs_around(kind, part):
        for words, other in _alike(kind, spec):
            for source, target in ((spec, other), (other, spec)):
                a, b, x_BTC = stirred(source), stirred(target), _input(spec)
                try:
                    fold(a, b)
                except torch.linalg.LinAlgError as error:  # pyright: ignore[reportPrivateImportUsage]
                    raise Broken(
                        "folds is true, and what it does to a head's values has no inverse; return False"
                    ) from error
                if (error := relative_error(b(x_BTC, x_BTC), a(x_BTC, x_BTC))) > EXACT:
                    raise Broken(f"{words}, by {error:.2g}, relatively ({_sizes(spec)})")


def patterns(kind: str, part: PartConfig) -> None:
    """forward equals probabilities times the values."""
    for spec in specs_around(kind, part):
        built, x_BTC = stirred(spec), _input(spec)
        values_BHTV = built.value(x_BTC).unflatten(-1, (spec.heads, spec.value_width)).transpose(1, 2)
        wanted = (built.probabilities(x_BTC, x_BTC) @ values_BHTV).transpose(1, 2)
        if (error := relative_error(built.read(x_BTC, x_BTC), wanted)) > EXACT:
            raise Broken(f"forward reads something else than probabilities · v, by {error:.2g}, relatively")


def sums(kind: str, part: PartConfig) -> None:
    """Each row of a pattern sums to 1, if the method declares it (sums_to_one)."""
    method, _ = scores.method_of(part)
    for spec in specs_around(kind, part):
        x_BTC = _input(spec)
        rows = stirred(spec).probabilities(x_BTC, x_BTC).sum(-1)
        if method.sums_to_one and (error := relative_error(rows, torch.ones_like(rows))) > EXACT:
            raise Broken(f"sums_to_one is true, and a row is off by {error:.2g}")


def halves(kind: str, part: PartConfig) -> None:
    """Results in bfloat16 agree with those in float64."""
    for spec in specs_around(kind, part):
        half = stirred(spec).bfloat16()
        exact, x_BTC = copy.deepcopy(half).double(), _input(spec).bfloat16().requires_grad_()
        for attend in FORMULATIONS.values():
            half.scores.attend = attend
            found = half(x_BTC, x_BTC)
            if found.dtype != torch.bfloat16:
                raise Broken(f"of bfloat16 it makes {found.dtype}; keep to the dtype of what comes in")
            if (error := relative_error(found.double(), exact(x_BTC.double(), x_BTC.double()))) > NEAR:
                raise Broken(f"in bfloat16 it is off by {error:.2g}, relatively")
            if not torch.autograd.grad(found.float().square().sum(), x_BTC)[0].isfinite().all():
                raise Broken("in bfloat16 a gradient is not finite")


COMMON: tuple[Check, ...] = (
    *(shapes, no_leak, no_mixing, gradients, pairing, determinism, parameters, flops),
    halves,
)
CHECKS: dict[str, tuple[Check, ...]] = {
    "fusion": (*COMMON, one_head, variance, scales, adds_up, claimed_form, claimed_class),
    "scores": (*COMMON, patterns, sums, claimed_class),
}


def _alike(kind: str, spec: AttentionSpec) -> Iterator[tuple[str, AttentionSpec]]:
    """Attentions that are declared to be of the same class, each with the message for the case that it
    fails."""
    claim = "scale_folds" if kind == "scores" else "homogeneous"
    others: list[tuple[str, dict[str, Any]]] = [
        (f"{claim} is true, and scale=inside does not become scale={scale}", {"scale": scale})
        for scale in (("none", "outside") if spec.key_width else ())
    ]
    for name in ("concat", "sum") if kind == "fusion" else ():
        words = f"folds is true, and it does not become fusion={name}"
        others.append((words, {"fusion": variants_of("fusion", name)[0]}))
    for words, change in others:
        other = dataclasses.replace(spec, **change)
        if function_class(other) == function_class(spec):
            yield words, other


def _of_form(form: str, heads: int) -> list[PartConfig]:
    """The variants that have this form, among those of the method that it names."""
    if (name := form.partition(" ")[0]) not in fusion.methods():
        return []
    parts = variants_of("fusion", name)
    return [part for part in parts if fusion.methods()[name].form(heads, fusion.method_of(part)[1]) == form]


def _heads(spec: AttentionSpec) -> Tensor:
    return torch.randn(2, 11, spec.heads, spec.value_width, dtype=torch.float64)


def _input(spec: AttentionSpec) -> Tensor:
    return torch.randn(2, 11, spec.d_model, dtype=torch.float64)


def _sizes(spec: AttentionSpec) -> str:
    return f"heads={spec.heads} value_width={spec.value_width} d_model={spec.d_model}"
