"""States -> outputs of the model and readings, with their derivatives: what tables and forecasts show beside states.

Bands around states and outputs: symmetric, or on the scale of logarithms for what cannot be negative.

A state is taken for positive if it, or an output that is nothing but it, is read on a logarithmic or square root scale;
or if neither its equation nor its noise moves it where it is zero (growth in proportion to itself, with noise in
proportion to itself). What is known of it as mean and sd is then shown as a log-normal band of the same sd in
proportion, mean exp(+-q sd / mean), which keeps above zero. Of all others nothing of the kind is known: their bands are
mean +- q sd, which may go below zero although no value ever does. Quantiles of draws need no such rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fmepy.compiled.python_code import array_function
from fmepy.filtering.numeric_statespace import ValuesOfExpressions
from fmepy.filtering.statespace import StateSpace
from fmepy.fimlof.filter_model import Specification
from fmepy.language.derivatives import entries_of
from fmepy.language.equations import symbol, symbols
from fmepy.language.nodes import ZERO, Symbol
from fmepy.parameters.maps import TRANSFORMS
from fmepy.types import Cube, Matrix, Vector


class StateFunctions:
    """Functions of time, states, parameters and forcings, and their derivatives to the states.

    Parameters
    ----------
    spec : Specification
    expressions : sequence of Node
        Of a model without equations they may hold what its function returns beside the rates; derivatives are then
        differences.
    """

    def __init__(self, spec: Specification, expressions: Sequence[Any]) -> None:
        self._k, self._n = len(expressions), len(spec.space.states)
        self._values = (_by_equations if spec.definition.equations else _by_function)(spec, expressions)

    def at(self, times: Vector, x: Matrix, p: Vector, inputs: Matrix) -> tuple[Matrix, Cube]:
        """Return values, shape (n_time, k), and derivatives, (n_time, k, n); NaN where x is.

        inputs : ndarray, shape (n_time, n_forcing)
        """
        y, slopes = np.full((len(times), self._k), np.nan), np.zeros((len(times), self._k, self._n))
        if self._k:
            with np.errstate(all="ignore"):
                self._values(times, x, p, inputs, y, slopes)
            y[np.isnan(x).all(axis=1)] = np.nan  # one that does not depend on the states has no value either
        return y, slopes


def _by_equations(spec: Specification, expressions: Sequence[Any]) -> Callable[..., None]:
    """Return the function that writes values and derivatives, for all times at once."""
    space, k = spec.space, len(expressions)
    groups = symbols([space.time], space.states, spec.parameters, space.forcings)
    entries = entries_of(expressions, groups[1])
    function = array_function(groups, [*expressions, *(e for _, _, e in entries)])

    def write(times: Vector, x: Matrix, p: Vector, inputs: Matrix, y: Matrix, slopes: Cube) -> None:
        values = function((times,), list(x.T), p.tolist(), list(inputs.T))
        for i in range(k):
            y[:, i] = values[i]
        for (row, column, _), value in zip(entries, values[k:], strict=True):
            slopes[:, row, column] = value

    return write


def _by_function(spec: Specification, expressions: Sequence[Any]) -> Callable[..., None]:
    """Return the same for a model without equations, time by time; derivatives are central differences."""
    values = ValuesOfExpressions(spec.definition, spec.parameters, expressions)

    def write(times: Vector, x: Matrix, p: Vector, inputs: Matrix, y: Matrix, slopes: Cube) -> None:
        for i in np.flatnonzero(np.isfinite(x).all(axis=1)):
            t, u = float(times[i]), inputs[i]
            y[i] = values(t, x[i], p, u)
            slopes[i] = values.slopes(t, x[i], p, u)

    return write


def outputs_of(spec: Specification) -> list[tuple[str, Any]]:
    """Return the names and expressions of a model's outputs."""
    d = spec.definition
    if d.equations is not None:
        return list(d.equations.outputs)
    return [*((name, symbol(name)) for name in d.extra_names), *d.outputs]


def output_functions(spec: Specification) -> StateFunctions:
    """Return the outputs of a model as functions of the states of its filter."""
    return StateFunctions(spec, [e for _, e in outputs_of(spec)])


def names_of_sums(spec: Specification) -> dict[str, str]:
    """Return by variable what is shown of one that was read as a sum or mean over the time before."""
    out = {}
    for a in spec.accumulators:
        name = spec.variables[a.variable]
        is_sum = spec.space.readings[a.variable] == symbol(spec.space.states[a.state])
        out[name] = f"{'sum' if is_sum else 'mean'} of {name}"
    return out


def on_own_scale(values: Any, spec: Specification) -> Any:
    """Return readings, shape (..., n_var), on the data's own scale."""
    out = np.array(values, dtype=float)
    for v, how in enumerate(spec.transforms):
        if how is not None:
            out[..., v] = TRANSFORMS[how].back(out[..., v])
    return out


def positive_names(spec: Specification) -> set[str]:
    """Return the states and outputs that cannot be negative, see the module's text."""
    read = {name for name, how in zip(spec.variables, spec.transforms, strict=True) if how is not None}
    outputs = outputs_of(spec)
    plain = {name: e.name for name, e in outputs if isinstance(e, Symbol) and e.name in spec.space.states}
    out = read | {plain[name] for name in read if name in plain}
    if isinstance(spec.space, StateSpace):
        out |= _positive_by_equations(spec.space)
    return out | {name for name, state in plain.items() if state in out}


def _positive_by_equations(space: StateSpace) -> set[str]:
    out = set()
    for i, name in enumerate(space.states):
        at_zero = {symbol(name): ZERO}
        moves = [space.rates[i], *(e for row, _, e in space.gains if row == i)]
        if all(symbol(name) in e.free_symbols and e.subs(at_zero) is ZERO for e in moves):
            out.add(name)
    return out


def band(mean: Matrix, sd: Matrix, q: float, positive: bool) -> tuple[Matrix, Matrix]:
    """Return the lower and upper end of q sds around a mean."""
    lower, upper = mean - q * sd, mean + q * sd
    if positive:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            width = np.exp(q * sd / mean)
            lower, upper = np.where(mean > 0, mean / width, lower), np.where(mean > 0, mean * width, upper)
    return lower, upper
