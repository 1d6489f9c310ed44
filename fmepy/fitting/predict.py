"""predict: the curve of a model with a band, from whatever is known of its parameters: a fit, draws, profiles.

With S_i the derivatives of a value y_i to the parameters, C = ``fit.cov_scaled``, T the transform by which a variable
is compared with its readings (identity where none was asked for), and sigma the sd of a reading on that scale::

    a fit       se_i^2 = S_i C S_i'                             y_i -/+ q se_i
      reading   T^-1( T(y_i) -/+ q sqrt( (T'(y_i) se_i)^2 + sigma^2 ) )
    draws       quantiles of y_i over the draws
      reading   T^-1 of quantiles of the mixture of normals N(T(y_ik), sigma_k^2) over the draws k
    profiles    the ends of the profile of y_i
      reading   the ends of the profile of a reading, see `fmepy.fitting.reading`

q is the quantile of t with the fit's degrees of freedom, or of the normal distribution for -2 log L and with a prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.costs.noise import MEASUREMENT, SaidNoise, sd_name
from fmepy.costs.user_function import as_simulator, is_cost, is_model
from fmepy.errors import ArgumentError, ParameterError, SimulationError, check_known, did_you_mean, listed
from fmepy.fitting.lmfit_result import lmfit_at
from fmepy.fitting.profile_result import Profile
from fmepy.fitting.reading import SCALES, ends_of_reading, quantile_of, sds_of_draws, sds_of_fit, transforms
from fmepy.models.base import keep_within, simulate_many
from fmepy.models.bound_simulator import Simulator
from fmepy.models.on_grid import cells_of_model, profiles_at_rest
from fmepy.numerics.differences import central_differences
from fmepy.parameters.entities import check_not_local
from fmepy.parameters.named import generated_names, is_fit
from fmepy.parameters.scales import check_scale, expected_scale, foreign_columns
from fmepy.parameters.selection import profile_of
from fmepy.results.tables import Framed, Part, long_table, wrapped
from fmepy.tables.cells import by_place
from fmepy.tables.sheet import calendar_of, numbers_of_times
from fmepy.types import AxesArray, Cube, Matrix, Vector
from fmepy.vocabulary import by_name, own_words

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit

_MOST_DRAWS = 1000  # rows of a chain or table that are run, evenly spaced
_HALVINGS = 60


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prediction(Framed):
    """A curve with its band.

    Attributes
    ----------
    frame : DataFrame
        Columns: the independent variable, var, fit (of draws: the median), se, lower, upper; variables one after the
        other. Of a model on a grid there is a column ``x``, the place, before var.
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

    elsewhere = by_name({"summary_frame head tail predicted_mean conf_int": "`frame`"})

    @property
    def contains(self) -> str:
        """The contents of the band, in words."""
        what = "a new reading" if self.reading else "the model's value"
        return f"{100 * self.level:g} % of {what}"

    def shown(self) -> list[str | Part]:
        """Return the contents of the band, and the table."""
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
        Where the curve is wanted (fmepy models only), of a fit to dates dates too; the default is the model's own. A
        profile has its own.
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
        a profile of parameters; readings whose noise is not known, or depends on what is not known.
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
            f"{filtered if hasattr(model, 'filter') else ' Pass its `model`.' if hasattr(model, 'model') else ''}"
        )
    if not is_model(model) and not callable(model):
        hint = " The model comes first: predict(model, fit)." if is_fit(model) else ""
        raise ArgumentError(f"`model` must be a model or a function of p; got {type(model).__name__}.{hint}")
    if not is_model(model) and times is not None:
        raise ArgumentError("`times` is for fmepy models; a function of your own returns its own table.")
    if isinstance(fit, Profile):
        if times is not None or level != fit.level:
            raise ArgumentError("A profile has its own times and level: give them to profile().")
        band = _band_of_profile(model, fit, reading)
        band.attrs["calendar"] = fit.calendar
        return Prediction(band, level, bool(reading), "profiles", fit.message)
    calendar = calendar_of(fit.source if is_fit(fit) else fit)
    times = None if times is None else numbers_of_times(times, calendar)
    if is_fit(fit):
        band = _by_place(_band_of_fit(model, fit, times, level, reading), model, calendar)
        return Prediction(band, level, bool(reading), "fit", _of_bounds(fit))
    draws = _draws_of(fit)
    if draws is None:
        raise ArgumentError(
            "`fit` must be a result of modFit, modMCMC or profile, or a table of draws (a column per parameter); got "
            f"{type(fit).__name__}."
        )
    frame, note = _band_of_draws(model, *draws, times, level, reading)
    return Prediction(_by_place(frame, model, calendar), level, bool(reading), "draws", note)


