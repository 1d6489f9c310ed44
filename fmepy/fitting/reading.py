"""The scatter of a new reading about a prediction, from the noise of a fit, a chain or a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.costs.noise import MEASUREMENT, SaidNoise, places_of_variances, sd_name
from fmepy.errors import ArgumentError
from fmepy.fitting.lmfit_result import values_at
from fmepy.models.running.forcings import forcing_values
from fmepy.parameters.maps import TRANSFORMS
from fmepy.parameters.selection import profile_of
from fmepy.types import Cube, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit

SCALES: dict[str | None, tuple[Any, Any, Any]] = {
    None: (lambda y: y, lambda g: g, np.ones_like),
    **{k: (t.forward, t.back, lambda y, slope=t.slope: 1 / slope(y)) for k, t in TRANSFORMS.items()},
}
"""T, its inverse and T' by transform."""


def known_at(model: Any, x_name: str, x: Vector) -> dict[str, Vector]:
    """Return the known quantities at a prediction, by name: time, and the forcings of the model."""
    definition = getattr(getattr(model, "inner", model), "definition", None)
    if definition is None:
        return {x_name: x}
    at = np.array(forcing_values(definition.forcings, x))
    return {str(definition.time): x, **{f.name: at[k] for k, f in enumerate(definition.forcings)}}


def sds_of_fit(fit: ModFit, model: Any, x_name: str, x: Vector, variables: list[str], Y: Matrix) -> Matrix:
    """Return the sd of a reading on the scale of comparison, shape (n_x, n_var); NaN of variables never observed."""
    if fit.noise is None:
        same: Matrix = np.tile(np.sqrt(_variances(fit, variables)), (len(x), 1))
        return same
    known = known_at(model, x_name, x) | {v: Y[:, j] for j, v in enumerate(variables)}
    found: Matrix = _filled(fit.noise, model, variables, known, values_at(fit).__getitem__, Y.shape)
    return found


def sds_of_draws(
    draws: pd.DataFrame, sig: Any, noise: SaidNoise | None, model: Any, x_name: str, x: Vector, variables: list[str],
    Y: Cube,
) -> Cube:  # fmt: skip
    """Return the sd of a reading by draw, shape (n_draw, n_x, n_var): sampled variances, sampled sds, expressions."""
    out = np.full(Y.shape, np.nan)
    if noise is not None:
        known = known_at(model, x_name, x) | {v: Y[:, :, j] for j, v in enumerate(variables)}
        out = _filled(noise, model, variables, known, lambda name: draws[name].to_numpy()[:, None], Y.shape)
    for j, name in enumerate(variables):
        if not np.isnan(out[..., j]).all():
            continue
        if (sd := sd_name(MEASUREMENT, name)) in draws.columns:
            out[:, :, j] = draws[sd].to_numpy()[:, None]
        elif isinstance(sig, pd.DataFrame):
            columns = [str(c) for c in sig.columns]
            own = places_of_variances(name, columns) or places_of_variances(profile_of(name), columns)
            places = own or [k for k, c in enumerate(columns) if c == "var_model"]
            if places:  # parts of a cost that observe one variable take turns: each is a reading of it
                rows = np.arange(len(sig))
                out[:, :, j] = np.sqrt(sig.to_numpy(dtype=float)[rows, np.resize(places, len(rows))])[:, None]
    if np.isnan(out).all():
        raise ArgumentError(
            "reading=True needs the noise of readings: a chain with sampled variances (modMCMC(var0=..., wvar0=...)), "
            f"or of a cost with measurement_noise=, or draws of {MEASUREMENT}<variable>. Or: sensRange(model, "
            "parInput=draws).with_error(variance)."
        )
    return out


def _filled(noise: SaidNoise, model: Any, variables: list[str], known: Any, value: Any, shape: tuple[int, ...]) -> Any:
    out = np.full(shape, np.nan)
    entity = getattr(model, "label", None) or None
    for j, name in enumerate(variables):
        found = noise.sd(name, entity, known, value)
        if found is None and (profile := profile_of(name)) != name:
            found = noise.sd(profile, entity, {**known, profile: known[name]}, value)
        if found is not None:
            out[..., j] = found
    return out


