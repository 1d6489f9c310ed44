# ruff: noqa: N802, N815    # the methods of sympy's printers are named so
"""Expressions -> lines of Python: assignments in which common parts are computed once."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any


def straight_line(
    targets: Sequence[tuple[str, Any]], names: Mapping[Any, str], *, temporaries: str = "c", arrays: bool = False
) -> list[str]:
    """Return assignments, one a line, that compute expressions on floats; common parts are computed once.

    All parts are computed, those of branches not taken too: the code is for arithmetic that gives NaN where there is no
    value, as numpy's does.

    Parameters
    ----------
    targets : sequence of (str, sympy.Expr)
        What is assigned: our name for it, and the expression (in our own nodes, see `switches.as_choices`).
    names : mapping of sympy.Symbol to str
        Our names of all symbols that occur.
    temporaries : str
        First letter of the names of common parts; no name in `names` or `targets` may be such a letter and a number.
    arrays : bool
        Write for numpy's arrays, with the functions of `compiled.python_code`.

    Examples
    --------
    >>> from fmepy.expressions.equations import symbol
    >>> x, k = symbol("x"), symbol("k")
    >>> straight_line([("a", x + (k * x) ** 2), ("b", 3 / (k * x) ** 2)], {x: "y0", k: "p0"})
    ['c0 = p0**2', 'c1 = y0**2', 'a = c0*c1 + y0', 'b = 3.0/(c0*c1)']
    """
    import sympy

    from fmepy.expressions.nodes import unshared

    names = {**names}
    fresh = (sympy.Dummy(f"{temporaries}{i}") for i in range(sys.maxsize))
    numbers = count()
    lines: list[str] = []
    printer = _printer(names, lines, f"{temporaries}_", arrays)

    def write(expressions: list[Any]) -> list[Any]:
        common, reduced = sympy.cse(expressions, symbols=fresh, order="none")
        for dummy, expression in common:
            text = printer.doprint(expression)
            names[dummy] = f"{temporaries}{next(numbers)}"
            lines.append(f"{names[dummy]} = {text}")
        return list(reduced)

    shared, expressions = unshared(sympy.sympify(e) for _, e in targets)
    for dummy, expression in shared:
        text = printer.doprint(*write([expression]))
        names[dummy] = f"{temporaries}{next(numbers)}"
        lines.append(f"{names[dummy]} = {text}")
    for (name, _), e in zip(targets, write(expressions), strict=True):
        lines.append(f"{name} = {printer.doprint(e)}")
    return lines


def _printer(names: dict[Any, str], lines: list[str], temporaries: str, arrays: bool) -> Any:
    """Return the printer of expressions as Python source, on floats throughout.

    What is compared gets a line of its own before the present one, so that it is written once.
    """
    from sympy.core.symbol import Symbol
    from sympy.printing.pycode import PythonCodePrinter

    from fmepy.expressions.nodes import Mode

    class Printer(PythonCodePrinter):  # type: ignore[misc]  # sympy has no types
        def _once(self, e: Any) -> str:
            return names[e] if isinstance(e, Symbol) else self._named(self._print(e))

        def _named(self, text: str) -> str:
            name = f"{temporaries}{len(lines)}"
            lines.append(f"{name} = {text}")
            return name

        def _print_Where(self, e: Any) -> str:
            left, right, yes, no = e.args
            if arrays:
                return f"choose({', '.join(map(self._print, e.args))})"
            if isinstance(left, Mode):
                return f"({self._print(yes)} if {names[left]} > 0.5 else {self._print(no)})"
            a, b = self._once(left), self._once(right)
            return f"({self._print(yes)} if {a} > {b} else ({self._print(no)} if {a} <= {b} else math.nan))"

        def _print_Largest(self, e: Any, above: str = ">") -> str:
            if arrays:
                return f"{'largest' if above == '>' else 'smallest'}({', '.join(map(self._print, e.args))})"
            text = self._once(e.args[0])
            for other in e.args[1:]:
                a = text if text.isidentifier() else self._named(text)
                b = self._once(other)
                text = f"({a} if {a} {above} {b} else ({b} if {b} {above}= {a} else math.nan))"
            return text

        def _print_Smallest(self, e: Any) -> str:
            return self._print_Largest(e, "<")

        def _print_Absolute(self, e: Any) -> str:
            return f"abs({self._print(e.args[0])})"

        def _print_Sign(self, e: Any) -> str:
            return f"np.sign({self._print(e.args[0])})"

        def _print_Floor(self, e: Any) -> str:
            return f"np.floor({self._print(e.args[0])})"

        def _print_Ceiling(self, e: Any) -> str:
            return f"np.ceil({self._print(e.args[0])})"

        def _print_Modulo(self, e: Any) -> str:
            return f"({self._base(e.args[0])} % {self._base(e.args[1])})"

        def _print_NoNumber(self, e: Any) -> str:
            if arrays:
                return f"nan_of({self._print(e.args[0])})"
            a = self._once(e.args[0])
            return f"(0.0 if {a} == {a} else math.nan)"

        def _print_Symbol(self, e: Any) -> str:
            return names[e]

        _print_Dummy = _print_Symbol

        def _print_Integer(self, e: Any) -> str:
            return repr(float(e))  # whole numbers as floats, so that no integer arithmetic overflows

        def _print_Rational(self, e: Any) -> str:
            return f"({float(e.p)!r}/{float(e.q)!r})"

        _print_Half = _print_Rational
        _print_One = _print_Zero = _print_NegativeOne = _print_Integer

        def _print_Float(self, e: Any) -> str:
            return repr(float(e))

        def _print_Pow(self, e: Any, rational: bool = False, sqrt: str = "math.sqrt") -> str:
            n = e.exp
            if n.is_Integer and 2 <= abs(n) <= 64:  # a literal whole exponent becomes multiplications
                power = f"{self._base(e.base)}**{abs(int(n))}"
                return power if n > 0 else f"(1.0/{power})"
            if n == -1:
                return f"(1.0/{self._base(e.base)})"
            if n.is_Rational and abs(n.p) == 1 and n.q == 2:
                root = f"math.sqrt({self._print(e.base)})"
                return root if n > 0 else f"(1.0/{root})"
            return f"math.pow({self._print(e.base)}, {self._print(n)})"  # ** of Python makes complex numbers

        def _base(self, e: Any) -> str:
            text = self._print(e)
            return text if text.isidentifier() else f"({text})"

    return Printer({"fully_qualified_modules": True})
