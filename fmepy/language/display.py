"""Equations in LaTeX: the one place that reads sympy, which knows Greek letters, indices and fractions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fmepy.language.nodes import Node, Number, Symbol, in_order

if TYPE_CHECKING:
    from fmepy.language.equations import Equations

_ARCS = {"abs": "Abs", "ceil": "ceiling", "log10": "", "log2": ""}


def as_sympy(e: Node) -> Any:
    """Return an expression as one of sympy, for display: what is shared is a symbol of its name.

    Raises
    ------
    ImportError
        sympy is not installed (``pip install fmepy[display]``).
    """
    import sympy

    memo: dict[Node, Any] = {}

    def is_named(e: Any) -> bool:
        if e.word == "shared" and e not in memo:
            memo[e] = _symbol(e.name)
        return e in memo

    for node in in_order([e], is_named):
        memo[node] = _converted(sympy, node, [memo[a] for a in node.args])
    return memo[e]


def _symbol(name: str) -> Any:
    import sympy

    return sympy.Symbol(name, real=True)


def _converted(sympy: Any, e: Node, parts: list[Any]) -> Any:
    if isinstance(e, Number):
        value = e.value
        return sympy.Integer(int(value)) if value.is_integer() and abs(value) <= 1e15 else sympy.Float(value)
    if isinstance(e, Symbol):
        return _symbol(e.name)
    if e.word in ("+", "*"):
        return (sympy.Add if e.word == "+" else sympy.Mul)(*parts)
    if e.word == "**":
        n = parts[1]
        return parts[0] ** (sympy.Rational(1, 2) * int(2 * n) if n.is_Float and (2 * n) % 1 == 0 else n)
    if e.word == "where":
        left, right, yes, no = parts
        return sympy.Piecewise((yes, sympy.Gt(left, right, evaluate=False)), (no, True), evaluate=False)
    if e.word == "lag":
        return sympy.Function(rf"\left.{sympy.latex(parts[0])}\right|_{{t - {sympy.latex(parts[1])}}}")()
    own = getattr(sympy, _ARCS.get(e.word, e.word), None) if e.word not in ("max", "min", "mod") else None
    if own is None:
        own = sympy.Function(rf"\operatorname{{{e.word}}}")
    return own(*parts)


def latex_of(equations: Equations) -> str | None:
    """Return equations in LaTeX, one a line; None where sympy is not installed."""
    try:
        import sympy
    except ImportError:
        return None

    def latex(name: str) -> str:
        return str(sympy.latex(_symbol(name)))

    e, t = equations, latex(equations.time)
    if e.kind == "ode":
        left = [rf"\frac{{d\,{latex(s)}}}{{d{t}}}" for s in e.states]
        left = ["0" if s in e.algebraic else text for s, text in zip(e.states, left, strict=True)]
    else:
        left = [rf"{latex(s)}_{{{t}}}" for s in e.states]
    rows = [*zip(left, e.rates, strict=True), *((latex(name), value) for name, value in e.outputs)]
    body = r" \\ ".join(f"{name} &= {sympy.latex(as_sympy(value))}" for name, value in rows)
    return rf"$\displaystyle \begin{{aligned}} {body} \end{{aligned}}$"
