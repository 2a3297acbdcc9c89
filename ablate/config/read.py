"""Read plain values into frozen dataclasses: each value is converted and checked, or refused in one line."""

import contextlib
import dataclasses
import functools
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ablate.config.rules import ConfigError, Rule, UnknownKey, as_override, did_you_mean, line_on

T = TypeVar("T")
OF_A_RUN = "a config of your own has to begin with ablate's, as defaults: [config, _self_]"
PRESETS = {"model": "tiny", "train": "default", "corpus": "docs"}  # the default choice of each group of keys


def of_a_group(group: str, name: str) -> str:
    """The advice for a key that the user's own choice of a group lacks. name: of a choice to begin with."""
    begin = f"defaults: [{name}], without '# @package _global_'"
    return f"a file of your own in {group}/ has to begin with a config of ablate, as {begin}"


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


def read(cls: type[T], mapping: Mapping[str, Any], path: str = "", *, missing: str = OF_A_RUN) -> T:
    """An instance of `cls` from plain values, each converted and checked. Raises ConfigError.

    A key may be left out if its field has a default. For messages: path is the dotted key of the mapping,
    missing the advice given for a missing key.
    """
    known = hints(cls)
    if unknown := [_within(path, key) for key in mapping if key not in known]:
        near = did_you_mean(unknown[0], [_within(path, name) for name in known])
        raise UnknownKey(line_on(unknown[0]) or f"{', '.join(unknown)}: no such key{near}")
    require_keys(cls, mapping, path, missing=missing)
    given = {key: convert(known[key], value, _within(path, key)) for key, value in mapping.items()}
    return cls(**given)


@functools.cache
def hints(cls: Any) -> dict[str, Any]:
    """The type of each key of `cls`, with its rules (Annotated)."""
    types = get_type_hints(cls, include_extras=True)
    return {field.name: types[field.name] for field in dataclasses.fields(cls)}


def unlike_defaults(instance: Any) -> dict[str, Any]:
    """The fields of a dataclass whose values are not their defaults."""
    defaults = {
        field.name: field.default_factory() if callable(field.default_factory) else field.default
        for field in dataclasses.fields(instance)
    }
    return {name: value for name in defaults if (value := getattr(instance, name)) != defaults[name]}


def require_keys(cls: Any, keys: Iterable[str], path: str = "", *, missing: str = OF_A_RUN) -> None:
    """Raises ConfigError for a key of `cls` that is missing in `keys`, unless it has a default."""
    present = {*keys}
    if path in PRESETS and missing == OF_A_RUN:
        missing = of_a_group(path, PRESETS[path])
    for field in dataclasses.fields(cls):
        has_default = field.default is not field.default_factory  # both are MISSING if it has none
        if field.name not in present and not has_default:
            raise ConfigError(f"{_within(path, field.name)}: this key is missing; {missing}")


def _within(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def convert(hint: Any, value: Any, path: str) -> Any:
    """The plain value as one of this type, with its rules. Raises ConfigError."""
    try:
        return _converted(hint, value, path)
    except ConfigError as error:
        if line := line_on(f"{path}={as_override(value)}"):
            raise ConfigError(line) from error
        raise


def _converted(hint: Any, value: Any, path: str) -> Any:
    if isinstance(value, str):
        require_text(value, f"{path}=")
    if get_origin(hint) is Annotated:
        return _convert_ruled(*get_args(hint), value=value, path=path)
    if hint is Any:
        return value
    if get_origin(hint) in (Union, types.UnionType):
        return _convert_union(get_args(hint), value, path)
    if get_origin(hint) is Literal:
        if value in get_args(hint) and type(value) is type(get_args(hint)[0]):
            return value
        near = did_you_mean(str(value), map(str, get_args(hint)))
        raise ConfigError(f"{path}={as_override(value)}: not a choice{near}")
    if get_origin(hint) is tuple and get_args(hint)[-1] is ...:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{path}={as_override(value)}: expected {_expected(hint)}")
        return tuple(_converted(get_args(hint)[0], item, path) for item in value)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple) or len(value) != len(get_args(hint)):
            raise ConfigError(
                f"{path}={as_override(value)}: expected a list of {len(get_args(hint))} numbers"
            )
        return tuple(_converted(part, item, path) for part, item in zip(get_args(hint), value, strict=True))
    if get_origin(hint) is list and isinstance(value, list):
        return [_converted(get_args(hint)[0], item, path) for item in value]
    if get_origin(hint) is Mapping and isinstance(value, Mapping):
        of = get_args(hint)[1]
        return {
            require_text(str(key)): _converted(of, item, _within(path, key)) for key, item in value.items()
        }
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{path}={as_override(value)}: this is a group of keys; set one, as {path}.KEY=VALUE"
            )
        return read(hint, value, path)  # pyright: ignore[reportArgumentType]
    return _convert_scalar(hint, value, path)


def _convert_ruled(hint: Any, *rules: Any, value: Any, path: str) -> Any:
    own = [rule for rule in rules if isinstance(rule, Rule)]
    try:
        for rule in own:
            value = rule.read(value, path)
        converted = _converted(hint, value, path)
        for rule in own:
            rule.check(converted, path)
        return converted
    except ConfigError as error:
        texts = [rule.text for rule in own if rule.text]
        if texts and str(error).startswith(f"{path}="):  # about this key, not one nested in it
            raise ConfigError(f"{path}={as_override(value)}: {texts[0]}") from error
        raise


def _convert_union(hints: tuple[Any, ...], value: Any, path: str) -> Any:
    """The value as the first type of the union that accepts it; else one error that names them all."""
    if value is None and type(None) in hints:
        return None
    reasons = []
    for hint in hints:
        try:
            if hint is not type(None):
                return _converted(hint, value, path)
        except ConfigError as error:
            reasons.append(error)
    if not str(reasons[0]).startswith(f"{path}="):  # about a key within it
        raise reasons[0]
    base = _expected(hints[0])
    if isinstance(value, int | float) and not isinstance(value, bool) and "number" in base:
        raise reasons[0]  # a number out of range: say so, rather than list the words
    expected = " or ".join(map(_expected, hints))
    raise ConfigError(f"{path}={as_override(value)}: expected {expected}")


def _from_text(hint: Any, value: Any) -> Any:
    """The number or truth value that a text says, such as one of ${oc.env:NAME}; any other as it is."""
    of_type = {int: int, float: float, bool: {"true": True, "false": False}.__getitem__}
    if isinstance(value, str) and hint in of_type:
        with contextlib.suppress(KeyError, ValueError):
            return of_type[hint](value)
    return value


def _convert_scalar(hint: Any, value: Any, path: str) -> Any:
    value = _from_text(hint, value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number and abs(value) <= sys.float_info.max:
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str and isinstance(value, str | int | float) and not isinstance(value, bool):
        return str(value)  # `corpus.path=1984` is a path
    way_out = ""
    if hint is int and isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        way_out = f"; write {int(value)}"
    raise ConfigError(f"{path}={as_override(value)}: expected {_expected(hint)}{way_out}")


def require_text(value: str, before: str = "") -> str:
    """The value. Raises ConfigError for one with half characters, as names have whose bytes are no UTF-8:
    no file could hold it. before: what precedes it in the message."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{before}{ascii(value)[1:-1]}: not in UTF-8; rename it") from None
    return value


def _expected(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return _expected(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) in (list, tuple):
        return "a list"
    if get_origin(hint) is Mapping or dataclasses.is_dataclass(hint):
        return "keys with values"
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a word"}
    return "null" if hint is type(None) else names[hint]
