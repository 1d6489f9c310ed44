"""Smooths and delays that are too short for the step: what they would compute is no smooth and no delay.

A level of time T that follows u goes by Euler's step h to ``(1 - z) s + z u``, z = h/T: a mean of the two up to z = 1;
beyond, it overshoots, and from z = 2 on it grows without end. By Runge-Kutta's order four growth begins at z = 2.785.
So T = h/2 is the least there may be, of both. T is tau, of each of n levels a part of it, tau/n. A chain of levels that
are too short is made one of fewer, as many as the tau of the data base has whole steps; one level cannot be fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fmepy.dmi.diagnostics import Diagnostic
from fmepy.dmi.expressions import CHAINS
from fmepy.dmi.statements import Memory, ModuleStatement, element_names
from fmepy.dmi.variables import AnyStatement, ModuleSystem
from fmepy.language.nodes import Number

_SLACK = 1e-5
"""By which a step may be longer, relatively: numbers are shown, and typed, to six digits."""


def least_tau(order: int, step: float) -> float:
    """Return the shortest tau of a chain of levels whose module steps by `step`."""
    return order * step / 2 * (1 - _SLACK)


def too_short(kind: str, order: int, tau: float, steps: int, dt: float, when: str = "") -> str:
    """Return what is wrong with a tau, and what to do, as a sentence without its end."""
    if not tau > 0:
        return f"{kind}(..., tau) has tau={tau:g}{when}; it must be positive"
    of_module = f", and the module takes {steps} at a time" if steps > 1 else ""
    each = f", and each of its {order} levels has tau/{order}={tau / order:g}" if order > 1 else ""
    return (
        f"{kind}(..., tau) has tau={tau:g}{when}{each}: too short for steps of dt={dt:g}{of_module}. It would "
        f"overshoot, or grow without end: give dt={tau / (order * steps):g} at most, or a longer tau"
    )


def with_lower_orders(
    system: ModuleSystem, parms: Mapping[str, float], dt: float
) -> tuple[ModuleSystem, list[Diagnostic]]:
    """Return a system whose smooths and delays are as long as the step wants it, and what was too short.

    That is seen of a tau in the text or in the data base. One that is too short for a single level is left, and ends
    the run.
    """
    steps = {m.name: m.step for m in system.modules}
    literal = {
        s.target.name: s.value.value
        for s in system.statements
        if isinstance(s, ModuleStatement)
        and s.kind == "assign" and s.target.index is None and isinstance(s.value, Number)
    }  # fmt: skip
    found: list[Diagnostic] = []

    def changed(s: ModuleStatement, memory: Memory) -> Memory:
        if memory.kind not in CHAINS:
            return memory
        tau, file, n = memory.arguments[1], system.module(s.module).file, steps[s.module]
        read = next((r for r in s.reads if r.node is tau), None)
        name = read.name if read else ""
        elements = [element_names(name, read.shape)[i] for i in read.positions] if read else []
        known = {**parms, **literal}
        taus = [tau.value] if isinstance(tau, Number) else [known[e] for e in elements if e in known]
        least = min(taus, default=float("inf"))
        if not least < least_tau(memory.order, n * dt):
            return memory
        order = max(1, int(least / (n * dt) * (1 + _SLACK)))
        message = too_short(memory.kind, memory.order, least, n, dt)
        if order < memory.order:
            message += f". It is computed as of order {order}"
        found.append(Diagnostic("short_delay", name, (s.module,), file, s.line, message))
        return replace(memory, order=0 if least < least_tau(order, n * dt) else order)

    def lowered(s: AnyStatement) -> AnyStatement:
        if not isinstance(s, ModuleStatement) or not s.memories:
            return s
        return replace(s, memories=tuple(changed(s, m) for m in s.memories))

    statements = tuple(map(lowered, system.statements))
    return (replace(system, statements=statements) if found else system), found
