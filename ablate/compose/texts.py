"""Values of keys that take text, as they were written: Hydra and YAML read 1_1_1 as 111 and 1e3 as 1000."""

import dataclasses
import functools
import re
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from omegaconf import DictConfig, OmegaConf

from ablate.compose.keys import keys_in
from ablate.config.read import bare, dotted
from ablate.config.rules import OTHER_TYPES
from ablate.config.schema import TEXTS_OF_CORPORA, RunConfig

# A quoted text, or else a value or an element of a sweep that Hydra converts.
_CONVERTED = re.compile(
    rf"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?:^|(?<=[,(\[]))(\s*)({OTHER_TYPES})(?=\s*(?:[,)\]]|$))"""
)
# range(0,3), which is of numbers, and x(1).txt, which is no text without quotes.
_CALL = re.compile(r"\s*(?!(choice|shuffle|sort|tag)\()[^,\[\"']*\(")
# An element of a list that has a sign which Hydra reads in quotes alone, as [fusion=sum:0.05] has.
_EQUATION = re.compile(r"""(?<=[\[,])\s*([\w.]+\s*[<>=!]=?[^\[\],{}'"]+)""")


def as_written(override: str) -> str:
    """The override with quotes around what Hydra would convert, if its key takes text, and around equations
    in a list."""
    key, equals, value = override.partition("=")
    if value.startswith("["):
        value = _EQUATION.sub(r"'\1'", value)
        override = key + equals + value
    if not _takes_text(key.lstrip("+")) or _CALL.match(value):
        return override
    return key + equals + _CONVERTED.sub(lambda found: found[1] or f'{found[2]}"{found[3]}"', value)


def restore(config: DictConfig, path: Path, prefix: str) -> None:
    """Give the keys of a config that take text what its YAML has for them. prefix: of its keys' names."""
    for key in keys_in(path, prefix):
        name = key.name.removeprefix(prefix)
        if "${" in key.default or not _takes_text(key.name):
            continue
        if isinstance(OmegaConf.select(config, name), int | float):
            OmegaConf.update(config, name, key.default)


@functools.cache
def _takes_text(key: str) -> bool:
    types = dotted(RunConfig)
    return key in ("study", *TEXTS_OF_CORPORA) or (key in types and _only_words(types[key]))


def _only_words(hint: Any) -> bool:
    """Whether a type accepts no numbers and no truth values."""
    hint = bare(hint)
    if get_origin(hint) is Literal:
        return all(isinstance(choice, str) for choice in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return all(map(_only_words, get_args(hint)))
    return dataclasses.is_dataclass(hint) or hint in (str, type(None))
