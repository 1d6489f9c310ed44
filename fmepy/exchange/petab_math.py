"""Formulas of PEtab -> expressions of the model language.

The grammar is PEtab's own: ``^`` binds strongest and from the right (``-2^4`` is -16), then signs and ``!``, ``* /``,
``+ -``, comparisons, and last ``&&`` and ``||``, which bind equally. Truth values and numbers may stand for
one another.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from fmepy.errors import DataError, did_you_mean
from fmepy.exchange.mathml import FUNCTIONS, Value, as_condition, as_number, piecewise
from fmepy.language.conditions import Joined, Not, relation
from fmepy.language.nodes import Node, Number, add, as_node, call, mul, power

MOST_CHARACTERS = 100_000
MOST_DEPTH = 100
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||<=|>=|==|!=|[-+*/^()<>!,])|(?P<end>$))",
    re.ASCII,
)
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
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")


def parse_formula(text: Any, names: Callable[[str], Node] | Mapping[str, Node], where: str = "") -> Node:
    """Return the expression that a formula of PEtab stands for.

    Parameters
    ----------
    text : str or number
    names : mapping, or callable
        What names stand for; a function raises DataError for what it does not know.
    where : str
        What messages open with: file, row and column.

    Raises
    ------
    DataError
        What cannot be read, with its place.

    Examples
    --------
    >>> from fmepy.language.equations import symbol
    >>> parse_formula("2 * k^2 / (1 + x)", symbol)
    2*k**2/(1 + x)
    >>> float(parse_formula("-2^4 + piecewise(1, 2 > 3, 5)", {}))
    -11.0
    """
    return as_number(_Formula(str(text), names, where).whole())


class _Formula:
    """One formula, read from left to right."""

    def __init__(self, text: str, names: Any, where: str) -> None:
        self._text, self._where, self._at, self._depth = text, where, 0, 0
        self._names = names if callable(names) else self._of_mapping(names)
        if len(text) > MOST_CHARACTERS:
            raise self._error(f"a formula of more than {MOST_CHARACTERS} characters")
        self._next()

    def _of_mapping(self, names: Mapping[str, Node]) -> Callable[[str], Node]:
        def found(name: str) -> Node:
            if name not in names:
                raise DataError(f"{name!r} is not known.{did_you_mean(name, names)}")
            return names[name]

        return found

    def _error(self, why: str) -> DataError:
        place = f"{self._where}: " if self._where else ""
        return DataError(f"{place}{why}, in the formula {self._text[:200]!r}, character {self._at + 1}.")

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :].lstrip()
            raise self._error(f"{rest[:10]!r} cannot be read")
        self._kind, self._token = str(match.lastgroup), match.group(str(match.lastgroup))
        self._at = match.end()

    def _take(self, *signs: str) -> str:
        """Return the sign that comes next, if it is one of these, and pass it."""
        if self._kind == "sign" and self._token in signs:
            token = self._token
            self._next()
            return token
        return ""

    def whole(self) -> Value:
        try:
            value = self._either()
        except RecursionError:
            raise self._error("nested too deeply") from None
        if self._kind != "end":
            raise self._error(f"{self._token!r} is not expected here")
        return value

    def _either(self) -> Value:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self._error(f"nested more than {MOST_DEPTH} levels deep")
        value = self._compared()
        while word := self._take("&&", "||"):
            parts = [as_condition(value), as_condition(self._compared())]
            value = Joined(parts, "and" if word == "&&" else "or")
        self._depth -= 1
        return value

    def _compared(self) -> Value:
        value = self._sum()
        while word := self._take(*_COMPARED):
            value = relation(word, as_number(value), as_number(self._sum()))
        return value

    def _sum(self) -> Value:
        value = self._product()
        while word := self._take("+", "-"):
            other = as_number(self._product())
            value = add(as_number(value), other if word == "+" else -other)
        return value

    def _product(self) -> Value:
        value = self._signed()
        while word := self._take("*", "/"):
            other = as_number(self._signed())
            if word == "/" and isinstance(other, Number) and other.value == 0:
                raise self._error("a division by zero")
            value = mul(as_number(value), other) if word == "*" else as_number(value) / other
        return value

    def _signed(self) -> Value:
        signs = []
        while word := self._take("-", "+", "!"):
            signs.append(word)
        value = self._power()
        for word in reversed(signs):
            value = Not(as_condition(value)) if word == "!" else -as_number(value) if word == "-" else as_number(value)
        return value

    def _power(self) -> Value:
        base = self._atom()
        if not self._take("^"):
            return base
        return power(as_number(base), as_number(self._signed()))

    def _atom(self) -> Value:
        kind, token, at = self._kind, self._token, self._at
        if self._take("("):
            value = self._either()
            self._closed()
            return value
        if kind == "number":
            self._next()
            return as_node(float(token))
        if kind != "name":
            raise self._error(f"{token!r} is not expected here" if token else "it ends too early")
        self._next()
        if self._take("("):
            return self._call(token)
        if token in ("true", "false"):
            return token == "true"
        if token == "inf":
            return as_node(math.inf)
        try:
            return self._names(token)
        except DataError as error:
            self._at = at - len(token)
            raise self._error(str(error).rstrip(".")) from None

    def _closed(self) -> None:
        if not self._take(")"):
            raise self._error("a bracket is not closed")

    def _call(self, name: str) -> Value:
        values = [self._either()]
        while self._take(","):
            values.append(self._either())
        self._closed()
        if name == "piecewise":
            if len(values) % 2 == 0:
                raise self._error("piecewise takes pairs of a value and a condition, then the value otherwise")
            return as_number(piecewise(values))
        if name not in _CALLED:
            raise self._error(
                f"there is no function {name!r}.{did_you_mean(name, [*_CALLED, 'piecewise'])}".rstrip(".")
            )
        try:
            return _CALLED[name](*map(as_number, values))
        except TypeError:
            raise self._error(f"{name}(...) does not take {len(values)} arguments") from None
