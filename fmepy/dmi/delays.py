"""Smooths and delays that are shorter than the step: what they would compute is no smooth and no delay.

A level of time T that follows u goes by Euler's step h to ``(1 - z) s + z u``, z = h/T: a mean of the two up to z = 1;
beyond, it overshoots, and from z = 2 on it grows without end. By Runge-Kutta's order four the weight of u at the
beginning of the step is ``z/6 (1 - z + z^2/2 - z^3/4)``, which is negative from z = 1.3 on, and growth begins at 2.785.
So z = 1 is the most there may be, of both. T is tau, of each of the three levels of delay3 a third of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fmepy.dmi.diagnostics import Diagnostic
from fmepy.dmi.statements import ModuleStatement, element_names
from fmepy.dmi.variables import ModuleSystem
from fmepy.errors import ModelError
from fmepy.language.nodes import Number

_LEVELS = {"smooth": 1, "delay1": 1, "delay3": 3}
_SLACK = 1e-5
"""By which a step may be longer, relatively: numbers are shown, and typed, to six digits."""


def least_tau(kind: str, step: float) -> float:
    """Return the shortest tau of a smooth or delay whose module steps by `step`."""
    return _LEVELS[kind] * step * (1 - _SLACK)


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


def constant_delays(system: ModuleSystem, parms: Mapping[str, float], dt: float) -> Iterator[Diagnostic]:
    """Return what is wrong with smooths and delays whose tau is in the data base.

    Raises
    ------
    ModelError
        A tau that stands in the text is too short.
    """
    steps = {m.name: m.step for m in system.modules}
    statements = [s for s in system.statements if isinstance(s, ModuleStatement)]
    literal = {
        s.target.name: s.value.value
        for s in statements
        if s.kind == "assign" and s.target.index is None and isinstance(s.value, Number)
    }
    for s in statements:
        for memory in (m for m in s.memories if m.kind in _LEVELS):
            n, tau, file = steps[s.module], memory.arguments[1], system.module(s.module).file
            read = next((r for r in s.reads if r.node is tau), None)
            name = read.name if read else ""
            in_text = isinstance(tau, Number) or name in literal
            if in_text:
                taus = [tau.value if isinstance(tau, Number) else literal[name]]
            else:
                elements = element_names(name, read.value_shape) if read and read.index is None else [f"{tau}"]
                taus = [parms[e] for e in elements if e in parms]
            if not taus or not min(taus) < least_tau(memory.kind, n * dt):
                continue
            message = too_short(memory.kind, min(taus), n, dt)
            if in_text:
                raise ModelError(f"module {s.module!r}{f' ({file})' if file else ''}, line {s.line}: {message}.")
            yield Diagnostic("short_delay", name, (s.module,), file, s.line, message)
