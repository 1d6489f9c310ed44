"""Switches: conditions inside rates, taken out so that solvers see smooth pieces.

``where(g > 0, a, b)`` becomes a choice between a and b by a *mode* m in {0, 1} that is constant while the sign of g is;
of a floor its present whole number becomes one (a *level*), and a modulo is written by a floor. A run stops where g
crosses zero, or the argument of a floor a whole number, changes the mode and goes on, so that the solver never smears a
jump.
``abs``, ``min``, ``max`` and ``sign`` are conditions too. The branch that is not taken has no say, whatever its value.

A solver that looks for a crossing looks a little beyond it while the mode still holds. There ``where(x > 0, sqrt(x),
0)`` must go on: where the condition already fails, roots and logarithms of what lies outside their domain are taken at
its border (`_Holder`).

Sensitivities jump where the rates do. With f- and f+ the rates before and after, at the crossing time t*::

    dt*/dp = -(g_y S- + g_p) / (g_t + g_y f-)
    S+     = S- + (f- - f+) dt*/dp

(the saltation condition; Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, section I.14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fmepy.errors import ModelError
from fmepy.expressions.branches import ALWAYS, Branches, Within, is_branching, parts_in_order
from fmepy.expressions.conditions import Condition, Joined, Not, choose, relation

BORDER = 1e-100
"""Where roots and logarithms are held: so small that no root of it matters, and no power of it used here overflows."""
MOST_WRITTEN_OUT = 20
"""Conditions inside one another that a root is guarded by, and parts of what it is of, that are written out where it
stands; more are a part of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Switch:
    """A condition ``g > 0``, or the floor of g.

    Attributes
    ----------
    g : sympy.Expr
    mode : Mode
        1 while g > 0, else 0; of a level the whole number floor(g).
    is_level : bool
    """

    g: Any
    mode: Any
    is_level: bool = False

    @property
    def watched(self) -> Any:
        """What crosses zero where the mode changes."""
        return (self.g - self.mode) * (self.mode + 1 - self.g) if self.is_level else self.g


def take_out_switches(
    expressions: Sequence[Any], wanted: Callable[[Any], bool] = lambda g: True
) -> tuple[tuple[Any, ...], tuple[Switch, ...]]:
    """Return the expressions with modes in place of conditions, and the switches, inner ones before outer ones.

    wanted : callable
        Whether a condition g is to be taken out; the others stay in the expressions.
    """
    from fmepy.expressions.nodes import shared_in

    taker = _Taker(wanted)
    choices = all_as_choices(expressions)
    for node in shared_in(choices):  # from the inside, so that nothing goes deep
        taker.smooth(node)
    smooth = [taker.smooth(e) for e in choices]
    hold = _Holder({w.mode: w for w in taker.found.values() if not w.is_level})
    return tuple(hold.held(smooth)), tuple(taker.found.values())


