"""Conditions on runs: one language for the runs of a study (`where`), the rows of a table (--where), and the
variants of a contrast.

    fusion=concat,sum                 the key has one of these values, which need no quotes
    fusion!=concat                    and none of these
    lr<=0.01                          and so <, > and >=, with a number
    {fusion: concat, heads: [4, 8]}   a mapping: each key has its value, or one of its values

Several conditions are "and". Values are equal as text or as numbers: 4, 4.0 and "4" are, and so are 1e5 and
100000.
"""

import json
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ablate.config.rules import ConfigError, as_override, did_you_mean, line_on

Where = str | Mapping[str, Any]  # a condition as it is written
Values = Mapping[str, Any]  # of one run, by key

ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
# Widths that configs give by a word, and rows by a number: d_model / heads, or d_model.
WIDTHS = {"value_width": {"narrow", "wide"}, "key_width": {"auto"}}
NO_CONDITION = (
    "not a condition; write K=V[,V], K!=V[,V], K<V, K<=V, K>V or K>=V; several are 'and', arms by name are"
    " 'or', and there is no arithmetic"
)
_CONDITION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(==|!=|<=|>=|=|<|>)(?!=)\s*(\S.*?)\s*", re.DOTALL)
_SECOND = re.compile(r"\s(and|or)\s+(not\s+)?[(\s]*[A-Za-z_][\w.]*\s*([<>=!]|(not\s+)?in\s)")
# In a cell an exponent needs its sign, which every CSV writer gives: 12345678e012 is a hash. People type 1e5.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]\d+)?")
_TYPED = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)e[+-]?\d{1,3}", re.IGNORECASE)
_LONGEST = 400  # digits; no float has more


def as_text(value: object) -> str:
    """A value as text, the same for 1, 1.0 and "1", and for True and "true"; empty for a missing one."""
    if not isinstance(value, str) and str(value) in ("None", "nan", "<NA>"):
        return ""
    text = json.dumps(value) if isinstance(value, list | dict) else str(value).strip()
    if text in ("True", "False"):
        return text.lower()
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return text
    if "." not in text and "e" not in text:
        return str(int(text))  # a large seed keeps all its digits
    number = float(text)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.12g}"


def as_level(value: object) -> str:
    """A value that somebody typed as the text that cells have: 100000 for 1e5."""
    text = as_text(value)
    return as_text(format(Decimal(text), "f")) if _TYPED.fullmatch(text) else text


def same(one: Any, other: Any) -> bool:
    """Whether two values, plain or as text, are equal, if need be with one of them as it was typed."""
    a, b = as_text(one), as_text(other)
    return bool(one == other) or a == b or as_level(a) == b or a == as_level(b)


def key_in(name: str, keys: Collection[str]) -> str | None:
    """The one of these keys, or columns, that a name stands for: itself, the only key that ends in it
    (d_model is model.d_model), or its column."""
    if name in keys:
        return name
    if len(longer := [key for key in keys if key.endswith(f".{name}")]) == 1:
        return longer[0]
    column = column_for(name)
    return column if column in keys and not name.endswith(".seed") else None  # corpus.seed is another one


def column_for(key: str) -> str:
    """The name of the column that results have for a key: lr for train.lr, seed_data for seeds.data."""
    group, _, last = key.rpartition(".")
    return f"seed_{last}" if group == "seeds" else last


def column_of(
    name: str, columns: Iterable[object], source: str, choices: Iterable[object] | None = None
) -> str:
    """The column of a config key as people type it: lr for train.lr, weights for fusion.weights. source: what
    names the key, for the message. choices: what that shows, all columns by default. Raises ConfigError."""
    names = [*map(str, columns)]
    if column := key_in(name, names):
        return column
    shown = names if choices is None else [*map(str, choices)]
    raise ConfigError(line_on(name) or f"{source}: no column {name}{did_you_mean(name, shown)}")


def holds(where: Where, values: Values) -> bool:
    """Whether a condition of a study holds for a run. values: its config, by dotted key. Raises
    ConfigError."""
    return Condition(where, values.keys(), "study.where:").holds(values)


def check(where: Where, configs: Sequence[Values]) -> None:
    """Raises ConfigError if a condition of a study can't be read, or names a key that no config has."""
    read = [Condition(where, values.keys(), "study.where:") for values in configs]
    for name in set.intersection(*(one.unknown for one in read)):
        raise read[0].refusal(f"{name} is no key{did_you_mean(name, configs[0])}")


class Condition:
    """A condition on runs that have these keys (or columns). source: who gave it, for messages.

    keys: those that it reads; unknown: names that stand for none. Raises ConfigError if it can't be read.
    """

    def __init__(self, where: Where, keys: Collection[str], source: str) -> None:
        self.source, self.text = source, spelled(where)
        tests = [self._read(where)] if isinstance(where, str) else [(k, "=", v) for k, v in _lists(where)]
        self.tests = [(key_in(name, keys) or name, sign, values) for name, sign, values in tests]
        self.unknown = {name for name, _, _ in self.tests if name not in keys}
        self.keys = {name for name, _, _ in self.tests} - self.unknown
        if self.keys & {*WIDTHS}:
            self.keys |= {"d_model", "heads"} & {*keys}

    def _read(self, where: str) -> tuple[str, str, Sequence[Any]]:
        """The key, the sign (= for ==, too), and the values of which it has one; for an order one number."""
        match = _CONDITION.fullmatch(where)
        if not match or _SECOND.search(where):
            raise self.refusal(NO_CONDITION)
        name, sign, raw = match.groups()
        if sign in ORDER:
            try:
                return name, sign, [float(raw)]
            except ValueError as error:
                raise self.refusal(NO_CONDITION) from error
        parts = [part.strip().strip("'\"") for part in (raw, *raw.split(","))]
        values = [raw, re.sub(r",\s*", ", ", raw), *("" if part == "null" else part for part in parts)]
        return name, sign.replace("==", "="), values

    def holds(self, values: Values) -> bool:
        """Whether a run meets it. values: by key. Raises ConfigError."""
        return all(self._holds(name, sign, wanted, values) for name, sign, wanted in self.tests)

    def _holds(self, name: str, sign: str, wanted: Sequence[Any], values: Values) -> bool:
        if name not in values:
            raise self.refusal(line_on(name) or f"{name} is no key{did_you_mean(name, values)}")
        value = values[name]
        if sign not in ORDER:
            return any(_equal(name, value, one, values) for one in wanted) is (sign == "=")
        if not _NUMBER.fullmatch(as_text(value)):
            raise self.refusal(f"{name} is {as_text(value) or 'empty'}, no number")
        return ORDER[sign](float(as_text(value)), wanted[0])

    def refusal(self, reason: str) -> ConfigError:
        return ConfigError(f"{self.source} {self.text}: {reason}")


def spelled(where: Where) -> str:
    """A condition as text."""
    if isinstance(where, str):
        return where.strip()
    return " and ".join(f"{key}={','.join(map(as_override, values))}" for key, values in _lists(where))


def _lists(where: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Each key of a mapping with its values."""
    return [(str(key), value if isinstance(value, list) else [value]) for key, value in where.items()]


def _equal(key: str, value: Any, wanted: Any, values: Values) -> bool:
    """Whether values are equal. In tables a word for a width also stands for the number that rows have."""
    if same(value, wanted) or key not in WIDTHS or not {"d_model", "heads"} <= values.keys():
        return same(value, wanted)
    width, d_model, heads = (float(as_text(values[name]) or "nan") for name in (key, "d_model", "heads"))
    return wanted in WIDTHS[key] and width == (d_model if wanted == "wide" else d_model / heads)