def _of_bounds(fit: ModFit) -> str:
    """Return the note on what has no covariance: all of a fit, or parameters at their bounds."""
    held = [*fit.at_bound, *fit.at_kink]
    if fit.cov_scaled.drop(index=held, columns=held).isna().any(axis=None):
        why = "no degrees of freedom are left" if fit.df_residual <= 0 else "the data leave parameters undetermined"
        return f"There is no band, for the fit has no covariance: {why}; fit.summary() says more."
    if not held:
        return ""
    is_one = len(held) == 1
    where = "its bound" if is_one else "their bounds"
    if fit.at_kink:
        where = "the kink of its prior" if is_one else "bounds or kinks of priors"
    return (
        f"{listed(held)} {f'is at {where} and counts' if is_one else f'are at {where} and count'} as fixed there: "
        "the band may be too narrow. profile(cost, fit, prediction=(variable, times)) lets them move."
    )


def _by_place(frame: pd.DataFrame, model: Any, calendar: Any) -> pd.DataFrame:
    time = str(frame.columns[0])
    out = by_place(frame, time, time, cells_of_model(model) if is_model(model) else None)
    out.attrs |= {"calendar": calendar, "profiles": profiles_at_rest(model)}
    return out


_Place = tuple[str, Vector, list[str]]
"""Name and values of x, and the variables."""


def _frame(place: _Place, fit: Matrix, se: Matrix, lower: Matrix, upper: Matrix) -> pd.DataFrame:
    """Return values with a band, shape (n_x, n_var) each: a row per variable and x, variables one after the other."""
    x_name, x, variables = place
    columns = {
        x_name: np.tile(x, len(variables)), "var": np.repeat(np.array(variables, dtype=object), len(x)),
        "fit": fit.T.ravel(), "se": se.T.ravel(), "lower": lower.T.ravel(), "upper": upper.T.ravel(),
    }  # fmt: skip
    return pd.DataFrame(columns)


def _own_of(model: Any, names: list[str], what: str, of: str) -> list[str]:
    """Return those of the names that are parameters of the model, of which there must be one."""
    have = [str(n) for n in model.parms.index]
    check_not_local(names, have, what)
    if used := [n for n in names if n in have]:
        return used
    bands = "" if have else " Bands of what a filter knows: cost.filter(fit.par).plot() and .forecast()."
    raise ArgumentError(f"`model` has none of the {of}; it has {listed(have)}.{bands}")


def _bound(model: Any, used: list[str], times: Any) -> tuple[Any, _Place]:
    bound = model.bind(used) if times is None else model.bind(used, times=times)
    x_name = str(getattr(model, "x_name", "time"))
    return bound, (x_name, np.asarray(bound.times, dtype=float), list(bound.var_names))


# -------------------------------------------------------------------------------------------------- of a fit