class _Taker:
    """Puts modes in the place of conditions."""

    def __init__(self, wanted: Callable[[Any], bool]) -> None:
        import sympy

        self.found: dict[tuple[Any, bool], Switch] = {}
        self._memo: dict[Any, Any] = {}
        self._partial: dict[Any, bool] = {}
        self._wanted = wanted
        self._half, self._zero, self._one = sympy.S.Half, sympy.S.Zero, sympy.S.One

    def _mode(self, g: Any, is_level: bool = False) -> Any:
        """Return the mode of a condition; the same condition has one."""
        from fmepy.expressions.nodes import Mode

        if (g, is_level) not in self.found:
            mode = Mode(f"mode{len(self.found)}", real=True)
            self.found[g, is_level] = Switch(g, mode, is_level)
        return self.found[g, is_level].mode

    def smooth(self, e: Any) -> Any:
        from fmepy.expressions import nodes

        if not e.args:
            return e
        if e in self._memo:
            return self._memo[e]
        if isinstance(e, nodes.Largest | nodes.Smallest):
            leaves: list[Any] = []
            out = self._extreme(e, leaves)
            out += sum(map(self._nan_of, leaves), self._zero)
            self._memo[e] = out
            return out
        parts = [self.smooth(a) for a in e.args]
        if isinstance(e, nodes.Where):
            out = self._where(*parts)
            if parts[0] - parts[1] != 0 and any(isinstance(s, nodes.Mode) for s in out.free_symbols):
                out += self._nan_of(parts[0] - parts[1])
        elif isinstance(e, nodes.Absolute):
            out = parts[0] * self._where(parts[0], self._zero, self._one, -self._one)
        elif isinstance(e, nodes.Sign):
            below = self._where(self._zero, parts[0], -self._one, self._zero)
            out = self._where(parts[0], self._zero, self._one, below) + self._nan_of(parts[0])
        elif isinstance(e, nodes.Floor):
            out = self._floor(parts[0])
        elif isinstance(e, nodes.Ceiling):
            out = -self._floor(-parts[0])
        elif isinstance(e, nodes.Modulo):
            out = parts[0] - parts[1] * self._floor(parts[0] / parts[1])
        else:
            out = _with_parts(e, parts)
        self._memo[e] = out
        return out

    def _where(self, left: Any, right: Any, yes: Any, no: Any) -> Any:
        from fmepy.expressions import nodes

        g = left - right
        if g.is_number or not self._wanted(g):
            return nodes.Where(left, right, yes, no)
        return nodes.Where(self._mode(g), self._half, yes, no)

    def _extreme(self, e: Any, leaves: list[Any]) -> Any:
        """Return a max or min of others, and add to `leaves` what it is the extreme of in the end."""
        from fmepy.expressions import nodes

        if not isinstance(e, nodes.Largest | nodes.Smallest):
            leaves.append(self.smooth(e))
            return leaves[-1]
        out, *others = [self._extreme(a, leaves) for a in e.args]
        for a in others:
            yes, no = (out, a) if isinstance(e, nodes.Largest) else (a, out)
            out = self._where(out, a, yes, no)
        return out

    def _floor(self, h: Any) -> Any:
        from fmepy.expressions import nodes

        floor = nodes.Floor(h)
        taken = isinstance(floor, nodes.Floor) and self._wanted(h)
        return self._mode(h, True) + self._nan_of(h) if taken else floor

    def _nan_of(self, e: Any) -> Any:
        """Return what is NaN where e is, else 0: a mode would hide that its condition has no value."""
        from fmepy.expressions import nodes

        return nodes.NoNumber(e) if is_partial(e, self._partial) else self._zero


# --- what has no value everywhere


def _domain(e: Any) -> str:
    """Return where the function at the top of an expression has no value: "", "zero" or "below" (zero and less)."""
    import sympy

    if isinstance(e, sympy.log):
        return "below"
    if isinstance(e, sympy.Pow) and e.base.free_symbols:
        if not e.exp.is_Integer:
            return "below"
        return "zero" if e.exp.is_negative else ""
    return ""


def is_partial(e: Any, memo: dict[Any, bool]) -> bool:
    """Tell whether an expression may be NaN where all its symbols are finite: roots, logarithms, arcs."""
    import sympy

    if not e.args:
        return False
    if e not in memo:
        here = _domain(e) == "below" or isinstance(e, sympy.asin | sympy.acos)
        memo[e] = here or any(is_partial(a, memo) for a in e.args)
    return memo[e]


