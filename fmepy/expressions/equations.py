"""The symbolic form of a model: states, parameters, forcings, rates (or next values) and outputs.

Equations come from a traced Python function (`tracing`) or from checked text (`text`); engines turn them into numbers.
They hold no values: parameters, initial values, forcings and events belong to the model. Two models that differ only in
numbers share one `Equations` object, and so everything that was compiled from it.

Every name is one real sympy symbol, made by `symbol`; conditions are the nodes of `expressions.nodes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import sympy

MAX_INTEGER = 1e15
"""Whole numbers up to here are exact in a float, and become sympy Integers."""


def symbol(name: str) -> sympy.Symbol:
    """Return the sympy symbol that stands for `name` everywhere in fmepy: real, nothing else assumed."""
    import sympy

    return sympy.Symbol(name, real=True)


def symbols(*groups: Iterable[str]) -> list[list[sympy.Symbol]]:
    """Return the symbols of groups of names: the arguments of a function made of expressions."""
    return [[symbol(name) for name in group] for group in groups]


def number(value: float) -> sympy.Number:
    """Return a float as a sympy number: an Integer if it is whole and exact, so that x**2.0 is x**2; else a Float."""
    import sympy

    if value.is_integer() and abs(value) <= MAX_INTEGER:
        return sympy.Integer(int(value))
    return sympy.Float(value) if math.isfinite(value) else sympy.sympify(value)


@dataclass(frozen=True, slots=True, eq=False)
class Equations:
    """The symbolic form of a dynamic model.

    Attributes
    ----------
    kind : {"ode", "difference"}
        Whether `rates` are time derivatives, or the states after the next step.
    states, parameters, forcings : tuple of str
        The names; every free symbol of the expressions is one of these or `time`.
    rates : tuple of sympy.Expr
        One for each state, in order.
    outputs : tuple of (str, sympy.Expr)
        Named functions of time, states, parameters and forcings.
    time : str
        Name of the independent variable.
    algebraic : tuple of str
        States without a rate: the entry of such a state in `rates` is an expression that is zero at every time.

    Examples
    --------
    >>> from fmepy.models.ode import OdeModel
    >>> model = OdeModel(lambda t, A, *, k=0.5: -k * A, state={"A": 2.0}, times=[0, 1])
    >>> model.equations
    d(A)/dt = -A*k
    """

    kind: Literal["ode", "difference"]
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    forcings: tuple[str, ...]
    rates: tuple[sympy.Expr, ...]
    outputs: tuple[tuple[str, sympy.Expr], ...] = ()
    time: str = "t"
    algebraic: tuple[str, ...] = ()

    @property
    def var_names(self) -> tuple[str, ...]:
        """Names of the variables: states, then outputs."""
        return self.states + tuple(name for name, _ in self.outputs)

    def free_names(self) -> set[str]:
        """Return every name that occurs in a rate or an output."""
        return names_in(list(self.rates) + [e for _, e in self.outputs])

    def _sides(self) -> list[tuple[str, str, Any]]:
        """Return (left side as text, left side as LaTeX, right side) for every equation."""
        import sympy

        def latex(name: str) -> str:
            return str(sympy.latex(symbol(name)))

        t = latex(self.time)
        if self.kind == "ode":
            left = [(f"d({s})/d{self.time}", rf"\frac{{d\,{latex(s)}}}{{d{t}}}") for s in self.states]
            left = [("0", "0") if s in self.algebraic else pair for s, pair in zip(self.states, left, strict=True)]
        else:
            left = [(f"next({s})", rf"{latex(s)}_{{{t}}}") for s in self.states]
        rows = [(a, b, e) for (a, b), e in zip(left, self.rates, strict=True)]
        return rows + [(name, latex(name), e) for name, e in self.outputs]

    def __str__(self) -> str:
        rows = self._sides()
        width = max((len(a) for a, _, _ in rows), default=0)
        return "\n".join(f"{a:<{width}} = {e}" for a, _, e in rows)

    __repr__ = __str__

    def _repr_latex_(self) -> str:
        import sympy

        body = r" \\ ".join(f"{b} &= {sympy.latex(e)}" for _, b, e in self._sides())
        return rf"$\displaystyle \begin{{aligned}} {body} \end{{aligned}}$"


def names_in(expressions: Iterable[Any]) -> set[str]:
    """Return the names of the free symbols of expressions."""
    return {s.name for e in expressions for s in getattr(e, "free_symbols", ())}
