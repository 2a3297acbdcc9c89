"""Whether two configs are of one class of functions, proved by folding random weights of each into the other.

Two configs are of one class if their attentions are (ablate.model.function_class) and their models have equal
sizes besides. A text, a seed or a training changes no class.
"""

import dataclasses
import itertools
import shlex

import torch

from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError
from ablate.model.function_class import function_class
from ablate.model.sizing import resolve_spec
from ablate.model.spec import AttentionSpec, ModelSpec
from ablate.verify.attentions import relative_error, with_random_weights
from ablate.verify.fold import fold

VOCAB = 1024  # a text decides it, and no class depends on it
DEFAULTS = "the defaults"  # what no overrides are called
# Fields of ModelSpec that are told by kind of attention, or say nothing of functions.
OUTSIDE = {"attention", "encoder", "cross", "at", "architecture", "rope_base", "dropout", "name"}

Class = dict[str, str]  # texts by name


def same_class(one: str, other: str) -> tuple[Class, Class, dict[str, float]]:
    """The class of each as texts by kind of attention, sizes of the model included, as far as they differ;
    and of one class the largest difference, by direction, when random weights are folded from one into the
    other, relative to the largest entry. ONE and OTHER are overrides, as in "fusion=sum heads=8". Raises
    ConfigError."""
    spec, other_spec = _read(one), _read(other)
    ours, theirs = _class(spec), _class(other_spec)
    if ours == theirs:
        shared = {kind: ours[kind] for kind in spec.kinds}
        return shared, shared, _errors((one, spec), (other, other_spec))
    apart = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
    return {name: ours.get(name, "") for name in apart}, {name: theirs.get(name, "") for name in apart}, {}


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
