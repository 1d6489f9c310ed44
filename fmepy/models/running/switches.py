"""Switches: conditions inside rates, taken out so that solvers see smooth pieces.

``where(g > 0, a, b)`` becomes a choice between a and b by a *mode* m in {0, 1} that is constant while the sign of g is;
of a floor its present whole number becomes one (a *level*), and a modulo is written by a floor. A run stops where g
crosses zero, or the argument of a floor a whole number, changes the mode and continues, so that no step of the solver
crosses a jump.
``abs``, ``min``, ``max`` and ``sign`` are conditions too. The value of a branch that is not taken has no effect.

A solver that searches for a crossing evaluates the rates a little beyond it, in the old mode. There ``where(x > 0,
sqrt(x), 0)`` must have a value: where the condition fails already, roots and logarithms outside their domain are taken
at its border (`_DomainGuard`).

Sensitivities jump where the rates do. With f- and f+ the rates before and after, at the crossing time t*::

    dt*/dp = -(g_y S- + g_p) / (g_t + g_y f-)
    S+     = S- + (f- - f+) dt*/dp

(the saltation condition; Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I, section I.14).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fmepy.language.branches import ALWAYS, Branches, Within, is_branching, parts_in_order
from fmepy.language.nodes import (
    HALF,
    MINUS_ONE,
    ONE,
    TABLE,
    ZERO,
    Mode,
    Number,
    Shared,
    add,
    call,
    in_order,
    mapped,
    number,
)

BORDER = 1e-100
"""The border of the domain of roots and logarithms: no root of it matters, no power of it used here overflows."""
MOST_WRITTEN_OUT = 20
"""Conditions inside one another that a root is guarded by, and parts of what it is of, that are written out where it
stands; more are a part of their own."""


@dataclass(frozen=True, slots=True, eq=False)
class Switch:
    """A condition ``g > 0``, or the floor of g.

    Attributes
    ----------
    g : Node
    mode : Mode
        1 while g > 0, else 0; of a level the whole number floor(g).
    is_level : bool
    """

    g: Any
    mode: Any
    is_level: bool = False

    @property
    def watched(self) -> Any:
        """The expression that crosses zero where the mode changes."""
        return (self.g - self.mode) * (self.mode + 1 - self.g) if self.is_level else self.g


def take_out_switches(
    expressions: Sequence[Any], wanted: Callable[[Any], bool] = lambda g: True
) -> tuple[tuple[Any, ...], tuple[Switch, ...]]:
    """Return the expressions with modes in place of conditions, and the switches, inner ones before outer ones.

    wanted : callable
        Whether a condition g is to be taken out; the others stay in the expressions.
    """
    extractor = _ModeExtractor(wanted)
    smooth = mapped(expressions, extractor.smooth, extractor.memo)
    guard = _DomainGuard({w.mode: w for w in extractor.found.values() if not w.is_level})
    return tuple(guard.guarded(smooth)), tuple(extractor.found.values())


class _ModeExtractor:
    """Replaces conditions by modes."""

    def __init__(self, wanted: Callable[[Any], bool]) -> None:
        self.found: dict[tuple[Any, bool], Switch] = {}
        self.memo: dict[Any, Any] = {}
        self._partial: dict[Any, bool] = {}
        self._wanted = wanted

    def _mode(self, g: Any, is_level: bool = False) -> Any:
        """Return the mode of a condition; equal conditions share one."""
        if (g, is_level) not in self.found:
            self.found[g, is_level] = Switch(g, Mode(f"mode{len(self.found)}"), is_level)
        return self.found[g, is_level].mode

    def smooth(self, e: Any, parts: list[Any]) -> Any:
        """Return a node with modes in place of conditions, from its parts with modes."""
        if e.word == "where":
            out = self._where(*parts)
            by_mode = out.word == "where" and isinstance(out.args[0], Mode)
            return out + self._nan_of(parts[0] - parts[1]) if by_mode else out
        if e.word in ("max", "min"):
            leaves: list[Any] = []
            out = self._extreme(e, leaves)
            return add(out, *map(self._nan_of, leaves))
        if e.word == "abs":
            return parts[0] * self._where(parts[0], ZERO, ONE, MINUS_ONE)
        if e.word == "sign":
            below = self._where(ZERO, parts[0], MINUS_ONE, ZERO)
            return self._where(parts[0], ZERO, ONE, below) + self._nan_of(parts[0])
        if e.word == "floor":
            return self._floor(parts[0])
        if e.word == "ceil":
            return -self._floor(-parts[0])
        if e.word == "mod":
            return parts[0] - parts[1] * self._floor(parts[0] / parts[1])
        if e.word == "rint":  # but for ties, which last for an instant
            return self._floor(parts[0] + 0.5)
        if e.word == "log1p":
            return call("log", 1 + parts[0])  # which can be held at its border
        return e.rebuilt(parts) if parts else e

    def _where(self, left: Any, right: Any, yes: Any, no: Any) -> Any:
        g = left - right
        if g.is_constant or not self._wanted(g):
            return call("where", left, right, yes, no)
        return call("where", self._mode(g), HALF, yes, no)

    def _extreme(self, e: Any, leaves: list[Any]) -> Any:
        """Return a max or min of others, and add to `leaves` what it is the extreme of in the end."""
        if e.word not in ("max", "min"):
            leaves.append(self.memo[e])
            return leaves[-1]
        out, *others = [self._extreme(a, leaves) for a in e.args]
        for a in others:
            yes, no = (out, a) if e.word == "max" else (a, out)
            out = self._where(out, a, yes, no)
        return out

    def _floor(self, h: Any) -> Any:
        floor = call("floor", h)
        taken = floor.word == "floor" and self._wanted(h)
        return self._mode(h, True) + self._nan_of(h) if taken else floor

    def _nan_of(self, e: Any) -> Any:
        """Return what is NaN where e is, else 0: a mode would hide that its condition has no value."""
        return call("nan_of", e) if is_partial(e, self._partial) else ZERO


# --- what has no value everywhere


def _domain(e: Any) -> str:
    """Return where the function at the top of an expression has no value: "", "zero" or "below" (zero and less)."""
    if e.word in ("log", "log2", "log10"):
        return "below"
    if e.word == "**" and not e.args[0].is_constant:
        n = e.args[1]
        if not (isinstance(n, Number) and n.value.is_integer()):
            return "below"
        return "zero" if n.value < 0 else ""
    return ""


def is_partial(e: Any, memo: dict[Any, bool]) -> bool:
    """Tell whether an expression may be NaN where all its symbols are finite: roots, logarithms, arcs."""
    for part in in_order([e], memo.__contains__):
        here = _domain(part) == "below" or (part.word in TABLE and TABLE[part.word].bounded)
        memo[part] = here or any(memo[a] for a in part.args)
    return memo[e]


class _DomainGuard:
    """Keeps roots, logarithms and quotients inside their domain where the condition of their branch fails."""

    def __init__(self, switches: dict[Any, Switch]) -> None:
        self._switches = switches
        self._flags: dict[Any, Any] = {}

    def guarded(self, expressions: Sequence[Any]) -> list[Any]:
        """Return expressions whose arguments stay inside their domain."""
        inside: dict[Any, Any] = {}
        for e in parts_in_order(expressions, _domain):
            inside[e] = _over_branches(e.rebuilt([inside.get(a, a) for a in e.args]))
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
            found[e] = e.rebuilt(parts)
        return [found.get(e, e) for e in expressions]

    def _at_border(self, u: Any, where: str, branches: Branches, case: int) -> Any:
        """Return u, or the border of its domain where u lies outside and its branch's own conditions do not hold."""
        side = 1 if where == "below" else self._side(u, branches, case)
        border = number(BORDER if side >= 0 else -BORDER)
        u = u if _is_small(u) else Shared("inside", u)  # it is used three times, and may contain such a part itself
        inner = self._if_holds(branches, case, u, border, frozenset(s for s in u.free_symbols if not _is_mode(s)))
        if inner is u:
            return u
        if side == 0:
            return call("where", border**2, u**2, inner, u)
        return call("where", border, u, inner, u) if side > 0 else call("where", u, border, inner, u)

    def _side(self, u: Any, branches: Branches, case: int) -> int:
        """Return the sign that a condition of its branch gives u, as in ``where(u > 0, exp(-1/u), 0)``; or 0."""
        while isinstance(made := branches.cases[case], Within):
            if made.mode in self._switches and (g := self._switches[made.mode].g) in (u, -u):
                return 1 if (g == u) is made.value else -1
            case = made.case
        return 0

    def _if_holds(self, branches: Branches, case: int, yes: Any, no: Any, names: frozenset[Any]) -> Any:
        """Return `yes` where the conditions of a case on some names hold, whatever the modes say, else `no`."""
        path: list[tuple[Any, bool]] = []
        at = case
        while isinstance(made := branches.cases[at], Within) and len(path) < MOST_WRITTEN_OUT:
            if made.mode in self._switches and self._switches[made.mode].g.free_symbols & names:
                path.append((self._switches[made.mode].g, made.value))
            at = made.case
        if at != ALWAYS and (flag := self._flag(branches, at, names)) is not ONE:
            yes = call("where", flag, HALF, yes, no)
        for g, value in reversed(path):
            yes = call("where", g, ZERO, yes, no) if value else call("where", g, ZERO, no, yes)
        return yes

    def _flag(self, branches: Branches, case: int, names: frozenset[Any]) -> Any:
        """Return 1 where the conditions of a case on some names hold, else 0, as one shared part."""
        if (case, names) not in self._flags:
            made = branches.cases[case]
            cases = [case] if isinstance(made, Within) else made
            flags = [self._if_holds(branches, i, ONE, ZERO, names) for i in cases]
            self._flags[case, names] = ONE if ONE in flags else Shared("held", add(*flags))
        return self._flags[case, names]


def _is_small(e: Any) -> bool:
    """Tell whether an expression has few parts, written out but for shared ones."""
    waiting, size = [e], 0
    while waiting and size <= MOST_WRITTEN_OUT:
        size, part = size + 1, waiting.pop()
        waiting += () if isinstance(part, Shared) else part.args
    return size <= MOST_WRITTEN_OUT


def _is_mode(s: Any) -> bool:
    return isinstance(s, Mode)


def _over_branches(e: Any) -> Any:
    """Return ``sqrt(where(m, a, b))`` as ``where(m, sqrt(a), sqrt(b))``, so that ``sqrt(max(x, 0))`` is guarded too."""
    if not (_domain(e) and is_branching(e.args[0])):
        return e
    mode, half, *branches = e.args[0].args
    if e.word == "**" and not e.args[1].is_constant:  # 0**b has no derivative to b
        branches = [number(BORDER) if b is ZERO else b for b in branches]
    values = [e.rebuilt([b, *e.args[1:]]) for b in branches]
    if any(v.is_constant and not isinstance(v, Number) for v in values):  # it has no value
        return e
    return call("where", mode, half, *map(_over_branches, values))
