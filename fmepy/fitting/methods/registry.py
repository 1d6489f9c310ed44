"""The methods of modFit, by name: a new one is one file and one line here.

A method is a function that keeps the contract of `fmepy.fitting.problem`; its file ends in a `Method`, which adds the
words of its `control` and what it needs. A method of your own joins by ``METHODS["mine"] = Method(...)``.
"""

from __future__ import annotations

from fmepy.fitting.methods import annealing, derivative_free, gradient, least_squares, pseudo_optim, scoring
from fmepy.fitting.problem import Method

METHODS: dict[str, Method] = {
    "Marq": least_squares.MARQ,
    "Port": gradient.PORT,
    "Newton": gradient.NEWTON,
    "Nelder-Mead": derivative_free.NELDER_MEAD,
    "BFGS": gradient.BFGS,
    "CG": gradient.CG,
    "L-BFGS-B": gradient.LBFGSB,
    "SANN": annealing.SANN,
    "Pseudo": pseudo_optim.PSEUDO,
    "bobyqa": derivative_free.BOBYQA,
    "scoring": scoring.SCORING,
}
