"""Conditions on runs: one language for the runs of a study (`where`), the rows of a table (--where), and the
variants of a contrast.

    fusion=concat,sum                 the key has one of these values, which need no quotes
    fusion!=concat                    and none of these
    lr<=0.01                          and so <, > and >=, with a number
    {fusion: concat, heads: [4, 8]}   a mapping: each key has its value, or one of its values

Several conditions are "and". Values are equal as text or as numbers: 4, 4.0 and "4"; 1e5 and 100000.
"""

import math
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ablate.config.rules import ConfigError, as_level, as_number, as_override, did_you_mean, line_on, same

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


class Condition:
    """A condition on runs. source: who gave it, for messages. Raises ConfigError if it can't be read."""

    def __init__(self, where: Where, source: str) -> None:
        self.source, self.text = source, spelled(where)
        self.tests = self._read(where)
        self.names = [name for name, _, _ in self.tests]

    def _read(self, where: Where) -> list[tuple[str, str, list[Any]]]:
        """Names, each with a sign (= for ==, too) and values of which it has one; for an order a number."""
        if isinstance(where, Mapping):
            return [(str(key), "=", _listed(value)) for key, value in where.items()]
        match = _CONDITION.fullmatch(where)
        if match and not _SECOND.search(where):
            name, sign, raw = match.groups()
            parts = [part.strip().strip("'\"") for part in (raw, *raw.split(","))]
            if sign not in ORDER:
                return [(name, sign.replace("==", "="), [raw, re.sub(r",\s*", ", ", raw), *parts])]
            if (number := as_number(as_level(raw))) is not None:
                return [(name, sign, [number])]
        raise self._refusal(NO_CONDITION)

    def keys_in(self, keys: Collection[str]) -> set[str]:
        """Those of these keys, or columns, that it reads."""
        read = {key for name in self.names if (key := key_in(name, keys))}
        return read | ({"d_model", "heads"} & {*keys} if read & {*WIDTHS} else set())

    def require_known(self, configs: Sequence[Values]) -> None:
        """Raises ConfigError for a name that stands for a key in none of these."""
        for name in self.names:
            if not any(key_in(name, values) for values in configs):
                raise self._unknown(name, configs[0])

    def holds(self, values: Values) -> bool:
        """Whether a run meets it. values: by key. Raises ConfigError."""
        return all(self._holds(name, sign, wanted, values) for name, sign, wanted in self.tests)

    def _holds(self, name: str, sign: str, wanted: Sequence[Any], values: Values) -> bool:
        if not (key := key_in(name, values)):
            raise self._unknown(name, values)
        if sign not in ORDER:
            return any(_equal(key, values[key], one, values) for one in wanted) is (sign == "=")
        if (number := as_number(values[key])) is None:
            raise self._refusal(f"{name} is {as_override(values[key])}, no number")
        return ORDER[sign](number, wanted[0])

    def _unknown(self, name: str, keys: Iterable[str]) -> ConfigError:
        return self._refusal(line_on(name) or f"{name} is no key{did_you_mean(name, keys)}")

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(f"{self.source} {self.text}: {reason}")


def spelled(where: Where) -> str:
    """A condition as text."""
    if isinstance(where, str):
        return where.strip()
    return " and ".join(f"{key}={','.join(map(as_override, _listed(value)))}" for key, value in where.items())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _equal(key: str, value: Any, wanted: Any, values: Values) -> bool:
    """Whether values are equal. In tables a word for a width also stands for the number that rows have."""
    if same(value, wanted) or key not in WIDTHS or not {"d_model", "heads"} <= values.keys():
        return same(value, wanted)
    width, d_model, heads = (as_number(values[name]) or math.nan for name in (key, "d_model", "heads"))
    return wanted in WIDTHS[key] and width == (d_model if wanted == "wide" else d_model / heads)
