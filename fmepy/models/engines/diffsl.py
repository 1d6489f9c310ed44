"""A system as DiffSL, the language of the compiled engine.

Facts of it, each pinned by a canary test (pydiffsol 0.6.2): identifiers are letters and digits; a ``stop`` without
``reset`` ends the solve at the crossing; ``tan`` kills the process and is written as sin/cos. It has no conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.expressions.branches import ALWAYS, Branches, Within, is_branching
from fmepy.expressions.functions import ELEMENTARY
from fmepy.models.running.system import System

MOST_POWER = 16
"""Integer powers up to this are written as products, which have no trouble with negative bases."""
MOST_BLENDED, MOST_WAYS = 50, 200
"""Parts of expressions with choices, and ways to them through choices inside one another, beyond both of which the
compiler takes too long."""
MOST_FACTORS = 8
"""Modes that are multiplied where the product is needed; longer products are parts of their own."""


class NotCompilableError(ValueError):
    """An expression that DiffSL has no word for."""


_CALLS = {name: ELEMENTARY[name] for name in ("exp", "log", "sin", "cos", "sinh", "cosh", "tanh", "asinh")}
"""What DiffSL has of them; it calls them as numpy does."""


def _number(value: float) -> str:
    if not np.isfinite(value):
        raise NotCompilableError(f"the constant {value}")
    return f"({value!r})" if value < 0 else repr(value)


def _write(e: Any, names: dict[Any, str]) -> str:
    """Return a sympy expression as DiffSL."""
    if e.is_Symbol:
        return names[e]
    if e.is_Integer or e.is_Float or e.is_NumberSymbol:
        return _number(float(e))
    if e.is_Rational:
        return f"({float(e.p)!r}/{float(e.q)!r})"
    if e.is_Add:
        return "(" + " + ".join(_write(a, names) for a in e.args) + ")"
    if e.is_Mul:
        return _write_product(e, names)
    if e.is_Pow:
        return _write_power(e.base, e.exp, names)
    kind = e.func.__name__
    if kind == "NoNumber":
        return f"(0.0 * tanh({_write(e.args[0], names)}))"  # a bounded function, for 0 times infinity is no number
    if kind == "heaviside":  # each side by itself: 1e-100 would drown in the terms of the other
        return f"heaviside({_write(e.args[0], names)} - {_write(e.args[1], names)})"
    if kind == "rest_to_one":
        return f"(1.0 - {_write(e.args[0], names)})"
    if kind in _CALLS:
        return f"{_CALLS[kind]}({_write(e.args[0], names)})"
    if kind == "tan":
        x = _write(e.args[0], names)
        return f"(sin({x})/cos({x}))"
    raise NotCompilableError(f"{kind}()")


def _write_product(e: Any, names: dict[Any, str]) -> str:
    above, below = [], []
    for a in e.args:
        if a.is_Pow and a.exp.is_number and a.exp.is_negative:
            below.append(_write_power(a.base, -a.exp, names))
        else:
            above.append(_write(a, names))
    text = " * ".join(above) or "1.0"
    return f"({text} / ({' * '.join(below)}))" if below else f"({text})"


def _write_power(base: Any, exponent: Any, names: dict[Any, str]) -> str:
    if exponent.is_number and exponent.is_negative:
        return f"(1.0 / {_write_power(base, -exponent, names)})"
    x = _write(base, names)
    if exponent.is_Integer and exponent <= MOST_POWER:
        return "(" + " * ".join([x] * int(exponent)) + ")"
    if exponent.is_Rational and exponent.q == 2 and exponent.p <= 2 * MOST_POWER:
        whole = " * ".join([f"sqrt({x})", *[x] * (int(exponent.p) // 2)])
        return f"({whole})"
    return f"pow({x}, {_write(exponent, names)})"


class _Blender:
    """Writes choices as sums, ``m a + (1 - m) b``, for DiffSL has no conditions.

    Whatever could have no finite value in a branch gets, while the branch is not taken, the argument 1 instead, since 0
    times NaN is NaN: with m the product of the branch's modes, ``log(u)`` becomes ``log(m u + 1 - m)``.
    """

    def __init__(self) -> None:
        import sympy

        self._taken: dict[int, Any] = {ALWAYS: sympy.S.One}
        self._heaviside = sympy.Function("heaviside", real=True)
        self._not = sympy.Function("rest_to_one", real=True)  # 1 - m as one term: in m u + 1 - m a small u would drown

    def blended(self, expressions: Sequence[Any], is_asked: bool) -> list[Any]:
        """Return expressions without choices; `is_asked`: whether too many are refused."""
        from fmepy.expressions.nodes import Choice, holds_choices

        if not holds_choices(expressions):
            return list(expressions)
        branches = Branches(expressions, lambda e: not (e.is_Add or e.is_Mul) or isinstance(e, Choice))
        if is_asked and len(branches.order) > MOST_BLENDED and branches.ways > MOST_WAYS:
            raise NotCompilableError("so many conditions inside one another")
        found: dict[Any, Any] = {}
        for e in branches.order:
            found[e] = self._blended(e, [found.get(a, a) for a in e.args], branches, branches.case[e])
        return [found.get(e, e) for e in expressions]

    def _blended(self, e: Any, parts: list[Any], branches: Branches, case: int) -> Any:
        from fmepy.expressions.nodes import NoNumber, Shared, Where

        if isinstance(e, Where):
            left, right, yes, no = parts
            if not is_branching(e):
                left = self._not(self._heaviside(right, left))  # that is 1 at 0
            elif (known := branches.value_of(left, case)) is not None:
                return yes if known else no
            return left * yes + self._not(left) * no
        if case != ALWAYS and not (e.is_Add or e.is_Mul or isinstance(e, NoNumber | Shared)):
            taken = self._when(branches, case)
            parts[0] = taken * parts[0] + self._not(taken) if parts[0].free_symbols else parts[0]
            parts[1:] = [taken * a if a.free_symbols else a for a in parts[1:]]
        return e if all(a is b for a, b in zip(parts, e.args, strict=True)) else e.func(*parts)

    def _when(self, branches: Branches, case: int) -> Any:
        """Return 1 in a case, else 0: a product of modes, one part for all that ask where it is long."""
        import sympy

        from fmepy.expressions.nodes import Shared

        if case not in self._taken:
            made = branches.made[case]
            if isinstance(made, Within):
                taken = self._when(branches, made.case) * (made.mode if made.value else self._not(made.mode))
            else:
                taken = self._not(sympy.Mul(*(self._not(self._when(branches, i)) for i in made)))
            is_long = not isinstance(made, Within) or len(taken.args) > MOST_FACTORS
            self._taken[case] = Shared("taken", taken) if is_long else taken
        return self._taken[case]


@lru_cache(maxsize=64)
def diffsl_code(system: System) -> str:
    """Return a system as DiffSL, of z in units of the states' scales.

    Its inputs are the system's, then the offsets of the watched switches, then z(start) / scale, then the scales, then
    the size of the states at which a run stops. The scales are inputs so that models that differ in nothing but their
    size share what is compiled.

    Raises
    ------
    NotCompilableError
        A function that DiffSL does not have, or choices that take too long (told of the states alone, at the door).
    """
    import sympy
    from sympy.simplify.cse_main import tree_cse

    from fmepy.expressions.nodes import unshared

    n = len(system.z)
    n_states = system.n_states
    names = {system.time: "t"}
    names |= {s: f"(x{i}*a{i % n_states})" for i, s in enumerate(system.z)}
    names |= {s: f"q{i}" for i, s in enumerate(system.inputs)}
    watched = system.watched_expressions
    # What occurs twice as a whole is computed once; sympy.cse would also look for common parts of products, which takes
    # it long, and its many small parts take LLVM twice as long to compile as the sums and products that they stand for.
    shared, expressions = unshared(_Blender().blended([*system.rates, *watched], is_asked=not system.names))
    fresh = sympy.numbered_symbols("common", real=True)
    lines: list[str] = []

    def write_common(expressions: list[Any]) -> list[Any]:
        common, reduced = tree_cse(expressions, fresh, {}, "none")
        for s, e in common:
            write_line(s, e)
        return list(reduced)

    def write_line(s: Any, e: Any) -> None:
        text = _write(e, names)
        names[s] = f"w{len(lines)}"
        lines.append(f"{names[s]} {{ {text} }}")

    for s, e in shared:
        write_line(s, *write_common([e]))
    reduced = write_common(expressions)
    rates = [f"({_write(e, names)} / a{i % n_states})" for i, e in enumerate(reduced[:n])]
    inputs = [f"q{i} = 1.0" for i in range(len(system.inputs))]
    inputs += [f"o{i} = 0.0" for i in range(len(watched))] + [f"i{i} = 1.0" for i in range(n)]
    inputs += [f"a{i} = 1.0" for i in range(n_states)] + ["g = 1.0"]
    text = [f"in_i {{ {', '.join(inputs)} }}", f"u_i {{ {', '.join(f'x{i} = i{i}' for i in range(n))} }}", *lines]
    if system.algebraic:
        is_algebraic = [i % n_states in system.algebraic for i in range(n)]
        text.append(f"dudt_i {{ {', '.join(f'd{i} = 0.0' for i in range(n))} }}")
        text.append(f"M_i {{ {', '.join('0.0' if a else f'd{i}' for i, a in enumerate(is_algebraic))} }}")
    text.append(f"F_i {{ {', '.join(rates)} }}")
    stops = [f"{_write(e, names)} - o{i}" for i, e in enumerate(reduced[n:])]
    sizes = (f"abs(x{i})" for i in range(n_states))
    size_left = f"g - ({' + '.join(sizes)})"
    text.append(f"stop_i {{ {', '.join([*stops, size_left])} }}")
    return "\n".join(text) + "\n"
