"""Formulas of PEtab -> expressions of the model language.

The grammar is PEtab's own: ``^`` binds strongest and from the right (``-2^4`` is -16), then signs and ``!``, ``* /``,
``+ -``, comparisons, and last ``&&`` and ``||``, which bind equally. Truth values and numbers are converted into one
another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fmepy.errors import DataError, did_you_mean
from fmepy.exchange.expressions import Expr, Reader, ReadError, tokens_of
from fmepy.exchange.mathml import FUNCTIONS, RELATIONS, Value, applied, as_number, piecewise
from fmepy.language.nodes import Node, Number, as_node, call, power

_TRIGONOMETRIC = ("sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh", "sech", "csch", "coth")
_CALLED: dict[str, Callable[..., Node]] = {
    **{n: FUNCTIONS[f"FUNCTION_{n.upper()}"] for n in (
        *_TRIGONOMETRIC, *(f"arc{n}" for n in _TRIGONOMETRIC), "exp", "abs", "floor", "ln")},
    "ceil": FUNCTIONS["FUNCTION_CEILING"], "pow": power,
    "log": lambda x, *base: call("log", x) / call("log", *base) if base else call("log", x),
    "log2": lambda x: call("log2", x), "log10": lambda x: call("log10", x),
    "sqrt": lambda x: power(x, 0.5), "sign": lambda x: call("sign", x),
    "min": lambda a, b: call("min", a, b), "max": lambda a, b: call("max", a, b),
}  # fmt: skip
_SIGNS = {sign: kind for kind, sign in RELATIONS.items()} | {
    "+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "DIVIDE", "&&": "LOGICAL_AND", "||": "LOGICAL_OR",
    "power": "POWER", "minus": "MINUS", "not": "LOGICAL_NOT",
}  # fmt: skip
"""Operators by the names of libsbml's types of nodes, see `mathml.applied`."""


def parse_formula(text: Any, names: Callable[[str], Node], where: str = "") -> Node:
    """Return the expression of a formula of PEtab.

    Parameters
    ----------
    text : str or number
    names : callable
        Returns the expression of a name; raises DataError for an unknown one.
    where : str
        The beginning of messages: file, row and column.

    Raises
    ------
    DataError
        The formula cannot be read; with the place.

    Examples
    --------
    >>> from fmepy.language.equations import symbol
    >>> parse_formula("2 * k^2 / (1 + x)", symbol)
    2*k**2/(1 + x)
    >>> float(parse_formula("-2^4 + piecewise(1, 2 > 3, 5)", symbol))
    -11.0
    """
    text = str(text)
    try:
        reader = Reader(tokens_of(text, "petab", 1), "petab")
        expr = reader.expression()
        reader.expect_end()
        return as_number(_value(expr, names))
    except ReadError as error:
        why, at = str(error), max(error.line, 1)
    except RecursionError:
        why, at = "nested too deeply", 1
    place = f"{where}: " if where else ""
    raise DataError(f"{place}{why}, in the formula {text[:200]!r}, character {at}.")


def _value(e: Expr, names: Callable[[str], Node]) -> Value:
    if e.word == "number":
        return as_node(e.value)
    if e.word == "name":
        return _named(e, names)
    values = [_value(a, names) for a in e.args]
    if e.word == "call":
        return _called(e, values)
    if e.word != "chain":
        return applied(_SIGNS[e.word], values)
    value = values[0]
    for sign, other in zip(e.value, values[1:], strict=True):
        if sign == "/" and isinstance(b := as_number(other), Number) and b.value == 0:
            raise ReadError("a division by zero", e.line)
        value = applied(_SIGNS[sign], [value, other])
    return value


def _named(e: Expr, names: Callable[[str], Node]) -> Value:
    if e.value in ("true", "false"):
        return bool(e.value == "true")
    if e.value == "inf":
        return as_node(math.inf)
    try:
        return names(e.value)
    except DataError as error:
        raise ReadError(str(error).rstrip("."), e.line) from None


def _called(e: Expr, values: list[Value]) -> Value:
    if e.value == "piecewise":
        if len(values) % 2 == 0:
            raise ReadError("piecewise takes pairs of a value and a condition, then the value otherwise", e.line)
        return as_number(piecewise(values))
    if e.value not in _CALLED:
        near = did_you_mean(e.value, [*_CALLED, "piecewise"])
        raise ReadError(f"there is no function {e.value!r}.{near}".rstrip("."), e.line)
    try:
        return _CALLED[e.value](as_number(values[0]), *map(as_number, values[1:]))
    except (IndexError, TypeError):
        raise ReadError(f"{e.value}(...) does not take {len(values)} arguments", e.line) from None