class _Holder:
    """Holds roots, logarithms and quotients at the border of their domain where a branch's own condition fails."""

    def __init__(self, switches: dict[Any, Switch]) -> None:
        self._switches = switches
        self._flags: dict[Any, Any] = {}

    def held(self, expressions: Sequence[Any]) -> list[Any]:
        """Return expressions that are held."""
        inside: dict[Any, Any] = {}
        for e in parts_in_order(expressions, _domain):
            inside[e] = _over_branches(_with_parts(e, [inside.get(a, a) for a in e.args]))
        expressions = [inside.get(e, e) for e in expressions]
        branches = Branches(expressions, _domain)
        found: dict[Any, Any] = {}
        for e in branches.order:
            parts, case = [found.get(a, a) for a in e.args], branches.case[e]
            if is_branching(e) and (known := branches.value_of(e.args[0], case)) is not None:
                found[e] = parts[2] if known else parts[3]
                continue
            if case != ALWAYS and (where := _domain(e)):
                parts[0] = self._at_border(parts[0], where, branches, case)
            found[e] = _with_parts(e, parts)
        return [found.get(e, e) for e in expressions]

    def _at_border(self, u: Any, where: str, branches: Branches, case: int) -> Any:
        """Return u, or the border of its domain where u lies outside and its branch's own conditions do not hold."""
        import sympy

        from fmepy.expressions.nodes import Shared, Where

        border = sympy.Float(BORDER)
        u = u if _is_small(u) else Shared("inside", u)  # it is written three times, and may hold such as it itself
        inner = self._if_holds(branches, case, u, border, frozenset(s for s in u.free_symbols if not _is_mode(s)))
        if inner is u:
            return u
        return Where(border, u, inner, u) if where == "below" else Where(border**2, u**2, inner, u)

    def _if_holds(self, branches: Branches, case: int, yes: Any, no: Any, names: frozenset[Any]) -> Any:
        """Return `yes` where the conditions of a case on some names hold, whatever the modes say, else `no`."""
        import sympy

        from fmepy.expressions.nodes import Where

        path: list[tuple[Any, bool]] = []
        at = case
        while isinstance(made := branches.made[at], Within) and len(path) < MOST_WRITTEN_OUT:
            if made.mode in self._switches and self._switches[made.mode].g.free_symbols & names:
                path.append((self._switches[made.mode].g, made.value))
            at = made.case
        if at != ALWAYS and (flag := self._flag(branches, at, names)) is not sympy.S.One:
            yes = Where(flag, sympy.S.Half, yes, no)
        for g, value in reversed(path):
            yes = Where(g, sympy.S.Zero, yes, no) if value else Where(g, sympy.S.Zero, no, yes)
        return yes

    def _flag(self, branches: Branches, case: int, names: frozenset[Any]) -> Any:
        """Return 1 where the conditions of a case on some names hold, else 0: one part for all that ask."""
        import sympy

        from fmepy.expressions.nodes import Shared

        if (case, names) not in self._flags:
            made, one, zero = branches.made[case], sympy.S.One, sympy.S.Zero
            those = [
                self._if_holds(branches, i, one, zero, names) for i in ([case] if isinstance(made, Within) else made)
            ]
            self._flags[case, names] = one if one in those else Shared("held", sympy.Add(*those))
        return self._flags[case, names]


def _is_small(e: Any) -> bool:
    """Tell whether an expression has few parts, written out but for shared ones."""
    from fmepy.expressions.nodes import Shared

    waiting, size = [e], 0
    while waiting and size <= MOST_WRITTEN_OUT:
        size, part = size + 1, waiting.pop()
        waiting += () if isinstance(part, Shared) else part.args
    return size <= MOST_WRITTEN_OUT


def _is_mode(s: Any) -> bool:
    from fmepy.expressions.nodes import Mode

    return isinstance(s, Mode)


def _with_parts(e: Any, parts: Sequence[Any]) -> Any:
    return e if all(a is b for a, b in zip(parts, e.args, strict=True)) else e.func(*parts)


