"""The methods of modFit: one dictionary of names.

A new method is one function that keeps the contract of `fmepy.fitting.problem`, and one line here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fmepy.fitting.annealing import pseudo, simulated_annealing
from fmepy.fitting.derivative_free import bobyqa, nelder_mead
from fmepy.fitting.gradient import bfgs, conjugate_gradients, lbfgsb, newton, port
from fmepy.fitting.least_squares import levenberg_marquardt
from fmepy.fitting.problem import Outcome, Problem
from fmepy.fitting.pseudo_optim import PSEUDO_CONTROL
from fmepy.fitting.scoring import SCORING_CONTROL, scoring

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True, slots=True, eq=False)
class Method:
    """A way to minimise.

    Attributes
    ----------
    run : callable
        ``run(problem, control) -> Outcome``.
    control : dict
        The control names it knows, with their defaults.
    aliases : dict
        FME's words for them.
    least_squares : bool
        True if it works on residuals, and so never on a scalar cost.
    box : bool
        True if it needs finite bounds.
    """

    run: Callable[[Problem, Mapping[str, Any]], Outcome]
    control: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)
    least_squares: bool = False
    box: bool = False


_OPTIM = {"maxit": "maxiter", "iterlim": "maxiter", "iter_max": "maxiter", "rel_tol": "reltol", "ftol": "reltol"}
_GRADIENT = {"maxiter": 1000, "reltol": 1e-9}

METHODS: dict[str, Method] = {
    "Marq": Method(
        levenberg_marquardt,
        {"maxiter": 2000, "ftol": 1e-8, "ptol": 1e-9, "gtol": 0.0, "factor": 100.0, "maxfev": None},
        {"maxit": "maxiter", "xtol": "ptol", "reltol": "ftol"},
        least_squares=True,
    ),
    "Port": Method(port, _GRADIENT, _OPTIM),
    "Newton": Method(newton, _GRADIENT, _OPTIM),
    "Nelder-Mead": Method(nelder_mead, {"maxiter": 20000, "reltol": 1e-9}, _OPTIM),
    "BFGS": Method(bfgs, _GRADIENT, _OPTIM),
    "CG": Method(conjugate_gradients, {"maxiter": 5000, "reltol": 1e-9}, _OPTIM),
    "L-BFGS-B": Method(
        lbfgsb, {"maxiter": 5000, "reltol": 1e-9, "factr": 10.0, "pgtol": 1e-10, "lmm": 20}, {**_OPTIM, "gtol": "pgtol"}
    ),
    "SANN": Method(
        simulated_annealing,
        {"maxit": 10000, "maxsteps": 1000, "temp": 5230.0},
        {"maxiter": "maxit", "numiter": "maxit", "maxfun": "maxit"},
        box=True,
    ),
    "Pseudo": Method(pseudo, PSEUDO_CONTROL, {"maxiter": "numiter", "maxit": "numiter"}, box=True),
    "bobyqa": Method(
        bobyqa,
        {"maxiter": 10000, "reltol": 1e-9, "rhobeg": 0.1, "rhoend": 1e-9},
        {**_OPTIM, "maxfun": "maxiter", "maxeval": "maxiter"},
    ),
    "scoring": Method(scoring, SCORING_CONTROL, {"maxit": "maxiter"}),
}
