"""The base class of exchangeable parts of attention (their registry: ablate.config.registry).

A part is one file in the folder of its kind, with one registered class, and one YAML of the same name in
the config group of that kind. No other file refers to it by name, but for a part that is built on it.
"""

import functools
import math
from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ablate.config.rules import as_value
from ablate.config.schema import identity_keys
from ablate.lazy import F, Module, Tensor, nn, torch

# Of a function: the tensor that it makes is made once, for all layers and steps, and not in a captured step.
constant = functools.lru_cache(64)


def divisors(number: int) -> list[int]:
    """What divides a number, rising."""
    return [small for small in range(1, number + 1) if number % small == 0]


@dataclass(frozen=True, kw_only=True)
class HeadShape:
    """The sizes of an attention that its parts need.

    scale: the factor on the scores before softmax. layer: counts from 1. rotary: whether positions turn
    queries and keys. value_start: the factor on the initial weights of the values.
    """

    heads: int
    key_width: int
    value_width: int
    d_model: int
    scale: float
    layer: int = 1
    rotary: bool = False
    value_start: float = 1.0

    @property
    def differential_start(self) -> float:
        """λ_0 of differential attention: Ye et al., arXiv 2410.05258."""
        return 0.8 - 0.6 * math.exp(-0.3 * (self.layer - 1))


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a method that has none, and the base class of all others."""


class Part(ABC, Module):
    """An exchangeable part of attention: a torch module, which its class becomes when the first one is made.
    Until then torch need not be loaded.

    The weights of its Linear layers are drawn from the random stream `fusion` and are subject to weight
    decay; its other parameters start at constants and do not decay. What else it keeps from step to step is a
    buffer, in its own type at every precision. With persistent=False it is only for resuming: a loaded model
    makes it anew.

    A method may claim properties, those in CLAIMS. None is claimed by default, none is inherited from another
    method, and ablate relies on none that is not claimed; `ablate check` tests those that are.
    """

    name: ClassVar[str]  # the name in configs, set by `register`
    stream: ClassVar[str] = "fusion"  # the random stream (ablate.rng) of the part's own weights
    Options: ClassVar[type[Any]] = Options  # a frozen dataclass of the keys besides the name
    CLAIMS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, made: bool = False, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "CLAIMS" not in vars(cls) and not made:
            kind = _kind(cls)
            for claim in kind.CLAIMS:
                if claim not in vars(cls):
                    setattr(cls, claim, vars(kind)[claim])

    @classmethod
    def claims(cls) -> list[str]:
        """The properties that the method claims."""
        kind = _kind(cls)
        return [claim for claim in kind.CLAIMS if vars(cls)[claim] != vars(kind)[claim]]

    def __new__(cls, shape: HeadShape, options: Any) -> Self:
        return object.__new__(_as_module(cls))

    def __reduce__(self) -> tuple[Any, ...]:
        return _blank, (type(self).__bases__[0],), self.__dict__  # by the class that can be found by its name

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__()
        self.shape = shape
        self.options = options

    @classmethod
    def spelled(cls, options: Any) -> str:
        """The name with all options that decide what it computes: NAME key=value …"""
        given = {key: as_value(value) for key, value in identity_keys(options).items()}
        return " ".join([cls.name, *(f"{key}={value}" for key, value in sorted(given.items()))])

    @classmethod
    def check(cls, shape: HeadShape, options: Any) -> None:
        """Raises ConfigError if the options do not fit these sizes."""

    @classmethod
    def count_params(cls, shape: HeadShape, options: Any) -> int:
        """Its parameters. Only methods of ablate's say it; those of others are counted on a module."""
        return 0

    @classmethod
    def count_flops(cls, shape: HeadShape, options: Any) -> int:
        """The matrix-product FLOPs that the part adds, per token and layer, in a forward pass."""
        return 0


@functools.cache
def _as_module(method: type[Part]) -> Any:
    """The class that is built on nn.Module too."""
    if issubclass(method, nn.Module):
        return method
    about = {name: getattr(method, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(method.__name__, (method, nn.Module), about, made=True)


def _blank(method: type[Part]) -> Part:
    return object.__new__(_as_module(method))


def _kind(method: type[Part]) -> type[Part]:
    """The class that says what a method of this kind may claim: Fusion or Scores."""
    return next(base for base in method.__mro__ if "CLAIMS" in vars(base))


def python_state(model: "nn.Module") -> list[dict[str, str]]:
    """What the methods of a model keep besides parameters and buffers, as text, to be compared."""
    parts = [inner for part in model.modules() if isinstance(part, Part) for inner in part.modules()]
    return [
        {key: repr(value) for key, value in vars(part).items() if key not in ("_parameters", "_buffers")}
        for part in parts
    ]


def without_length(x: Tensor, gain: Tensor | None = None) -> Tensor:
    """γ ⊙ x / √(mean x² + ε) over the last axis, with the resolution ε of x, of float32 at least."""
    eps = torch.finfo(torch.promote_types(x.dtype, torch.float32)).eps  # PyTorch's default has changed
    return F.rms_norm(x, x.shape[-1:], gain, eps)
