"""The second derivatives of a prior, by each parameter where its parts are independent, and never across a kink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fmepy.numerics.second_differences import second_differences
from fmepy.parameters.priors import Density, Prior
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fitting.problem import Problem

BESIDE = 1e-8
"""Relative distance to a bound that is no distance."""


def second_differences_of(problem: Problem, theta: Vector) -> Matrix:
    """Return the second derivatives of the prior's part."""
    assert problem.prior is not None, "asked only where there is one"
    minus2log = problem.prior.minus2log
    if problem.prior.parts is None:
        lower, upper = problem.lower, problem.upper
        return second_differences(lambda p: minus2log(problem.inside(p)), theta, lower, upper, problem.scale, 1e-16)
    return np.diag(bends_of(problem.prior.parts, theta, problem.scale))


def without_kinks(prior: Prior, theta: Vector, scale: Vector) -> Prior:
    """Return a prior with the bend that it has at theta everywhere, in place of densities with a kink."""
    bends = bends_of(prior.kinked, theta, scale)

    def smooth(d: Density) -> Density:
        return replace(d, with_slope=partial(_parabola, theta[d.at], bends[d.at]), kink=np.nan) if d.has_kink else d

    parts = tuple(map(smooth, prior.parts or ()))
    return replace(prior, minus2log=lambda p: -2.0 * sum(d.with_slope(float(p[d.at]))[0] for d in parts), parts=parts)


def _parabola(top: float, bend: float, x: float) -> tuple[float, float]:
    """Return a log density, and its slope, whose -2 log has a bend."""
    return -0.25 * bend * (x - top) ** 2, -0.5 * bend * (x - top)


def bends_of(parts: Sequence[Density], theta: Vector, scale: Vector) -> Vector:
    """Return the second derivatives of -2 log prior by each parameter, of distributions that are independent."""
    bends = np.zeros(theta.size)
    for d in parts:

        def of_one(p: Vector, d: Density = d) -> float:
            # rounding may take a probe an ulp past the end
            return -2.0 * d.with_slope(min(max(float(p[0]), d.lower), d.upper))[0]

        # a distance over which it is smooth: not as far as an end of the support, where a density may vanish
        x = float(theta[d.at])
        size = min(max(abs(x), 1e-3 * scale[d.at]), d.width)
        if abs(x - d.kink) <= BESIDE * size:  # it has none
            continue
        # beside an end one side serves; not across a kink
        room = [end for end in (x - d.lower, d.upper - x, abs(x - d.kink)) if end > BESIDE * size]
        ends = np.array([d.lower]), np.array([d.upper])
        bends[d.at] += second_differences(of_one, theta[d.at : d.at + 1], *ends, np.array([min([size, *room])]), 1e-16)[
            0, 0
        ]
    return bends