def transforms(fit: ModFit) -> dict[str, str | None]:
    """Return by which transform every variable was compared."""
    found: dict[str, str | None] = {}
    for c, _ in fit.cost.pieces if fit.cost is not None else ():
        kinds = c.scale.kinds
        for i, name in enumerate(c.names):
            if found.setdefault(name, kinds.get(i)) != kinds.get(i):
                raise ArgumentError(
                    f"reading=True: the fit compares {name!r} on two scales (SimulationCost(transform=...)), so there "
                    "is no one band of its readings. Take the band of the curve."
                )
    return found if found or fit.noise is None else dict(fit.noise.scales)


def _variances(fit: ModFit, variables: list[str]) -> Vector:
    """Return the variance of a reading of every variable, on the scale of comparison; NaN for those never observed."""
    known = fit.par.index
    sds = {v: sd if (sd := sd_name(MEASUREMENT, v)) in known else MEASUREMENT + profile_of(v) for v in variables}
    estimated = {v: float(fit.par[sd]) ** 2 for v, sd in sds.items() if sd in fit.par.index}
    correction = 1.0 if fit.is_scalar else fit.nobs / fit.df_residual if fit.df_residual > 0 else np.nan
    if isinstance(fit.var_ms_unweighted, pd.Series):
        of = fit.var_ms_unweighted.index if fit.cost is None else list(fit.cost.variables)
        by_name = fit.var_ms_unweighted.set_axis(of).groupby(level=0).mean() * correction
        return np.array([estimated.get(v, by_name.get(v, by_name.get(profile_of(v), np.nan))) for v in variables])
    if np.isfinite(fit.ms) and len(variables) == 1:
        return np.array([fit.ms * correction])
    return np.array([estimated.get(v, np.nan) for v in variables])


def ends_of_reading(
    estimate: float, ends: tuple[float, float], values: Vector, roots: Vector, sd: float, kind: str | None, q: float
) -> tuple[float, float]:
    """Return the ends of the band of a reading, from the profile of its prediction.

    The profile of a reading z is ``min over y of root(y)^2 + (T(z) - T(y))^2 / sd^2`` (Kreutz et al. 2012), which is
    below q^2 out to ``T(z) = T(y) + sd sqrt(q^2 - root(y)^2)``, y going along the profile of the prediction.

    Parameters
    ----------
    estimate, ends
        The prediction, and the ends of its profile.
    values, roots : ndarray
        The profile; signed roots of the likelihood ratio.
    sd : float
        Of a reading, on the scale of comparison.
    kind : {"log", "log10", "sqrt"} or None
    q : float
        What the root is compared with.
    """
    from scipy.interpolate import PchipInterpolator
    from scipy.optimize import minimize_scalar

    forward, back, _ = SCALES[kind]
    order = np.argsort(values)
    root = PchipInterpolator(values[order], np.maximum.accumulate(roots[order]), extrapolate=True)
    found = []
    for sign, end in zip((-1.0, 1.0), ends, strict=True):
        if not (np.isfinite(end) and np.isfinite(sd)):
            found.append(end if np.isfinite(sd) else np.nan)
            continue

        def short_of(y: float, sign: float = sign) -> float:
            with np.errstate(all="ignore"):
                at = forward(np.float64(y)) + sign * sd * np.sqrt(max(q**2 - float(root(y)) ** 2, 0.0))
            return -sign * float(at) if np.isfinite(at) else np.inf

        low, high = min(estimate, end), max(estimate, end)
        best = min(low, high, key=short_of)
        if high > low:
            inside = minimize_scalar(
                short_of, bounds=(low, high), method="bounded", options={"xatol": 1e-9 * (high - low)}
            )
            best = min(best, float(inside.x), key=short_of)
        found.append(float(back(-sign * short_of(best))))
    return found[0], found[1]


def quantile_of(fit: ModFit, level: float) -> float:
    """Return how many standard errors an estimate is known to: the quantile of t, or of the normal distribution."""
    from scipy.special import ndtri, stdtrit

    is_normal = fit.is_scalar or fit.with_prior or np.isnan(fit.df_residual)
    return float(ndtri((1 + level) / 2) if is_normal else stdtrit(fit.df_residual, (1 + level) / 2))