def _band_of_fit(model: Any, fit: ModFit, times: Any, level: float, reading: bool) -> pd.DataFrame:
    """Return the band by the delta method."""
    place, Y, S, used = _of_model(model, fit, times) if is_model(model) else _of_function(model, fit)
    C = fit.cov_scaled.loc[used, used].to_numpy()
    # no covariance: the band is of the others, with these fixed there
    held = np.isin(used, [*fit.at_bound, *fit.at_kink])
    C, S = np.where(held[:, None] | held, 0.0, C), np.where(held, 0.0, S)
    se = np.sqrt(np.maximum(np.einsum("tvi,ij,tvj->tv", S, C, S), 0.0))
    q = quantile_of(fit, level)
    if not reading:
        return _frame(place, Y, se, Y - q * se, Y + q * se)
    lower, upper, wide = Y.copy(), Y.copy(), se.copy()
    kinds, sds = transforms(fit), sds_of_fit(fit, model, *place, Y)
    for j, name in enumerate(place[2]):
        forward, back, slope = SCALES[kinds.get(name, kinds.get(profile_of(name)))]
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = slope(Y[:, j])
            on_scale = np.sqrt((steep * se[:, j]) ** 2 + sds[:, j] ** 2)
            middle = forward(Y[:, j])
            lower[:, j], upper[:, j] = back(middle - q * on_scale), back(middle + q * on_scale)
            wide[:, j] = on_scale / steep
    return _frame(place, Y, wide, lower, upper)


def _of_model(model: Any, fit: ModFit, times: Any) -> tuple[_Place, Matrix, Cube, list[str]]:
    names = [str(n) for n in fit.par.index]
    used = _own_of(model, names, "The fit", f"fitted parameters {listed(names)}")
    _check_scale(model, fit, used)
    if fit.tied is not None:
        model = _with_fixed(model, fit, [str(n) for n in model.parms.index])
    bound, place = _bound(model, used, times)
    keep_within(bound, fit.lower[used].to_numpy(dtype=float), fit.upper[used].to_numpy(dtype=float))
    Y, S = bound.sensitivities(fit.par[used].to_numpy(dtype=float))
    return place, np.asarray(Y), np.asarray(S), used


def _with_fixed(model: Any, fit: ModFit, have: list[str]) -> Any:
    """Return the model with the parameters that lmfit fixes; tied ones have no place in it."""
    others = [q for q in lmfit_at(fit).values() if q.name not in fit.par.index and q.name in have]
    tied = [q.name for q in others if q.expr is not None]
    if tied:
        raise ArgumentError(
            f"predict() does not follow lmfit's expressions (of {listed(tied)}); tie them in the model."
        )
    return model.replace(parms={q.name: float(q.value) for q in others}) if others else model


def _of_function(model: Any, fit: ModFit) -> tuple[_Place, Matrix, Cube, list[str]]:
    names = [str(n) for n in fit.par.index]
    theta = fit.par.to_numpy(dtype=float)
    simulator = _as_simulator(model, names, theta)
    se = np.sqrt(np.maximum(np.diag(fit.cov_scaled.to_numpy()), 0.0))
    step = np.where(np.isfinite(se) & (se > 0), 0.01 * se, 1e-5 * np.maximum(np.abs(theta), 1e-8))
    box = fit.lower.to_numpy(dtype=float), fit.upper.to_numpy(dtype=float)
    values = simulator.run(theta)
    slopes = central_differences(simulator.run, theta, step, box, base=values)
    return (simulator.x_name, simulator.x, list(simulator.var_names)), values, slopes, names


def _as_simulator(model: Any, names: list[str], theta: Vector) -> Simulator:
    """Return a function of a plain vector from one of the user, whose parameters have these names."""
    positional = tuple(names) == generated_names(len(names))
    return as_simulator(model, theta if positional else dict(zip(names, theta.tolist(), strict=True)))


def _check_scale(model: Any, fit: ModFit, used: list[str]) -> None:
    """Refuse a model whose parameters are not on the scale of the fit's."""
    if fit.transforms is None:  # a function was fitted; what it does with its parameters is its own affair
        return
    taken = getattr(model, "transforms", {})
    for name in used:
        fitted, has = fit.transforms.get(name), taken.get(name)
        if fitted != has:
            here = f"{fitted}({name})" if fitted else name
            advice = f"predict(transformed(model, {fitted!r}), fit)" if fitted else "predict(model, fit)"
            raise ArgumentError(
                f"The fit is of {here}, and the model takes {f'{has}({name})' if has else name}. Pass the model on the "
                f"scale of the fit: {advice}."
            )


