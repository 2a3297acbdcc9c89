"""Read plain values into frozen dataclasses: each value is converted and checked, or refused in one line."""

import contextlib
import dataclasses
import functools
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ablate.config.rules import ConfigError, Rule, as_override, did_you_mean, line_on

T = TypeVar("T")
OF_ABLATE = "a config of your own has to begin with one of ablate's, as defaults: [config, _self_]"


@functools.cache
def dotted(cls: Any, path: str = "") -> Mapping[str, Any]:
    """The type of each key of `cls` and of its nested dataclasses, by dotted name."""
    keys = {}
    for key, hint in hints(cls).items():
        keys[_within(path, key)] = hint
        if dataclasses.is_dataclass(bare(hint)):
            keys |= dotted(bare(hint), _within(path, key))
    return keys


def bare(hint: Any) -> Any:
    """A type without its rules; of a group of keys that may be null, that of the group."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return next(filter(dataclasses.is_dataclass, get_args(hint)), hint)


def read(cls: type[T], mapping: Mapping[str, Any], path: str = "", *, missing: str = OF_ABLATE) -> T:
    """An instance of `cls` from plain values, each converted and checked. Raises ConfigError.

    A key may be left out if its field has a default. For messages: path is the dotted key of the mapping,
    missing the advice given for a missing key.
    """
    known = hints(cls)
    if "options" in known:  # of a part, whose own keys stand beside those that all parts of its kind have
        own = {key: value for key, value in mapping.items() if key not in known}
        common = {key: value for key, value in mapping.items() if key in known}
        mapping = common | {"options": {**mapping.get("options", {}), **own}}
    for name in (_within(path, key) for key in mapping if key not in known):
        near = did_you_mean(name, [_within(path, key) for key in known])
        raise ConfigError(line_on(name) or f"{name}: no such key{near}")
    require_keys(cls, mapping, path, missing=missing)
    given = {key: convert(known[key], value, _within(path, key)) for key, value in mapping.items()}
    return cls(**given)


@functools.cache
def hints(cls: Any) -> dict[str, Any]:
    """The type of each key of `cls`, with its rules (Annotated)."""
    types = get_type_hints(cls, include_extras=True)
    return {field.name: types[field.name] for field in dataclasses.fields(cls)}


@functools.cache
def defaults(cls: Any, path: str = "") -> Mapping[str, Any]:
    """The default of each key of `cls` and of its nested dataclasses whose field has one, by dotted name."""
    found = {}
    for field in dataclasses.fields(cls):
        name, kind = _within(path, field.name), bare(hints(cls)[field.name])
        if field.default is not field.default_factory:  # both are MISSING if it has none
            found[name] = field.default_factory() if callable(field.default_factory) else field.default
        elif dataclasses.is_dataclass(kind):
            found |= defaults(kind, name)
    return found


def unlike_defaults(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass whose values are not their defaults."""
    usual, names = defaults(type(instance)), hints(type(instance))
    return {name: value for name in names if (value := getattr(instance, name)) != usual.get(name, ...)}


def require_keys(cls: Any, keys: Iterable[str], path: str = "", *, missing: str = OF_ABLATE) -> None:
    """Raises ConfigError for a key of `cls` that is missing in `keys`, unless it has a default."""
    present = {*keys, *defaults(cls)}
    if lacking := [name for name in hints(cls) if name not in present]:
        raise ConfigError(f"{_within(path, lacking[0])}: this key is missing; {missing}")


def _within(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def convert(hint: Any, value: Any, path: str) -> Any:
    """The plain value as one of this type, with its rules. Raises ConfigError."""
    kind, of = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _ruled(of[0], [rule for rule in of[1:] if isinstance(rule, Rule)], value, path)
    if kind in (Union, types.UnionType):
        return _of_union(of, value, path)
    if kind in (list, tuple) and isinstance(value, list | tuple):
        each = of if kind is tuple and of[-1] is not ... else of[:1] * len(value)
        if len(each) == len(value):
            return kind(convert(part, item, path) for part, item in zip(each, value, strict=True))
    if kind is Mapping and isinstance(value, Mapping):
        return {str(key): convert(of[1], item, _within(path, key)) for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        if isinstance(value, Mapping):
            return read(hint, value, path)  # pyright: ignore[reportArgumentType]
        way = f"{path}=NAME" if "options" in hints(hint) else _within(path, next(iter(hints(hint))))
        raise _wrong(path, value, f"a group of keys, as {way}; ablate keys {path} lists them")
    plain = _plain(hint, value)
    if hint is Any or type(plain) is hint or (kind is Literal and plain in of and type(plain) is type(of[0])):
        return plain
    is_choice = f"not a choice{did_you_mean(str(value), map(str, of))}" if kind is Literal else ""
    raise _wrong(path, value, is_choice or f"expected {_expected(hint)}")


def _wrong(path: str, value: Any, why: str) -> ConfigError:
    given = f"{path}={as_override(value)}"
    return ConfigError(line_on(given) or f"{given}: {why}")


def _plain(hint: Any, value: Any) -> Any:
    """The value as text, number or truth value, which a text may say, such as one of ${oc.env:NAME}; as it is
    if it is none of this type."""
    if isinstance(value, str) and hint in (int, float, bool):
        with contextlib.suppress(KeyError, ValueError):
            value = {"true": True, "false": False}[value] if hint is bool else hint(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if hint is float:
        return float(value) if abs(value) <= sys.float_info.max else None
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e3
    return str(value) if hint is str else value  # `corpus.path=1984` is a path


def _ruled(hint: Any, rules: list[Rule], value: Any, path: str) -> Any:
    try:
        for rule in rules:
            value = rule.read(value, path)
        converted = convert(hint, value, path)
        for rule in rules:
            rule.check(converted, path)
        return converted
    except ConfigError as error:
        texts = [rule.text for rule in rules if rule.text]
        if texts and str(error).startswith(f"{path}="):  # about this key, not one nested in it
            raise _wrong(path, value, texts[0]) from error
        raise


def _of_union(hints: tuple[Any, ...], value: Any, path: str) -> Any:
    """The value as the first type of the union that accepts it; else one error that names them all."""
    reasons = []
    for hint in hints:
        try:
            return convert(hint, value, path)
        except ConfigError as error:
            reasons.append(error)
    if isinstance(value, int | float | Mapping):  # out of range, or a key within it
        raise reasons[0]
    raise _wrong(path, value, f"expected {' or '.join(map(_expected, hints))}")


def require_text(word: str) -> None:
    """Raises ConfigError for a word with half characters, as names have whose bytes are no UTF-8: no file
    could hold it."""
    try:
        word.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{ascii(word)[1:-1]}: not in UTF-8; rename it") from None


def _expected(hint: Any) -> str:
    kind, of = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _expected(of[0])
    if kind is Literal:
        return " or ".join(map(str, of))
    if kind in (list, tuple):
        return "a list" if kind is list or of[-1] is ... else f"a list of {len(of)} numbers"
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a word"}
    return names.get(hint, "null" if hint is type(None) else "keys with values")
