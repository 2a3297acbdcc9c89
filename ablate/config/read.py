"""Plain values into frozen dataclasses: every one converted and checked, or refused in one line."""

import dataclasses
import functools
import math
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ablate.config.rules import Above, AtLeast, AtMost, Below, ConfigError, did_you_mean
from ablate.config.schema import RunConfig

T = TypeVar("T")


def read_run(mapping: Mapping[str, Any]) -> RunConfig:
    """The composed configuration as a RunConfig. Raises ConfigError."""
    if "fusion" not in mapping:
        return read(RunConfig, mapping)  # names the key that is missing
    fusion = mapping["fusion"]
    if not isinstance(fusion, Mapping):
        raise ConfigError(f"fusion={fusion}: name a method, as in fusion=sum")
    options = {key: value for key, value in fusion.items() if key != "name"}
    return read(RunConfig, {**mapping, "fusion": {"name": fusion.get("name"), "options": options}})


def read(cls: type[T], mapping: Mapping[str, Any], where: str = "") -> T:
    """`cls` from plain values, every one converted and checked. Raises ConfigError.

    where: the dotted path of the mapping, for messages.
    """
    known = hints(cls)
    for key in mapping:
        if key not in known:
            raise ConfigError(f"{_path(where, key)}: no such key{did_you_mean(str(key), known)}")
    require_keys(cls, mapping, where)
    return cls(**{key: _convert(known[key], mapping[key], _path(where, key)) for key in known})


@functools.cache
def hints(cls: type) -> dict[str, Any]:
    """The type of each key of `cls`, with its rules."""
    return get_type_hints(cls, include_extras=True)


def require_keys(cls: type, keys: Iterable[str], where: str = "") -> None:
    """Raises ConfigError for a key of `cls` that is not among `keys`."""
    present = set(keys)
    for key in hints(cls):
        if key not in present:
            raise ConfigError(
                f"{_path(where, key)}: this key is missing; a config of your own has to begin with ablate's,"
                " as defaults: [config, _self_]"
            )


def _path(where: str, key: object) -> str:
    return f"{where}.{key}" if where else str(key)


def _convert(hint: Any, value: Any, path: str) -> Any:
    if get_origin(hint) is Annotated:
        base, *rules = get_args(hint)
        converted = _convert(base, value, path)
        for rule in rules:
            _check(rule, converted, path)
        return converted
    if get_origin(hint) in (Union, types.UnionType):
        return _convert_union(get_args(hint), value, path)
    if get_origin(hint) is Literal:
        if value in get_args(hint) and type(value) is type(get_args(hint)[0]):
            return value
        raise ConfigError(
            f"{path}={_show(value)}: not a choice{did_you_mean(str(value), map(str, get_args(hint)))}"
        )
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(get_args(hint)):
            raise ConfigError(f"{path}={_show(value)}: expected a list of {len(get_args(hint))} numbers")
        return tuple(_convert(part, item, path) for part, item in zip(get_args(hint), value, strict=True))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path}={_show(value)}: this is a group of keys; set one, as {path}.KEY=VALUE")
        return read(hint, value, path)  # pyright: ignore[reportArgumentType]
    return _convert_scalar(hint, value, path)


def _convert_union(hints: tuple[Any, ...], value: Any, path: str) -> Any:
    """The first member that takes the value; else one message that names them all."""
    if value is None and type(None) in hints:
        return None
    reasons = []
    for hint in hints:
        try:
            if hint is not type(None):
                return _convert(hint, value, path)
        except ConfigError as error:
            reasons.append(error)
    base = _expected(hints[0])
    if isinstance(value, int | float) and not isinstance(value, bool) and "number" in base:
        raise reasons[0]  # a number of the wrong size: say so, rather than list the words
    raise ConfigError(f"{path}={_show(value)}: expected {' or '.join(_expected(hint) for hint in hints)}")


def _convert_scalar(hint: Any, value: Any, path: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number and math.isfinite(value):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)  # `corpus.path=1984` is a path
    if get_origin(hint) is Mapping and isinstance(value, Mapping):
        return dict(value)
    way_out = ""
    if hint is int and isinstance(value, float) and value.is_integer():
        way_out = f"; write {int(value)}"
    raise ConfigError(f"{path}={_show(value)}: expected {_expected(hint)}{way_out}")


def _check(rule: Any, value: Any, path: str) -> None:
    if isinstance(rule, AtLeast) and value < rule.minimum:
        raise ConfigError(f"{path}={_show(value)}: must be at least {rule.minimum:g}")
    if isinstance(rule, AtMost) and value > rule.maximum:
        raise ConfigError(f"{path}={_show(value)}: must be at most {rule.maximum:,.0f}")
    if isinstance(rule, Above) and value <= rule.bound:
        raise ConfigError(f"{path}={_show(value)}: must be above {rule.bound:g}")
    if isinstance(rule, Below) and value >= rule.bound:
        raise ConfigError(f"{path}={_show(value)}: must be below {rule.bound:g}")


def _expected(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _expected(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a word"}
    return "null" if hint is type(None) else names[hint]


def _show(value: Any) -> str:
    """The value as one would type it on the command line."""
    if isinstance(value, list | tuple):
        return "[" + ",".join(_show(item) for item in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
