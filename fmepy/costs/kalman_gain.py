"""The stationary gain of a predictor: that to which a filter converges, of the model linearised at an operating point.

What the noise is stands in the words of a `FimlofCost`; everything is taken at the parameters' own values when the cost
is prepared, and stays. `fmepy.numerics.stationary` has the equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.noise import MEASUREMENT, PROCESS, Noise, check_names_of_noise, numbers, read_noise
from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.linearised import Linearised, linearised
from fmepy.models.observer_model import Entry, Samples
from fmepy.numerics.stationary import continuous_gain, discrete_gain, repeated, sampled
from fmepy.parameters.names import normal_name
from fmepy.types import Matrix, Vector

_EVEN = 1e-6
"""Part of the sampling interval by which intervals may differ."""
_REST = 1e-6
"""Part of its size that a state at rest may change, over the run or in a step."""
_ORDERS = {"euler": 1, "rk4": 4}


@dataclass(frozen=True, slots=True, eq=False)
class Stationary:
    """What follows from the noise.

    Attributes
    ----------
    gain : tuple of (state, variable, number)
    sds : mapping of variable to float
        Sds of the errors of prediction, roots of the diagonal of H P H' + R.
    """

    gain: tuple[Entry, ...]
    sds: Mapping[str, float]


def stationary(
    model: Any,
    samples: Sequence[Samples],
    variables: Sequence[str],
    *,
    form: str,
    steps: int,
    process_noise: Any,
    measurement_noise: Any,
    operating_point: Any,
    parms: Mapping[str, float],
) -> Stationary:
    """Return the stationary gain.

    Parameters
    ----------
    model : Model
    samples : sequence of Samples
        Of every run.
    variables : sequence of str
        What is observed, in order.
    form, steps, process_noise, measurement_noise, operating_point
        As of `PredictionErrorCost`.
    parms : mapping of str to float
        Values of parameters that the model does not have.

    Raises
    ------
    ArgumentError
        Noise of which nothing is said, or that is to be estimated; samples that are not evenly spaced; a nonlinear
        model without an operating point; no gain under which errors die away.
    """
    d: Definition = model.definition
    values: dict[str, float] = {**{str(k): float(v) for k, v in d.parms.items()}, **parms}
    known = (*d.states, *d.parameters)
    noise = read_noise(process_noise, "process_noise", known, "a state or parameter", PROCESS)
    errors = read_noise(measurement_noise, "measurement_noise", variables, "an observed variable", MEASUREMENT)
    _check_said(noise, errors, variables)
    p, start = d.parms.to_numpy(dtype=float), float(model.times[0])
    x = _point(model, operating_point, p, start, variables, noise.keys)
    at: dict[str, float] = {**values, **dict(zip(d.states, x.tolist(), strict=True))}
    near = linearised(d, x, p, start, variables, noise.keys)
    Q = near.G @ _covariance(noise, noise.keys, at, "process_noise") @ near.G.T
    R = _covariance(errors, variables, at, "measurement_noise")
    root = np.sqrt([_mean_interval(samples, v) for v in variables]) if form == "observer" else np.empty(0)
    interval = _interval(samples) if form == "innovation" else np.nan
    try:
        if form == "observer":
            K, P = continuous_gain(near.F, Q, near.H, R * np.outer(root, root))
        else:
            Phi, S = _over_an_interval(model, near, Q, interval)
            K, P = discrete_gain(Phi, S, near.H, R)
            for _ in range(steps - 1):
                P = Phi @ P @ Phi.T + S
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ArgumentError(
            f"gain='stationary': there is none under which errors die away ({error}). Is every state that does not "
            "rest by itself seen in what is observed, and does process_noise reach it? Are the sds of "
            "measurement_noise above zero?"
        ) from error
    sds = np.sqrt(np.diag(near.H @ P @ near.H.T + R))
    entries = [(s, v, float(K[i, j])) for i, s in enumerate(d.states) for j, v in enumerate(variables)]
    return Stationary(tuple(entries), dict(zip(variables, sds.tolist(), strict=True)))


def _check_said(noise: Noise, errors: Noise, variables: Sequence[str]) -> None:
    """Refuse noise of which not all is said."""
    if not noise.keys:
        raise ArgumentError(
            "gain='stationary' follows from the noise: say process_noise={state: sd}, and measurement_noise."
        )
    missing = [v for v in variables if v not in errors.keys]
    if missing:
        raise ArgumentError(
            f"gain='stationary' follows from the noise, and `measurement_noise` says nothing of {listed(missing)}. "
            f"Give its sd, such as measurement_noise={{{missing[0]!r}: 0.1}}."
        )
    made = [name for name, _ in (*noise.made, *errors.made)]
    if made:
        raise ArgumentError(
            f"gain='stationary' is fixed when the cost is made, and {made[0]!r} is to be estimated. Give a number; "
            "a FimlofCost estimates noise, and a gain with parameters, {state: {variable: 'K1'}}, is estimated itself."
        )


def _point(model: Any, given: Any, p: Vector, start: float, variables: Sequence[str], keys: Sequence[str]) -> Vector:
    """Return the state to linearise at."""
    d: Definition = model.definition
    x = ValueTable(d.initial, d.parameters).value(p.tolist()).copy()
    if given is not None:
        if not isinstance(given, Mapping | pd.Series):
            raise ArgumentError(
                f"`operating_point` must be a dict of states, such as {{{d.states[0]!r}: 1.0}}; got {given!r}."
            )
        for key, value in dict(given).items():
            name = normal_name(key)
            if name not in d.states:
                known = f"{did_you_mean(name, d.states)} States are {listed(d.states)}."
                raise ArgumentError(f"`operating_point`: {name!r} is not a state.{known}")
            if not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise ArgumentError(f"`operating_point[{name!r}]` is {value!r}; a finite number is needed.")
            x[d.states.index(name)] = float(value)
        return x
    near = linearised(d, x, p, start, variables, keys)
    span = 1.0 if d.kind == "difference" else float(model.times[-1]) - start
    if not near.is_linear and not (np.abs(near.rest) * span <= _REST * np.maximum(np.abs(x), 1e-3)).all():
        moving = d.states[int(np.argmax(np.abs(near.rest)))]
        raise ArgumentError(
            f"gain='stationary' is of the model linearised at a point, and its start is none to stay at: {moving!r} "
            f"changes there. Name one: operating_point={{{', '.join(f'{k!r}: ...' for k in d.states)}}}."
        )
    return x


def _covariance(noise: Noise, order: Sequence[str], at: Mapping[str, float], argument: str) -> Matrix:
    """Return a noise as a covariance, in an order of its keys."""
    names = list(at)
    check_names_of_noise(noise, argument, names)
    if noise.covariance is None:
        sds = dict(zip(noise.keys, numbers(noise.sds, names)(list(at.values())).tolist(), strict=True))
        return np.diag([sds[k] ** 2 for k in order])
    places = [noise.covariance.names.index(k) for k in order]
    found: Matrix = noise.covariance.function(names)(list(at.values()))[np.ix_(places, places)]
    return found


def _interval(samples: Sequence[Samples]) -> float:
    """Return the sampling interval; refuse samples that are not evenly spaced."""
    steps = np.concatenate([np.diff(s.times) for s in samples])
    if not len(steps):
        raise ArgumentError("gain='stationary' is per sample, and there is one sample: no interval between two.")
    if steps.max() - steps.min() > _EVEN * steps.max():
        raise ArgumentError(
            f"gain='stationary' needs evenly spaced samples: their distances go from {steps.min():g} to "
            f"{steps.max():g}. Give a gain of your own or one to be fitted, take form='observer', whose gain is per "
            "unit of time, or a FimlofCost, whose gains follow the samples."
        )
    return float(steps.mean())


def _mean_interval(samples: Sequence[Samples], variable: str) -> float:
    """Return the mean distance of the readings of a variable."""
    times = [s.of(variable)[0] for s in samples]
    n = sum(max(len(t) - 1, 0) for t in times)
    if not n:
        raise ArgumentError(f"gain='stationary': no two readings of {variable!r} follow each other in a record.")
    return sum(float(t[-1] - t[0]) for t in times if len(t)) / n


def _over_an_interval(model: Any, near: Linearised, Q: Matrix, h: float) -> tuple[Matrix, Matrix]:
    """Return Phi and S from sample to sample, by the model's own steps where these are fixed."""
    if model.definition.kind == "difference":
        return repeated(near.F, Q, round(h))
    order = _ORDERS.get(model.method)
    dt = model.options.dt or float(np.diff(model.times).max(initial=0.0)) or h
    return sampled(near.F, Q, h, order, max(1, int(np.ceil(h / dt * (1 - 1e-9)))))
