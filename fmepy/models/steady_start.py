"""A run on a grid that starts from the steady state of a `SteadyModel`, at the parameters of the run.

With y0(p) the steady state, ``Y(p) = run(p, y0(p))`` and the variational equations start from ``dy0/dp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, ModelError, SimulationError
from fmepy.models.steady import SteadyModel
from fmepy.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class AtRest:
    """The start of a run: a steady state, of some of its species.

    Attributes
    ----------
    model : SteadyModel
    species : tuple of str
        Of the run, in order.
    """

    model: SteadyModel
    species: tuple[str, ...]

    def check_values(self, parms: pd.Series) -> None:
        """Refuse parameters that are another number at rest than in the run: they are one and the same."""
        at_rest = self.model.parms
        for name in (k for k in at_rest.index if k in parms and at_rest[k] != parms[k]):
            raise ModelError(
                f"`state`: {name!r} is {at_rest[name]:g} in the SteadyModel and {parms[name]:g} in the run, which "
                "starts from the steady state at its own parameters. Give both the same number; to start from another "
                "steady state call the parameter differently there, or give its table (state=steady(), numbers)."
            )

    def table(self, parameters: Sequence[str], names: Sequence[str] = ()) -> StartTable:
        """Return the starts as a function of `parameters`, with derivatives to `names`."""
        return StartTable(self, parameters, names)


class StartTable:
    """Starts of all cells with their derivatives, as a `ValueTable` has them; what the run has as forcing is held."""

    def __init__(self, rest: AtRest, parameters: Sequence[str], names: Sequence[str]) -> None:
        self._bound = rest.model.bind([k for k in rest.model.parms.index if k in parameters])
        self._take = [list(parameters).index(k) for k in self._bound.names]
        self._columns = [self._bound.var_names.index(s) for s in rest.species]
        self._own = [self._bound.names.index(k) if k in self._bound.names else -1 for k in names]

    def value(self, p: Sequence[float]) -> Vector:
        """Return the starts, shape (n_state,); SimulationError where there is no steady state."""
        try:
            Y = self._bound.simulate(np.asarray(p, dtype=float)[self._take])
        except ArgumentError as error:  # of the function, such as for a negative D
            raise SimulationError(f"there is no steady state to start from: {error}") from error
        return np.asarray(Y[:, self._columns].T.ravel())

    def slope(self, p: Sequence[float]) -> Matrix:
        """Return the derivatives, shape (n_state, n_names)."""
        S = self._bound.sensitivities(np.asarray(p, dtype=float)[self._take])[1][:, self._columns]
        S = np.concatenate([S, np.zeros((*S.shape[:2], 1))], axis=2)  # of what the steady state does not depend on
        return np.asarray(S[:, :, self._own].transpose(1, 0, 2).reshape(-1, len(self._own)))
