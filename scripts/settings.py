"""What settings of the default model, as "fusion=gated fusion.per=channel", are as numbers, and which of them
are the same functions."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache

from ablate.compose.composer import Composer
from ablate.compose.sweep import compose
from ablate.config.rules import ConfigError, as_override
from ablate.execution.plugins import KINDS
from ablate.model.function_class import function_class
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec
from ablate.verify.attentions import variants_of

VOCAB = 1024  # a text decides it, and no attention depends on it


@cache
def spec(settings: str) -> ModelSpec:
    """The sizes of the default model with these settings. Raises ConfigError."""
    return resolve_spec(_configs()(settings.split()), VOCAB)


@cache
def _configs() -> Composer:
    sweep = compose([])
    assert sweep is not None
    return sweep.configs


def class_of(settings: str) -> str:
    """The class of functions of its attention."""
    return function_class(spec(settings).attention)


def alike(others: Iterable[str]) -> dict[str, list[str]]:
    """The settings of each class that has several: fusions with all choices of their options, with out_proj
    and without, and these others."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in KINDS["fusion"].methods():
        places: dict[tuple[str, str], list[str]] = defaultdict(list)
        for out in ("true", "false"):
            for of, settings in _classes(name, out):
                places[of, settings].append(out)
        for (of, settings), outs in places.items():
            found[of].append(settings if outs == ["true"] else f"{settings} out_proj={','.join(outs)}")
    for settings in others:
        found[class_of(settings)].append(settings)
    return {of: same for of, same in found.items() if len(same) > 1}


def _classes(name: str, out: str) -> Iterator[tuple[str, str]]:
    """The classes of a fusion, each with the fewest options that tell which of its variants are in it."""
    members: dict[str, list[set[str]]] = defaultdict(list)
    for part in variants_of("fusion", name):
        options = {f"fusion.{key}={as_override(value)}" for key, value in part.options.items()}
        if "fusion.normalize=variance" not in options:  # a constant factor
            with contextlib.suppress(ConfigError):
                members[class_of(" ".join([f"fusion={name} out_proj={out}", *options]))].append(options)
    every = [options for some in members.values() for options in some]
    for of, some in members.items():
        shared = set.intersection(*some)
        tells = sum(shared <= options for options in every) == len(some)
        for options in [shared] if tells else some:
            yield of, " ".join([f"fusion={name}", *sorted(options - set.intersection(*every))])
