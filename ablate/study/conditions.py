"""Conditions on the runs of a study, as listed under `where:`, such as `heads <= d_model // 16`.

An expression is parsed and its tree evaluated: only the operators listed here work, and nothing is called.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ablate.config.rules import ConfigError, did_you_mean

OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Not: operator.not_,
    ast.USub: operator.neg,
}
CONSTANTS = {"true": True, "false": False, "null": None}


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Whether the condition holds for a run. values: its config, by dotted key. Raises ConfigError."""
    try:
        return bool(_compute(_parse(condition), values, condition))
    except (TypeError, ZeroDivisionError, OverflowError, RecursionError) as error:
        raise _refusal(condition, f"can't be computed ({error})") from error


def check(condition: str, configs: Sequence[Mapping[str, Any]]) -> None:
    """Raises ConfigError if the condition can't be read, or names a key that none of the configs has."""
    try:
        names = _names(_parse(condition))
    except RecursionError as error:
        raise _refusal(condition, "nested too deeply") from error
    for name in names:
        if name not in CONSTANTS and not any(_keys(name, values) for values in configs):
            raise _refusal(condition, f"{name} is no key{did_you_mean(name, configs[0])}")


def _parse(condition: str) -> ast.expr:
    try:
        return ast.parse(condition.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:  # ValueError: for a NUL character
        raise _refusal(condition, "not an expression; write a comparison, as heads <= 8") from error


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Name | ast.Attribute):
        return [ast.unparse(node)]
    return [name for child in ast.iter_child_nodes(node) for name in _names(child)]


def _compute(node: ast.expr, values: Mapping[str, Any], condition: str) -> Any:
    def compute(within: ast.expr) -> Any:
        return _compute(within, values, condition)

    match node:
        case ast.BoolOp(op=ast.And(), values=operands):
            return all(compute(operand) for operand in operands)
        case ast.BoolOp(op=ast.Or(), values=operands):
            return any(compute(operand) for operand in operands)
        case ast.Compare(left=left, ops=comparisons, comparators=rights) if OPERATORS.keys() >= set(
            map(type, comparisons)
        ):
            sides = [compute(side) for side in (left, *rights)]
            pairs = zip(comparisons, sides, sides[1:], strict=False)
            return all(OPERATORS[type(op)](a, b) for op, a, b in pairs)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_number(compute(left)), _number(compute(right)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](compute(operand))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [compute(item) for item in items]
        case ast.Constant(value=value) if isinstance(value, int | float | str | None):
            return value
        case ast.Name() | ast.Attribute():
            return _value(ast.unparse(node), values, condition)
        case _:
            raise _refusal(
                condition,
                f"{ast.unparse(node)} is not understood; use keys, values, and, or, not,"
                " comparisons and + - * / // %",
            )


def _value(name: str, values: Mapping[str, Any], condition: str) -> Any:
    """The value of a key, given by its dotted name or by a last part that only one key has."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    found = _keys(name, values)
    if len(found) != 1:
        raise _refusal(condition, f"{name} is no key{did_you_mean(name, values)}")
    return values[found[0]]


def _keys(name: str, values: Mapping[str, Any]) -> list[str]:
    return [key for key in values if key == name] or [key for key in values if key.endswith(f".{name}")]


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value} is not a number")
    return value


def _refusal(condition: str, reason: str) -> ConfigError:
    return ConfigError(f"study.where: {condition}: {reason}")
