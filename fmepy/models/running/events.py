"""Events: changes of a state at given times.

At its time an event sets, adds to or multiplies one state. The row of the result at that time shows the state *before*
the event, as in R. Values may be expressions of parameters, and sensitivities follow::

    replace   y+ = v        S+ = dv/dp
    add       y+ = y + v    S+ = S + dv/dp
    multiply  y+ = v y      S+ = v S + y dv/dp
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ModelError, check_choice, did_you_mean, listed
from fmepy.expressions.text import parse_expression
from fmepy.parameters.names import normal_name

METHODS = ("replace", "add", "multiply")
COLUMNS = ("var", "time", "value", "method")


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """A change of one state at one time.

    Attributes
    ----------
    state : int
        Position of the state.
    time : float
    value : float or sympy.Expr
        A number, or an expression of parameters.
    method : {"replace", "add", "multiply"}
    """

    state: int
    time: float
    value: Any
    method: str


def as_events(events: Any, states: Sequence[str]) -> tuple[Event, ...]:
    """Return what the user gave as events, sorted by time (events of one time keep their order).

    Parameters
    ----------
    events : None, DataFrame or list of dict
        Columns (keys) ``var``, ``time``, ``value``, and ``method``, which is "replace" where it is left out.

    Raises
    ------
    ModelError
        A missing or unknown column, an unknown state or method, a time that is not a finite number.
    """
    if events is None:
        return ()
    rows = event_rows(events)
    out = []
    for i, row in enumerate(rows):
        where = f"`events`, row {i}"
        unknown = [k for k in row if k not in COLUMNS]
        if unknown:
            raise ModelError(
                f"{where}: there is no column {unknown[0]!r}.{did_you_mean(unknown[0], COLUMNS)} "
                f"Columns are {listed(COLUMNS)}."
            )
        missing = [k for k in COLUMNS[:3] if k not in row]
        if missing:
            raise ModelError(f"{where}: {listed(missing)} missing. An event needs var, time and value.")
        state = normal_name(row["var"])
        if state not in states:
            raise ModelError(
                f"{where}: {row['var']!r} is not a state.{did_you_mean(row['var'], states)} "
                f"States are {listed(states)}."
            )
        try:
            time = float(row["time"])
        except (TypeError, ValueError):
            time = np.nan
        if not np.isfinite(time):
            raise ModelError(f"{where}: the time is {row['time']!r}; a finite number is needed.")
        method = check_choice(row.get("method", "replace"), METHODS, f"events[{i}].method")
        out.append(Event(states.index(state), time, _value(row["value"], where), method))
    return tuple(sorted(out, key=lambda e: e.time))


def events_outside(events: Sequence[Event], states: Sequence[str], start: float, end: float) -> str:
    """Return which events lie outside the times of a model, and so do nothing, in words (or an empty string)."""
    slack = 1e-9 * (end - start)
    by_state: dict[str, list[str]] = {}
    for e in events:
        if not start - slack <= e.time <= end + slack:
            by_state.setdefault(states[e.state], []).append(f"{e.time:g}")
    if not by_state:
        return ""
    lost = sum(map(len, by_state.values()))
    told = "; ".join(
        f"{state!r} at {', '.join(times[:6])}{', ...' if len(times) > 6 else ''}" for state, times in by_state.items()
    )
    return (
        f"{lost} of {len(events)} events {'lies' if lost == 1 else 'lie'} outside `times` ({start:g} to {end:g}) and "
        f"will not happen: {told}. Are both in the same unit of time?"
    )


def event_rows(events: Any) -> list[Mapping[str, Any]]:
    """Return a table of events row by row; ModelError for what is no table."""
    if isinstance(events, pd.DataFrame):
        return [{str(k): v for k, v in row.items()} for row in events.to_dict("records")]
    if isinstance(events, Mapping):
        try:
            return event_rows(pd.DataFrame(events))
        except ValueError:
            raise ModelError("`events` given as a dict must hold equally long columns.") from None
    rows = list(events)
    if not all(isinstance(r, Mapping) for r in rows):
        raise ModelError("`events` must be a table or a list of dicts with var, time, value and method.")
    return rows


def _value(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return parse_expression(value, where=where)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise ModelError(f"{where}: the value is {value!r}; a finite number or an expression of parameters is needed.")
    return number
