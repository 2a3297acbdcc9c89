"""What settings of the default model, as "fusion=gated fusion.per=channel", are as numbers."""

from functools import cache

from ablate.compose.composer import Composer
from ablate.compose.sweep import compose
from ablate.model.function_class import function_class
from ablate.model.sizing import resolve_spec
from ablate.model.spec import ModelSpec

VOCAB = 1024  # a text decides it, and no attention depends on it


@cache
def spec(settings: str) -> ModelSpec:
    """The sizes of the default model with these settings. Raises ConfigError."""
    return resolve_spec(_configs()((*settings.split(),)), VOCAB)


@cache
def _configs() -> Composer:
    return compose([]).configs


def class_of(settings: str) -> str:
    """The class of functions of its attention."""
    return function_class(spec(settings).attention)
