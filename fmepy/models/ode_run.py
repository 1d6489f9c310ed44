"""One run in the manner of deSolve: `ode`, `ode_1d`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ModelError, check_choice
from fmepy.language.tracing import lags_tried
from fmepy.models.definition.arguments import as_state
from fmepy.models.engines.registry import ENGINES
from fmepy.models.ode import MOST_TRACED_STATES, OdeModel
from fmepy.models.steady_rates import check_species
from fmepy.types import Vector
from fmepy.vocabulary import own_words


class _PlainModel(OdeModel):
    """A model whose function is run as it is: for one run of few states equations take longer than they save."""

    _is_traced = False


@own_words
def ode(
    y: Any,
    times: Any,
    func: Callable[..., Any],
    parms: Any = None,
    *,
    method: str = "lsoda",
    dt: float | None = None,
    forcings: Any = None,
    events: Any = None,
    bandwidth: int | tuple[int, int] | None = None,
    rtol: float = 1e-6,
    atol: Any = 1e-6,
    max_step: float | None = None,
    history: Any = None,
) -> pd.DataFrame:
    """Run ``func(t, y, parms)`` once and return its table, in the manner of deSolve's `ode`.

    An output of several values, such as one a cell, becomes as many columns: its name followed by 1, 2, ...

    Parameters
    ----------
    y : mapping, Series or sequence
        Initial values, at ``times[0]``; a bare sequence gets the names 1, 2, ...
    times : array_like
    func : callable
        ``func(t, y, parms)`` with an ndarray; returns the rates, or ``(rates, {name: extra output})``.
    parms : any, optional
        Handed to `func` as it is.
    method : str
        lsoda, euler, rk4 (with `dt`), or RK45, RK23, DOP853, Radau, BDF, LSODA of scipy.
    dt, forcings, events, bandwidth, rtol, atol, max_step, history
        As for `OdeModel`, but `atol` is deSolve's (a state that stays below 1000 times it is told; None: by the scale
        of the states, for one more run); forcings need `parms` to be a dict and arrive in it.

    Returns
    -------
    DataFrame
        Column ``time``, states, extra outputs.

    Notes
    -----
    A function of more than 20 states that works on whole arrays is called once with symbols, and runs as compiled loops
    on LSODA (see `OdeModel`, functions of arrays); any other runs as it is. A function that calls `lag` is turned into
    equations (see `OdeModel`, delays).

    Examples
    --------
    >>> ode({"N": 0.1}, [0, 10, 20], lambda t, y, p: p["r"] * y * (1 - y / 100), {"r": 0.5}).round(1)
       time     N
    0     0   0.1
    1    10  12.9
    2    20  95.7

    With a delay; before the start N was what it is there:

    >>> from fmepy import lag
    >>> ode({"N": 1}, [0, 5, 10], lambda t, y, p: y * (1 - lag(y, p["tau"]) / 10), {"tau": 1.5}).round(2)
       time      N
    0     0   1.00
    1     5  14.33
    2    10  15.41
    """
    if forcings is not None and not (parms is None or isinstance(parms, Mapping | pd.Series)):
        raise ModelError("`forcings` arrive in `parms`, which must then be a dict.")
    if parms is not None and isinstance(parms, pd.Series):
        parms = parms.to_dict()
    check_choice(method, [m for e in ENGINES if not e.needs_equations for m in e.methods], "method")

    given = {} if parms is None else parms

    def rates(time: float, all_states: Vector, inputs: dict[str, float]) -> Any:  # no names that a state may have
        result = func(time, all_states, {**given, **inputs} if inputs else given)
        if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], Mapping):
            return result[0], one_by_one(result[1])
        return result

    is_large = hasattr(y, "__len__") and len(y) > MOST_TRACED_STATES
    has_lags = _calls_lag(rates, y, times)
    make = OdeModel if has_lags or (is_large and method == "lsoda") else _PlainModel
    model = make(
        rates,
        state=y,
        times=times,
        forcings=forcings,
        events=events,
        method=None if has_lags and method == "lsoda" else method,
        dt=dt,
        bandwidth=bandwidth,
        rtol=rtol,
        atol=atol,
        max_step=max_step,
        history=history,
    )
    return model()


def _calls_lag(rates: Callable[..., Any], y: Any, times: Any) -> bool:
    """Tell whether a function of numbers calls `lag`, at the end too: ``0.5 if t < tau else lag(y, tau)``.

    What is wrong with it is told where the model is made.
    """
    with lags_tried() as lags:
        for end in (0, -1):
            with suppress(Exception):
                time = times[end]
                start = np.array([*y.values()] if isinstance(y, Mapping) else y, dtype=float)
                rates(float(time), np.atleast_1d(start), {})
    return bool(lags)


def one_by_one(outputs: Mapping[Any, Any]) -> dict[str, Any]:
    """Return outputs of one value each: those of several by their name and a number from 1.

    Examples
    --------
    >>> one_by_one({"total": 3, "flux": [1, 2]})
    {'total': 3, 'flux1': 1, 'flux2': 2}
    """
    found: list[tuple[str, Any]] = []
    for name, value in outputs.items():
        if np.ndim(value) == 0:
            found.append((str(name), value))
        else:
            values = value if isinstance(value, list | tuple) else np.ravel(value)
            found += [(f"{name}{i}", v) for i, v in enumerate(values, 1)]
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ModelError(f"Two of the function's outputs make the column {twice!r}: give one of them another name.")
    return dict(found)


@own_words
def ode_1d(
    y: Any,
    times: Any,
    func: Callable[..., Any],
    parms: Any = None,
    *,
    nspec: int = 1,
    rtol: float = 1e-6,
    atol: Any = None,
) -> pd.DataFrame:
    """Run a model in one dimension once and return its table, in the manner of deSolve's `ode.1D`.

    Parameters
    ----------
    y : sequence, mapping or Series
        Initial values: all cells of the first species, then of the second.
    times : array_like
    func : callable
        ``func(t, y, parms)`` with an ndarray in that order; returns the rates, or ``(rates, {name: extra output})``. An
        output may be one number, or an array such as one value a cell, whose columns are its name and 1, 2, ...
    parms : any, optional
        Handed to `func` as it is.
    nspec : int
        How many species there are.
    rtol, atol : float
        Tolerances; `atol` as for `OdeModel`.

    Returns
    -------
    DataFrame
        Column ``time``, a column a state (1, 2, ... without names), extra outputs.

    Raises
    ------
    ModelError
        A number of states that is no multiple of `nspec`, and as `ode`.

    Notes
    -----
    Runs on LSODA, compiled where `func` works on whole arrays, as in `ode`. Else how far cells reach, and in which
    order of the states the Jacobian is a narrow band, is found by trying (`fmepy.numerics.structure`).

    Examples
    --------
    >>> import numpy as np
    >>> def diffusion(t, C, p):
    ...     return p["D"] * np.diff(np.r_[1.0, C, C[-1]], 2) / 0.1**2
    >>> ode_1d(np.zeros(20), [0, 1], diffusion, {"D": 0.5})[["time", "1", "10", "20"]].round(3)
       time     1     10     20
    0     0  0.00  0.000  0.000
    1     1  0.92  0.319  0.082
    """
    check_species(len(as_state(y)), nspec)
    return ode(y, times, func, parms, rtol=rtol, atol=atol)
