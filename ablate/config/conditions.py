"""Conditions on runs: one language for the runs of a study (`where`), the rows of a table (--where), and the
variants of a contrast.

    heads <= d_model // 16                      keys, numbers, + - * / // % and comparisons
    fusion != 'concat' or normalize == 'none'   and, or, not, in, lists, texts
    fusion=concat,sum                           one of these words, which need no quotes
    {fusion: concat, heads: [4, 8]}             a mapping: each key has its value, or one of its values

After a single = everything is words. To the right of !=, == and in, a bare word is a key if there is one of
that name, unless the left side is a key that takes only words, such as fusion. Values are equal if they are
equal as text or as numbers: 4, 4.0 and "4" are, 1e5 and 100000 too. Only the operators listed here work, and
nothing is called.
"""

import ast
import dataclasses
import functools
import json
import operator
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from ablate.config.gone import line_on
from ablate.config.read import bare, dotted
from ablate.config.rules import ConfigError, as_override, did_you_mean
from ablate.config.schema import RunConfig

Where = str | Mapping[str, Any]  # a condition as it is written
Values = Mapping[str, Any]  # of one run, by key
Term = Callable[[Values], Any]

ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
ORDER: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
CONSTANTS = {"true": True, "false": False, "null": None}
# Widths that configs give by a word, and rows by a number: d_model / heads, or d_model.
WIDTHS = {"value_width": {"narrow", "wide"}, "key_width": {"auto"}}
TOO_DEEP = "nested too deeply"
NO_CONDITION = "not a condition; write K=V, K!=V, K<V, or an expression, as heads <= d_model // 16"

_NAME = r"(?<![\w.])[A-Za-z_][\w.]*"
_WORDS = re.compile(rf"('[^']*'|\"[^\"]*\")|({_NAME})\s*(!=|=(?!=))\s*")
_NEXT = re.compile(rf"\s+(?:and|or)\s+(?:not\s+)?[(\s]*({_NAME})\s*([<>=!]?)")
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
    return _of_study(where, values).holds(values)


def check(where: Where, configs: Sequence[Values]) -> None:
    """Raises ConfigError if a condition of a study can't be read, or names a key that no config has."""
    read = [_of_study(where, values) for values in configs]
    for name in set.intersection(*(one.unknown for one in read)):
        raise read[0].refusal(f"{name} is no key{did_you_mean(name, configs[0])}")


def _of_study(where: Where, values: Values) -> "Condition":
    if isinstance(where, str):  # many runs have the same keys
        return _cached(where, tuple(values))
    return Condition(where, values.keys(), "study.where:")


@functools.lru_cache(256)
def _cached(where: str, keys: Sequence[str]) -> "Condition":
    return Condition(where, keys, "study.where:")


