"""The scale on which model and data are compared: as they are, logarithms, or square roots, by variable.

For observation i of a variable with transform T the compared values are ``T(mod_i)`` and ``T(obs_i)``; their
derivative to a parameter is ``T'(mod_i) dmod_i/dp``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, DataError, check_choice, check_known, listed
from fmepy.journal.encoding import Stored
from fmepy.parameters.maps import TRANSFORMS
from fmepy.parameters.names import normal_name
from fmepy.types import BoolVector, IntVector, Vector

TRANSFORM_NAMES = ("log", "sqrt", "log10")
"""The words for transforms of readings."""
OBSERVED = "Observed are"


def _none() -> IntVector:
    return np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class ObservationScale(Stored):
    """Which of the compared values are transformed, and how.

    Attributes
    ----------
    log, sqrt, log10 : ndarray of int
        Positions of the values that are compared as logarithms, as square roots, and as decimal logarithms.
    """

    log: IntVector
    sqrt: IntVector
    log10: IntVector = field(default_factory=_none)

    @property
    def parts(self) -> list[tuple[str, IntVector]]:
        """The transforms that some values have, and their positions."""
        return [(kind, at) for kind in TRANSFORM_NAMES if (at := getattr(self, kind)).size]

    @property
    def is_identity(self) -> bool:
        """True if nothing is transformed."""
        return not self.parts

    def is_logarithmic(self, n: int) -> bool:
        """Tell whether all of n values are compared as logarithms."""
        return self.log.size + self.log10.size == n

    def is_defined(self, values: Vector) -> bool:
        """Tell whether every value can be transformed."""
        if self.log.size == values.size:
            return bool(values.min() > 0.0)
        return self.first_undefined(values) is None

    def first_undefined(self, values: Vector) -> int | None:
        """Return the position of the first value that cannot be transformed, None if all can."""
        first = []
        for kind, at in self.parts:
            own = values[at]
            bad = ~((own >= 0.0) if TRANSFORMS[kind].takes_zero else (own > 0.0))
            if bad.any():
                first.append(int(at[bad].min()))
        return min(first, default=None)

    def forward(self, values: Vector) -> Vector:
        """Return T(values), shape (n_obs,)."""
        if self.log.size == values.size:  # the common case, without gathering
            return np.log(values)
        out = values.copy()
        for kind, at in self.parts:
            out[at] = TRANSFORMS[kind].forward(values[at])
        return out

    def back(self, compared: Vector) -> Vector:
        """Return the values whose T they are, shape (n_obs,)."""
        out = compared.copy()
        for kind, at in self.parts:
            out[at] = TRANSFORMS[kind].back(compared[at])
        return out

    def log_jacobian(self, values: Vector, counted: BoolVector | None = None) -> float:
        """Return the sum of log |T'(values)|, of those that count; infinite with the square root of zero."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.slope(values))
        return float(np.sum(logs if counted is None else logs[counted]))

    @property
    def kinds(self) -> dict[int, str]:
        """The transform by position, of the values that have one."""
        return {i: kind for kind, at in self.parts for i in at.tolist()}

    def slope(self, values: Vector) -> Vector:
        """Return T'(values), shape (n_obs,); infinite for the square root of zero."""
        out = np.ones_like(values)
        with np.errstate(divide="ignore"):
            for kind, at in self.parts:
                out[at] = 1.0 / TRANSFORMS[kind].slope(values[at])
        return out

    @classmethod
    def joined(cls, scales: Sequence[ObservationScale], sizes: Sequence[int]) -> ObservationScale:
        """Return the scales of values that are put together, `sizes` of each."""
        first = np.cumsum([0, *sizes])
        own = ([getattr(s, kind) + k for s, k in zip(scales, first, strict=False)] for kind in TRANSFORM_NAMES)
        return cls(*map(np.concatenate, own))


def observation_scale(kinds: Sequence[str | None]) -> ObservationScale:
    """Return the scale of values whose transforms are `kinds`: "log", "sqrt", "log10" or None for each."""
    return ObservationScale(
        *(np.array([i for i, k in enumerate(kinds) if k == word], dtype=np.intp) for word in TRANSFORM_NAMES)
    )


def transforms_by_variable(transform: Any, variables: Iterable[str]) -> dict[str, str | None]:
    """Return the transform of every variable: "log", "log10", "sqrt" or None.

    Parameters
    ----------
    transform : None, "log", "log10", "sqrt", or mapping of variable to one of these
        Variables left out of a mapping are compared as they are.

    Raises
    ------
    ArgumentError
        An unknown word.
    DataError
        A variable that is not observed.
    """
    names = list(variables)
    return {**dict.fromkeys(names), **words_of_variables(transform, names, TRANSFORM_NAMES, "transform")}


def words_of_variables(given: Any, names: Sequence[str], choices: Sequence[str], argument: str) -> dict[str, str]:
    """Return the word of every variable of which one is said: one for all, or a dict of them by variable, or None.

    Raises
    ------
    ArgumentError, DataError
        As `transforms_by_variable`.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        return dict.fromkeys(names, check_choice(given, choices, argument))
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"`{argument}` must be one of {listed(choices)}, a dict of them by variable, or None; "
            f"got {type(given).__name__}."
        )
    out = {}
    for key, word in given.items():
        name = normal_name(key)
        check_known(name, names, f"`{argument}`: {name!r} is not an observed variable.", DataError, OBSERVED)
        if word is not None:
            out[name] = check_choice(word, choices, f"{argument}[{key!r}]")
    return out
