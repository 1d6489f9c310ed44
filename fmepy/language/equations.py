"""The symbolic form of a model: states, parameters, forcings, rates (or next values) and outputs.

Equations come from a traced Python function (`tracing`) or from checked text (`text`); engines turn them into numbers.
They hold no values: parameters, initial values, forcings and events belong to the model. Two models that differ only in
numbers share one `Equations` object, and so all code compiled from it.

Every name is one symbol, made by `symbol`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal

from fmepy.language.nodes import Node, Symbol, packed, unpacked

symbol = Symbol
"""The symbol of a name, everywhere in fmepy."""


def symbols(*groups: Iterable[str]) -> list[list[Symbol]]:
    """Return the symbols of groups of names: the arguments of a function of expressions."""
    return [[symbol(name) for name in group] for group in groups]


@dataclass(frozen=True, slots=True, eq=False)
class Equations:
    """The symbolic form of a dynamic model.

    Attributes
    ----------
    kind : {"ode", "difference"}
        Whether `rates` are time derivatives, or the states after the next step.
    states, parameters, forcings : tuple of str
        The names; every free symbol of the expressions is one of these or `time`.
    rates : tuple of Node
        One for each state, in order.
    outputs : tuple of (str, Node)
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
    d(A)/dt = -k*A
    """

    kind: Literal["ode", "difference"]
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    forcings: tuple[str, ...]
    rates: tuple[Node, ...]
    outputs: tuple[tuple[str, Node], ...] = ()
    time: str = "t"
    algebraic: tuple[str, ...] = ()

    @property
    def var_names(self) -> tuple[str, ...]:
        """Names of the variables: states, then outputs."""
        return self.states + tuple(name for name, _ in self.outputs)

    def free_names(self) -> set[str]:
        """Return every name that occurs in a rate or an output."""
        return names_in(list(self.rates) + [e for _, e in self.outputs])

    def __str__(self) -> str:
        left = [f"d({s})/d{self.time}" if self.kind == "ode" else f"next({s})" for s in self.states]
        left = ["0" if s in self.algebraic else text for s, text in zip(self.states, left, strict=True)]
        rows = [*zip(left, self.rates, strict=True), *self.outputs]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name:<{width}} = {e}" for name, e in rows)

    __repr__ = __str__

    def _repr_latex_(self) -> str | None:
        """Return the equations in LaTeX; None without sympy, then a notebook shows them as text."""
        from fmepy.language.display import latex_of

        return latex_of(self)

    def __reduce__(self) -> Any:
        """Pickle all expressions together: they share their parts."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("rates", "outputs")}
        expressions = packed([*self.rates, *(e for _, e in self.outputs)])
        return _unpacked_equations, (plain, len(self.rates), [name for name, _ in self.outputs], expressions)


def _unpacked_equations(plain: dict[str, Any], n_rates: int, names: list[str], expressions: Any) -> Equations:
    found = unpacked(expressions)
    return Equations(**plain, rates=tuple(found[:n_rates]), outputs=tuple(zip(names, found[n_rates:], strict=True)))


def names_in(expressions: Iterable[Any]) -> set[str]:
    """Return the names of the free symbols of expressions."""
    return {s.name for e in expressions if isinstance(e, Node) for s in e.free_symbols}