def _over_branches(e: Any) -> Any:
    """Return ``sqrt(where(m, a, b))`` as ``where(m, sqrt(a), sqrt(b))``, so that ``sqrt(max(x, 0))`` is guarded too."""
    import sympy

    from fmepy.expressions.nodes import Where

    if not (_domain(e) and is_branching(e.args[0])):
        return e
    mode, half, *branches = e.args[0].args
    if not e.args[-1].is_number and len(e.args) == 2:  # 0**b has no derivative to b
        branches = [sympy.Float(BORDER) if b.is_zero else b for b in branches]
    values = [e.func(b, *e.args[1:]) for b in branches]
    if any(v.has(sympy.zoo, sympy.oo, sympy.nan, sympy.I) for v in values if v.is_number):
        return e
    return Where(mode, half, *map(_over_branches, values))


# --- sympy's own words


def has_choices(expressions: Sequence[Any]) -> bool:
    """Tell whether a choice stands in any of the expressions."""
    from fmepy.expressions.nodes import holds_choices

    return holds_choices(all_as_choices(expressions))


def as_choices(e: Any) -> Any:
    """Return an expression with sympy's Piecewise, Abs, Max, ... as our own nodes, fit for code and derivatives."""
    return all_as_choices([e])[0]


def all_as_choices(expressions: Iterable[Any]) -> list[Any]:
    """Return expressions as `as_choices` does; what stands in several is looked at once."""
    import sympy as sp

    from fmepy.expressions.nodes import nodes_in, shared_in

    kinds = (sp.Piecewise, sp.Abs, sp.sign, sp.Heaviside, sp.Max, sp.Min, sp.floor, sp.ceiling, sp.Mod, sp.frac)
    expressions = list(expressions)
    if not nodes_in(expressions, kinds):
        return expressions
    memo: dict[Any, Any] = {}
    for node in shared_in(expressions):
        _translated(node, memo)
    return [_translated(e, memo) for e in expressions]


def _translated(e: Any, memo: dict[Any, Any]) -> Any:
    import sympy as sp

    from fmepy.expressions import nodes

    if not e.args:
        return e
    if e in memo:
        return memo[e]
    if isinstance(e, sp.Piecewise):
        if e.args[-1].cond is not sp.true:
            raise ModelError("A Piecewise without an else has no value where it is false; end it with (value, True).")
        out = _translated(e.args[-1].expr, memo)
        for piece in reversed(e.args[:-1]):
            out = choose(_condition(piece.cond, memo), _translated(piece.expr, memo), out)
        memo[e] = out
        return out
    words = {sp.Abs: nodes.Absolute, sp.sign: nodes.Sign, sp.Max: nodes.Largest, sp.Min: nodes.Smallest,
             sp.floor: nodes.Floor, sp.ceiling: nodes.Ceiling, sp.Mod: nodes.Modulo}  # fmt: skip
    parts = [_translated(a, memo) for a in e.args]
    if isinstance(e, sp.Heaviside):
        above = nodes.Where(parts[0], sp.S.Zero, sp.S.One, parts[1])
        out = nodes.Where(sp.S.Zero, parts[0], sp.S.Zero, above)
    elif isinstance(e, sp.frac):
        out = parts[0] - nodes.Floor(parts[0])
    elif isinstance(e, sp.Max | sp.Min):
        out = words[e.func](*sorted(parts, key=sp.default_sort_key))  # one order, whatever sympy's sets are today
    elif e.func in words:
        out = words[e.func](*parts)
    else:
        out = _with_parts(e, parts)
    memo[e] = out
    return out


def _condition(c: Any, memo: dict[Any, Any]) -> Condition:
    """Return a sympy condition as ours."""
    import sympy as sp

    if c in (sp.true, sp.false):
        return c is sp.true
    if isinstance(c, sp.And | sp.Or):
        return Joined([_condition(a, memo) for a in c.args], "and" if isinstance(c, sp.And) else "or")
    if isinstance(c, sp.Not):
        return Not(_condition(c.args[0], memo))
    if isinstance(c, sp.core.relational.Relational):
        return relation(c.rel_op, _translated(c.lhs, memo), _translated(c.rhs, memo))
    raise ModelError(f"The condition {c} cannot be compared; write it with <, <=, > or >=.")