# -------------------------------------------------------------------------------------------------- of draws


def _draws_of(what: Any) -> tuple[pd.DataFrame, Any, SaidNoise | None] | None:
    """Return the draws of a chain, with its sampled variances and its noise model; None if it is not a chain."""
    if isinstance(getattr(what, "pars", None), pd.DataFrame):
        return what.pars, getattr(what, "sig", None), getattr(what, "noise", None)
    if isinstance(what, (pd.DataFrame, Mapping)):
        try:
            table = what if isinstance(what, pd.DataFrame) else pd.DataFrame(what)  # a table keeps its scale
            return table.astype(float), None, None
        except (TypeError, ValueError):
            raise ArgumentError(
                "A table of draws holds numbers only: one column per parameter, one row per draw."
            ) from None
    return None


def _band_of_draws(
    model: Any, draws: pd.DataFrame, sig: Any, noise: SaidNoise | None, times: Any, level: float, reading: bool
) -> tuple[pd.DataFrame, str]:
    """Return the band between quantiles over at most a thousand draws, evenly spaced, and its message."""
    if not len(draws) or not np.isfinite(draws.to_numpy(dtype=float)).all():
        raise ArgumentError("The table of draws is empty, or holds values that are not finite.")
    if len(draws) < 2 and not reading:
        raise ArgumentError("A band needs two draws at least, and there is one: model(p) is its run.")
    rows = np.unique(np.linspace(0, len(draws) - 1, min(len(draws), _MOST_DRAWS)).round().astype(int))
    some = draws.iloc[rows]
    place, Y, why = _runs_of(model, some, times)
    failed = np.flatnonzero(~np.isfinite(Y).all(axis=(1, 2)))
    if len(failed) == len(Y):
        raise SimulationError(f"None of {len(Y)} draws could be run. The first: {why[failed[0]] or 'not finite'}")
    kept = np.setdiff1d(np.arange(len(Y)), failed)
    note = f"{len(failed)} of {len(Y)} draws failed and are left out." if len(failed) else ""
    Y, share = Y[kept], np.array([0.5, (1 - level) / 2, (1 + level) / 2])
    variance = Y.var(axis=0, ddof=1 if len(Y) > 1 else 0)
    if not reading:
        middle, lower, upper = np.quantile(Y, share, axis=0)
        return _frame(place, middle, np.sqrt(variance), lower, upper), note
    some = some.iloc[kept]
    sig = sig.iloc[rows[kept]] if isinstance(sig, pd.DataFrame) else None
    sds = sds_of_draws(some, sig, noise, model, *place, Y)
    kinds = {} if noise is None else noise.scales
    middle, lower, upper = (np.empty_like(variance) for _ in range(3))
    for j, name in enumerate(place[2]):
        forward, back, slope = SCALES[kinds.get(name, kinds.get(profile_of(name)))]
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = back(_mixture(forward(Y[:, :, j]), sds[:, :, j], share))
            variance[:, j] += ((sds[:, :, j] / slope(Y[:, :, j])) ** 2).mean(axis=0)
        middle[:, j], lower[:, j], upper[:, j] = ends
    return _frame(place, middle, np.sqrt(variance), lower, upper), note


