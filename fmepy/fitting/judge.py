"""The judgement of the end of a search: derivatives there, convergence, and the messages.

Converged means all of: a rule of the method ended the search; the gradient, of the parameters that no bound holds, is
all but zero (Gauss-Newton's next step is below 0.1 standard errors); the cost responds to every parameter there, and
rises to all sides. A method that stands still on a plateau has not converged, and says which parameters do nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.errors import SimulationError, counted, listed, sentence
from fmepy.fitting.problem import Outcome, Problem
from fmepy.fitting.response import Silent, falls_along, lost_rank, pushed, silent
from fmepy.journal.encoding import Stored
from fmepy.numerics.covariance import SINGULAR, Spectra
from fmepy.parameters.maps import TRANSFORMS
from fmepy.types import BoolVector, Matrix, Vector

_FAR = 1e100  # costs and parameters beyond it are on their way to infinity
_LOST = 1e6  # times its size at the start: a parameter so far off, and without effect, has run away
_NEAR = 1e-4  # of the parameters' sizes: a shorter step is none where data are exact
_EXACT = 1e-8  # of what residuals change by with the parameters: rounding, and what a short step leaves
_AT_END = 1e-3  # of the way from the start to an end of a scale: a parameter that went nearer, and is without effect
_OFFSET = 0.1  # standard errors: a longer Gauss-Newton step from the result means that it is no optimum


@dataclass(frozen=True, slots=True, eq=False)
class SearchRecord(Stored):
    """The end of a search and its judgement; it travels from workers and is stored in checkpoints.

    For the words see `fmepy.fitting.result.ModFit`.

    Attributes
    ----------
    theta : ndarray, shape (n_par,)
    value : float
        What was minimised, a prior's part included.
    deviance : float
        That of the data alone: the sum of squares, or -2 log L.
    curvature : ndarray, shape (n_par, n_par), or None
        Second derivatives of the cost; None if they were not wanted, or could not be taken.
    rank : int
        Its numerical rank, parameters brought to one size; their number where there is no Hessian.
    """

    theta: Vector
    value: float
    deviance: float
    at_bound: BoolVector
    curvature: Matrix | None
    rank: int
    gradient: float
    converged: bool
    message: str
    iterations: int
    engine: str
    trace: Vector
    evaluations: int
    retries: int
    failures: int
    interrupted: bool
    first_failure: str = ""

    @property
    def of_fit(self) -> dict[str, Any]:
        """The fields that a `ModFit` has under the same names."""
        return {name: getattr(self, name) for name in _OF_FIT}


_OF_FIT = ("curvature", "rank", "gradient", "iterations", "engine", "evaluations", "retries", "failures",
           "first_failure", "interrupted")  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Curvature:
    """Derivatives at the optimum, as far as they could be computed.

    Attributes
    ----------
    offset : float
        Distance to the optimum in standard errors; NaN if it is not known.
    doubts : tuple of str
        Why this is no optimum, however small the gradient may be.
    """

    spectra: Spectra | None
    gradient: float
    offset: float
    dead: tuple[int, ...] = ()
    doubts: tuple[str, ...] = ()


def judged(problem: Problem, outcome: Outcome, wanted: bool, *, interrupted: bool = False) -> SearchRecord:
    """Return the judgement of the end of a search; `wanted`: with derivatives."""
    objective, theta = problem.objective, problem.inside(outcome.par)
    found = _curvature(problem, theta, wanted)
    H = None if found.spectra is None else found.spectra.hessian
    lost = _lost(problem, theta, H)
    away = _runs_away(objective.value(theta), theta)
    far = bool(found.offset > _OFFSET) and not objective.has_kinks  # at a kink the gradient is not zero
    return SearchRecord(
        theta=theta,
        at_bound=problem.at_bound(theta),
        curvature=H,
        rank=theta.size if found.spectra is None else _rank(found.spectra, found.dead),
        gradient=found.gradient,
        converged=outcome.converged and not (far or found.doubts or away or lost),
        message=_away(problem, theta) if away else _message(problem, theta, outcome, found, lost, far),
        value=problem.value(theta),
        deviance=objective.value(theta),
        iterations=outcome.iterations,
        engine=outcome.engine,
        trace=np.array(problem.trace),
        evaluations=objective.evaluations,
        retries=objective.retries,
        failures=objective.failures,
        interrupted=interrupted,
        first_failure=objective.first_failure,
    )


def _curvature(problem: Problem, theta: Vector, wanted: bool) -> _Curvature:
    if not wanted:
        return _Curvature(None, np.nan, np.nan)
    try:
        full = problem.gradient(theta)
        H = problem.hessian(theta)
        g = np.where(problem.blocked(theta, full), 0.0, full)
        size = problem.sizes(theta)
        value = problem.value(theta)
        gradient = float(np.linalg.norm(g * size) / max(abs(value), 1e-300)) if np.any(g) else 0.0
        free = problem.moving & ~(problem.at_bound(theta) & (g == 0)) & ~np.isnan(H.diagonal())
        if problem.is_least_squares:
            offset = problem.offset(theta, free)
            if offset > _OFFSET and _is_exact(problem, theta, free):
                offset = 0.0
        else:
            offset = _offset(H, g, free)
        spectra = Spectra(H)
        quiet = silent(problem, theta, H)
        doubts = _doubts(problem, theta, spectra, free, quiet)
        if not problem.is_least_squares and (edge := pushed(problem, theta, H, g)):
            doubts += (
                f"The cost falls along {listed([problem.names[j] for j in edge])} to where runs fail: this is an edge, "
                "not an optimum. Give bounds (lower=, upper=) within which runs succeed, or another start.",
            )
    except SimulationError as error:
        return _Curvature(None, np.nan, np.nan, doubts=(f"No derivatives could be taken at the optimum: {error}",))
    return _Curvature(spectra, gradient, offset, tuple(quiet.dead), doubts)


def _is_exact(problem: Problem, theta: Vector, free: BoolVector) -> bool:
    """Tell whether the model fits data without noise exactly: a distance in standard errors then means nothing.

    What Gauss-Newton's next step leaves of the residuals is no more than rounding, or the solver's error, and the step
    itself is small beside the parameters.
    """
    J, r, size = problem.jacobian(theta)[:, free], problem.residuals(theta), problem.sizes(theta)[free]
    scaled = J * size
    step = np.linalg.lstsq(scaled, -r, rcond=1e-10)[0]
    if np.abs(step).max() > _NEAR:
        return False
    left = float(np.linalg.norm(r + scaled @ step))
    error = max(_EXACT * float(np.linalg.norm(scaled)), problem.objective.differences.absolute * r.size**0.5)
    if left <= error:
        return True
    tight = problem.objective.tightened()
    if tight is None:
        return False
    try:
        error = float(np.linalg.norm(tight.scaled_residuals(theta) - problem.objective.scaled_residuals(theta)))
    except SimulationError:
        return False
    return left <= 3 * error


def _offset(H: Matrix, g: Vector, free: BoolVector) -> float:
    """Return the length of Newton's next step in standard errors, along the directions of positive curvature."""
    if not free.any() or not np.isfinite(H[np.ix_(free, free)]).all():
        return 0.0 if not free.any() else np.nan
    diagonal = np.abs(np.diag(H)[free])
    size = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(H[np.ix_(free, free)] * np.outer(size, size))
    along, bent = vectors.T @ (g[free] * size), values > 1e-12 * values[-1]
    return float(np.sqrt(np.sum(along[bent] ** 2 / (2 * values[bent]))))


