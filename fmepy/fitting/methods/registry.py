"""The methods of modFit, by name: a new one is one file and one line here.

A method is a function that keeps the contract of `fmepy.fitting.problem`; its file ends in a `Method`, which adds the
words of its `control` and what it needs. A method of your own joins by ``METHODS["mine"] = Method(...)``.
"""

from __future__ import annotations

from fmepy.fitting.methods import annealing, bobyqa, least_squares, pseudo_optim, scipy_minimize, scoring
from fmepy.fitting.problem import Method

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
