"""The affine-invariant ensemble of emcee, moved by emcee's own stretch move.

Sampled variances are integrated out for the move, and drawn given the state when it is recorded. emcee's move draws
from the same stream of random numbers as everything else, so that a resumed ensemble is the uninterrupted one.

References
----------
Goodman, J. and Weare, J. (2010). Ensemble samplers with affine invariance. Comm. App. Math. Comp. Sci. 5, 65-80.
Foreman-Mackey, D. et al. (2013). emcee: the MCMC hammer. PASP 125, 306-312.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.checks import positive_number, whole_number
from fmepy.errors import ArgumentError
from fmepy.mcmc.kernels.base import Dispersion, Info, Sampler, Settings
from fmepy.mcmc.kernels.differential_evolution import Population, PopulationKernel, first_population
from fmepy.mcmc.target import Target
from fmepy.types import Matrix, Vector


class EmceeKernel(PopulationKernel):
    """The kernel behind ``method="emcee"``.

    Parameters
    ----------
    target : Target
    proposal
        Not used: the spread of the walkers at the start is that of `dispersion`.
    dispersion : Dispersion
    settings : Settings
        In its `control` `walkers`, at least twice the number of parameters, and `stretch`, emcee's ``a``, above 1.
    """

    def __init__(self, target: Target, proposal: Any, dispersion: Dispersion, settings: Settings) -> None:
        import emcee

        self._made_of = (target, proposal, dispersion, settings)
        self.target, self.dispersion, self.n_member = target, dispersion, settings.control["walkers"]
        self._emcee = emcee
        self._move = emcee.moves.StretchMove(a=settings.control["stretch"])

    def __reduce__(self) -> tuple[Any, ...]:
        return EmceeKernel, self._made_of

    def start(self, starts: Matrix, dispersed: bool, rng: np.random.Generator) -> Population:
        """Return the first state."""
        return first_population(self.dispersion, starts, dispersed, self.n_member, rng)

    def step(self, state: Population, rng: np.random.Generator) -> tuple[Population, Info]:
        """Move both halves of the ensemble once."""
        # what is known of a walker travels as emcee's "blobs"; of a model it needs the densities, and random numbers
        blobs = np.column_stack([state.prior, state.SS])
        before = self._emcee.State(state.theta, log_prob=state.log_posterior, blobs=blobs)
        model = self._emcee.model.Model(None, self._densities, map, np.random.RandomState(rng.bit_generator))
        after, accepted = self._move.propose(model, before)
        state.theta, state.log_posterior = after.coords, after.log_prob
        state.prior, state.SS = after.blobs[:, 0].copy(), after.blobs[:, 1:].copy()
        state.accepted = state.accepted + accepted
        state.update_best()
        state.draw_variances(self.target, rng)
        state.iteration += 1
        return state, Info(int(accepted.sum()), self.n_member)

    def _densities(self, coords: Matrix) -> tuple[Vector, Matrix]:
        """Return log posterior and blobs of some points; a point of zero density gets -inf."""
        n_variance = len(self.target.precision0)
        log_posterior, blobs = np.full(len(coords), -np.inf), np.zeros((len(coords), 1 + n_variance))
        for i, point in enumerate(self.target.evaluate_many(coords)):
            if point is not None:
                log_posterior[i], blobs[i, 0], blobs[i, 1:] = point.log_posterior, point.prior, point.SS
        return log_posterior, blobs


# --- the description of the sampler


def _checked(control: dict[str, Any], n_par: int) -> dict[str, Any]:
    walkers = max(4 * n_par, 20) if control["walkers"] is None else control["walkers"]
    stretch = positive_number(control["stretch"], "control: stretch")
    if stretch <= 1:
        raise ArgumentError(f"`control`: stretch={stretch!r} must be above 1.")
    return {"walkers": whole_number(walkers, "control: walkers", max(2 * n_par, 4)), "stretch": stretch}


SAMPLER = Sampler(EmceeKernel, {"walkers": None, "stretch": 2.0}, _checked)
