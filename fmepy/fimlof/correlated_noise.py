"""Noise of the process that is correlated with the errors of readings, as a filter of independent noises.

The noise of the step that follows reading n, of unit variance, becomes a state e: known before the step is taken, and
drawn anew in it. With a(x) its column of A, r the sd of the reading and rho the correlation::

    x(n+1) = f(x(n)) + a(x(n)) e(n) + A' w'(n)          e(n+1) = w(n+1),   e(0) ~ N(0, 1)
    z(n)   = h(x(n)) + r rho e(n) + r sqrt(1 - rho^2) v'(n)

so that E[a e (z - h)] = a r rho, and every filter, smoother, forecast and draw holds as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fmepy.costs.noise import Noise
from fmepy.errors import ArgumentError, check_known
from fmepy.filtering.statespace import StateSpace
from fmepy.language.equations import symbol
from fmepy.language.nodes import ONE, ZERO, as_node, call
from fmepy.language.text import parse_expression

_WORD = "noise_correlation"


def read_correlations(
    pairs: Any, noise: Noise, errors: Noise, with_error: Sequence[str], is_difference: bool, initial: str
) -> Noise:
    """Return the correlations; the keys are pairs of a key of the process noise and an observed variable.

    Parameters
    ----------
    pairs : None, or mapping of (key of `noise`, key of `errors`) to number or expression
    noise, errors : Noise
        Of the process, of the readings.
    with_error : sequence of str
        Variables whose data have errors of their own.
    is_difference : bool
    initial : str

    Raises
    ------
    ArgumentError
        Whatever cannot be.
    """
    if pairs is None:
        return Noise((), (), None, ())
    if isinstance(pairs, Mapping):  # of a file: "state, reading"
        pairs = {tuple(map(str.strip, k.split(","))) if isinstance(k, str) else k: v for k, v in pairs.items()}
    if not isinstance(pairs, Mapping) or not all(isinstance(k, tuple) and len(k) == 2 for k in pairs):
        raise ArgumentError(f"`{_WORD}` must be a dict such as {{('state', 'reading'): 0.5}}; got {pairs!r}.")
    if not is_difference:
        raise ArgumentError(
            f"`{_WORD}` is for difference equations, whose noise is of a step. Of a differential equation it is white "
            "between the readings, and has nothing in common with the error at an instant."
        )
    if noise.covariance is not None or errors.covariance is not None:
        raise ArgumentError(f"`{_WORD}` goes with sds in `process_noise` and `measurement_noise`, not with tables.")
    if initial == "data":
        raise ArgumentError(
            f"`{_WORD}`: with initial='data' the first errors are part of the start. Pass initial='known' with "
            "initial_sd, or 'diffuse'."
        )
    used: set[str] = set()
    for key, variable in pairs:
        for name, known, argument in ((key, noise.keys, "process_noise"), (variable, errors.keys, "measurement_noise")):
            check_known(name, known, f"`{_WORD}`: {name!r} is no key of `{argument}`.")
        if {f"{key} of the process", variable} & used:
            raise ArgumentError(f"`{_WORD}`: {key!r} or {variable!r} stands in two pairs; each noise may be in one.")
        if variable in with_error:
            raise ArgumentError(f"`{_WORD}`: the data of {variable!r} have errors of their own (err); give one sd.")
        used |= {f"{key} of the process", variable}
    return Noise(tuple(pairs), tuple(_correlation(v, f"{_WORD}[{k!r}]") for k, v in pairs.items()), None, ())


def _correlation(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return parse_expression(value, where=where)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 <= value <= 1:
        raise ArgumentError(f"`{where}` is {value!r}; a number from -1 to 1, or a parameter's name, is needed.")
    return as_node(float(value))


def with_shocks(space: StateSpace, correlations: Noise, keys: Sequence[str], variables: Sequence[str]) -> StateSpace:
    """Return a state space in which the correlated noises, of unit variance, are further states.

    Parameters
    ----------
    keys : sequence of str
        The noise's, one a column of A.
    variables : sequence of str
        What is observed.
    """
    states, rates, gains = list(space.states), list(space.rates), list(space.gains)
    readings, sds = list(space.readings), list(space.sds)
    for (key, variable), rho in zip(correlations.keys, correlations.sds, strict=True):
        j, i, e = keys.index(key), variables.index(variable), symbol(f"noise of {key}")
        for row, _, gain in (own := [g for g in gains if g[1] == j]):
            rates[row] = rates[row] + gain * e
        gains = [g for g in gains if g not in own] + [(len(states), j, ONE)]
        states.append(e.name)
        rates.append(ZERO)
        readings[i] = readings[i] + rho * sds[i] * e
        sds[i] = sds[i] * call("sqrt", 1 - rho * rho)
    at = {"states": tuple(states), "rates": tuple(rates), "gains": tuple(gains)}
    parts: dict[str, Any] = {**at, "readings": tuple(readings), "sds": tuple(sds)}
    return replace(space, **parts)
