"""What a user gives beside the source of a model, read and checked by itself: values, a start, inputs, outputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from fmepy.checks import finite_number
from fmepy.errors import ArgumentError, ModelError, ParameterError, TracingError, did_you_mean, listed, repeated
from fmepy.language.equations import names_in, symbol
from fmepy.language.text import parse_expression, read_value
from fmepy.language.tracing import as_expression, call_traced, traced
from fmepy.models.running.forcings import Forcing
from fmepy.parameters.names import normal_name
from fmepy.parameters.scales import check_scale
from fmepy.types import Vector

Kind = Literal["ode", "difference"]


@dataclass(frozen=True, slots=True, eq=False)
class ModelArguments:
    """What was given beside the source of a model.

    Attributes
    ----------
    kind : {"ode", "difference"}
    initial : dict of str to (float or Node)
        Initial values by state, as far as they were given.
    parms : dict of str to float
    forcings : tuple of Forcing
    outputs : dict of str to (str, number or callable)
        As the user gave them; `read_outputs` reads them where all names are known.
    start : float
        Time of the initial values.
    trace : bool
        Whether functions are to be turned into equations.
    most_states : int
        Vector functions with more states are not, but into loops over arrays.
    is_copy : bool
        Whether there was such a model before, of which this one is a changed copy.
    algebraic : tuple of str
        States of a function whose entry in what it returns is zero at every time, and no rate.
    """

    kind: Kind
    initial: dict[str, Any]
    parms: dict[str, float]
    forcings: tuple[Forcing, ...]
    outputs: dict[str, Any]
    start: float
    trace: bool
    most_states: int
    is_copy: bool
    algebraic: tuple[str, ...] = ()

    @property
    def forcing_names(self) -> tuple[str, ...]:
        """Names of the forcings."""
        return tuple(f.name for f in self.forcings)


def finite_numbers(values: Any, argument: str, error: type[ArgumentError] = ModelError) -> Vector:
    """Return numbers as an array; what is none, or not finite, is refused."""
    try:
        out: Vector = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise error(f"`{argument}` must be numbers; got {values!r}.") from None
    if not np.isfinite(out).all():
        raise error(f"`{argument}` holds NaN or infinite numbers.")
    return out


def check_increasing(values: Vector, argument: str, error: type[ArgumentError] = ModelError, advice: str = "") -> None:
    """Refuse numbers that do not increase; `advice` ends the message."""
    back = np.flatnonzero(np.diff(values) <= 0)
    if len(back):
        i = int(back[0])
        raise error(
            f"`{argument}` must increase: {values[i + 1]:g} (position {i + 1}) comes after {values[i]:g}.{advice}"
        )


def by_name(
    given: Any, argument: str, what: str, error: type[ArgumentError] = ModelError, kinds: Any = Mapping | pd.Series
) -> dict[str, Any]:
    """Return what was given by name, each name once; nothing for None.

    what : str
        What the dict must be of, for the message.
    """
    if given is None:
        return {}
    if not isinstance(given, kinds):
        form = "dict" if kinds is Mapping else "dict or Series"
        raise error(f"`{argument}` must be a {form} of {what}; got {type(given).__name__}.")
    names = [normal_name(k) for k in given.keys()]  # noqa: SIM118  # a Series iterates over its values
    if twice := repeated(names):
        raise error(f"`{argument}` names {listed(twice)} more than once.")
    return dict(zip(names, given.values() if isinstance(given, Mapping) else list(given), strict=True))


def as_parms(parms: Any) -> dict[str, float]:
    """Return values of parameters by name; ParameterError where they are no finite numbers."""
    out = by_name(parms, "parms", "names and values", ParameterError)
    if out:
        check_scale(parms, dict.fromkeys(map(str, parms.keys())), "parms")
    for name, value in out.items():
        try:
            out[name] = float(value)
        except (TypeError, ValueError):
            out[name] = np.nan
        if not np.isfinite(out[name]):
            raise ParameterError(f"`parms`: {name!r} is {value!r}; a finite number is needed.")
    return out


def check_profile_names(names: Iterable[str]) -> None:
    """Refuse the names of the first columns of a table of profiles."""
    for name in names:
        if name in ("time", "x"):
            raise ModelError(
                f"A state or output on a grid is called {name!r}, like a column of the result; choose another name."
            )


def as_names(names: Any) -> tuple[str, ...]:
    """Return names that were given as one, several or none."""
    return () if names is None else tuple(map(normal_name, [names] if np.ndim(names) == 0 else names))


def as_state(state: Any) -> dict[str, Any]:
    """Return initial values by name; a bare sequence gets the names 1, 2, ... as in R."""
    if state is not None and not isinstance(state, Mapping | pd.Series):
        state = {str(i): value for i, value in enumerate(np.atleast_1d(np.asarray(state, dtype=object)), 1)}
    found = by_name(state, "state", "names and values")
    return {name: _initial_value(name, value) for name, value in found.items()}


def _initial_value(name: str, value: Any) -> Any:
    """Return an initial value as a float or an expression."""
    number = read_value(value, f"state[{name!r}]")
    if not isinstance(number, float) or np.isfinite(number):
        return number
    if np.size(value) > 1 and not isinstance(value, Mapping):
        raise ModelError(
            f"The initial value of {name!r} holds {np.size(value)} values; each state has one. If they are a profile, "
            "one in each cell, give grid=Grid1D(edges), too; a function of one array, f(t, y, p), takes state=[...]."
        )
    raise ModelError(
        f"The initial value of {name!r} is {value!r}; a finite number, a parameter's name or an expression of "
        "parameters is needed."
    )


def read_outputs(outputs: Mapping[str, Any], known: Sequence[str], defined: Mapping[str, Any]) -> dict[str, Any]:
    """Return outputs as expressions; each may use the ones before it (they are put in its place).

    Parameters
    ----------
    outputs : mapping of str to (str, number or callable)
    known : sequence of str
        What they may use: states, parameters, forcings, time.
    defined : mapping of str to Node
        Outputs that the model's source defines; they may use these too.
    """
    out: dict[str, Any] = {}
    earlier = {symbol(k): e for k, e in defined.items()}
    for name, value in outputs.items():
        names = [*known, *defined, *out]
        if name in names:
            raise ModelError(f"The output {name!r} has the name of something else in the model; choose another.")
        expression = _output_expression(name, value, names)
        for used in sorted(names_in([expression])):
            if used not in names:
                raise ModelError(
                    f"The output {name!r} uses {used!r}, which the model does not have.{did_you_mean(used, names)}"
                )
        out[name] = earlier[symbol(name)] = expression.subs(earlier)
    return out


def _output_expression(name: str, value: Any, known: Sequence[str]) -> Any:
    if not callable(value):
        text = value if isinstance(value, str) else repr(finite_number(value, f"outputs[{name!r}]", ModelError))
        return parse_expression(text, where=f"outputs[{name!r}]", delays=True)
    arguments = list(inspect.signature(value).parameters)
    for a in arguments:
        if a not in known:
            raise ModelError(
                f"The output function {name!r} has an argument {a!r} that the model does not have."
                f"{did_you_mean(a, known)}"
            )
    try:
        return as_expression(call_traced(value, **{a: traced(a) for a in arguments}))
    except TracingError as error:
        raise ModelError(
            f"The output function {name!r} cannot be turned into an expression: {error}. Return such an "
            "output from the model's own function, as (rates, {name: value})."
        ) from error
