"""Validate the settings of a filter and return its `Specification`: noise, start, accumulators, propagation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.costs.noise import (
    ERR,
    MEASUREMENT,
    PROCESS,
    Noise,
    check_error_sd,
    check_names_of_noise,
    guessed_sd,
    no_error_said,
    read_noise,
    scale_parameters,
    with_noise_parameters,
)
from fmepy.errors import ArgumentError, ModelError, check_choice, did_you_mean, listed
from fmepy.filtering.numeric_statespace import UntracedSpace, nominal_equations
from fmepy.filtering.square_root_loop import UPDATES
from fmepy.filtering.statespace import StateSpace, build_state_space
from fmepy.fimlof.correlated_noise import read_correlations, with_shocks
from fmepy.fimlof.filter_model import FIXED, Accumulator, Specification, definition_of
from fmepy.fimlof.stationary import check_stationary
from fmepy.language.derivatives import quotient
from fmepy.language.equations import Equations, names_in, symbol
from fmepy.language.nodes import ZERO, Symbol, call, number
from fmepy.models.base import equations_hint
from fmepy.models.definition.definition import Definition
from fmepy.models.running.events import Event

if TYPE_CHECKING:
    from fmepy.fimlof.cost import FimlofCost
    from fmepy.fimlof.data import EntityData

PROPAGATIONS = (*FIXED, "ode", "moment")
ALGORITHMS = ("sequential", "joint", "sqrt")  # "joint" is another word for "sequential"


def read_specification(
    cost: FimlofCost, model: Any, entities: Sequence[EntityData], parms: Mapping[str, float]
) -> Specification:
    """Return the specification of a filter.

    Parameters
    ----------
    cost : FimlofCost
        Its arguments.
    model : Model
        The cost's, with equations where it can have any.
    entities : sequence of EntityData
    parms : mapping of str to float
        Values of parameters of the noise.
    """
    definition, variables, transforms = definition_of(model), entities[0].variables, entities[0].transforms
    definition.check_plain("FimlofCost")
    equations = definition.equations or nominal_equations(definition)
    update = check_choice(cost.update, UPDATES, "update")
    check_choice(cost.algorithm, ALGORITHMS, "algorithm")
    settings = (cost.propagation, cost.dt, cost.noise_kind)
    propagation, dt, per_step = _propagation(model, definition, *settings)
    _check_untraced(definition, update, cost.accumulate, cost.noise_correlation)
    if update == "unscented" and propagation in ("moment", "rk4_moment"):
        raise ArgumentError(
            f"`update='unscented'` carries points along: pass propagation='ode', 'rk4' or 'euler', not {propagation!r}."
        )
    if update == "second_order" and propagation == "rk4_moment":
        raise ArgumentError(
            "`update='second_order'` takes the curvature of the step itself: pass propagation='rk4', which integrates "
            "the noise by the same stages, or 'moment', not 'rk4_moment'."
        )
    own = definition.parameters
    _check_no_outputs(cost.process_noise, equations, own)
    noise = read_noise(cost.process_noise, "process_noise", (*equations.states, *own), "a state or parameter", PROCESS)
    errors = read_noise(cost.measurement_noise, "measurement_noise", variables, "an observed variable", MEASUREMENT)
    start = read_noise(cost.initial_sd, "initial_sd", equations.states, "a state", "sd_0_")
    if start.made:
        raise ArgumentError("`initial_sd` cannot be estimated from one start; give a number, or a parameter's name.")
    made = {}
    for name, key in (*noise.made, *errors.made):
        made[name] = max(0.1 * abs(float(definition.parms.get(key, 0.0))), 0.1)
        if key in variables:
            readings_of = (e.readings.values[e.readings.variables == variables.index(key)] for e in entities)
            made[name] = guessed_sd(readings_of)
    if definition.is_closed:
        _check_closed(model, (noise, start), cost.initial, settings)
    with_error = [v for v in variables if v not in errors.keys or ERR in names_in([errors.sds[errors.keys.index(v)]])]
    words = cost.noise_correlation, noise, errors, with_error, equations.kind == "difference", cost.initial
    correlations = read_correlations(*words)
    values = with_noise_parameters(dict(definition.parms), parms, made, noise, errors, start, correlations)
    accumulated, accumulators = _accumulators(cost.accumulate, equations, variables, dt)
    sds = _error_sds(equations, variables, errors, cost.err is not None, tuple(values), accumulated)
    check_names_of_noise(
        noise.names(), "process_noise", (*values, *equations.var_names, *equations.forcings, equations.time)
    )
    check_names_of_noise(start.names(), "initial_sd", tuple(values))
    check_names_of_noise(correlations.names(), "noise_correlation", tuple(values))
    _check_enters(noise, definition, variables)
    readings, direct = _readings(equations, variables, transforms, accumulated)
    outputs = {symbol(k): e for k, e in equations.outputs}
    of_noise = None if noise.covariance is not None else tuple(e.subs(outputs) for e in noise.sds)
    space: StateSpace | UntracedSpace
    if definition.equations is None:
        space = UntracedSpace(definition, tuple(values), noise.keys, of_noise, tuple(readings), tuple(sds))
    else:
        summands = [(name, g) for name, g, _ in accumulated.values()]
        space = build_state_space(equations, tuple(values), noise.keys, of_noise, readings, sds, summands)
        space = with_shocks(space, correlations, noise.keys, variables)
    if cost.initial == "stationary":
        check_stationary(space, len(equations.states), start.keys, per_step)
    elsewhere = names_in([*equations.rates, *(e for _, e in equations.outputs), *definition.initial])
    elsewhere |= names_in([e for one in (noise, errors, start) for e in one.covariance or ()])
    _check_some_noise(noise, errors, variables)
    events = _known_events(definition)
    elsewhere |= names_in([e.value for e in events]) | correlations.names()
    return Specification(
        definition=definition,
        grid=model.times,
        events=events,
        parms=pd.Series(values, dtype=float),
        space=space,
        noise=noise,
        errors=errors,
        transforms=transforms,
        variables=variables,
        initial=cost.initial,
        start=start,
        direct=direct,
        accumulators=accumulators,
        propagation=propagation,
        dt=dt,
        per_step=per_step,
        update=update,
        algorithm=cost.algorithm,
        scales=tuple(scale_parameters([*noise.sds, *sds, *start.sds], elsewhere)),
        model=model,
        correlations=correlations,
    )


def _known_events(definition: Definition) -> tuple[Event, ...]:
    """Return the events; refuse those whose values depend on more than parameters."""
    for e in definition.events:
        unknown = sorted(names_in([e.value]) - set(definition.parameters))
        if unknown:
            raise ModelError(
                f"The event of {definition.states[e.state]!r} at {e.time:g} has the value {e.value}, which depends on "
                f"{unknown[0]!r}: a filter takes events whose values are numbers or expressions of parameters. "
                "A share of a state is taken away by method='multiply'."
            )
    return definition.events


def _check_no_outputs(process_noise: Any, equations: Equations, parameters: Sequence[str]) -> None:
    """Refuse noise of outputs: they follow from states, and errors of reading them are measurement noise."""
    outputs = {name for name, _ in equations.outputs} - {*equations.states, *parameters}
    for key in map(str, process_noise if isinstance(process_noise, Mapping | pd.DataFrame) else ()):
        if key in outputs:
            raise ArgumentError(
                f"`process_noise`: {key!r} is an output, which follows from states and parameters. Give the noise to "
                f"one of {listed([*equations.states, *parameters])}; errors of reading {key!r} are measurement_noise."
            )


def _check_closed(model: Any, noises: Sequence[Noise], initial: str, settings: Sequence[Any]) -> None:
    """Refuse settings that need more of a model than its runs."""
    entries = [e for n in noises for e in n.entries]
    if initial != "known" or not all(e is ZERO for e in entries) or any(word is not None for word in settings):
        raise ModelError(
            f"A filter follows the rates of a model, and a {type(model).__name__} offers none: it has no attribute "
            "`definition` (fmepy.models.base says what one is). Without process noise, from a known start, its own "
            "runs will do: pass process_noise={}, and no `initial`, `initial_sd`, `propagation`, `dt`, `noise_kind`."
            f"{equations_hint(model)}"
        )


def _check_untraced(definition: Definition, update: str, accumulate: Any, correlation: Any) -> None:
    """Refuse settings that need the equations of a model."""
    if definition.equations is not None:
        return
    because = f"needs the model's equations, and the function gives none: {definition.note}"
    if update == "second_order":
        raise ModelError(
            f"`update='second_order'` {because}. Use update='unscented', which takes no second derivatives."
        )
    if correlation is not None:
        raise ModelError(f"`noise_correlation` {because}. Write the model as equations.")
    if accumulate is not None:
        raise ModelError(
            f"`accumulate` {because}. Let the model sum up itself: a further state that grows by the variable, and "
            "an event that sets it to zero."
        )


def _propagation(
    model: Any, definition: Definition, propagation: str | None, dt: float | None, noise_kind: str | None
) -> tuple[str, float | None, bool]:
    """Return how the state goes on between samples, the fixed step, and whether noise is drawn once a step."""
    if noise_kind is not None:
        check_choice(noise_kind, ("brownian", "per_step"), "noise_kind")
    if definition.kind == "difference":
        for name, value in (("propagation", propagation), ("dt", dt)):
            if value is not None:
                raise ArgumentError(f"`{name}` is for differential equations; a DifferenceModel goes step by step.")
        if noise_kind == "brownian":
            raise ArgumentError("`noise_kind='brownian'` is for differential equations; here an sd is per step.")
        return "difference", model.dt, True
    method = getattr(model, "method", None)
    own = method if method in FIXED else None
    chosen = check_choice(propagation, PROPAGATIONS, "propagation") if propagation is not None else own or "ode"
    if chosen not in FIXED:
        if dt is not None:
            raise ArgumentError(f"`dt` is for propagation='euler', 'rk4' or 'rk4_moment'; here it is {chosen!r}.")
        if noise_kind == "per_step":
            raise ArgumentError(
                f"`noise_kind='per_step'` needs fixed steps: pass propagation='euler' and dt; here it is {chosen!r}."
            )
        return chosen, None, False
    if chosen == "rk4_moment" and noise_kind == "per_step":
        raise ArgumentError(
            "`propagation='rk4_moment'` integrates Brownian noise along the step: for a rate that is drawn once a step "
            "pass propagation='rk4' or 'euler'."
        )
    step = dt if dt is not None else model.options.dt
    if step is not None and not (np.isfinite(step) and step > 0):
        raise ArgumentError(f"`dt={dt!r}` must be a positive number.")
    return chosen, step, noise_kind == "per_step"


def _check_enters(noise: Noise, definition: Definition, variables: Sequence[str]) -> None:
    """Refuse noise of a parameter that no equation of a state holds, or that a reading holds too."""
    if definition.equations is None:
        return
    used = names_in(definition.equations.rates)
    for key in noise.keys:
        if key not in definition.equations.states and key not in used:
            raise ArgumentError(
                f"`process_noise`: {key!r} is in no equation of a state, so its noise would do nothing. Noise of what "
                "is read belongs to `measurement_noise`, which may be an expression of states."
            )
        for name, reading in definition.equations.outputs:
            if name in variables and key not in definition.equations.states and key in names_in([reading]):
                raise ArgumentError(
                    f"`process_noise`: {key!r} stands in the rates and in the reading {name!r} too, but noise enters "
                    "the rates alone. Write the reading with a parameter of its own, or of states."
                )


def _error_sds(
    equations: Equations,
    variables: Sequence[str],
    errors: Noise,
    has_errors: bool,
    parameters: Sequence[str],
    accumulated: Mapping[str, tuple[str, Any, Any]],
) -> list[Any]:
    """Return the sd of every observed variable, of one reading with error 1 where it has an own."""
    outputs = {symbol(k): e for k, e in equations.outputs}
    known = (*parameters, *equations.states, *equations.forcings, equations.time, *(k for k, _ in equations.outputs))
    err = symbol("err")
    out = []
    for name in variables:
        if name not in errors.keys:
            if not has_errors:
                raise no_error_said(name)
            out.append(number(1.0))
            continue
        sd = errors.sds[errors.keys.index(name)]
        if check_error_sd(name, sd, known, has_errors):
            proportional = quotient(sd, err)
            if proportional is None:
                raise ArgumentError(
                    f"`measurement_noise[{name!r}]` must be proportional to 'err', such as 'scale * err'; it is {sd}."
                )
            sd = proportional  # the datum's own error multiplies it
        own = {symbol(name): accumulated[name][2]} if name in accumulated else {}  # of a sum: in proportion to it
        out.append(sd.subs({**outputs, **own}))
    return out


def _accumulators(
    given: Any, equations: Equations, variables: Sequence[str], dt: float | None
) -> tuple[dict[str, tuple[str, Any, Any]], tuple[Accumulator, ...]]:
    """Return (state, summand, reading) by variable, and the accumulators; steps of `dt` of difference equations."""
    if given is None:
        return {}, ()
    if not isinstance(given, Mapping):
        raise ArgumentError(f"`accumulate` must be a dict of variable and length; got {type(given).__name__}.")
    outputs = dict(equations.outputs)
    found: dict[str, tuple[str, Any, Any]] = {}
    accumulators: list[Accumulator] = []
    for key, value in given.items():
        name = str(key)
        if name not in variables:
            raise ArgumentError(f"`accumulate`: {name!r} is not an observed variable.{did_you_mean(name, variables)}")
        length, kind = value if isinstance(value, tuple | list) and len(value) == 2 else (value, "sum")
        check_choice(kind, ("sum", "mean"), f"accumulate[{name!r}] kind")
        if (
            isinstance(length, bool)
            or not isinstance(length, int | float | np.number)
            or not 0 < float(length) < np.inf
        ):
            raise ArgumentError(f"`accumulate[{name!r}]` is {length!r}; a length of time above zero is needed.")
        number = float(length) / (dt or 1.0) if equations.kind == "difference" else float(length)
        if equations.kind == "difference" and abs(number - round(number)) > 1e-9 * number:
            raise ArgumentError(
                f"`accumulate[{name!r}]` is {length!r}; difference equations sum whole steps, of {dt or 1.0:g}."
            )
        state = f"sum of {name}"
        g = outputs.get(name, symbol(name))
        found[name] = (state, g, symbol(state) / number if kind == "mean" else symbol(state))
        accumulators.append(
            Accumulator(list(variables).index(name), len(equations.states) + len(accumulators), float(length))
        )
    return found, tuple(accumulators)


def _readings(
    equations: Equations,
    variables: Sequence[str],
    transforms: Sequence[str | None],
    accumulated: Mapping[str, tuple[str, Any, Any]],
) -> tuple[list[Any], tuple[tuple[int, int], ...]]:
    """Return what is read, on the scale of comparison, and which states are measured directly."""
    outputs = dict(equations.outputs)
    readings, direct = [], []
    for i, (name, how) in enumerate(zip(variables, transforms, strict=True)):
        e = accumulated[name][2] if name in accumulated else outputs.get(name, symbol(name))
        if name not in accumulated and isinstance(e, Symbol) and e.name in equations.states:
            direct.append((i, equations.states.index(e.name)))
        readings.append(e if how is None else call(how, e))
    return readings, tuple(direct)


def _check_some_noise(noise: Noise, errors: Noise, variables: Sequence[str]) -> None:
    exact = [v for v in variables if v in errors.keys and errors.sds[errors.keys.index(v)] is ZERO]
    if exact and all(sd is ZERO for sd in noise.sds):
        raise ArgumentError(
            f"Neither the process nor the measurement of {listed(exact)} has any noise, so its prediction has no "
            "variance. Give `process_noise` or `measurement_noise` an sd above zero."
        )
