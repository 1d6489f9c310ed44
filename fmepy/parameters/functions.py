"""Functions of the user: called at a plain vector, at transformed parameters, with some parameters held."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, SimulationError
from fmepy.parameters.mapped import transforms_of
from fmepy.parameters.maps import Elementwise
from fmepy.parameters.named import Parameters, generated_names
from fmepy.types import Vector


class UserFunction:
    """A function of the user, called at a plain vector; whatever goes wrong in it is a failed run, a SimulationError.

    Parameters
    ----------
    f : callable
        ``f(p, *args, **kwargs)``.
    parameters : Parameters
        All parameters that it receives, and their form.
    args, kwargs
        Further arguments; validated here.
    called : str
        Its name in messages, where it is not the main function.
    """

    def __init__(self, f: Callable[..., Any], parameters: Parameters, args: Any, kwargs: Any, called: str = "") -> None:
        if isinstance(args, (str, bytes)) or not isinstance(args, (tuple, list)):
            raise ArgumentError(f"`args` must be a tuple of further arguments; got {args!r}. Write args=({args!r},).")
        if kwargs is not None and not isinstance(kwargs, Mapping):
            raise ArgumentError(f"`kwargs` must be a dict of further named arguments; got {type(kwargs).__name__}.")
        self.f, self.parameters, self.args, self.kwargs = f, parameters, tuple(args), dict(kwargs or {})
        self._prefix = f"`{called}` raised " if called else ""

    def __call__(self, theta: Vector) -> Any:
        """Return what the function returns, at all its parameters."""
        p = self.parameters.for_user(theta)
        try:
            return self.f(p, *self.args, **self.kwargs)
        except SimulationError:
            raise
        except (Exception, SystemExit) as error:  # a failed run, not the end of a fit or an ensemble
            message = f"{self._prefix}{type(error).__name__}: {error}"
            raise SimulationError(message, parameters=self.named(theta)) from error

    def named(self, theta: Vector) -> dict[str, float]:
        """Return theta by name."""
        return dict(zip(self.parameters.names, np.asarray(theta).tolist(), strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class TransformedFunction:
    """A function of transformed parameters: back-transforms them and calls the inner one; made by `transformed`.

    Attributes
    ----------
    inner : callable
        The function itself, ``f(p, ...)``.
    how : str or dict of str to str
        Transform of all parameters, or by name.
    names : tuple of str or None
        Those that are transformed; None: all that `how` names.
    """

    inner: Callable[..., Any]
    how: Any
    names: tuple[str, ...] | None = None

    def __call__(self, p: Any, *args: Any, **kwargs: Any) -> Any:
        """Return ``f(p, ...)`` at the back-transformed parameters, in the type of `p`."""
        return self.inner(self._back(p), *args, **kwargs)

    def _back(self, p: Any) -> Any:
        if isinstance(p, pd.Series):
            names = [str(n) for n in p.index]
            return pd.Series(self._values(names, p.to_numpy(dtype=float)), index=p.index, name=p.name)
        if isinstance(p, Mapping):
            names = [str(n) for n in p]
            return dict(zip(p, self._values(names, np.array(list(p.values()), dtype=float)).tolist(), strict=True))
        values = np.atleast_1d(np.asarray(p, dtype=float))
        return self._values(list(generated_names(len(values))), values)

    def kinds_of(self, names: Sequence[str]) -> dict[str, str]:
        """Return how these parameters are transformed, of those that are."""
        return transforms_of(self.how, self.names, names)

    def _values(self, names: Sequence[str], theta: Vector) -> Vector:
        return Elementwise(tuple(names), self.kinds_of(names)).full(theta)

    def __repr__(self) -> str:
        return f"{self.inner!r} of transformed parameters ({self.how})"


def held_function(whole: UserFunction, theta: Vector, names: Sequence[str]) -> Callable[[Any], Any]:
    """Return a user's function of the parameters `names` alone; the others stay at `theta`.

    Examples
    --------
    >>> from fmepy.parameters.named import as_parameters
    >>> whole = UserFunction(lambda p: p["a"] + p["b"], as_parameters({"a": 1.0, "b": 2.0}), (), None)
    >>> held_function(whole, whole.parameters.values, ["b"])({"b": 5.0})
    6.0
    """
    at = [whole.parameters.names.index(n) for n in names]

    def of_some(p: Any) -> Any:
        full = np.array(theta, dtype=float)
        full[at] = [p[n] for n in names] if isinstance(p, Mapping) else np.asarray(p, dtype=float)
        return whole.f(whole.parameters.for_user(full), *whole.args, **whole.kwargs)

    return of_some
