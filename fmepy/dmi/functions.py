"""The functions that a module may call, in one table: those of the model language, and those of system dynamics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from fmepy.language.functions import TABLE


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the language of modules.

    Attributes
    ----------
    says : str
        What it is, in one sentence.
    least, most : int
        How many arguments it takes.
    kind : {"each", "array", "table", "memory"}
        Whether it works by element, makes or reduces arrays, is a table, or has a memory of what was.
    number : callable or None
        Its value for floats, where constants are computed while reading.
    """

    says: str
    least: int = 1
    most: int = 1
    kind: Literal["each", "array", "table", "memory"] = "each"
    number: Callable[..., Any] | None = None


_SAYS = {
    "pow": "pow(a, b): a ** b",
    "where": "where(condition, a, b): a where the condition holds, else b; also written a if condition else b",
    "min": "min(a, b, ...): the smallest of its arguments, by element",
    "max": "max(a, b, ...): the largest of its arguments, by element",
}

_OWN: dict[str, Function] = {
    "clip": Function("clip(a, b, x, y): a where x >= y, else b", 4, 4),
    "step": Function("step(height, time): 0 before time, height from then on", 2, 2),
    "ramp": Function("ramp(slope, start[, end]): 0 before start, then a line of that slope, level from end on", 2, 3),
    "pulse": Function("pulse(height, first, interval): height for one elementary step at first + k interval", 3, 3),
    "sum": Function("sum(D): the sum of all elements of an array", kind="array"),
    "dot": Function("dot(A, D): the matrix product, of two vectors a number", 2, 2, "array"),
    "table": Function("table(x, xs, ys): ys at x, linear between points, held at the ends", 3, 3, "table"),
    "lag": Function("lag(x, tau, before): x as it was tau ago; `before`, before the start", 3, 3, "memory"),
    "rate": Function("rate(x): change of x since the last step of the module, by time; 0 at the start", 1, 1, "memory"),
    "smooth": Function("smooth(x, tau): s with d(s)/dt = (x - s) / tau, from s = x at the start", 2, 2, "memory"),
    "delay1": Function("delay1(x, tau): outflow L / tau of a level L that x flows into", 2, 2, "memory"),
    "delay3": Function("delay3(x, tau): outflow of three levels in a row, 3 L / tau each", 2, 2, "memory"),
}  # fmt: skip
"""What modules have beside the functions of the model language."""


def module_functions() -> dict[str, Function]:
    """Return the functions that a module may call, by name: those that texts may call, and its own."""
    return {name: of_language(name) for name, f in TABLE.items() if f.in_text} | _OWN


def of_language(name: str) -> Function:
    """Return a function of the model language as one of modules."""
    f = TABLE[name]
    number = None if name in ("where", "min", "max", "abs", "sign", "floor", "ceil") else f.value
    return Function(_SAYS.get(name, f"{name}(x), by element"), f.least, f.most, number=number)