def _doubts(problem: Problem, theta: Vector, spectra: Spectra, free: BoolVector, quiet: Silent) -> tuple[str, ...]:
    """Return why theta is no optimum although its gradient may be zero."""
    names, notes = problem.names, []
    if quiet.blind:
        notes.append(
            f"Runs fail on both sides of {listed([names[j] for j in quiet.blind])} here, so nothing is known of the "
            "cost around it. Try another start, or give bounds (lower=, upper=) within which runs succeed."
        )
    ends = _at_ends_of_scale(problem, theta, quiet.dead)
    notes += ends.values()
    if plateau := [names[j] for j in quiet.dead if j not in ends]:
        notes.append(
            f"The cost does not respond to {listed(plateau)} here: this is a plateau, not an "
            "optimum. Try another start or starts=10, give bounds, or leave out what has no influence."
        )
    if quiet.dead:
        return tuple(notes)
    if quiet.falling or (not problem.is_least_squares and falls_along(problem, theta, spectra.hessian, free)):
        notes.append("The cost still falls to the sides: this is a saddle, not an optimum. Try another start.")
    elif lost_rank(problem, spectra, free):
        notes.append(
            "The derivatives with respect to the parameters, independent at the start, no longer are: some parameters "
            "now have the same effect. Try another start or starts=10."
        )
    return tuple(notes)