class Condition:
    """A condition on runs that have these keys (or columns). source: who gave it, for messages. texts:
    columns that take only words, beside the keys of a run that do.

    keys: those that it reads; unknown: names that stand for none. Raises ConfigError if it can't be read.
    """

    def __init__(
        self, where: Where, keys: Collection[str], source: str, *, texts: Collection[str] = ()
    ) -> None:
        self.source, self.texts, self.names = source, texts, keys
        self.keys: set[str] = set()
        self.unknown: set[str] = set()
        self.text = spelled(where)
        if isinstance(where, str):
            try:
                self.value = self._read(ast.parse(self._with_lists(), mode="eval").body)
            except (SyntaxError, ValueError) as error:  # ValueError: a ConfigError, or for a NUL character
                raise error if isinstance(error, ConfigError) else self.refusal(NO_CONDITION) from error
            except (RecursionError, MemoryError) as error:
                raise self.refusal(TOO_DEEP) from error
        else:
            self.value = _each([self._is_one_of(str(k), values) for k, values in _lists(where)], all)

    def holds(self, values: Values) -> bool:
        """Whether a run meets it. values: by key. Raises ConfigError."""
        try:
            result = self.value(values)
        except (TypeError, ArithmeticError) as error:
            raise self.refusal(f"can't be computed ({error})") from error
        except RecursionError as error:  # Python 3.13 parses deeper than it calls
            raise self.refusal(TOO_DEEP) from error
        result = CONSTANTS.get(result) if isinstance(result, str) else result  # the cell of a table
        if not isinstance(result, bool):
            raise self.refusal(NO_CONDITION)
        return result

    def refusal(self, reason: str) -> ConfigError:
        return ConfigError(f"{self.source} {self.text}: {reason}")

    def _read(self, node: ast.expr, left: ast.expr | None = None) -> Term:
        """A node of the tree as a function of a run's values. left: the other side, if the node stands to the
        right of an equality, where bare words may stand for themselves."""
        match node:
            case ast.BoolOp(op=op, values=nodes):
                return _each([self._read(one) for one in nodes], all if isinstance(op, ast.And) else any)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                of_truth = self._read(operand)
                return lambda values: not _truth(of_truth(values))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self._read(operand)
                return lambda values: -_number(number(values))
            case ast.BinOp(left=one, op=op, right=other) if operation := ARITHMETIC.get(type(op)):
                a, b = self._read(one, left), self._read(other, left)
                return lambda values: operation(_number(a(values)), _number(b(values)))
            case ast.Compare(left=first, ops=ops, comparators=rest):
                sides = zip([first, *rest], ops, rest, strict=False)
                return _each([self._compared(one, op, other) for one, op, other in sides], all)
            case ast.List(elts=nodes) | ast.Tuple(elts=nodes):
                items = [self._read(one, left) for one in nodes]
                return lambda values: [item(values) for item in items]
            case ast.Constant(value=value) if isinstance(value, int | float | str | None):
                return lambda values: value
            case ast.Name() | ast.Attribute() if re.fullmatch(_NAME, name := ast.unparse(node)):
                return self._named(name, left)
        raise self.refusal(NO_CONDITION)

    def _named(self, name: str, left: ast.expr | None) -> Term:
        """A constant, a word, or a key."""
        takes_words = isinstance(left, ast.Name | ast.Attribute) and self._takes_words(ast.unparse(left))
        if name in CONSTANTS or takes_words or (left is not None and key_in(name, self.names) is None):
            return lambda values: CONSTANTS.get(name, name)
        key = self._key(name)
        return lambda values: self._value(key, values)

    def _compared(self, one: ast.expr, op: ast.cmpop, other: ast.expr) -> Term:
        a, b = self._read(one), self._read(other, None if type(op) in ORDER else one)
        if order := ORDER.get(type(op)):
            return lambda values: order(_number(a(values), bool), _number(b(values), bool))
        if not (equality := EQUALITIES.get(type(op))):
            raise self.refusal(NO_CONDITION)
        is_equal, wanted = equality
        key = key_in(ast.unparse(one), self.names)
        return lambda values: is_equal(key, a(values), b(values), values) is wanted

    def _is_one_of(self, name: str, wanted: Sequence[Any]) -> Term:
        key = self._key(name)
        return lambda values: _within(key, self._value(key, values), wanted, values)

    def _with_lists(self) -> str:
        """The text with a list of quoted texts in place of words: fusion in ['concat', 'sum']."""
        parts, at = [], 0
        while match := _WORDS.search(self.text, at):
            end = match.end()
            raw = self._up_to_next(end) if match[2] else ""
            if match[2] and (match[3] == "=" or not self._is_term(raw, match[2])):
                negated = "not " if match[3] == "!=" else ""
                parts += [self.text[at : match.start()], f"{match[2]} {negated}in {_listed(raw)}"]
                at = end + len(raw)
            else:
                parts, at = [*parts, self.text[at:end]], end
        return "".join([*parts, self.text[at:]])

    def _up_to_next(self, start: int) -> str:
        """The text from here up to the next condition, which begins with a key or a comparison."""
        matches = _NEXT.finditer(self.text, start)
        end = next((f.start() for f in matches if f[2] or key_in(f[1], self.names)), len(self.text))
        raw = self.text[start:end].rstrip()
        while raw.endswith(")") and raw.count(")") > raw.count("("):
            raw = raw[:-1].rstrip()
        return raw

    def _is_term(self, raw: str, left: str) -> bool:
        """Whether what follows != is a term of known keys, not words such as sum,mean or 2.9.1+cpu."""
        if re.search(r"[\s'\"()\[\]]", raw):
            try:
                return raw[0] in "([" or not isinstance(ast.parse(raw, mode="eval").body, ast.Tuple)
            except (SyntaxError, ValueError):
                return False
        names = re.findall(_NAME, raw)
        of_keys = not self._takes_words(left) and all(key_in(name, self.names) for name in names)
        return of_keys and bool(names or re.search(r"[-+*/%]", raw))

    def _takes_words(self, name: str) -> bool:
        """Whether a key takes only words, as fusion and scale do."""
        declared = key_in(name, dotted(RunConfig))
        return only_words(dotted(RunConfig)[declared]) if declared else key_in(name, self.names) in self.texts

    def _key(self, name: str) -> str:
        """The key of this name, noted as one that the condition reads."""
        key = key_in(name, self.names)
        (self.keys if key else self.unknown).add(key or name)
        if key in WIDTHS and {"d_model", "heads"} <= {*self.names}:
            self.keys |= {"d_model", "heads"}
        return key or name

    def _value(self, key: str, values: Values) -> Any:
        if key not in values:
            raise self.refusal(f"{key} is no key{did_you_mean(key, values)}")
        return values[key]


