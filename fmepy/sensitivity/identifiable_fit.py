"""identifiable_fit: select the parameters that the data can tell apart, fit them, select again, until nothing changes.

Sensitivities are local, and so is a selection made with them. Omlin's loop::

    1. sensitivities of all candidates at the present values, in units of the errors of the data
    2. the largest set with a collinearity below the threshold; of several the most important (largest rho), where those
       within one per cent of it count as equal, and the one most like the set before is taken
    3. fit that set, all other candidates held at their present values
    4. back to 1, until the same set is chosen again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.costs.mapped import MappedCost
from fmepy.costs.user_function import as_objective, is_cost, tell_held_noise
from fmepy.errors import ArgumentError
from fmepy.fitting import ModFit, modFit
from fmepy.numerics.differences import replaced
from fmepy.parallel.interruption import interruptible, outermost
from fmepy.parameters.functions import UserFunction, held_function
from fmepy.parameters.mapped import HeldValues
from fmepy.parameters.named import Parameters, as_bounds, as_parameters, check_inside
from fmepy.results.tables import Part, Shown, table
from fmepy.sensitivity.identifiability import Identifiability, identifiability
from fmepy.sensitivity.sensfun import sensFun
from fmepy.types import UserBounds, UserParameters, Vector

_EQUAL = 0.01  # sets whose importance differs by less are equal: else rounding would make the loop alternate


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IdentifiableFit(Shown):
    """Result of `identifiable_fit`.

    Attributes
    ----------
    fit : ModFit
        The last fit, of the selected parameters.
    selected : tuple of str
        The set.
    parms : Series
        All candidates: the selected ones at their estimates, the others at their fixed values.
    stable : bool
        True if the selection at the end is the one that was fitted.
    message : str
        How it ended.
    history : DataFrame
        One row per step: the parameters, their number N, collinearity of the set (at the values before the fit), of all
        candidates, `ssr` (of a likelihood `minus2loglik`) and `converged` of the fit.
    identifiability : Identifiability
        At the end, of all candidates.
    interrupted : bool
        True if Ctrl-C ended it.
    """

    fit: ModFit
    selected: tuple[str, ...]
    parms: pd.Series
    stable: bool
    message: str
    history: pd.DataFrame
    identifiability: Identifiability
    interrupted: bool = False

    def shown(self) -> list[str | Part]:
        """Return how the selection ended, its history, and the fit."""
        history = self.history.assign(parameters=[", ".join(names) for names in self.history["parameters"]])
        return [self.message, table(history, "{:.4g}"), "", *self.fit.shown()]


@interruptible(lambda found: found.message)
def identifiable_fit(
    cost: Any,
    p: UserParameters = None,
    *,
    threshold: float = 20.0,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    method: str | None = None,
    control: Mapping[str, Any] | None = None,
    maxcomb: float = 100_000,
    max_steps: int = 10,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> IdentifiableFit:
    """Return a fit of the parameters that the data can tell apart, with the history of the selection.

    Parameters
    ----------
    cost : fmepy cost, or callable ``cost(p, *args, **kwargs)`` that returns a ModCost
    p : dict, Series, sequence; for a fmepy cost also names, or None for all
        The candidates and their start.
    threshold : float
        Sets with a collinearity below it count as identifiable.
    lower, upper : number, sequence, or dict by name
        Bounds of the candidates.
    method, control
        As in `modFit`.
    maxcomb : float
        As in `identifiability`.
    max_steps : int
        At most so many fits.
    args, kwargs
        Passed on to a function of your own.

    Returns
    -------
    IdentifiableFit

    Raises
    ------
    ArgumentError
        No candidate has any influence; a cost without residuals; `max_steps` below 1.
    ParameterError
        As in `modFit`.

    Notes
    -----
    If an earlier set is selected again, the loop would never end: it stops there with ``stable=False``, and returns the
    fit with the lowest cost of the cycle.

    FME names the loop (its manual sends the user from `collin` to `modFit` and back) but has no function for it.

    References
    ----------
    Omlin, M., Brun, R. and Reichert, P. (2001), Ecol. Modell. 141, 105-123.

    Examples
    --------
    >>> from fmepy.costs.modcost import modCost
    >>> t = np.arange(0.0, 8.0)
    >>> data = {"time": t, "y": 4 * np.exp(-0.3 * t)}
    >>> def cost(p):                                          # a and b are known by their product only
    ...     return modCost({"time": t, "y": p["a"] * p["b"] * np.exp(-p["k"] * t)}, data)
    >>> found = identifiable_fit(cost, {"a": 1.0, "b": 1.0, "k": 0.1})
    >>> found.selected, found.stable
    (('a', 'k'), True)
    >>> found.parms.round(4).to_dict()
    {'a': 4.0, 'b': 1.0, 'k': 0.3}
    """
    max_steps = whole_number(max_steps, "max_steps", 1)
    if is_cost(cost) and (args or kwargs):
        raise ArgumentError("`args` and `kwargs` are for functions of your own; a fmepy cost takes parameters only.")
    user = {"args": args, "kwargs": kwargs}
    of_selection, of_fit = {"threshold": threshold, "maxcomb": maxcomb}, {"method": method, "control": control}
    loop = _Loop(cost, p, lower, upper, user, of_selection, of_fit)
    steps: list[_FitStep] = []
    chosen, analysis = loop.select(())
    message, stable = f"Stopped after max_steps={max_steps} fits: the selection still changes.", False
    interrupted = False
    try:
        for _ in range(int(max_steps)):
            steps.append(loop.fit(chosen, analysis))
            chosen, analysis = loop.select(chosen)
            if chosen == steps[-1].parameters:
                stable, message = True, f"Stable after {len(steps)} {'fit' if len(steps) == 1 else 'fits'}."
                break
            if chosen in [s.parameters for s in steps]:
                first = [s.parameters for s in steps].index(chosen)
                message = (
                    f"The selection cycles through {len(steps) - first} sets; the fit with the lowest cost is returned."
                )
                best = min(steps[first:], key=lambda s: s.fit.deviance)
                loop.theta, steps = best.theta, [*steps, best] if best is not steps[-1] else steps
                _, analysis = loop.select(best.parameters)
                break
    except KeyboardInterrupt:
        if not (steps and outermost()):
            raise
        interrupted, message = True, f"Interrupted by Ctrl-C; the last of {len(steps)} completed fits is returned."
    last = steps[-1]
    return IdentifiableFit(
        fit=last.fit,
        selected=last.parameters,
        parms=loop.parameters.series(loop.theta),
        stable=stable,
        message=message,
        history=_history(steps),
        identifiability=analysis,
        interrupted=interrupted,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _FitStep:
    parameters: tuple[str, ...]
    analysis: Identifiability
    fit: ModFit
    theta: Vector


def _history(steps: Sequence[_FitStep]) -> pd.DataFrame:
    rows = []
    for s in dict.fromkeys(steps):
        gamma = s.analysis.sets.iloc[:, -2].to_numpy()[s.analysis.largest.index(s.parameters)]
        rows.append(
            {
                "parameters": s.parameters,
                "N": len(s.parameters),
                "collinearity": float(gamma),
                "collinearity_all": s.analysis.collinearity,
                "minus2loglik" if s.fit.is_scalar else "ssr": s.fit.deviance,
                "converged": s.fit.converged,
            }
        )
    return pd.DataFrame(rows)


class _Loop:
    """The candidates with their present values; selects a set of them, and fits it."""

    def __init__(self, cost: Any, p: Any, lower: Any, upper: Any, user: Any, of_selection: Any, of_fit: Any) -> None:
        self.cost, self.user, self.of_selection, self.of_fit = cost, user, of_selection, of_fit
        self.parameters: Parameters = as_parameters(p, cost.parms if is_cost(cost) else None)
        if self.parameters.lmfit is not None:
            raise ArgumentError("`p`: give the candidates as a dict or a Series, and their bounds as `lower`, `upper`.")
        objective = as_objective(cost, p, **user)
        tell_held_noise(cost, self.parameters)
        if objective.is_scalar and not objective.has_score:
            raise ArgumentError("`cost` gives one number, -2 log L; residuals (a ModCost) are needed to select by.")
        names = self.parameters.names
        self.lower, self.upper = as_bounds(lower, upper, names, declared=(objective.lower, objective.upper))
        self.theta: Vector = np.array(self.parameters.values, dtype=float)
        check_inside(self.theta, self.lower, self.upper, names)
        self.is_likelihood = objective.is_scalar

    def select(self, before: tuple[str, ...]) -> tuple[tuple[str, ...], Identifiability]:
        """Return the set to fit at the present values; of equal sets the one most like the set `before`."""
        names = self.parameters.names
        present: Any = self.parameters.for_user(self.theta)
        # a candidate at zero still has an influence: its column is taken per unit of the parameter
        scale = {n: v if v != 0 else 1.0 for n, v in zip(names, self.theta, strict=True)}
        weighted = not self.is_likelihood
        sens = sensFun(
            self.cost, present, parscale=scale, weighted=weighted, varscale=None if weighted else 1.0,
            lower=list(self.lower), upper=list(self.upper), **self.user,
        )  # fmt: skip
        analysis = identifiability(sens, **self.of_selection)
        if not analysis.largest:
            raise ArgumentError("None of the candidates has any influence on the data: there is nothing to fit.")
        rho = analysis.sets.iloc[:, -1].to_numpy()  # by position: a parameter may have any name
        equals = [s for s, r in zip(analysis.largest, rho, strict=True) if r >= (1 - _EQUAL) * rho[0]]
        return max(equals, key=lambda s: len(set(s) & set(before))), analysis

    def fit(self, chosen: tuple[str, ...], analysis: Identifiability) -> _FitStep:
        """Fit the chosen parameters, and move the present values there."""
        at = [self.parameters.names.index(n) for n in chosen]
        f: Any
        if is_cost(self.cost):
            f = MappedCost(self.cost, HeldValues(self.parameters.series(self.theta)))
        else:
            f = held_function(UserFunction(self.cost, self.parameters, **self.user), self.theta.copy(), chosen)
        start = {n: float(self.theta[i]) for n, i in zip(chosen, at, strict=True)}
        fit = modFit(f, start, lower=list(self.lower[at]), upper=list(self.upper[at]), **self.of_fit)
        self.theta = replaced(self.theta, at, fit.par.to_numpy(dtype=float))
        return _FitStep(chosen, analysis, fit, self.theta)
