"""Nelder-Mead and bobyqa: methods that need no derivatives, both with native bounds, on scaled parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmepy.fitting.methods.gradient import LimitReachedError, ScaledCost, restarted
from fmepy.fitting.problem import OPTIM, Method, Outcome, Problem
from fmepy.types import Vector


def nelder_mead(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by the simplex of Nelder and Mead (scipy), started anew until nothing more is gained.

    The stop is relative: the costs of the simplex differ by less than `reltol` and its corners by less than the square
    root of it. A fresh simplex at the end tells a collapsed one from an optimum.
    """
    from scipy.optimize import Bounds, minimize

    reltol = float(control["reltol"])

    def run(scaled: ScaledCost) -> Any:
        return minimize(
            scaled.value,
            scaled.z0,
            method="Nelder-Mead",
            bounds=Bounds(scaled.lower, scaled.upper) if problem.is_bounded else None,
            callback=scaled.note,
            options={
                "maxiter": 20000,
                "maxfev": 40000,
                "fatol": reltol * _lowest(scaled),
                "xatol": np.sqrt(reltol),
                "adaptive": problem.start.size > 4,
            },
        )

    return restarted(problem, control, "scipy Nelder-Mead", run)


def _lowest(scaled: ScaledCost) -> float:
    """Return the scale of the absolute tolerance: the cost at the start is 1, but may fall by orders of magnitude."""
    return min(1.0, max(abs(scaled.problem.best[0]) / scaled.unit, 1e-8)) * 1e-2


def bobyqa(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by Powell's quadratic models in a box (nlopt's BOBYQA; for one parameter, which it refuses, COBYLA)."""
    import nlopt

    one = problem.moving.sum() == 1
    reltol = float(control["reltol"])

    def run(scaled: ScaledCost) -> Any:
        optimiser = nlopt.opt(nlopt.LN_COBYLA if one else nlopt.LN_BOBYQA, scaled.z0.size)
        optimiser.set_lower_bounds(scaled.lower)
        optimiser.set_upper_bounds(scaled.upper)
        optimiser.set_ftol_rel(reltol * 1e-2)
        optimiser.set_xtol_rel(float(control["rhoend"]))
        optimiser.set_maxeval(int(max(min(scaled.left, 100000), 1)))
        optimiser.set_initial_step(_first_step(scaled, float(control["rhobeg"])))
        lowest = [np.inf]

        def value(z: Vector, _: Vector) -> float:
            if scaled.left <= 0:
                raise LimitReachedError
            now = scaled.value(z)
            scaled.left -= 1
            if now < lowest[0]:
                lowest[0] = now
                problem.note(scaled.theta(z), now * scaled.unit)
            return now

        optimiser.set_min_objective(value)
        return _optimise(optimiser, scaled.z0)

    return restarted(problem, control, "nlopt COBYLA" if one else "nlopt BOBYQA", run)


def _first_step(scaled: ScaledCost, rhobeg: float) -> Vector:
    """Return the first radius, one for all since BOBYQA has one: at most a third of the narrowest box."""
    return np.asarray(np.minimum(np.full(scaled.z0.size, rhobeg), 0.3 * (scaled.upper - scaled.lower)))


def _optimise(optimiser: Any, start: Vector) -> str:
    import nlopt

    try:
        optimiser.optimize(start)
    except nlopt.RoundoffLimited:
        return "Rounding limits further progress."
    except (RuntimeError, ValueError) as error:  # nlopt's generic failure
        return f"nlopt stopped: {error}"
    return {
        nlopt.SUCCESS: "The trust region is as small as its tolerance.",
        nlopt.FTOL_REACHED: "The cost falls by less than its tolerance.",
        nlopt.XTOL_REACHED: "The parameters change by less than their tolerance.",
        nlopt.MAXEVAL_REACHED: "The limit of function evaluations is reached.",
    }.get(optimiser.last_optimize_result(), f"nlopt ended with code {optimiser.last_optimize_result()}.")


NELDER_MEAD = Method(nelder_mead, {"maxiter": 20000, "reltol": 1e-9}, OPTIM)
BOBYQA = Method(
    bobyqa,
    {"maxiter": 10000, "reltol": 1e-9, "rhobeg": 0.1, "rhoend": 1e-9},
    {**OPTIM, "maxfun": "maxiter", "maxeval": "maxiter"},
)
