"""The scale on which model and data are compared: as they are, logarithms, or square roots, by variable.

For observation i of a variable with transform T the compared values are ``T(mod_i)`` and ``T(obs_i)``; their
derivative to a parameter is ``T'(mod_i) dmod_i/dp``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, DataError, check_choice, did_you_mean, listed
from fmepy.journal.encoding import Stored
from fmepy.parameters.names import normal_name
from fmepy.types import BoolVector, IntVector, Vector

TRANSFORMS = ("log", "sqrt")


@dataclass(frozen=True, slots=True, eq=False)
class ObservationScale(Stored):
    """Which of the compared values are transformed, and how.

    Attributes
    ----------
    log, sqrt : ndarray of int
        Positions of the values that are compared as logarithms, and as square roots.
    """

    log: IntVector
    sqrt: IntVector

    @property
    def is_identity(self) -> bool:
        """True if nothing is transformed."""
        return self.log.size == 0 and self.sqrt.size == 0

    def is_defined(self, values: Vector) -> bool:
        """Tell whether every value can be transformed."""
        if self.log.size == values.size:
            return bool(values.min() > 0.0)
        return (self.log.size == 0 or bool(values[self.log].min() > 0.0)) and (
            self.sqrt.size == 0 or bool(values[self.sqrt].min() >= 0.0)
        )

    def first_undefined(self, values: Vector) -> int | None:
        """Return the position of the first value that cannot be transformed, None if all can."""
        bad = np.concatenate([self.log[~(values[self.log] > 0.0)], self.sqrt[~(values[self.sqrt] >= 0.0)]])
        return int(bad.min()) if bad.size else None

    def forward(self, values: Vector) -> Vector:
        """Return T(values), shape (n_obs,)."""
        if self.log.size == values.size:  # the common case, without gathering
            return np.log(values)
        out = values.copy()
        if self.log.size:
            out[self.log] = np.log(values[self.log])
        if self.sqrt.size:
            out[self.sqrt] = np.sqrt(values[self.sqrt])
        return out

    def back(self, compared: Vector) -> Vector:
        """Return the values whose T they are, shape (n_obs,)."""
        out = compared.copy()
        out[self.log] = np.exp(compared[self.log])
        out[self.sqrt] = compared[self.sqrt] ** 2
        return out

    def log_jacobian(self, values: Vector, counted: BoolVector | None = None) -> float:
        """Return the sum of log |T'(values)|, of those that count; infinite with the square root of zero."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.slope(values))
        return float(np.sum(logs if counted is None else logs[counted]))

    @property
    def kinds(self) -> dict[int, str]:
        """The transform by position, of the values that have one."""
        return dict.fromkeys(self.log.tolist(), "log") | dict.fromkeys(self.sqrt.tolist(), "sqrt")

    def slope(self, values: Vector) -> Vector:
        """Return T'(values), shape (n_obs,); infinite for the square root of zero."""
        out = np.ones_like(values)
        if self.log.size:
            out[self.log] = 1.0 / values[self.log]
        if self.sqrt.size:
            with np.errstate(divide="ignore"):
                out[self.sqrt] = 0.5 / np.sqrt(values[self.sqrt])
        return out


def observation_scale(kinds: Sequence[str | None]) -> ObservationScale:
    """Return the scale of values whose transforms are `kinds`: "log", "sqrt" or None for each."""
    return ObservationScale(
        np.array([i for i, k in enumerate(kinds) if k == "log"], dtype=np.intp),
        np.array([i for i, k in enumerate(kinds) if k == "sqrt"], dtype=np.intp),
    )


def transforms_by_variable(transform: Any, variables: Iterable[str]) -> dict[str, str | None]:
    """Return the transform of every variable: "log", "sqrt" or None.

    Parameters
    ----------
    transform : None, "log", "sqrt", or mapping of variable to one of these
        Variables left out of a mapping are compared as they are.

    Raises
    ------
    ArgumentError
        An unknown word.
    DataError
        A variable that is not observed.
    """
    names = list(variables)
    if transform is None:
        return dict.fromkeys(names)
    if isinstance(transform, str):
        return dict.fromkeys(names, check_choice(transform, TRANSFORMS, "transform"))
    if not isinstance(transform, Mapping):
        raise ArgumentError(
            f"`transform` must be one of {listed(TRANSFORMS)}, a dict of them by variable, or None; "
            f"got {type(transform).__name__}."
        )
    by_name = {normal_name(k): v for k, v in transform.items()}
    for name in by_name:
        if name not in names:
            raise DataError(
                f"`transform`: {name!r} is not an observed variable.{did_you_mean(name, names)} "
                f"Observed are {listed(names)}."
            )
    given = {k: None if v is None else check_choice(v, TRANSFORMS, "transform") for k, v in by_name.items()}
    return {name: given.get(name) for name in names}
