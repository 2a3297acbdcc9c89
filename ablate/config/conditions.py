"""Conditions on runs: one language for the runs of a study (`where`), the rows of a table (--where), and the
variants of a contrast.

    fusion=concat,sum                 the key has one of these values, which need no quotes
    fusion!=concat                    and none of these
    lr<=0.01                          and so <, > and >=, with a number
    {fusion: concat, heads: [4, 8]}   a mapping: each key has its value, or one of its values

Several, as heads=4 fusion=sum, are "and". Values are equal as text or as numbers: 4, 4.0 and "4"; 1e5 and
100000. But what a table has in just that spelling means that alone. A name or value may be in quotes.
"""

import contextlib
import json
import operator
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ablate.config.rules import (
    ConfigError,
    as_level,
    as_number,
    as_override,
    as_text,
    did_you_mean,
    line_on,
    same,
)

Where = str | Mapping[str, Any]  # a condition as it is written
Values = Mapping[str, Any]  # of one run, by key
Spelt = Mapping[str, Collection[str]]  # how a table spells its values, by key
Readings = list[list[Any]]  # of what is written: as a whole, and as a list; for an order a number

ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
NO_CONDITION = (
    "not a condition; write K=V[,V], K!=V[,V], K<V, K<=V, K>V or K>=V; several are 'and', arms by name are"
    " 'or', and there is no arithmetic"
)
_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*')"""
_NAME = rf"({_QUOTED}|[^\W\d](?:[^=!<>\"',%*+]*[^=!<>\"',%*+\s])?)"
_PLAIN = r"[^,\"'=<>!\s]([^,\"'=<>!]*[^,\"'=<>!\s])?"  # a value
_CONDITION = re.compile(rf"\s*{_NAME}\s*(==|!=|<=|>=|=|<|>)(?!=)\s*(\S.*?)\s*", re.DOTALL)
_NEXT = rf",\s*(?={_NAME}\s*=)|\s+(?=[^\s=,]+=)"
_PAIR = re.compile(rf"{_NAME}\s*=\s*({_QUOTED}|\S.*?)\s*(?:{_NEXT}|$)", re.DOTALL)
_PART = re.compile(rf"\s*({_QUOTED}(?=\s*(?:,|$))|[^,]*[^,\s])")
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


def unquoted(text: str) -> str:
    """The text that stands between quotation marks; any other text as it is."""
    if not re.fullmatch(_QUOTED, text, re.DOTALL):
        return text
    with contextlib.suppress(ValueError):
        return str(json.loads(text))
    return text[1:-1]


def pairs(text: str) -> dict[str, str] | None:
    """K=V[,K=V], or with spaces between, as keys and values, which keep their quotation marks; None if it
    can't be read. What no name and = follow is no end of a value."""
    found, at, text = dict[str, str](), 0, text.strip()
    while at < len(text) or not found:
        if (match := _PAIR.match(text, at)) is None:
            return None
        found[unquoted(match[1])], at = match[2], match.end()
    return found


class Condition:
    """A condition on runs. source: who gave it, for messages. Raises ConfigError if it can't be read."""

    def __init__(self, where: Where, source: str) -> None:
        self.source, self.text = source, spelled(where)
        self.tests = [*map(self._read, single(where))]
        self.names = [name for name, _, _ in self.tests]

    def _read(self, text: str) -> tuple[str, str, Readings]:
        """The name, a sign (= for ==, too) and values, of which it has one."""
        match = _CONDITION.fullmatch(text)
        if match and not _SECOND.search(re.sub(_QUOTED, "", text)):
            name, sign, raw = unquoted(match[1]), match[2], match[3]
            if sign not in ORDER:
                whole = [raw, unquoted(raw), re.sub(r",\s*", ", ", raw)]
                return name, sign.replace("==", "="), [whole, [*map(unquoted, _PART.findall(raw))]]
            if (number := as_number(as_level(raw))) is not None:
                return name, sign, [[number]]
        raise self._refusal(NO_CONDITION)

    def keys_in(self, keys: Collection[str]) -> set[str]:
        """Those of these keys, or columns, that it reads."""
        return {key for name in self.names if (key := key_in(name, keys))}

    def require_known(self, configs: Sequence[Values]) -> None:
        """Raises ConfigError for a name that stands for a key in none of these."""
        for name in self.names:
            if not any(key_in(name, values) for values in configs):
                raise self._unknown(name, configs[0])

    def holds(self, values: Values, spelt: Spelt | None = None) -> bool:
        """Whether a run meets it. values: by key. What a table has as it is written means that spelling
        alone, and no list. Raises ConfigError."""
        return all(self._holds(*test, values, spelt or {}) for test in self.tests)

    def _holds(self, name: str, sign: str, readings: Readings, values: Values, spelt: Spelt) -> bool:
        if not (key := key_in(name, values)):
            raise self._unknown(name, values)
        if sign not in ORDER:
            there = spelt.get(key, ())
            whole = [one for one in readings[0] if one in there]
            wanted = whole[:1] or [one for of in readings for one in of]
            if key == "model" and not whole:  # rung/r4 is called r4 in its config and its rows
                wanted += [str(one).rpartition("/")[2] for one in wanted]
            return any(_equal(values[key], one, there) for one in wanted) is (sign == "=")
        if (number := as_number(as_level(values[key]))) is None:
            raise self._refusal(f"{name} is {as_override(values[key])}, no number")
        return ORDER[sign](number, readings[0][0])

    def _unknown(self, name: str, keys: Iterable[str]) -> ConfigError:
        return self._refusal(line_on(name) or f"{name} is no key{did_you_mean(name, keys)}")

    def _refusal(self, reason: str) -> ConfigError:
        return ConfigError(f"{self.source} {self.text}: {reason}")


def spelled(where: Where) -> str:
    """A condition as text."""
    return " and ".join(single(where))


def single(where: Where) -> list[str]:
    """The conditions on one key each, of which one is made, as text."""
    if isinstance(where, str):
        read = {} if _SECOND.search(re.sub(_QUOTED, "", where)) else pairs(where) or {}
        each = [f"{_quoted(key, _NAME)}={value}" for key, value in read.items()]
        return each if len(each) > 1 else [where.strip()]
    listed = ((str(key), of if isinstance(of, list) else [of]) for key, of in where.items())
    return [f"{_quoted(key, _NAME)}={','.join(_quoted(one, _PLAIN) for one in of)}" for key, of in listed]


def _quoted(value: Any, pattern: str) -> str:
    """A name or value as it is typed: as JSON, in quotes, if it lacks the pattern of what needs none."""
    text = as_override(value)
    return text if re.fullmatch(pattern, text) else json.dumps(value, ensure_ascii=False)


def _equal(value: Any, wanted: Any, spelt: Collection[str]) -> bool:
    text = spelling(wanted)
    return spelling(value) == text if text in spelt else same(value, wanted)


def spelling(value: Any) -> str:
    """A value as it is spelt, as far as it is: a number of a table may be text, or a number."""
    return value.strip() if isinstance(value, str) else as_text(value)
