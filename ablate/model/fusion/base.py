"""The contract of a fusion method, and the registry that finds every method by itself.

legend: B batch, T time, H heads, V value width of a head, C model width, F fused width.

Attention hands its heads over at one seam: z_BTHV, what each head read, and x_BTC, the normalized
input that also feeds queries, keys and values. A fusion method answers with fused_BTF. Whether an
output projection follows is not its business.

To add a method: one file here with a registered subclass of Fusion, one YAML of the same name in
configs/fusion. The tests over the registry then cover it.
"""

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from torch import Tensor, nn

from ablate.config.read import read
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import FusionConfig
from ablate.model.spec import HeadShape


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every method takes. normalize=variance starts the fused vector at the variance of one
    head's output, by a constant that is part of the method."""

    normalize: Literal["none", "variance"]


class Fusion(nn.Module, ABC):
    """Brings the outputs of the heads together: z_BTHV -> fused_BTF.

    A fusion's own parameters are drawn from the stream `fusion`, or are constants; of these only
    the weights of Linear layers decay.
    """

    Options: ClassVar[type[Any]] = Options

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__()
        self.shape = shape
        self.options = options

    @classmethod
    @abstractmethod
    def slots(cls, heads: int, options: Any) -> int:
        """How many vectors of value width stand side by side in the fused vector: F = slots·V.

        Raises ConfigError where the options do not fit the number of heads.
        """

    @classmethod
    def count_params(cls, shape: HeadShape, options: Any) -> int:
        """The parameters that the method itself adds to a layer."""
        return 0

    @classmethod
    def count_flops(cls, shape: HeadShape, options: Any) -> int:
        """The matrix-product FLOPs that the method itself adds, per token and layer, forward."""
        return 0

    @abstractmethod
    def forward(self, z_BTHV: Tensor, x_BTC: Tensor) -> Tensor: ...

    def head_weights(self) -> Tensor | None:
        """The learned weight of each head, (H,) or (H, V); None where there is none."""
        return None


Method = TypeVar("Method", bound=type[Fusion])
_methods: dict[str, type[Fusion]] = {}


def register(name: str) -> Callable[[Method], Method]:
    """Class decorator: this Fusion answers to `fusion=<name>`."""

    def add(method: Method) -> Method:
        assert name not in _methods, f"two fusion methods are called {name}"
        _methods[name] = method
        return method

    return add


def methods() -> dict[str, type[Fusion]]:
    """Every method of this package by name."""
    _discover()
    return dict(sorted(_methods.items()))


@functools.cache
def _discover() -> None:
    """Importing a file of the package registers its method."""
    package = importlib.import_module(__package__ or "ablate.model.fusion")
    for module in pkgutil.iter_modules([str(path) for path in package.__path__]):
        importlib.import_module(f"{package.__name__}.{module.name}")


def method_of(config: FusionConfig) -> tuple[type[Fusion], Any]:
    """The method and its checked options. Raises ConfigError."""
    known = methods()
    if config.name not in known:
        raise ConfigError(f"fusion={config.name}: no such method{did_you_mean(str(config.name), known)}")
    method = known[config.name]
    return method, read(method.Options, config.options, "fusion")
