"""profile and confidence: intervals of a parameter or a prediction by the profile likelihood.

The profile of a parameter is the lowest cost at each of its values, the others fitted again; its interval holds the
values at which the likelihood ratio stays below its threshold (`fmepy.fitting.profile_walk` says how it is found)::

    T(psi) = (F(psi) - F*) / s^2  <=  F_{1, n - p}(level)     a sum of squares, which estimates s^2 = F* / (n - p)
    T(psi) =  F(psi) - F*         <=  chi^2_1(level)          -2 log L, or a prior: noise is known, or a parameter

For a linear model the first is the t-interval. Raue et al. (2009), Bioinformatics 25, 1923-1929; Venzon and Moolgavkar
(1988), Applied Statistics 37, 87-94; of predictions Kreutz, Raue and Timmer (2012), BMC Syst. Biol. 6, 120.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1, positive_number, whole_number
from fmepy.errors import ArgumentError, ParameterError, listed
from fmepy.fitting.optimum import Optimum, optimum_of
from fmepy.fitting.predicted import Predicted, predictions_asked, table_of
from fmepy.fitting.profile_result import Profile, profile_of
from fmepy.fitting.profile_walk import walk_all
from fmepy.fitting.refits import Held, HeldParameter
from fmepy.parallel.interruption import interruptible
from fmepy.parameters.named import check_names
from fmepy.parameters.names import of_every_entity
from fmepy.tables.sheet import calendar_of
from fmepy.types import UserBounds
from fmepy.vocabulary import own_words

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit

_COARSE = 9  # places of a profile of which only the limits are wanted


@interruptible(lambda found: found.message)
def profile(
    f: Any,
    fit: ModFit,
    which: Sequence[str] | str | None = None,
    *,
    prediction: Any = None,
    level: float = 0.95,
    num: int = 21,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    method: str | None = None,
    executor: Any = None,
    progress: Any = False,
    checkpoint: Any = None,
    jac: Any = None,
    prior: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Profile:
    """Return the profile likelihood of parameters, the others fitted again at every value.

    Parameters
    ----------
    f : fmepy cost, or callable ``f(p)``
        What was fitted.
    fit : ModFit
        The fit; it is looked once more from its end, and told if it had not come to an optimum.
    which : name or names, optional
        Fitted parameters; the default is all, with `prediction` none.
    prediction : tuple, list of tuples, function, or dict of functions, optional
        What the model behind a fmepy cost predicts: (variable, time), or (variable, time, entity); the time may be a
        sequence. Or a function of p that gives one number.
    level : float
        Of the intervals, between 0 and 1.
    num : int
        Values of a profile, about, both sides together; what is needed to find the ends comes on top.
    lower, upper : number, sequence, or dict by name
        Bounds that neither the profiles nor the re-fits pass; the default is those of the fit.
    method : str, optional
        Of the re-fits, see `modFit`; the default is that of modFit for the kind of cost.
    executor, progress
        Every side of every profile is a task of its own, see `run_many`.
    checkpoint : path, optional
        A folder: what is done is kept there, and the same call goes on from it.
    jac, prior, args, kwargs
        As modFit had them; a fit with a prior has the profile of the posterior.

    Returns
    -------
    Profile
        ``intervals``, ``verdicts`` (a sentence a parameter), ``frame``, ``plot()``. After Ctrl-C what is done, with
        ``interrupted`` true.

    Raises
    ------
    ParameterError
        A parameter that was not fitted, or is unknown; bounds that the estimates do not keep.
    ArgumentError
        A level outside (0, 1); a cost that is not the one fitted (its value at the estimates is another); residuals
        without degrees of freedom, or all zero; a fit with a prior, and none given; a prediction of an unknown
        variable or entity, or at a time outside the model's.

    Notes
    -----
    With T the likelihood ratio statistic, F the cost at its lowest for a value psi of the parameter, n data, p
    parameters (the rank of the Hessian)::

        T(psi) = (F(psi) - F*) / s^2  <=  F_{1, n - p}(level)     a sum of squares, which estimates s^2 = F* / (n - p)
        T(psi) = F(psi) - F*          <=  chi^2_1(level)          -2 log L (noise is known, or a parameter), or a prior

    Errors of a column `err` only weigh a sum of squares, as in modFit's standard errors; errors that are known are said
    by ``measurement_noise=``. The ends are where the re-fitted profile itself crosses the threshold, found by root
    finding, not between places of a grid; of a linear model they are the t-interval.

    The sentence on a parameter begins with *identifiable* (both ends are found), *one-sided* (one is), *flat* (none is:
    the profile stays below the threshold to the bounds, or over eight decades), *at a bound* (one is found, on the
    other side the profile comes to a bound below the threshold, which is then the end), or *better optimum* (the cost
    fell below that of the fit on the way; all profiles were started again from there).

    The profile of a prediction is the lowest cost of all parameters that predict the value. Its places are found by a
    penalty, ``F + w^2 (g - z)^2``: the minimum lies on the profile, whatever w.

    Re-fits begin along the path of the last ones, with the model's exact sensitivities where it has them; a model is
    compiled once for all. Failed re-fits are in ``failures``.

    References
    ----------
    Venzon and Moolgavkar (1988), Applied Statistics 37, 87-94. Bates and Watts (1988), Nonlinear Regression Analysis
    and Its Applications, 6.1. Raue et al. (2009), Bioinformatics 25, 1923-1929. Kreutz, Raue and Timmer (2012), BMC
    Systems Biology 6, 120.

    Examples
    --------
    Biochemical oxygen demand (Bates and Watts 1988, A1.4), where standard errors mislead:

    >>> from fmepy import datasets, modFit
    >>> bod = datasets.load("BOD")
    >>> def residuals(p):
    ...     return p["A"] * (1 - np.exp(-p["k"] * bod["Time"].to_numpy())) - bod["demand"].to_numpy()
    >>> fit = modFit(residuals, {"A": 20.0, "k": 0.5})
    >>> prof = profile(residuals, fit)
    >>> prof.intervals.round(2)
       estimate  lower  upper  level
    A     19.14  14.05  38.46   0.95
    k      0.53   0.13   1.81   0.95
    >>> prof.verdicts["k"]
    'identifiable: 0.53109, 95 % between 0.1314 and 1.8082.'
    """
    level = between_0_and_1(level, "level")
    num = whole_number(num, "num", 5)
    best = optimum_of(f, fit, lower=lower, upper=upper, method=method, jac=jac, prior=prior, args=args, kwargs=kwargs)
    things: dict[str, Held] = {}
    of_model: dict[str, Predicted] = {}
    if which is not None or prediction is None:
        things |= {name: HeldParameter(best.names.index(name)) for name in _names(which, best, f)}
    if prediction is not None:
        asked, of_model = predictions_asked(prediction, f, best.search.objective)
        things |= asked
    found = walk_all(best, things, [level], num, executor=executor, progress=progress, checkpoint=checkpoint)
    out = profile_of(found, things, level, table_of(of_model, fit, found.best.theta), calendar_of(f))
    errors = getattr(fit, "std_error", None)
    if errors is not None and prior is None and np.array_equal(out.par, fit.par):  # by the observed curvature
        out.standard_error.update(errors[np.isfinite(errors)])
    return out


def _names(which: Any, best: Optimum, f: Any) -> list[str]:
    if which is None:
        return list(best.names)
    if not isinstance(which, str | Iterable):
        raise ArgumentError(f"`which` must be a name or a list of names; got {which!r}.")
    wanted = [k for k, _ in of_every_entity([which] if isinstance(which, str) else which, best.names)]
    given = best.search.objective.parameters.lmfit
    own = [str(n) for n in getattr(f, "parms", ())] if given is None else list(given)
    own = [str(n) for n in f.parms.index] if hasattr(getattr(f, "parms", None), "index") else own
    for name in map(str, wanted):
        if name not in best.names and name in own:
            raise ParameterError(
                f"`which`: {name!r} was not fitted, it stays at its value; the fit is of {listed(best.names)}. Fit it "
                "with the others, then profile it."
            )
    if not wanted:
        raise ParameterError(f"`which` is empty; the fit is of {listed(best.names)}.")
    return list(check_names(wanted, best.names, argument="which"))


# --- the ends alone, at several levels


@own_words
def confidence(
    f: Any,
    fit: ModFit,
    which: Sequence[str] | str | None = None,
    *,
    sigmas: Sequence[float] = (0.95,),
    maxiter: int = 200,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Return confidence intervals of fitted parameters by the profile F-test, at one or several levels.

    A parameter is held at a value while the others are fitted again; where the sum of squares rises so far that the
    F-test refuses the value lies the limit. Unlike ``fit.std_error`` it knows of curvature. The limits are those of
    `profile`, which also says what they mean, and takes likelihoods and bounds.

    Parameters
    ----------
    f : fmepy cost or callable
        What was fitted; it must give residuals.
    fit : ModFit
    which : name or names, optional
        The default is all.
    sigmas : sequence of float
        Probabilities below 1, or numbers of standard deviations.
    maxiter : int
        Most fits of the others for the limits of one side.
    args, kwargs
        Passed on to `f`.

    Returns
    -------
    DataFrame
        One row per parameter and level: parameter, level, estimate, lower, upper (NaN where no limit was found).

    Raises
    ------
    ArgumentError
        `f` gives a number, or a parameter is unknown.

    Examples
    --------
    >>> from fmepy.fitting import modFit
    >>> x = np.arange(1.0, 7.0)
    >>> line = lambda p: p[0] + p[1] * x - np.array([1.1, 1.9, 3.2, 3.9, 5.1, 6.0])
    >>> confidence(line, modFit(line, [0.0, 1.0]), "p2").round(3)
      parameter  level  estimate  lower  upper
    0        p2   0.95     0.994  0.905  1.084
    """
    names = [str(n) for n in fit.par.index]
    wanted = check_names([which] if isinstance(which, str) else names if which is None else which, names,
                         argument="which")  # fmt: skip
    levels = sorted(_probability(s) for s in np.ravel(sigmas))
    if fit.with_prior:
        raise ArgumentError("confidence() profiles the residuals of the data alone; this fit has a prior.")
    if fit.is_scalar:
        raise ArgumentError("confidence() tests sums of squares; this cost is one number, -2 log L. Use profile().")
    best = optimum_of(f, fit, args=args, kwargs=kwargs)
    if fit.at_bound:
        raise ArgumentError(
            f"The fit lies on a bound of {listed(fit.at_bound)}, where profiles have no two sides. Fit again with "
            "these parameters fixed at their bounds (left out of p), and take intervals of the others."
        )
    things = {n: HeldParameter(names.index(n)) for n in wanted}
    found = walk_all(best, things, levels, _COARSE, most=whole_number(maxiter, "maxiter", 1))
    rows = []
    for n in wanted:
        ends = [np.r_[found.sides[n, sign].ends, np.full(len(levels), np.nan)] for sign in (-1.0, 1.0)]
        estimate = float(things[n].place(found.best.theta))
        rows += [(n, level, estimate, ends[0][k], ends[1][k]) for k, level in enumerate(levels)]
    return pd.DataFrame(rows, columns=["parameter", "level", "estimate", "lower", "upper"])


def _probability(sigma: float) -> float:
    """Return the level of a probability, or of a number of standard deviations."""
    from scipy.special import erf

    value = positive_number(sigma, "sigmas", " (a probability below 1, or a number of standard deviations)")
    return round(value if value < 1 else float(erf(value / np.sqrt(2))), 10)