def spelled(where: Where) -> str:
    """A condition as text, of this language."""
    if isinstance(where, str):
        return where.strip()
    return " and ".join(f"{key}={','.join(map(as_override, values))}" for key, values in _lists(where))


def _lists(where: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Each key of a mapping with its values."""
    return [(key, value if isinstance(value, list) else [value]) for key, value in where.items()]


def only_words(hint: Any) -> bool:
    """Whether a type accepts no numbers and no truth values."""
    hint = bare(hint)
    if get_origin(hint) is Literal:
        return all(isinstance(choice, str) for choice in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        return all(map(only_words, get_args(hint)))
    return dataclasses.is_dataclass(hint) or hint in (str, type(None))


def _listed(raw: str) -> list[str]:
    """The values that words after = stand for: the text as a whole, as a list, or its parts at commas."""
    parts = [part.strip().strip("'\"") for part in (raw, *raw.split(","))]
    return [raw, re.sub(r",\s*", ", ", raw), *("" if part == "null" else part for part in parts)]


def _equal(key: str | None, value: Any, wanted: Any, values: Values) -> bool:
    """Whether values are equal. In tables a word for a width also stands for the number that rows have."""
    if same(value, wanted) or key not in WIDTHS or not {"d_model", "heads"} <= values.keys():
        return same(value, wanted)
    width, d_model, heads = (float(as_text(values[name]) or "nan") for name in (key, "d_model", "heads"))
    return wanted in WIDTHS[key] and width == (d_model if wanted == "wide" else d_model / heads)


def _within(key: str | None, value: Any, choices: Any, values: Values) -> bool:
    if isinstance(choices, list):
        return any(_equal(key, value, one, values) for one in choices)
    return value in choices


EQUALITIES = {
    ast.Eq: (_equal, True),
    ast.NotEq: (_equal, False),
    ast.In: (_within, True),
    ast.NotIn: (_within, False),
}


def _each(terms: Sequence[Term], which: Callable[[Iterable[bool]], bool]) -> Term:
    return terms[0] if len(terms) == 1 else lambda values: which(_truth(term(values)) for term in terms)


def _truth(value: Any) -> bool:
    return as_text(value) not in ("", "false") if isinstance(value, str) else bool(value)  # a readout's name


def _number(value: Any, also: type | None = None) -> Any:
    """A number, perhaps from the text of a table. also: another type that has an order. Raises TypeError."""
    if isinstance(value, str) and _NUMBER.fullmatch(as_text(value)):
        return float(value)
    if not isinstance(value, int | float) or (isinstance(value, bool) and also is not bool):
        raise TypeError(f"{as_text(value) or 'nothing'} is no number")
    return value
