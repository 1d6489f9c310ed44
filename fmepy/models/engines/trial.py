"""Whether many runs of a model are worth the explicit engine: a sum beforehand, and one run as a trial.

The default engine sets up anew and solves linear systems in every run; the explicit one does neither, but it must be
compiled and loaded first, and it is slow on stiff models. So it is taken where

1. there are enough runs: what is compiled, about ``COMPILE + COMPILE_EQUATION n`` seconds for n equations, is less than
   what is saved, ``SAVED`` seconds a run;
2. a run at the model's own parameters comes to its end, is not stiff by the test of the explicit loop, and takes at
   most `MOST_PER_STEP` times the steps of the default engine, stretch by stretch. A step of bdf takes the time of four
   to five explicit ones in small models (measured on 24 models of 1 to 7 states, stiff and not), and of more in larger
   ones, whose linear systems grow faster than their rates; so the explicit engine is then at least half as fast again.

Steps are counted and no time is taken: the choice follows from the model, its parameters and the number of runs alone.
"""

from __future__ import annotations

from fmepy.models.engines import diffsol, explicit
from fmepy.models.engines.base import Engine, SolverOptions
from fmepy.models.running.problem import Problem
from fmepy.types import Matrix, Vector

COMPILE, COMPILE_EQUATION = 0.02, 0.002
"""Seconds that the functions of a model take to compile, and the trial to run: of any, and more for each equation."""
SAVED = 1.5e-4
"""Seconds that a run of a small model takes less on the explicit engine."""
MOST_PER_STEP = 3
"""Explicit steps for one of the default engine."""
TO_START = 30
"""Explicit steps of a stretch that are not counted: the default engine takes the time of as many to set up."""


def runs_that_pay(n_equations: int) -> int:
    """Return from how many runs on a model of so many equations is worth compiling for the explicit engine.

    Examples
    --------
    >>> runs_that_pay(3), runs_that_pay(30)
    (173, 533)
    """
    return round((COMPILE + COMPILE_EQUATION * n_equations) / SAVED)


class TrialStepper:
    """The explicit engine, which gives up (SimulationError) where the default one takes so many steps less.

    Parameters
    ----------
    explicit : DopriStepper
    default : DiffsolStepper or None
        None where it cannot be had: whatever the explicit engine can finish is then quicker than what is left.
    """

    name = "numba"

    def __init__(self, explicit: explicit.DopriStepper, default: diffsol.DiffsolStepper | None) -> None:
        self.explicit, self.default = explicit, default
        self.watches_switches = explicit.watches_switches

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        if self.default is not None:
            self.explicit.most_steps = TO_START + MOST_PER_STEP * self.default.steps(start, z, inputs, times)
        return self.explicit.advance(start, z, inputs, times)


def _stepper(problem: Problem, options: SolverOptions) -> TrialStepper:
    has_default = options.method in diffsol.ENGINE.methods
    return TrialStepper(explicit.stepper(problem, options), diffsol.stepper(problem, options) if has_default else None)


TRIAL = Engine("trial", explicit.ENGINE.methods, _stepper, needs_equations=True, watches_switches=True)
"""The explicit engine where it suits a model; it fails where it does not. Not in the registry."""
