"""Searches from several starts: spread over workers, stored on disk on request, and the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ConvergenceError
from fmepy.fitting.judge import SearchRecord
from fmepy.fitting.optima import SAME, MultiStart, missed_share, optimum_numbers
from fmepy.fitting.problem import Problem
from fmepy.fitting.starting_points import Design, Scales, starting_points
from fmepy.parallel.interruption import Stopped
from fmepy.parallel.resumable import resumable_tasks
from fmepy.parallel.runs import Runs
from fmepy.types import Matrix, Seed, Vector

if TYPE_CHECKING:
    from fmepy.fitting.modfit import OneFit
    from fmepy.fitting.result import ModFit

_PATIENCE = 30.0  # seconds after Ctrl-C for fits under way to come to the end of an evaluation
_TIE = 1e-4  # in -2 log L: of two ends that near one that converged is taken
_NOTHING = 1e-12  # of the largest sum of squares: residuals of nothing, whose logarithms do not count


def best_of(
    one: OneFit, starts: int | pd.DataFrame, *, seed: Seed, checkpoint: Any, executor: Any, progress: Any
) -> ModFit:
    """Return the fit with the lowest cost, with all searches in its `multistart`.

    Raises
    ------
    ConvergenceError
        No start came to a result.
    ArgumentError
        The checkpoint is of another question.
    """
    objective = one.objective
    with resumable_tasks(checkpoint, "a fit from several starts", seed=seed) as tasks:
        looked = objective.alone(objective.theta0, one.lower, one.upper, hold=False)  # no search: runs go together
        problem = Problem(looked, objective.theta0, one.lower, one.upper, one.prior, tasks.rng)
        scales = Scales(problem, objective.transforms)
        try:
            design = starting_points(starts, problem, scales, tasks.rng)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("while it was looked which of the starts run, before the first search") from None
        runs = tasks.spread(
            one,
            list(design.points),
            question={
                **_question(one, problem),
                "number of starts": len(design.points),
                "table of starts": design.points,
            },
            seeded=True,
            seen=_watcher(progress),
            executor=executor,
            progress=progress,
            patience=_PATIENCE,
        )
    done: list[SearchRecord] = [found for found in runs.results if found is not None]
    if not done:
        if runs.interrupted:
            raise KeyboardInterrupt("before any start came to a result")
        raise ConvergenceError(
            f"None of {len(runs)} starts gave a result. The first: {runs.failures['message'].iloc[0]}"
        )
    gap = _gap(one, done)
    best = _best(done, gap)
    many = _multistart(problem, scales, design, runs, gap, best)
    fit = one.result(best)
    failures = [objective.first_failure, looked.first_failure, *(found.first_failure for found in done)]
    return replace(
        fit,
        message=" ".join([fit.message, *_sentences(many), *tasks.notes]),
        multistart=many,
        evaluations=objective.evaluations + looked.evaluations + sum(found.evaluations for found in done),
        failures=objective.failures + looked.failures + sum(found.failures for found in done),
        first_failure=next(filter(None, failures), ""),
        interrupted=runs.interrupted,
    )


def resumed(one: OneFit, *, seed: Seed, checkpoint: Any, report: Any) -> ModFit:
    """Return the fit from one start, which continues from the evaluations stored in a folder.

    Raises
    ------
    ArgumentError
        The checkpoint is of another question.
    """
    objective = one.objective
    with resumable_tasks(checkpoint, "a fit", seed=seed) as tasks:
        problem = Problem(objective, objective.theta0, one.lower, one.upper, one.prior, tasks.rng)
        with tasks.evaluations(_question(one, problem)) as known:
            objective.keep_evaluations(known)
            try:
                fit = one.result(one(objective.theta0, tasks.rng, report))
            except Stopped as stop:
                fit = one.result(stop.partial)
    return replace(fit, message=" ".join([fit.message, *tasks.notes]))


def _watcher(progress: Any) -> Callable[[SearchRecord], object] | None:
    """Return the function that reports the lowest cost so far to a progress that shows it."""
    best = getattr(progress, "best", None)
    if best is None:
        return None
    least = np.inf

    def seen(record: SearchRecord) -> None:
        nonlocal least
        if record.value < least:
            least = record.value
            best(least)

    return seen


def _question(one: OneFit, problem: Problem) -> dict[str, Any]:
    """Return the fingerprint of this search: the problem and its values at the start."""
    return {
        **one.objective.identity,
        "cost at the start": problem.cost(problem.start),
        "prior at the start": None if one.prior is None else one.prior.minus2log(problem.start),
        "method": one.method,
        "control": dict(one.control),
        "lower bound": one.lower,
        "upper bound": one.upper,
        "hessian": one.hessian,
    }


def _gap(one: OneFit, done: list[SearchRecord]) -> Callable[[Any], Any]:
    """Return F above the best as a function of F, in units of -2 log L."""
    least = min(found.value for found in done)
    if one.objective.is_scalar or one.prior is not None or one.has_errors:
        return lambda value: value - least
    n = one.objective.n_obs
    nothing = _NOTHING * max((*(found.value for found in done), *(v for found in done for v in found.trace)))
    return lambda value: n * np.log((np.asarray(value) + nothing) / (least + nothing)) if nothing else value * 0.0


def _best(done: list[SearchRecord], gap: Callable[[Any], Any]) -> SearchRecord:
    """Return the lowest; of those that are as low one that converged."""
    good = [found for found in done if found.converged and gap(found.value) <= _TIE]
    return min(good or done, key=lambda found: found.value)


def _multistart(
    problem: Problem, scales: Scales, design: Design, runs: Runs, gap: Callable[[Any], Any], best: SearchRecord
) -> MultiStart:
    names, ends = list(problem.names), runs.results
    theta: Matrix = np.array([np.full(len(names), np.nan) if e is None else e.theta for e in ends])
    values = np.array([np.nan if e is None else e.value for e in ends])
    converged = np.array([e is not None and e.converged for e in ends])
    above = np.asarray(gap(values), dtype=float)

    def between(unit: Matrix) -> Vector:
        return np.asarray(gap(problem.costs(scales.points(unit))))

    numbers = optimum_numbers(above, scales.unit(theta), converged, None if runs.interrupted else between)
    messages = ["" if e is None else e.message for e in ends]
    for k, message in zip(runs.failures["run"], runs.failures["message"], strict=True):
        messages[int(k)] = str(message)
    starts = pd.DataFrame(theta, columns=names).assign(
        value=values,
        ssr=[np.nan if e is None else e.deviance for e in ends],
        converged=converged,
        message=messages,
        optimum=numbers,
    )
    found = [int(np.flatnonzero(numbers == k)[np.argmin(values[numbers == k])]) for k in range(1, numbers.max() + 1)]
    optima = starts.loc[found, ["optimum", "value", *names]].reset_index(drop=True)
    optima.insert(2, "count", [int(np.sum(numbers == k)) for k in optima["optimum"]])
    return MultiStart(
        starts=starts,
        optima=optima,
        reached=int(np.sum(above - gap(best.value) <= SAME)),
        replaced=design.replaced,
        missed=missed_share(int(np.sum(numbers > 0)), len(found)),
        above=pd.Series(above),
        scales=design.scales,
        label=("-2 log L" if problem.objective.is_scalar else "sum of squares")
        + ("" if problem.prior is None else " with the prior"),
        lower=pd.Series(problem.lower, index=names),
        upper=pd.Series(problem.upper, index=names),
        interrupted=runs.interrupted,
    )


def _sentences(many: MultiStart) -> list[str]:
    ended, n = int(many.above.notna().sum()), len(many.starts)
    sentence = f"{many.reached} of {n} starts came to this value"
    if many.reached < ended:
        worst = float(np.nanmax(many.starts["value"]) - np.nanmin(many.starts["value"]))
        sentence += f", the worst ended {worst:.3g} above it"
    return [f"{sentence}.", *([f"Ctrl-C: {ended} of {n} starts were run."] if many.interrupted else [])]
