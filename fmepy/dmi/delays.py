"""Smooths and delays that are shorter than the step: what they would compute is no smooth and no delay.

A level of time T that follows u goes by Euler's step h to ``(1 - z) s + z u``, z = h/T: a mean of the two up to z = 1;
beyond, it overshoots, and from z = 2 on it grows without end. By Runge-Kutta's order four the weight of u at the
beginning of the step is ``z/6 (1 - z + z^2/2 - z^3/4)``, which is negative from z = 1.3 on, and growth begins at 2.785.
So z = 1 is the most there may be, of both. T is tau, of each of the three levels of delay3 a third of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fmepy.dmi.diagnostics import Diagnostic
from fmepy.dmi.tree import Element, Memory, Name, Number, Statement, element_name, element_names, walk
from fmepy.dmi.variables import System
from fmepy.errors import ModelError

_LEVELS = {"smooth": 1, "delay1": 1, "delay3": 3}
_SLACK = 1e-5
"""By which a step may be longer, relatively: numbers are shown, and typed, to six digits."""


def least_tau(kind: str, step: float) -> float:
    """Return the shortest tau of a smooth or delay whose module steps by `step`."""
    return _LEVELS[kind] * step * (1 - _SLACK)


def is_delay(node: Any) -> bool:
    """Tell whether a node is a smooth or a delay."""
    return isinstance(node, Memory) and node.kind in _LEVELS


def too_short(kind: str, tau: float, steps: int, dt: float, when: str = "") -> str:
    """Return what is wrong with a tau, and what to do, as a sentence without its end."""
    if not tau > 0:
        return f"{kind}(..., tau) has tau={tau:g}{when}; it must be positive"
    of_module = f", and the module takes {steps} at a time" if steps > 1 else ""
    each = f", and each of its three levels has tau/3={tau / 3:g}" if _LEVELS[kind] == 3 else ""
    most = tau / (_LEVELS[kind] * steps)
    return (
        f"{kind}(..., tau) has tau={tau:g}{when}{each}: too short for steps of dt={dt:g}{of_module}. It would "
        f"overshoot, or grow without end: give dt={most:g} at most, or a longer tau"
    )


def constant_delays(system: System, parms: Mapping[str, float], dt: float) -> Iterator[Diagnostic]:
    """Return what is wrong with smooths and delays whose tau is in the data base.

    Raises
    ------
    ModelError
        A tau that stands in the text is too short.
    """
    steps = {m.name: m.step for m in system.modules}
    statements = [s for s in system.statements if isinstance(s, Statement)]
    literal = {
        s.target.name: s.value.value
        for s in statements
        if s.kind == "assign" and isinstance(s.target, Name) and isinstance(s.value, Number)
    }
    for s in statements:
        for node in filter(is_delay, walk(s.value)):
            n, tau, file = steps[s.module], node.arguments[1], system.module(s.module).file
            name = getattr(tau, "name", "")
            in_text = isinstance(tau, Number) or name in literal
            found = [float(tau.value if isinstance(tau, Number) else literal[name])] if in_text else _given(tau, parms)
            if not found or not min(found) < least_tau(node.kind, n * dt):
                continue
            message = too_short(node.kind, min(found), n, dt)
            if in_text:
                raise ModelError(f"module {s.module!r}{f' ({file})' if file else ''}, line {s.line}: {message}.")
            yield Diagnostic("short_delay", name, (s.module,), file, s.line, message)


def _given(tau: Any, parms: Mapping[str, float]) -> list[float]:
    """Return the values of a tau in the data base; none where it is computed."""
    if isinstance(tau, Element):
        names: tuple[str, ...] = (element_name(tau.name, tau.index),)
    else:
        names = element_names(tau.name, tau.shape) if isinstance(tau, Name) else ()
    return [float(parms[n]) for n in names if n in parms]