def _at_ends_of_scale(problem: Problem, theta: Vector, quiet: Iterable[int]) -> dict[int, str]:
    """Return a message for each parameter without influence that a logarithm or a logit carried to an end of its range.

    The cost is lowest at the end itself, 0 or 1, which no number on such a scale is.
    """
    kinds, notes = problem.objective.transforms or {}, {}
    for j in quiet:
        name, kind = problem.names[j], kinds.get(problem.names[j])
        if not kind:
            continue
        transform = TRANSFORMS[kind]
        with np.errstate(over="ignore", under="ignore"):
            value, start = transform.back(theta[j]), transform.back(problem.start[j])
        for end, bound in ((0.0, "lower=0"), (transform.upper_end, f"upper={transform.upper_end:g}")):
            if np.isfinite(end) and abs(value - end) < _AT_END * abs(start - end):
                notes[j] = (
                    f"{name} goes to {end:g}, an end that its scale does not reach ({kind}({name}) is "
                    f"{theta[j]:.4g}). Fit it as it is, with {bound} as a bound, or fix it there."
                )
    return notes


def _rank(spectra: Spectra, dead: tuple[int, ...]) -> int:
    """Return the rank: of the parameters that do something, and one each for those that are left out."""
    left_out = np.isnan(spectra.hessian.diagonal())
    alive = ~left_out
    alive[list(dead)] = False
    return spectra(alive).rank + int(left_out.sum())


def _runs_away(value: float, theta: Vector) -> bool:
    """Tell whether a search went off to infinity."""
    return value < -_FAR or bool(np.any(np.abs(theta) > _FAR))


def _lost(problem: Problem, theta: Vector, H: Matrix | None) -> list[int]:
    """Return the parameters that went to where the cost no longer depends on them.

    There a change by their own size moves it by less than one in -2 log L, or one residual variance.
    """
    if H is None:
        return []
    far = np.abs(theta) > _LOST * problem.scale
    if not far.any():
        return []
    unit = 1.0
    if problem.is_least_squares:
        r = problem.residuals(theta)
        unit = max(float(r @ r) / max(r.size - theta.size, 1), 1e-300)
    moves = 0.5 * np.diag(H) * theta**2 / unit
    return [int(j) for j in np.flatnonzero(far & (np.isnan(moves) | (moves < 1)))]


def _away(problem: Problem, theta: Vector) -> str:
    if problem.objective.kind == "cost":
        data = counted(round(problem.objective.nobs), "datum", "data")
        return (
            f"The cost falls without end, so there is no optimum: {data} do not hold "
            f"{len(theta)} parameters here. Give bounds (lower=, upper=) or a prior, or fix some."
        )
    return (
        "The cost falls without end, so there is no optimum: it may be a likelihood with its sign turned (f is to "
        "return -2 log L), or need bounds."
    )


def _message(problem: Problem, theta: Vector, outcome: Outcome, found: _Curvature, lost: list[int], far: bool) -> str:
    parts = [outcome.message]
    if far:
        parts.append(
            f"But this is no optimum: the next Gauss-Newton step would be {found.offset:.2g} standard errors long"
            f"{_of_step(problem, theta, found)}. Try another start, starts=10, or another method."
        )
    parts += found.doubts
    ends = _at_ends_of_scale(problem, theta, lost)
    parts += [note for note in ends.values() if note not in found.doubts]
    for j in (j for j in lost if j not in ends):
        parts.append(
            f"{problem.names[j]} ran away, from {problem.start[j]:.4g} to {theta[j]:.4g}, where the cost no longer "
            "depends on it. This is no optimum: give it bounds (lower=, upper=)."
        )
    return " ".join([*parts, *_of_bounds(problem, theta), *_of_covariance(problem, theta, found), *_of_data(problem)])


