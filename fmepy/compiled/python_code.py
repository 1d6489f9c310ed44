"""Expressions -> Python functions on numbers or on arrays.

Only expressions of our own making come here (traced, or parsed from checked text), and every symbol is renamed to a
generated name first, so no text of a user is ever executed.

All functions are total: where the mathematics has no real value (a root or a real power of less than zero, 0 / 0) they
give NaN, beyond the range of floating point they give infinity, as numpy does; nothing is raised and nothing complex
comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.statements import statements
from fmepy.language.nodes import TABLE, Mode, Node, Number, Symbol, as_node

MOST_NESTED = 20
"""Levels of an expression that are written as one line."""


def scalar_function(groups: Sequence[Sequence[Symbol]], expressions: Sequence[Any]) -> Callable[..., list[float]]:
    """Return ``f(group1, group2, ...) -> list of float`` for scalar arguments.

    It computes with Python's floats, and once more with numpy's where those raise.
    """
    code, words, constants = _code(tuple(map(tuple, groups)), tuple(map(as_node, expressions)), False)
    quick = _executed(code, {w: TABLE[w].value for w in words} | constants | {"pow": math.pow, "sqrt": math.sqrt})
    numpys = {name: np.float64(v) for name, v in constants.items()}
    careful = _executed(code, {w: TABLE[w].array for w in words} | numpys | {"pow": np.power, "sqrt": np.sqrt})

    def function(*values: Any) -> list[float]:
        try:
            return quick(*values)
        except (ArithmeticError, ValueError):
            pass
        with np.errstate(all="ignore"):
            return [float(v) for v in careful(*([np.float64(v) for v in group] for group in values))]

    return function


def array_function(groups: Sequence[Sequence[Symbol]], expressions: Sequence[Any]) -> Callable[..., list[Any]]:
    """Return ``f(group1, group2, ...) -> list`` on numpy, for scalars and arrays mixed.

    A group is a sequence of numbers and arrays, or an array with one row a symbol; only what is used of it is read.
    Constant expressions come back as numbers, so results are to be broadcast.
    """
    code, words, constants = _code(tuple(map(tuple, groups)), tuple(map(as_node, expressions)), True)
    numpys = {name: np.float64(v) for name, v in constants.items()} | {"pow": np.power, "sqrt": np.sqrt}
    function = _executed(code, {w: TABLE[w].array for w in words} | numpys | {"of": _as_numpy})

    def careful(*values: Any) -> list[Any]:
        with np.errstate(all="ignore"):
            return function(*values)

    return careful


@lru_cache(maxsize=256)
def _code(
    groups: tuple[tuple[Any, ...], ...], expressions: tuple[Any, ...], arrays: bool
) -> tuple[Any, set[str], dict[str, float]]:
    """Return the compiled definition of a function `f`, the functions it calls and its constants by name."""
    names = {s: f"v{i}x{j}" for i, group in enumerate(groups) for j, s in enumerate(group)}
    results = [f"r{i}" for i in range(len(expressions))]
    if arrays:
        used = {s for e in expressions for s in e.free_symbols}
        places = [(s, f"g{i}[{j}]") for i, group in enumerate(groups) for j, s in enumerate(group)]
        read = [f"{names[s]} = of({place})" for s, place in places if s in used]
    else:
        read = [f"{''.join(f'{names[s]}, ' for s in group)}= g{i}" for i, group in enumerate(groups) if len(group)]
    writer = StatementWriter(names, arrays)
    lines = [*read, *writer.written(list(zip(results, expressions, strict=True)))]
    head = f"def f({', '.join(f'g{i}' for i in range(len(groups)))}):"
    text = "\n    ".join([head, *lines, f"return [{', '.join(results)}]"])
    return compile(text, "<fmepy: a model's expressions>", "exec"), writer.words, writer.constants


def _executed(code: Any, names: dict[str, Any]) -> Callable[..., list[Any]]:
    names = {**names, "inf": math.inf, "nan": math.nan}
    exec(code, names)
    function: Callable[..., list[Any]] = names["f"]
    return function


def _as_numpy(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else np.float64(value)


class StatementWriter:
    """Writes expressions as Python's, on floats throughout; common parts are computed once.

    All common parts are computed, those of branches not taken too: the code is for arithmetic that gives NaN where
    there is no value, as numpy's does. Their names are c and a number.

    Examples
    --------
    >>> x, k = Symbol("x"), Symbol("k")
    >>> targets = [("a", x + (k * x) ** 2), ("b", 3 / (k * x) ** 2)]
    >>> StatementWriter({x: "y0", k: "p0"}).written(targets)
    ['c0 = p0*y0', 'a = y0 + c0**2', 'b = 3.0/c0**2']

    Attributes
    ----------
    words : set of str
        The functions that are called.
    constants : dict of str to float
        Numbers that are divided by or chosen, by name: where Python's would raise they are to be numpy's.
    """

    def __init__(self, names: Mapping[Any, str], arrays: bool = False) -> None:
        self.names: dict[Any, str] = dict(names)
        self.lines, self.words, self.constants = list[str](), set[str](), dict[str, float]()
        self._arrays = arrays

    def written(self, targets: Sequence[tuple[str, Node]]) -> list[str]:
        """Return the assignments."""
        for e in statements([e for _, e in targets], MOST_NESTED)[0]:
            if e not in self.names:
                self.assign(e)
        results = [f"{name} = {self.text(e)}" for name, e in targets]
        return [*self.lines, *results]

    def _by_name(self, e: Node) -> str:
        """Return an expression; a number by a name."""
        if not isinstance(e, Number):
            return self.text(e)
        name = f"number{len(self.constants)}"
        self.constants[name] = e.value
        return name

    def assign(self, e: Node) -> str:
        """Give an expression a name, which it is known by from then on."""
        text = self.text(e)
        name = f"c{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.names[e] = name
        return name

    def text(self, e: Node, whole: bool = False) -> str:
        """Return an expression; `whole`: in brackets if need be, to be a factor or a base."""
        if e in self.names:
            return self.names[e]
        if isinstance(e, Number):
            return repr(e.value) if e.value >= 0 else f"({e.value!r})"
        text = self._operation(e)
        return f"({text})" if whole and e.word in ("+", "*", "**") else text

    def _operation(self, e: Node) -> str:
        if e.word == "+":
            return " + ".join(map(self.text, e.args)).replace(" + -", " - ")
        if e.word == "*":
            return self._product(e)
        if e.word == "**":
            return self._power(*e.args)
        if e.word == "shared":
            return self.text(e.args[0], whole=True)
        if e.word == "where" and not self._arrays:
            return self._choice(*e.args)
        self.words.add(e.word)
        return f"{e.word}({', '.join(map(self.text, e.args))})"

    def _product(self, e: Node) -> str:
        above: list[str] = []
        below: list[str] = []
        sign = ""
        for a in e.args:
            n = a.args[1] if a.word == "**" and a not in self.names else None
            if isinstance(a, Number) and a.value == -1:
                sign = "-"
            elif isinstance(n, Number) and n.value < 0:
                below.append(self._positive(a.args[0], -n.value))
            else:
                above.append(self.text(a, whole=a.word != "*" or a is not e.args[0]))
        text = sign + ("*".join(above) or "1.0")
        return text if not below else f"{text}/{below[0] if len(below) == 1 else '(' + '*'.join(below) + ')'}"

    def _power(self, base: Node, exponent: Node) -> str:
        if isinstance(exponent, Number) and exponent.value < 0:
            return f"1.0/{self._positive(base, -exponent.value)}"
        if isinstance(exponent, Number):
            return self._positive(base, exponent.value)
        return f"pow({self.text(base)}, {self.text(exponent)})"  # ** of Python makes complex numbers

    def _positive(self, base: Node, n: float) -> str:
        if n == 0.5:
            return f"sqrt({self.text(base)})"
        if n.is_integer() and n <= 64:  # a literal whole exponent becomes multiplications
            text = self._by_name(base) if isinstance(base, Number) else self.text(base, whole=True)
            return text if n == 1 else f"{text}**{int(n)}"
        return f"pow({self.text(base)}, {n!r})"

    def _choice(self, left: Node, right: Node, yes: Node, no: Node) -> str:
        if isinstance(left, Mode):
            return f"({self._by_name(yes)} if {self.names[left]} > 0.5 else {self._by_name(no)})"
        a, b = (self.text(x) if x in self.names or isinstance(x, Number) else self.assign(x) for x in (left, right))
        return f"({self._by_name(yes)} if {a} > {b} else ({self._by_name(no)} if {a} <= {b} else nan))"
