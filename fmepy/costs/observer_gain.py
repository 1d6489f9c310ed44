"""The gain of a predictor as a user writes it: which error of prediction corrects which state, and how much.

::

    {"theta": {"y": 1.0}}        by state and observed variable; what is left out is not corrected
    {"theta": 1.0}               the same where one variable is observed
    a table                      states by variables, labelled; an array of all states and observed variables, in order
    a vector                     one number a state (one observed variable), or one a variable (one state)
    a number                     one state, one observed variable

In place of a number may stand a parameter's name or an expression of parameters.

"stationary" is the gain to which a filter converges, of the model linearised at an operating point. What the noise is
stands in the words of a `FimlofCost`; everything is taken at the parameters' own values when the cost is prepared, and
stays. `fmepy.numerics.stationary` has the equations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_number
from fmepy.costs.noise import MEASUREMENT, PROCESS, Noise, check_names_of_noise, read_noise
from fmepy.costs.observation_scale import OBSERVED
from fmepy.errors import ArgumentError, check_known, did_you_mean, listed
from fmepy.language.equations import names_in
from fmepy.language.text import parse_expression
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.linearised import Linearised, linearised
from fmepy.models.observer_model import Entry, Samples
from fmepy.numerics.stationary import continuous_gain, discrete_gain, repeated, sampled
from fmepy.parameters.names import normal_name, split_local
from fmepy.types import Matrix, Vector

STATIONARY = "stationary"


def read_gain(given: Any, states: Sequence[str], variables: Sequence[str]) -> tuple[Entry, ...]:
    """Return the entries of a gain.

    Parameters
    ----------
    given
        See the module's text.
    states, variables : sequence of str
        Those of the model, and what is observed, in order.

    Raises
    ------
    ArgumentError
        A state that is not there or a variable that is not observed (with the nearest), a wrong shape, an entry that
        is no finite number and no expression.

    Examples
    --------
    >>> read_gain({"theta": {"y": 1.0}}, ["theta", "omega"], ["y"])
    (('theta', 'y', 1.0),)
    >>> read_gain([0.5, "K2"], ["theta", "omega"], ["y"])
    (('theta', 'y', 0.5), ('omega', 'y', K2))
    """
    if isinstance(given, pd.DataFrame | pd.Series):
        _check_once(given)
    if isinstance(given, pd.DataFrame):
        given = {state: dict(row) for state, row in given.iterrows()}
    elif isinstance(given, pd.Series):
        given = given.to_dict()
    if isinstance(given, Mapping):
        return _by_name(given, states, variables)
    try:
        matrix = np.array(given, dtype=object)
    except ValueError:
        matrix = np.empty((0, 0, 0), dtype=object)
    n, m = len(states), len(variables)
    shapes = {(): (1, 1), (n,): (n, 1), (m,): (1, m), (n, m): (n, m)}
    shape = shapes.get(matrix.shape)
    if shape != (n, m):
        said = "has one number;" if matrix.shape == () else f"has the shape {matrix.shape};"
        if isinstance(given, str):
            said = f"is {given!r}.{did_you_mean(given, [STATIONARY])} For other gains than {STATIONARY!r}"
        raise ArgumentError(
            f"`gain` {said} a row for each of the states ({listed(states)}) and a column for each observed "
            f"variable ({listed(variables)}) is needed: shape ({n}, {m}). By name the other entries may be left out: "
            f"gain={{{states[0]!r}: {{{variables[0]!r}: 1.0}}}}."
        )
    table = matrix.reshape(shape)
    return tuple((s, v, _entry(table[i, j], s, v)) for i, s in enumerate(states) for j, v in enumerate(variables))


def _check_once(table: pd.DataFrame | pd.Series) -> None:
    """Refuse a table of which a row or a column stands twice."""
    for axis, what in zip(table.axes, ("row", "column"), strict=False):
        if len(twice := axis[axis.duplicated()]):
            raise ArgumentError(f"`gain`: the {what} {twice[0]!r} of the table stands more than once.")


def names_of_gain(given: Any) -> tuple[str, ...]:
    """Return the names in a gain as a user writes it, whatever states and variables there are.

    Examples
    --------
    >>> names_of_gain({"theta": {"y": "K1"}, "omega": {"y": "K2 / 2"}}), names_of_gain([0.5, "K"]), names_of_gain(1.0)
    (('K1', 'K2'), ('K',), ())
    """
    if isinstance(given, str):
        if given == STATIONARY:
            return ()
        return tuple(sorted(names_in([parse_expression(given, where="gain")])))
    if isinstance(given, pd.DataFrame | pd.Series):
        given = given.to_numpy().tolist()
    parts = given.values() if isinstance(given, Mapping) else given if np.iterable(given) else ()
    return tuple(dict.fromkeys(name for part in parts for name in names_of_gain(part)))


def _by_name(given: Mapping[Any, Any], states: Sequence[str], variables: Sequence[str]) -> tuple[Entry, ...]:
    out: list[Entry] = []
    if not given:
        raise ArgumentError(f"`gain` is empty; give one entry at least, such as {{{states[0]!r}: 0.0}}.")
    for key, row in given.items():
        state = normal_name(key)
        turned = " It is an observed variable: states come first, {state: {variable: gain}}." * (state in variables)
        check_known(state, states, f"`gain`: {state!r} is not a state of the model.{turned}", are="States are")
        if isinstance(row, pd.Series):
            row = row.to_dict()
        if not isinstance(row, Mapping):
            if len(variables) > 1:
                raise ArgumentError(
                    f"`gain[{state!r}]` is {row!r}, and {len(variables)} variables are observed: say of whose error, "
                    f"such as {{{state!r}: {{{variables[0]!r}: {row!r}}}}}. There are {listed(variables)}."
                )
            row = {variables[0]: row}
        for name, value in row.items():
            variable = normal_name(name)
            wrong = f"`gain[{state!r}]`: {variable!r} is not observed, so that there is no error of it."
            check_known(variable, variables, wrong, are=OBSERVED)
            out.append((state, variable, _entry(value, state, variable)))
    return tuple(out)


def _entry(value: Any, state: str, variable: str) -> Any:
    where = f"`gain[{state!r}][{variable!r}]`"
    if isinstance(value, str):
        value = parse_expression(value, where=where.strip("`"))
        if value.free_symbols:
            return value
    if not np.isfinite(number := as_number(value)):
        raise ArgumentError(f"{where} is {value!r}; a finite number, a parameter's name or an expression is needed.")
    return number


def names_taken(model: Any) -> dict[str, str]:
    """Return what names of a model that are no parameters are."""
    d = getattr(model, "definition", None)
    of_definition = {} if d is None else {str(d.time): "the time", **{f.name: "a forcing" for f in d.forcings}}
    return of_definition | dict.fromkeys(model.var_names, "an output") | dict.fromkeys(model.states, "a state")


def parameters_of_gain(
    gain: Sequence[Entry], model: Any, given: Mapping[str, float], set_by: Collection[str]
) -> dict[str, float]:
    """Return the parameters of a gain that the model does not have, with their values.

    set_by : collection of str
        Those that conditions set, which need no value here.

    Raises
    ------
    ArgumentError
        A name without a value, or of something else than a parameter.
    """
    out: dict[str, float] = {}
    of_model, taken = list(map(str, model.parms.index)), names_taken(model)
    for state, variable, value in gain:
        for name in sorted(names_in([value]) - set(of_model)):
            where = f"`gain[{state!r}][{variable!r}]` uses {name!r}"
            if name in taken:
                raise ArgumentError(
                    f"{where}, {taken[name]} of the model. A gain is made of numbers and parameters; another name is "
                    "needed."
                )
            if name not in {*map(str, set_by), *given}:
                if some := [k for k in given if split_local(k)[0] == name]:
                    raise ArgumentError(
                        f"{where}, which has a value of its own as {listed(some)} alone. Give it one that serves all, "
                        f"such as parms={{{name!r}: 0.0}}, or name it in `entity_parms` and give every entity's."
                    )
                raise ArgumentError(
                    f"{where}, which has no value. Give it in `parms`, such as "
                    f"parms={{{name!r}: 0.0}}.{did_you_mean(name, [*given, *of_model])}"
                )
            out[name] = given.get(name, 1.0)
    return out


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
    cost: Any, samples: Sequence[Samples], variables: Sequence[str], parms: Mapping[str, float]
) -> Stationary:
    """Return the stationary gain.

    Parameters
    ----------
    cost : PredictionErrorCost
        Its model, form, steps, process_noise, measurement_noise and operating_point.
    samples : sequence of Samples
        Of every run.
    variables : sequence of str
        What is observed, in order.
    parms : mapping of str to float
        Values of parameters that the model does not have.

    Raises
    ------
    ArgumentError
        Noise of which nothing is said, or that is to be estimated; samples that are not evenly spaced; a nonlinear
        model without an operating point; no gain under which errors die away.
    """
    model, form = cost.model, cost.form
    d: Definition = model.definition
    values: dict[str, float] = {**{str(k): float(v) for k, v in d.parms.items()}, **parms}
    known = (*d.states, *d.parameters)
    noise = read_noise(cost.process_noise, "process_noise", known, "a state or parameter", PROCESS)
    errors = read_noise(cost.measurement_noise, "measurement_noise", variables, "an observed variable", MEASUREMENT)
    _check_said(noise, errors, variables)
    p, start = d.parms.to_numpy(dtype=float), float(model.times[0])
    x = _point(model, cost.operating_point, p, start, variables, noise.keys)
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
            for _ in range(cost.steps - 1):
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
            check_known(name, d.states, f"`operating_point`: {name!r} is not a state.", are="States are")
            if not isinstance(value, int | float | np.number) or not np.isfinite(value):
                raise ArgumentError(f"`operating_point[{name!r}]` is {value!r}; a finite number is needed.")
            x[d.states.index(name)] = float(value)
        return x
    near = linearised(d, x, p, start, variables, keys)
    span = model.dt if d.kind == "difference" else float(model.times[-1]) - start
    if not near.is_linear and not (np.abs(near.rest) * span <= _REST * np.maximum(np.abs(x), 1e-3)).all():
        moving = d.states[int(np.argmax(np.abs(near.rest)))]
        raise ArgumentError(
            f"gain='stationary' is of the model linearised at a point, and its start is none to stay at: {moving!r} "
            f"changes there. Name one: operating_point={{{', '.join(f'{k!r}: ...' for k in d.states)}}}."
        )
    return x


def _covariance(noise: Noise, order: Sequence[str], at: Mapping[str, float], argument: str) -> Matrix:
    """Return a noise as a covariance, in an order of its keys."""
    check_names_of_noise(noise.names(), argument, list(at))
    places = [noise.keys.index(k) for k in order]
    return noise.matrix(list(at))(list(at.values()))[np.ix_(places, places)]


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
        return repeated(near.F, Q, round(h / model.dt))
    order = _ORDERS.get(model.method)
    dt = model.options.dt or float(np.diff(model.times).max(initial=0.0)) or h
    return sampled(near.F, Q, h, order, max(1, int(np.ceil(h / dt * (1 - 1e-9)))))
