"""Whether two configs are of one class of functions, proved by folding random weights of each into the other.

Two configs are of one class if their attentions are (ablate.model.function_class) and their models have equal
sizes besides. A text, a seed or a training changes no class.
"""

import dataclasses
import itertools
import shlex
from collections.abc import Mapping, Sequence

from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.model.function_class import function_class, patterns_of, slots_of
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec
from ablate.verify.fold import fold_error
from ablate.verify.results import EQUAL

VOCAB = 1024  # a text decides it, and no class depends on it
DEFAULTS = "the defaults"  # what no overrides are called
# Fields of ModelSpec that are told by kind of attention, or say nothing of functions.
OUTSIDE = {"attention", "encoder", "cross", "at", "architecture", "rope_base", "dropout", "name"}

Class = dict[str, str]  # texts by name


def same_class(one: str, other: str) -> tuple[Class, Class, dict[str, float]]:
    """The class of each as texts by kind of attention, sizes of the model included, as far as they differ;
    and the largest difference, by direction, when random weights are folded from one into the other, relative
    to the largest entry, if they differ in nothing but how static fusions add heads up. ONE and OTHER are
    overrides, as in "fusion=sum heads=8". Raises ConfigError."""
    spec, other_spec = _read(one), _read(other)
    ours, theirs = _class(spec), _class(other_spec)
    apart = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    errors = _errors((one, spec), (other, other_spec)) if _can_fold(spec, other_spec, apart) else {}
    one_side, other_side = ({key: of.get(key, "") for key in apart or spec.kinds} for of in (ours, theirs))
    return one_side, other_side, errors


def inclusion(one: str, other: str, errors: Mapping[str, float]) -> str:
    """Which of two classes has all functions of the other, by what `same_class` says of them."""
    if not errors:
        return (
            "whether one has all functions of the other is not tried: more differs than how heads are added"
        )
    names, (there, back) = (one or DEFAULTS, other or DEFAULTS), errors.values()
    if min(there, back) > EQUAL:
        return "each has functions that the other has not"
    fewer, more = names if there < back else names[::-1]
    return f"every function of {fewer} is one of {more}, not conversely"


def _read(words: str) -> ModelSpec:
    """The sizes that these overrides ask for."""
    try:
        given = shlex.split(words)
    except ValueError as error:
        raise ConfigError(f'--class "{words}": {error}; write KEY=VALUE, as in "fusion=sum"') from error
    if odd := [word for word in given if word.startswith("-") or "=" not in word]:
        raise ConfigError(f'--class "{words}": {odd[0]} is no override; write KEY=VALUE, as in "fusion=sum"')
    sweep = compose(given)
    if not sweep.is_single:
        raise ConfigError(f'--class "{words}": one config is compared with one; give each key one value')
    return resolve_spec(sweep.configs(()), VOCAB)


def _class(spec: ModelSpec) -> Class:
    """What decides which functions a model can represent."""
    of_kinds = {kind: function_class(attention) for kind, (attention, _) in spec.kinds.items()}
    sizes = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name not in OUTSIDE}
    return of_kinds | {name: str(value) for name, value in sizes.items()}


def _can_fold(one: ModelSpec, other: ModelSpec, apart: Sequence[str]) -> bool:
    """Whether fold finds the weights of either that come closest to the other: what is apart is the way in
    which static fusions add up heads of equal patterns."""
    return {*apart} <= one.kinds.keys() & other.kinds.keys() and all(
        patterns_of(a) == patterns_of(b) and None not in (slots_of(a), slots_of(b))
        for a, b in ((one.kinds[kind][0], other.kinds[kind][0]) for kind in apart)
    )


def _errors(*both: tuple[str, ModelSpec]) -> dict[str, float]:
    """The largest error of folding an attention of one into that of the other, by direction."""
    return {
        f"{one or DEFAULTS} into {other or DEFAULTS}": max(
            fold_error(attention, target.kinds[kind][0]) for kind, (attention, _) in source.kinds.items()
        )
        for (one, source), (other, target) in itertools.permutations(both)
    }
