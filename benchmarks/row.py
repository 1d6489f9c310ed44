"""One line of the table: what was done, what it took, beside whom, and whether that is what it should be."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

R_TIMINGS = Path(__file__).parent.parent / "tests" / "reference" / "fme" / "timing.json"
BY_HAND = 0.9e-3
"""Seconds that the HIV cost by hand (plain Python rates, scipy's odeint) takes on the machine of the goals."""

Goal = tuple[str, bool]


@dataclass(frozen=True)
class Row:
    """One kind of work and what it took.

    Attributes
    ----------
    work, peer : str
        What was done, and what else was timed beside it.
    seconds, peer_seconds : float
        Of one call.
    goals : list of (str, bool)
        What it should be, with the figure reached, and whether it is.
    r_seconds : float or None
        What R's FME took, on another machine.
    """

    work: str
    seconds: float
    peer: str
    peer_seconds: float = np.nan
    goals: list[Goal] = field(default_factory=list)
    r_seconds: float | None = None


@cache
def r_fme(name: str) -> float:
    """Return what R's FME took, seconds."""
    (case,) = json.loads(R_TIMINGS.read_text(encoding="utf-8"))["cases"]
    return float(case["outputs"][name])


def at_most(value: float, goal: float, text: str) -> Goal:
    """Return a goal that `value` should not exceed."""
    return f"{text.format(value)}; goal <= {goal:g}", value <= goal


def at_least(value: float, goal: float, text: str) -> Goal:
    """Return a goal that `value` should reach."""
    return f"{text.format(value)}; goal >= {goal:g}", value >= goal


def within(seconds: float, goal: float, by_hand: float) -> Goal:
    """Return a goal in seconds, for a machine on which the cost by hand takes `by_hand`: a ratio, then."""
    share = seconds / (goal * by_hand / BY_HAND)
    return f"{share:.2f} times the {_told(goal)} of the goal, by the odeint of this machine", share <= 1


def _told(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 0.1 else f"{1e3 * seconds:g} ms"
