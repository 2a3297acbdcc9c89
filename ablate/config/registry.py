"""The registry that finds exchangeable parts, such as fusions and corpora, in a folder.

A part is one file in the folder of its kind, with one registered class, and one YAML of the same name in
the config group of that kind. No other file refers to it by name.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, cast

from ablate.config.read import read
from ablate.config.rules import ConfigError, did_you_mean, line_on
from ablate.config.schema import PartConfig

Kind = TypeVar("Kind")
Part = TypeVar("Part")
TAKEN = "{}={}: there is a {} of that name; choose another"


class Registry(Generic[Kind]):
    """The parts of one kind, by name: importing a file of `package` registers its part. noun: for a part of
    this kind in messages."""

    def __init__(self, kind: str, of: type[Kind], package: str, *, noun: str = "method") -> None:
        self.kind, self.of, self.package, self.noun = kind, of, package, noun
        self._methods: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[type[Part]], type[Part]]:
        """Class decorator that registers a part, which configs choose by KIND=name."""

        def add(part: type[Part]) -> type[Part]:
            if name in self._methods:
                raise ConfigError(TAKEN.format(self.kind, name, self.noun))
            given, base = cast(Any, part), self.of.__name__
            if not isinstance(part, type) or self.of not in given.__mro__:
                way_out = f"write class NAME({base})"
                raise ConfigError(f"{self.kind}={name}: not a class built on {base}; {way_out}")
            given.name = name
            self._methods[name] = part
            return part

        return add

    def methods(self) -> dict[str, type[Kind]]:
        """Every part by name, sorted."""
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules([str(path) for path in package.__path__]):
            importlib.import_module(f"{self.package}.{module.name}")
        return dict(sorted(self._methods.items()))

    def forget(self, names: Iterable[str]) -> None:
        """Unregister these parts."""
        for name in names:
            del self._methods[name]

    def named(self, name: str) -> type[Kind]:
        """The part of this name, of whose kind only its own file is imported. Raises ConfigError."""
        module = f"{self.package}.{name}"
        if name not in self._methods and str(name).isidentifier() and importlib.util.find_spec(module):
            importlib.import_module(module)
        if name not in self._methods:
            given, known = f"{self.kind}={name}", did_you_mean(str(name), self.methods())
            raise ConfigError(line_on(given) or f"{given}: no such {self.noun}{known}")
        return self._methods[name]

    def method_of(self, config: PartConfig) -> tuple[type[Kind], Any]:
        """The part and its checked options. Raises ConfigError."""
        part: Any = self.named(config.name)
        return part, read(part.Options, config.options, self.kind)
