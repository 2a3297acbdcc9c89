"""Arguments of public functions, held against the annotations of their parameters before anything is done."""

import functools
import inspect
import os
import re
import reprlib
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin

import numpy as np

from ablate.config.rules import ConfigError
from ablate.files.reading import left_out

MOST = 10**6  # values of a range, which takes no memory before it is a list
Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """The function, which raises TypeError for an argument of the wrong type, and ConfigError for a value
    that can't be and for what the system refuses."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        given = signature.bind(*args, **keywords)
        for name, value in given.arguments.items():
            if name not in ("self", "keys"):
                given.arguments[name] = _argument(signature.parameters[name].annotation, value, name)
        try:
            with np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"):  # NumPy's defaults
                result = function(*given.args, **given.kwargs)
        except OSError as error:
            raise ConfigError(f"{error.filename}: {error.strerror or error}") from error
        finally:
            lines = left_out()
        for line in lines:
            warnings.warn(line, stacklevel=2)
        return result

    return call  # pyright: ignore[reportReturnType]


def _argument(hint: Any, value: Any, name: str) -> Any:
    value = plain(value, name)
    if not fits(value, hint):
        expected = re.sub(r"[\w.]+\.(?=\w)", "", inspect.formatannotation(hint))
        raise TypeError(f"{name}={' '.join(reprlib.repr(value).split())}: expected {expected}")
    if Path in get_args(hint) and isinstance(value, str | Path) and ("\0" in str(value) or not str(value)):
        raise ConfigError(f"{name}={str(value)!r}: it names nothing; give a name or a path")
    return value


def plain(value: Any, name: str) -> Any:
    """The value with Python's numbers, lists and dicts in place of those of other libraries. Raises
    ConfigError."""
    try:
        return _plain(value)
    except Exception as error:  # half a character, a list in itself, an interpolation that leads nowhere
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{name}: it can't be read ({reason}); correct it") from error


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # of NumPy, pandas or PyTorch
        return value.tolist()
    if isinstance(value, str):
        os.fsencode(value)
    if isinstance(value, int):
        float(value)  # raises for a number of hundreds of digits
    if isinstance(value, range) and len(value) > MOST:
        raise ValueError(f"{len(value):,} values")
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):  # also OmegaConf's
        return (tuple if isinstance(value, tuple) else list)(map(_plain, value))
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of this type, with all that is in it."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in of)
    if origin is Mapping:
        return isinstance(value, dict) and all(fits(key, of[0]) for key in value)
    if origin is Sequence:
        return isinstance(value, list | tuple) and all(fits(item, of[0]) for item in value)
    if hint is Any or isinstance(value, bool):
        return hint in (Any, bool)
    return isinstance(value, int | float if hint is float else hint)