def _of_step(problem: Problem, theta: Vector, found: _Curvature) -> str:
    """Return which parameters the next step would change most: on a ridge, those that the data cannot distinguish."""
    if found.spectra is None:
        return ""
    free = problem.moving & ~problem.at_bound(theta) & ~np.isnan(found.spectra.hessian.diagonal())
    s = found.spectra(free)
    if not s.values.size or not s.values[-1] > 0:
        return ""
    along = s.vectors.T @ (problem.gradient(theta)[free] * s.size)
    bent = s.values > SINGULAR**2 * s.values[-1]
    step = -(s.vectors[:, bent] @ (along[bent] / s.values[bent])) * s.size / problem.sizes(theta)[free]
    names, order = np.array(problem.names)[free], np.argsort(-np.abs(step), kind="stable")[:4]
    moved = [f"{step[j]:+.2g} {names[j]}" for j in order if abs(step[j]) > 0.1 * abs(step[order[0]])]
    return f", above all in (relative changes) {' '.join(moved)}" if moved else ""


def _of_bounds(problem: Problem, theta: Vector) -> list[str]:
    """Return the message about parameters that are held by a bound, or at the kink of their prior."""
    notes = []
    zero = problem.noise_scales & (theta == 0)
    gone = [n for n, is_zero in zip(problem.names, zero, strict=True) if is_zero]
    if gone:
        notes.append(
            f"The likelihood is highest without the noise of {', '.join(gone)}; standard errors are of the others."
        )
    on = problem.at_bound(theta)
    notes += on_a_bound([n for n, b in zip(problem.names, on & ~zero, strict=True) if b])
    if problem.prior is not None:
        kinks = problem.prior.at_kink(theta) & ~on
        notes += on_a_bound([n for n, k in zip(problem.names, kinks, strict=True) if k], "At the kink of its prior")
    return notes


def on_a_bound(held: Sequence[str], where: str = "On a bound") -> list[str]:
    """Return the message about parameters on a bound, or held elsewhere; none where there are none."""
    if not held:
        return []
    return [
        f"{where}: {', '.join(held)}, without standard error, t and p; the standard errors of the others hold for "
        f"{'it' if len(held) == 1 else 'them'} fixed there."
    ]


def _of_covariance(problem: Problem, theta: Vector, found: _Curvature) -> list[str]:
    """Return the message where there is no covariance, or not the usual one."""
    notes, spectra = [], found.spectra
    if problem.is_expected:
        notes.append(
            "The likelihood has kinks: standard errors are from the expected information."
            if problem.objective.has_kinks
            else "The observed information is not positive definite: standard errors are from the expected one."
        )
    if spectra is None:
        return notes
    free = spectra(~problem.at_bound(theta) & ~np.isnan(spectra.hessian.diagonal()))
    if not free.kept.any():
        return notes
    loose = free.undetermined(problem.names, problem.sizes(theta))
    if loose:
        notes.append(
            f"The data leave a combination of parameters undetermined (relative changes): {loose}. There is no "
            "covariance; fix one of them, or give a prior."
        )
    elif not free.is_definite:
        notes.append("The Hessian is not positive definite: there is no covariance.")
    return notes


def _of_data(problem: Problem) -> list[str]:
    """Return the messages about too few data and failed runs."""
    notes, objective = [], problem.objective
    nobs, n_par = objective.nobs, len(problem.names)
    if objective.is_scalar and nobs < n_par:
        notes.append(f"{counted(int(nobs), 'datum', 'data')} for {n_par} parameters: the estimates are not determined.")
    if not objective.is_scalar and nobs <= n_par:
        notes.append(
            f"{counted(int(nobs), 'residual')} for {counted(n_par, 'parameter')}: there are no degrees of freedom, no "
            "residual variance, and no standard errors."
        )
    if objective.failures:
        first = sentence(objective.first_failure)
        notes.append(f"{objective.failures} of {objective.evaluations} runs failed; the first: {first}")
    return notes
