"""bobyqa: a method that needs no derivatives, with native bounds, on scaled parameters."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from fmepy.fitting.methods.scipy_minimize import ScaledCost, restarted
from fmepy.fitting.problem import OPTIM, LimitReachedError, Method, Outcome, Problem
from fmepy.types import Vector


def bobyqa(problem: Problem, control: Mapping[str, Any]) -> Outcome:
    """Minimise by Powell's quadratic models in a box (nlopt's BOBYQA; for one parameter, which it refuses, COBYLA)."""
    import nlopt

    one = problem.moving.sum() == 1
    reltol = float(control["reltol"])

    def run(scaled: ScaledCost) -> None:
        optimiser = nlopt.opt(nlopt.LN_COBYLA if one else nlopt.LN_BOBYQA, scaled.z0.size)
        optimiser.set_lower_bounds(scaled.lower)
        optimiser.set_upper_bounds(scaled.upper)
        optimiser.set_ftol_rel(reltol * 1e-2)
        optimiser.set_xtol_rel(float(control["rhoend"]))
        optimiser.set_maxeval(int(max(min(scaled.left, 100000), 1)))
        # the first radius, one for all since BOBYQA has one: at most a third of the narrowest box
        optimiser.set_initial_step(np.minimum(float(control["rhobeg"]), 0.3 * (scaled.upper - scaled.lower)))
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
        with suppress(nlopt.RoundoffLimited, RuntimeError, ValueError):  # it gave up; a fresh start may go on
            optimiser.optimize(scaled.z0)

    return restarted(problem, control, "nlopt COBYLA" if one else "nlopt BOBYQA", run)


BOBYQA = Method(
    bobyqa,
    {"maxiter": 10000, "reltol": 1e-9, "rhobeg": 0.1, "rhoend": 1e-9},
    {**OPTIM, "maxfun": "maxiter", "maxeval": "maxiter"},
)
