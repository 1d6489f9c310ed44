"""What observations say of unknowns once the path is continuous: their covariance, and which they leave undetermined.

The starts of segments are eliminated: with C from the condensed squares, ``C C' = (J'J)^-1`` of the unknowns alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from fmepy.boundary.shooting_linear import GROWS
from fmepy.boundary.superposition import collinear, no_observation_depends_on
from fmepy.errors import SimulationError
from fmepy.numerics.covariance import SINGULAR
from fmepy.types import Matrix

_BEST_KNOWN = 1e-12
"""Smallest eigenvalue of a correlation, relative to the largest."""
_FELT, _TAKES_PART = 1e-12, 0.01
"""Effect of an unknown, relative to its size and those of states and residuals; share of a direction that is named."""


def half_covariance(search: Any, known: Collection[int] = ()) -> Matrix:
    """Return C with C C' = (J'J)^-1 of the unknowns, the starts of segments eliminated, shape (n_par, n_free)."""
    felt = search.linear(search.at).felt()
    scale = search.scale(search.at) / np.where(felt > 0, felt, 1.0)
    linear = search.segments.linear(search.at, search.state_scale, scale, search.size)
    step = linear.step(None, 0.0, dict.fromkeys(known, 0.0))
    _, s, V = np.linalg.svd(step.squares, full_matrices=False)
    out: Matrix = scale[:, None] * (step.basis @ (V.T / np.maximum(s, 1e-16 * s[0]))) / search.size
    return out


def curvature(search: Any) -> Matrix | None:
    """Return 2 J'J, the starts of segments eliminated; None where it is singular.

    It is made from the covariance, since J itself grows along chaotic records as their solutions do. A combination of
    unknowns that is known a million times better than any of them is taken to be known so well, and no better: an
    inverse of more does not come back from double precision.
    """
    if undetermined(search):
        return None
    half = half_covariance(search)
    covariance = half @ half.T
    sd = np.sqrt(covariance.diagonal())
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    inverse = (vectors / np.maximum(values, _BEST_KNOWN * values[-1])) @ vectors.T
    out: Matrix = 2 * inverse / np.outer(sd, sd)
    return out


def undetermined(search: Any, known: Collection[int] = ()) -> str:
    """Return which unknowns the observations leave undetermined, with exact continuity, as a sentence; "" if none.

    An unknown is if it would be known better by a factor 1/SINGULAR, were all others and the path known.
    """
    names = np.array(search.problem.names)
    if len(known) == len(names):
        return ""
    felt = search.linear(search.at).felt()
    felt[list(known)] = np.inf
    dead = names[~(felt > _FELT)]
    if len(dead):
        return no_observation_depends_on(dead.tolist())
    felt[list(known)] = 0.0
    try:
        relative = np.linalg.norm(half_covariance(search, known), axis=1) / search.scale(search.at)
    except SimulationError:
        return GROWS
    if (relative * felt * search.size <= 1 / SINGULAR).all():
        return ""
    return collinear(names[~(relative <= _TAKES_PART * relative.max())].tolist())
