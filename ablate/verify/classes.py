"""Whether two configs are of one class of functions, proved by folding random weights of each into the other.

Two configs are of one class if their attentions are (ablate.model.function_class) and their models have equal
sizes besides. A text, a seed or a training changes no class.
"""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import torch

from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.model.function_class import function_class, slots_of
from ablate.model.sizing import resolve_spec
from ablate.model.spec import AttentionSpec, ModelSpec
from ablate.verify.attentions import relative_error, with_random_weights
from ablate.verify.fold import fold

VOCAB = 1024  # a text decides it, and no class depends on it
DEFAULTS = "the defaults"  # what no overrides are called
# Fields of ModelSpec that are told by kind of attention, or say nothing of functions.
OUTSIDE = {"attention", "encoder", "cross", "at", "architecture", "rope_base", "dropout", "name"}


@dataclass(frozen=True)
class ClassResult:
    """What `ablate verify --class ONE OTHER` found.

    classes: the class of each, as texts by kind of attention; if they differ, what of it differs, sizes of
    the model included. neighbour: the fewest changes of ONE towards OTHER that leave its class; empty if both
    are of one. errors: by direction, the largest difference when random weights are folded from one into the
    other, or from ONE into its neighbour and back, relative to the largest entry: as close as it comes; empty
    if no fold is known.
    """

    same: bool
    classes: tuple[Mapping[str, str], Mapping[str, str]]
    errors: Mapping[str, float]
    neighbour: str = ""


def same_class(one: str, other: str) -> ClassResult:
    """ONE and OTHER are overrides, as in "fusion=sum heads=8". Raises ConfigError."""
    (of_one, spec), (of_other, other_spec) = _read(one), _read(other)
    if _class(spec) == _class(other_spec):
        shared = {kind: function_class(attention) for kind, (attention, _) in spec.kinds.items()}
        return ClassResult(True, (shared, shared), _errors((one, spec), (other, other_spec)))
    words, near = next(_neighbours(of_one, of_other, spec))
    ours, theirs = _class(spec), _class(near)
    apart = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    told = [{name: of.get(name, "") for name in apart} for of in (ours, theirs)]
    errors = _errors((one, spec), (words, near)) if _has_fold(spec, near, apart) else {}
    return ClassResult(False, (told[0], told[1]), errors, words or DEFAULTS)


def _read(words: str) -> tuple[dict[str, str], ModelSpec]:
    """The settings by key, and the sizes that they ask for."""
    try:
        given = shlex.split(words)
    except ValueError as error:
        raise ConfigError(f'--class "{words}": {error}; write KEY=VALUE, as in "fusion=sum"') from error
    if odd := [word for word in given if word.startswith("-") or "=" not in word]:
        raise ConfigError(f'--class "{words}": {odd[0]} is no override; write KEY=VALUE, as in "fusion=sum"')
    sweep = compose(given)
    assert sweep is not None
    if not sweep.is_single:
        raise ConfigError(f'--class "{words}": one config is compared with one; give each key one value')
    return dict(word.split("=", 1) for word in given), resolve_spec(sweep.configs(()), VOCAB)


def _class(spec: ModelSpec) -> dict[str, str]:
    """What decides which functions a model can represent."""
    of_kinds = {kind: function_class(attention) for kind, (attention, _) in spec.kinds.items()}
    sizes = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name not in OUTSIDE}
    return of_kinds | {name: str(value) for name, value in sizes.items()}


def _neighbours(
    one: Mapping[str, str], other: Mapping[str, str], spec: ModelSpec
) -> Iterator[tuple[str, ModelSpec]]:
    """Configs between both that are of another class than the first, those with fewer changes first."""
    apart = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    for count in range(1, len(apart) + 1):
        for keys in itertools.combinations(apart, count):
            kept = {key: value for key, value in one.items() if key not in keys}
            changed = kept | {key: other[key] for key in keys if key in other}
            words = shlex.join(f"{key}={value}" for key, value in changed.items())
            try:
                between = _read(words)[1]
            except ConfigError:  # these changes do not go without others
                continue
            if _class(between) != _class(spec):
                yield words, between


def _errors(*both: tuple[str, ModelSpec]) -> dict[str, float]:
    """The largest error of folding an attention of one into that of the other, by direction."""
    return {
        f"{one or DEFAULTS} into {other or DEFAULTS}": max(
            _error(attention, target.kinds[kind][0]) for kind, (attention, _) in source.kinds.items()
        )
        for (one, source), (other, target) in itertools.permutations(both)
    }


def _error(source: AttentionSpec, target: AttentionSpec) -> float:
    one, other = with_random_weights(source), with_random_weights(target)
    fold(one, other)
    x_BTC = torch.randn(2, 16, source.d_model, dtype=torch.float64)
    with torch.no_grad():
        return relative_error(other(x_BTC, x_BTC), one(x_BTC, x_BTC))


def _has_fold(one: ModelSpec, other: ModelSpec, apart: Collection[str]) -> bool:
    """Whether their attentions alone differ, and all of them only add heads up, so that `fold` finds the
    closest weights. apart: the names of what differs."""
    if not {*apart} <= one.kinds.keys() & other.kinds.keys():
        return False
    both = [(a, other.kinds[kind][0]) for kind, (a, _) in one.kinds.items()]
    patterns = [{_patterns_of(a) for a in pair} for pair in both]
    return all(slots_of(a) is not None for pair in both for a in pair) and {*map(len, patterns)} == {1}


def _patterns_of(spec: AttentionSpec) -> str:
    """The part of its class that is about patterns."""
    return re.split(" (?:slots|slices|shared)", function_class(spec))[0]