def _runs_of(model: Any, draws: pd.DataFrame, times: Any) -> tuple[_Place, Cube, Any]:
    names = [str(c) for c in draws.columns]
    if is_model(model):
        used = _own_of(model, names, "The table of draws", f"parameters {listed(names)} of the draws")
        have = [str(n) for n in model.parms.index]
        noise = [sd_name(MEASUREMENT, v) for v in model.var_names]
        for name in set(names) - {*have, *noise, *foreign_columns(draws, have)}:
            raise ParameterError(
                f"The draws have a column {name!r}, and the model no such parameter.{did_you_mean(name, have)} It has "
                f"{listed(have)}. Leave the column out (draws of a chain know which are of its cost)."
            )
        check_scale(draws, expected_scale(model, names), "fit")
        bound, place = _bound(model, used, times)
        Y, why = simulate_many(bound, draws[used].to_numpy(dtype=float))
        return place, np.asarray(Y), why
    simulator = _as_simulator(model, names, draws.iloc[0].to_numpy(dtype=float))
    Y = np.full((len(draws), len(simulator.x), len(simulator.var_names)), np.nan)
    why = np.full(len(draws), "", dtype=object)
    for i, theta in enumerate(draws.to_numpy(dtype=float)):
        try:
            Y[i] = simulator.run(theta)
        except SimulationError as error:
            why[i] = str(error)
    return (simulator.x_name, simulator.x, list(simulator.var_names)), Y, why


def _mixture(Y: Matrix, sd: Matrix, share: Vector) -> Matrix:
    """Return quantiles of mixtures of normals over the rows, shape (n_share, n_x), by halving."""
    from scipy.special import ndtr

    low, high = (Y - 10 * sd).min(axis=0), (Y + 10 * sd).max(axis=0)
    found = []
    for p in share:
        a, b = low.copy(), high.copy()
        for _ in range(_HALVINGS):
            middle = 0.5 * (a + b)
            below = ndtr((middle - Y) / sd).mean(axis=0) < p
            a, b = np.where(below, middle, a), np.where(below, b, middle)
        found.append(0.5 * (a + b))
    return np.array(found)


# -------------------------------------------------------------------------------------------------- of profiles


def _band_of_profile(model: Any, profile: Profile, reading: bool) -> pd.DataFrame:
    """Return the ends of profiles of predictions, or of readings of them; variables at one and the same times."""
    asked = profile.predicted
    if asked is None:
        raise ArgumentError(
            "This is a profile of parameters; a band needs profiles of what is predicted: profile(cost, fit, "
            "prediction=('y', times))."
        )
    for v in asked["variable"]:
        known = getattr(model, "var_names", ())
        check_known(v, known, f"The profile is of {v!r}, which `model` does not have.", are="It has")
    label = [v if e is None else f"{v}, {e}" for v, e in zip(asked["variable"], asked["entity"], strict=True)]
    variables, x = list(dict.fromkeys(label)), np.unique(asked["time"].to_numpy(dtype=float))
    table = profile.intervals.loc[asked.index].assign(se=profile.standard_error[asked.index])
    if reading:
        table = _of_readings(profile, table)
    cells = {k: np.full((len(x), len(variables)), np.nan) for k in ("estimate", "se", "lower", "upper")}
    places = np.searchsorted(x, asked["time"].to_numpy(dtype=float)), [variables.index(v) for v in label]
    for k, cell in cells.items():
        cell[places] = table[k].to_numpy(dtype=float)
    return _frame(("time", x, variables), *cells.values())


def _of_readings(profile: Profile, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of predictions with the ends, and the standard error, of readings of them."""
    asked, out = profile.predicted, table.copy()
    assert asked is not None, "of predictions"
    labels: list[Any] = list(table.index)
    for label in labels:
        row = table.loc[label]
        sd, kind = float(asked["sd"][label]), asked["scale"][label]
        if np.isnan(sd):
            raise ArgumentError(
                f"reading=True: the noise of {asked['variable'][label]!r} is not known where it is predicted. "
                "Take the band of the model's value."
            )
        kind = kind if isinstance(kind, str) else None
        own = profile.frame[profile.frame["parameter"] == label]
        values, roots = own["value"].to_numpy(dtype=float), own["root"].to_numpy(dtype=float)
        y, *ends = row[["estimate", "lower", "upper"]].astype(float)
        out.loc[label, ["lower", "upper"]] = ends_of_reading(
            y, (ends[0], ends[1]), values, roots, sd, kind, profile.threshold
        )
        out.loc[label, "se"] = np.hypot(row["se"], sd / float(SCALES[kind][2](np.float64(y))))
    return out
