"""The function that a user wrote for the rates of a model: called one way, and what it returns checked.

It gets a read-only view of the states, since the array is the solver's own, and what it returns is copied, since it may
fill one array again and again. Whatever is not one number for each state is told as what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, ModelError, SimulationError, listed
from fmepy.parameters.names import ByName, normal_name
from fmepy.types import Vector


def _unragged(value: Any) -> Any:
    """Return a value that numpy can tell the dimension of; a sequence for one whose entries differ in length."""
    try:
        return np.asarray(value)
    except ValueError:
        return [None]


@dataclass(frozen=True, slots=True, eq=False)
class RatesFunction:
    """A user's Python function behind one face: ``(t, y, p, u) -> (rates, extra outputs)``, all arrays but the extras.

    Attributes
    ----------
    function : callable
    form : {"named", "vector"}
    states, parameters, forcings : tuple of str
    positional, keywords : tuple of str
        Names of the function's arguments after the first, by position and by keyword (named form).
    """

    function: Callable[..., Any]
    form: Literal["named", "vector"]
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    forcings: tuple[str, ...]
    positional: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()

    def raw(self, t: Any, y: Any, p: Any, u: Any) -> tuple[Any, dict[str, Any]]:
        """Call the user's function and split what it returns into rates and extra outputs."""
        return self.split(self.returned(t, y, p, u))

    def returned(self, t: Any, y: Any, p: Any, u: Any) -> Any:
        """Call the user's function."""
        values = ByName(zip(self.parameters, p, strict=True))
        values.update(zip(self.forcings, u, strict=False))  # behind them are series that the function looks up itself
        if self.form == "vector":
            return self._of_arrays(t, y, values)
        values.update(zip(self.states, y, strict=True))
        return self._called(t, *[values[k] for k in self.positional], **{k: values[k] for k in self.keywords})

    def _called(self, t: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the function; what it asks of us that cannot be, such as a negative diffusion, is a failed run."""
        try:
            return self.function(t, *args, **kwargs)
        except ArgumentError as error:
            if isinstance(error, ModelError) or not isinstance(t, int | float):
                raise
            raise SimulationError(f"the model's function fails: {error}", time=float(t)) from error

    def _of_arrays(self, t: Any, y: Any, values: ByName) -> Any:
        """Call a function of arrays with a view of the states: a change in the solver's own would change the run."""
        y = y.view()
        y.flags.writeable = False
        try:
            return self._called(t, y, values)
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ModelError(
                f"The function changes the array of states that it is given ({error}), which is the solver's own. "
                "Change a copy of it: y = y.copy()."
            ) from error

    def split(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """Split what the function returned into rates and extra outputs: ``rates, {...}``, or ``a, b, {...}``."""
        extra: dict[str, Any] = {}
        if isinstance(result, tuple | list) and len(result) >= 2 and isinstance(result[-1], Mapping):
            extra = {normal_name(k): v for k, v in result[-1].items()}
            result = result[0] if len(result) == 2 else result[:-1]
        if isinstance(result, pd.Series) and set(result.index) & set(self.states):
            result = result.to_dict()
        if isinstance(result, Mapping):
            by_name = {normal_name(k): v for k, v in result.items()}
            missing = [s for s in self.states if s not in by_name]
            unknown = [k for k in by_name if k not in self.states]
            if missing or unknown:
                what = f"without {listed(missing)}" if missing else f"with {unknown[0]!r}, which is not a state"
                raise ModelError(
                    f"The function returned a dict {what}; one entry for each of {listed(self.states)} is needed. "
                    "Further outputs go beside it: return rates, {'name': value}."
                )
            result = [by_name[s] for s in self.states]
        return result, extra

    def __call__(self, t: float, y: Any, p: Any, u: Any) -> Vector:
        """Return the rates (or next states) as an array of their own: a function may fill the same one every time."""
        return self.checked(self.raw(t, y, p, u)[0], t)

    def of(self, p: Any) -> Callable[[float, Vector], Vector]:
        """Return the rates at some parameters as a function of time and states: what a run without forcings calls."""
        if self.form != "vector":
            return lambda t, y: self(t, y, p, ())
        function, size, values = self._of_arrays, (len(self.states),), ByName(zip(self.parameters, p, strict=True))

        def rates(t: float, y: Vector) -> Vector:
            result = function(t, y, ByName(values))
            if type(result) is np.ndarray and result.dtype == np.float64 and result.shape == size:
                return result.copy()
            return self.checked(self.split(result)[0], t)

        return rates

    def checked(self, result: Any, t: float) -> Vector:
        """Return what the function gave as rates as an array of their own."""
        try:
            rates = np.array(result)
        except ValueError:  # entries of unequal length
            rates = np.empty((0, 0))
        if rates.dtype.kind in "fiub" and (
            rates.shape == (len(self.states),) or rates.ndim == 0 == len(self.states) - 1
        ):
            return rates.astype(float, copy=False).reshape(-1)
        return self._by_entry(result, t)

    def _by_entry(self, result: Any, t: float) -> Vector:
        """Return unusual rates as floats; say what is wrong with them where they are none."""
        n, at = len(self.states), f"at time {t:g}"
        form = f"one number for each of the {n} states ({listed(self.states)}), in that order"
        if n == 1:
            form = f"one number, for the state {self.states[0]!r}"
        if result is None:
            raise ModelError(f"The function returned None {at}: is a `return` missing? Return {form}.")
        if isinstance(result, str | bytes) or callable(result):
            raise ModelError(f"The function returned {result!r} {at}; return {form}.")
        entries = [result] if np.ndim(_unragged(result)) == 0 else list(result)
        if len(entries) != n:
            counted = "1 value" if len(entries) == 1 else f"{len(entries)} values"
            if len(entries) == 1 and isinstance(result, list | tuple) and np.shape(_unragged(entries[0])) == (n,):
                counted = f"one list in another, such as R's list(c(...)), of {n} values"
            raise ModelError(f"The function returned {counted} {at}; return {form}.")
        rates = np.empty(n)
        for i, (name, value) in enumerate(zip(self.states, entries, strict=True)):
            if np.iscomplexobj(value):
                raise SimulationError(
                    f"the function returned a complex number for {name!r} ({value!r}): a root or a power of a negative "
                    "number, or a logarithm; keep its base from falling below zero, as with max(x, 0)",
                    time=t,
                )
            if np.ndim(_unragged(value)):
                raise ModelError(
                    f"The function returned an array or a sequence for {name!r} {at}; return {form} (np.ravel flattens "
                    "an array)."
                )
            try:
                if value is None or isinstance(value, str | bytes):
                    raise TypeError
                rates[i] = float(value)
            except (TypeError, ValueError):
                raise ModelError(f"The function returned {value!r} for {name!r} {at}; return {form}.") from None
        return rates

    def extras(self, t: float, y: Vector, p: Vector, u: Vector) -> dict[str, float]:
        """Return the extra outputs as numbers."""
        extra = self.raw(t, y, p, u)[1]
        try:
            return {k: float(v) for k, v in extra.items()}
        except (TypeError, ValueError):
            raise ModelError(
                f"The function's extra outputs must be numbers; at time {t:g} they are {extra!r}."
            ) from None
