"""The base class of exchangeable parts of attention, and the registry that finds the parts in a folder.

A part is one file in the folder of its kind, with one registered class, and one YAML of the same name in
the config group of that kind. No other file refers to it by name.
"""

import importlib
import pkgutil
from abc import ABC
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Generic, TypeVar

from torch import nn

from ablate.config.overrides import as_value
from ablate.config.read import read
from ablate.config.rules import ConfigError, did_you_mean
from ablate.config.schema import PartConfig
from ablate.model.spec import HeadShape


class Part(nn.Module, ABC):
    """An exchangeable part of attention.

    The weights of its Linear layers are drawn from the random stream `fusion` and are subject to weight
    decay; its other parameters start at constants and do not decay.
    """

    name: ClassVar[str]  # the name in configs, set by `register`
    stream: ClassVar[str] = "fusion"  # the random stream (ablate.rng) of the part's own weights
    Options: ClassVar[type[Any]]  # a frozen dataclass of the keys that the YAML may have besides the name

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__()
        self.shape = shape
        self.options = options

    @classmethod
    def spelled(cls, options: Any) -> str:
        """The name with all options: NAME key=value …"""
        given = {key: as_value(value) for key, value in vars(options).items()}
        return " ".join([cls.name, *(f"{key}={value}" for key, value in sorted(given.items()))])

    @classmethod
    def count_params(cls, shape: HeadShape, options: Any) -> int:
        """The number of parameters that the part adds to each layer."""
        return 0

    @classmethod
    def count_flops(cls, shape: HeadShape, options: Any) -> int:
        """The matrix-product FLOPs that the part adds, per token and layer, in a forward pass."""
        return 0


Kind = TypeVar("Kind", bound=Part)
Method = TypeVar("Method", bound=Part)


class Registry(Generic[Kind]):
    """The methods of one kind of part, by name: importing a file of `package` registers its method."""

    def __init__(self, kind: str, of: type[Kind], package: str) -> None:
        self.kind, self.of, self.package = kind, of, package
        self._methods: dict[str, Any] = {}
        self._found = False

    def register(self, name: str) -> Callable[[type[Method]], type[Method]]:
        """Class decorator that registers a method, which configs choose by KIND=name."""

        def add(method: type[Method]) -> type[Method]:
            if name in self._methods:
                raise ConfigError(f"{self.kind}={name}: there is a method of that name; choose another")
            given: Any = method
            if not (isinstance(given, type) and issubclass(given, self.of)):
                base = self.of.__name__
                raise ConfigError(
                    f"{self.kind}={name}: not a class built on {base}; write class NAME({base})"
                )
            method.name = name
            self._methods[name] = method
            return method

        return add

    def methods(self) -> dict[str, type[Kind]]:
        """Every method by name, sorted."""
        if not self._found:
            package = importlib.import_module(self.package)
            for module in pkgutil.iter_modules([str(path) for path in package.__path__]):
                importlib.import_module(f"{self.package}.{module.name}")
            self._found = True
        return dict(sorted(self._methods.items()))

    def forget(self, names: Iterable[str]) -> None:
        """Unregister these methods."""
        for name in names:
            del self._methods[name]

    def method_of(self, config: PartConfig) -> tuple[type[Kind], Any]:
        """The method and its checked options. Raises ConfigError."""
        known = self.methods()
        if config.name not in known:
            raise ConfigError(
                f"{self.kind}={config.name}: no such method{did_you_mean(str(config.name), known)}"
            )
        method = known[config.name]
        return method, read(method.Options, config.options, self.kind)
