"""predict: the curve of a model with a band, from whatever is known of its parameters: a fit, draws, profiles.

The formulas stand in `fmepy.fitting.bands`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.costs.user_function import is_cost, is_model
from fmepy.errors import ArgumentError
from fmepy.fitting.bands import band_of_draws, band_of_fit, band_of_profile, draws_of
from fmepy.fitting.profile_result import Profile
from fmepy.fitting.result import ModFit
from fmepy.results.tables import Framed, Part, long_table, wrapped
from fmepy.types import AxesArray
from fmepy.vocabulary import own_words


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prediction(Framed):
    """A curve with its band.

    Attributes
    ----------
    frame : DataFrame
        Columns: the independent variable, var, fit (of draws: the median), se, lower, upper; variables one after the
        other.
    level : float
        Coverage of the band.
    reading : bool
        True if the band contains a new reading, False if it contains the model's value.
    source : str
        What it is made from: "fit", "draws" or "profiles".
    message : str
        What is to be said of it.
    """

    frame: pd.DataFrame
    level: float
    reading: bool
    source: str = "fit"
    message: str = ""

    @property
    def contains(self) -> str:
        """What the band contains, in words."""
        what = "a new reading" if self.reading else "the model's value"
        return f"{100 * self.level:g} % of {what}"

    def shown(self) -> list[str | Part]:
        """Return what the band contains, and the table."""
        note = [wrapped(self.message)] if self.message else []
        made = {"fit": "the fit's covariance", "draws": "draws", "profiles": "profiles"}[self.source]
        return [f"Prediction, band of {self.contains}, from {made}", long_table(self.frame), *note]

    def plot(self, obs: Any = None, *, which: Any = None, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw one panel per variable: curve, band, observations; return the Axes."""
        from fmepy.plotting.fits import plot_prediction

        return plot_prediction(self, obs, which=which, axes=axes, **kwargs)


@own_words
def predict(model: Any, fit: Any, *, times: Any = None, level: float = 0.95, reading: bool = False) -> Prediction:
    """Return the curve of a model with a band, from a fit, a chain, a table of draws, or profiles.

    Parameters
    ----------
    model : fmepy model, or callable ``model(p) -> DataFrame``
        Of the same parameters as the fit: for a fit of log p, `transformed(model, "log")`.
    fit : ModFit, ModMCMC, table of draws, or Profile
        What is known of the parameters. A chain or table: one column per parameter, one row per draw; of more than
        1000 rows as many, evenly spaced, are run. A profile is one of predictions, ``profile(cost, fit,
        prediction=("y", times))``.
    times : sequence, optional
        Where the curve is wanted (fmepy models only); the default is the model's own. A profile has its own.
    level : float
        Coverage of the band, between 0 and 1.
    reading : bool
        False: the band contains the model's value. True: a new reading, with the noise of the data: what
        ``measurement_noise=`` said of it (an expression is evaluated where it is predicted), the variances that a chain
        has sampled, or the residual variance of each variable (``var_ms_unweighted``, corrected for degrees of freedom;
        of equal errors). Where data were compared on another scale (``transform="log"``), the band is made there and
        taken back: it is lognormal.

    Returns
    -------
    Prediction

    Raises
    ------
    ArgumentError
        A level outside (0, 1), a model that has none of the fitted parameters, times for a plain function or a profile;
        a profile of parameters; readings where nothing is said of the noise, or it depends on what is not known.
    ParameterError
        A table of draws with a column that the model has no parameter of.
    SimulationError
        None of the draws could be run.

    Notes
    -----
    A parameter of the fit on a bound counts as fixed there. Parameters of a fit's or a chain's cost that the model does
    not have (noise, another part of a sum) are left out; draws of a chain (``chain.pars``) know which these are.

    The band of readings from a profile is the profile of a reading: all z that are as likely, together with the data,
    as the level asks (Kreutz, Raue and Timmer 2012, BMC Systems Biology 6, 120).

    The band of a fit is linear theory: that of a model that is a plane over the region of the covariance. If it is
    curved there, that of draws or of profiles is better.

    Examples
    --------
    >>> import numpy as np
    >>> from fmepy.fitting import modFit
    >>> x = np.arange(1.0, 7.0)
    >>> y = np.array([1.1, 1.9, 3.2, 3.9, 5.1, 6.0])
    >>> fit = modFit(lambda p: p[0] + p[1] * x - y, [0.0, 1.0])
    >>> band = predict(lambda p: pd.DataFrame({"x": x, "y": p[0] + p[1] * x}), fit)
    >>> band["se"].round(4).tolist()
    [0.0976, 0.0733, 0.0574, 0.0574, 0.0733, 0.0976]
    >>> band.contains
    "95 % of the model's value"
    """
    level = between_0_and_1(level, "level")
    if is_cost(model):
        filtered = " The filter's own bands: cost.filter(fit.par).plot() and .forecast()."
        raise ArgumentError(
            f"`model` must be a model, such as the one that the cost was made with; got {type(model).__name__}."
            f"{filtered if hasattr(model, 'filter') else ''}"
        )
    if not is_model(model) and not callable(model):
        raise ArgumentError(f"`model` must be a model or a function of p; got {type(model).__name__}.")
    if not is_model(model) and times is not None:
        raise ArgumentError("`times` is for fmepy models; a function of your own returns its own table.")
    if isinstance(fit, Profile):
        if times is not None or level != fit.level:
            raise ArgumentError("A profile has its own times and level: give them to profile().")
        return Prediction(band_of_profile(model, fit, reading), level, bool(reading), "profiles", fit.message)
    if isinstance(fit, ModFit):
        return Prediction(band_of_fit(model, fit, times, level, reading), level, bool(reading), "fit")
    draws = draws_of(fit)
    if draws is None:
        raise ArgumentError(
            "`fit` must be a result of modFit, modMCMC or profile, or a table of draws (a column per parameter); got "
            f"{type(fit).__name__}."
        )
    frame, note = band_of_draws(model, *draws, times, level, reading)
    return Prediction(frame, level, bool(reading), "draws", note)
