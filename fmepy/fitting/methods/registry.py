"""The methods of modFit, by name: a new one is one file and one line here.

A method is a function that keeps the contract of `fmepy.fitting.problem`; its file ends in a `Method`, which adds the
words of its `control` and what it needs. A method of your own joins by ``METHODS["mine"] = Method(...)``.
"""

from __future__ import annotations

from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError
from fmepy.fitting.methods import annealing, bobyqa, least_squares, pseudo_optim, scipy_minimize, scoring
from fmepy.fitting.problem import Method
from fmepy.parameters.priors import Prior

METHODS: dict[str, Method] = {
    "Marq": least_squares.MARQ,
    "Port": scipy_minimize.PORT,
    "Newton": scipy_minimize.NEWTON,
    "Nelder-Mead": scipy_minimize.NELDER_MEAD,
    "BFGS": scipy_minimize.BFGS,
    "CG": scipy_minimize.CG,
    "L-BFGS-B": scipy_minimize.LBFGSB,
    "SANN": annealing.SANN,
    "Pseudo": pseudo_optim.PSEUDO,
    "bobyqa": bobyqa.BOBYQA,
    "scoring": scoring.SCORING,
}


def method_for(method: str | None, objective: Objective, prior: Prior | None) -> str:
    """Return the method: the default for the kind of cost, or the user's if it suits."""
    squares = not objective.is_scalar and (prior is None or prior.all_normal)
    if method is None:
        return "Marq" if squares else "scoring" if objective.has_score else "BFGS"
    if METHODS[method].least_squares and not squares:
        if objective.is_scalar:
            raise ArgumentError(
                f"method={method!r} needs residuals, but the cost is one number (-2 log L). Use "
                f"{'scoring, ' if objective.has_score else ''}'BFGS', 'Port' or 'Nelder-Mead', or return the residuals."
            )
        raise ArgumentError(
            f"method={method!r} takes normal priors only, as residuals. For this prior use a method of the scalar "
            "cost: 'BFGS', 'Port', 'Nelder-Mead'."
        )
    if METHODS[method].needs_score and not objective.has_score:
        raise ArgumentError(
            f"method={method!r} needs a cost with a score and an expected information (a FimlofCost, or one with "
            "measurement_noise). For residuals use 'Marq', for a number 'BFGS' or 'Port'."
        )
    return method
