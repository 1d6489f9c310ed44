"""How likely PEtab's readings are: normal or Laplace errors, of the reading, its logarithm or its decimal logarithm.

With T the scale of an observable, r = (T(mod) - T(obs)) / s, and the log density of the reading itself::

    normal      -log(s sqrt(2 pi)) - r^2 / 2 + log T'(obs)
    Laplace     -log(2 s) - |r| + log T'(obs)

whose slopes to mod and s, and their expected squares, follow; those of |r| where it is zero are zero.
"""

from __future__ import annotations

import copyreg
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fmepy.costs.likelihood_cost import BoundLikelihood
from fmepy.types import Vector

Kinds = tuple[tuple[str, str, str], ...]
"""(variable, scale, distribution) of every observable."""
LOG10 = float(np.log(10))


class _OfKinds(type):
    """The type of a class that is made for some kinds, so that it pickles."""


class ReadingsLikelihood(BoundLikelihood, metaclass=_OfKinds):
    """The likelihood of readings of different kinds; `kinds` is of the class, see `likelihood_of`."""

    kinds: ClassVar[Kinds] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        of = {v: (scale, distribution) for v, scale, distribution in self.kinds}
        scales = np.array([of[n][0] for n in self._compared.names])
        self._laplace = np.array([of[n][1] == "laplace" for n in self._compared.names])
        self._log = scales != "lin"
        self._unit = np.where(scales == "log10", LOG10, 1.0)

    def _scaled(self, x: Vector) -> Vector:
        return np.where(self._log, np.log(np.where(self._log, x, 1.0)) / self._unit, x)

    def _slope(self, x: Vector) -> Vector:
        return np.where(self._log, 1 / (np.where(self._log, x, 1.0) * self._unit), 1.0)

    def chi2(self, theta: Vector) -> float:
        """Return the sum of r^2 over all readings."""
        mod, spread = self._of_predictions(self.predictions.values(theta[self._at]), theta)
        r = self.standard(self._compared.obs, mod, spread)
        return float(r @ r)

    def standard(self, obs: Vector, mod: Vector, spread: Any) -> Vector:
        """Return r."""
        return np.asarray((self._scaled(mod) - self._scaled(obs)) / spread)

    def log_density(self, obs: Vector, mod: Vector, spread: Any) -> Vector:
        """Return the log density of every reading."""
        r = self.standard(obs, mod, spread)
        normal = -0.5 * np.log(2 * np.pi) - 0.5 * r * r
        return np.where(self._laplace, -np.log(2.0) - np.abs(r), normal) - np.log(spread) + np.log(self._slope(obs))

    def slopes(self, obs: Vector, mod: Vector, spread: Any) -> tuple[Vector, Vector]:
        """Return the derivatives of the log density to mod and to the noise."""
        r = self.standard(obs, mod, spread)
        to_r = np.where(self._laplace, -np.sign(r), -r)
        return to_r * self._slope(mod) / spread, (-to_r * r - 1) / spread

    def informations(self, mod: Vector, spread: Any) -> tuple[Vector, Vector]:
        """Return the expected squares of the slopes."""
        return (self._slope(mod) / spread) ** 2, np.where(self._laplace, 1.0, 2.0) / spread**2


@lru_cache(maxsize=64)
def likelihood_of(kinds: Kinds) -> Any:
    """Return the class of likelihood for observables of some kinds."""
    return _OfKinds(
        "ReadingsLikelihood", (ReadingsLikelihood,), {"kinds": kinds, "__doc__": ReadingsLikelihood.__doc__}
    )


copyreg.pickle(_OfKinds, lambda c: (likelihood_of, (c.kinds,)) if c.kinds else c.__name__)  # type: ignore[arg-type, return-value]
