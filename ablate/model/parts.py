"""What every part of attention says of itself, and the registry that finds the parts of a folder.

A part is one file in the folder of its kind, with one registered class, and one YAML of the same name in
the config group of that kind. No other file knows it by name.
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
    """What can be exchanged in attention.

    Its weights are drawn from the stream `fusion`, its other parameters are constants; of all these only the
    weights of Linear layers decay.
    """

    name: ClassVar[str]  # by which a config asks for it; `register` sets it
    stream: ClassVar[str] = "fusion"  # of randomness (ablate.rng), of the part's own weights
    Options: ClassVar[type[Any]]  # a frozen dataclass: what the YAML may hold beside the name

    def __init__(self, shape: HeadShape, options: Any) -> None:
        super().__init__()
        self.shape = shape
        self.options = options

    @classmethod
    def spelled(cls, options: Any) -> str:
        """Its name and all its options: NAME key=value …"""
        given = {key: as_value(value) for key, value in vars(options).items()}
        return " ".join([cls.name, *(f"{key}={value}" for key, value in sorted(given.items()))])

    @classmethod
    def count_params(cls, shape: HeadShape, options: Any) -> int:
        """The parameters that the part itself adds to a layer."""
        return 0

    @classmethod
    def count_flops(cls, shape: HeadShape, options: Any) -> int:
        """The matrix-product FLOPs that the part itself adds, per token and layer, forward."""
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
        """Class decorator: a config asks for this method as KIND=name."""

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
        """Methods that are to be registered anew, or not at all."""
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
