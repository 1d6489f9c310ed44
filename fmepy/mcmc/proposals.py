"""The proposal distribution: the user's `jump` as a Cholesky factor or a function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers
from fmepy.errors import ArgumentError, listed, warn
from fmepy.numerics.differences import magnitudes
from fmepy.parameters.covariance import checked_covariance, in_order, labels_of
from fmepy.parameters.named import Parameters, check_names
from fmepy.parameters.names import normal_name
from fmepy.types import BoolVector, Matrix, Vector

_DEFAULT = 0.1  # FME's: a tenth of the parameter


def default_sd(theta0: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return the standard deviations used where the user gives none: 0.1 |p|; for p = 0 a hundredth of its box, or 0.1.

    Examples
    --------
    >>> default_sd(np.array([-2.0, 0.0]), np.full(2, -np.inf), np.full(2, np.inf))
    array([0.2, 0.1])
    """
    return _DEFAULT * magnitudes(theta0, lower, upper)


def factor(cov: Matrix) -> Matrix | None:
    """Return the lower Cholesky factor of a covariance, None if it is not positive definite."""
    try:
        chol = np.linalg.cholesky(cov)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(chol, dtype=np.float64) if np.all(np.isfinite(chol)) else None


class JumpFunction:
    """A user's own symmetric proposal: ``jump(p)``, or ``jump(p, rng=...)`` if it says that it takes `rng`."""

    def __init__(self, function: Callable[..., Any], parameters: Parameters) -> None:
        self.function, self.parameters = function, parameters
        try:
            self.takes_rng = "rng" in inspect.signature(function).parameters
        except (TypeError, ValueError):
            self.takes_rng = False

    def __call__(self, theta: Vector, rng: np.random.Generator) -> Vector:
        """Return the proposal, shape (n_par,)."""
        p = self.parameters.for_user(theta)
        new = self.function(p, rng=rng) if self.takes_rng else self.function(p)
        names = self.parameters.names
        if isinstance(new, (Mapping, pd.Series)) and set(map(str, new.keys())) >= set(names):
            new = [new[n] for n in names]
        elif isinstance(new, Mapping):
            raise ArgumentError(f"`jump` returned {listed(new)}; all of {listed(names)} are needed.")
        out = np.array(as_numbers(new, "jump(p)")).reshape(-1)
        if out.shape != (len(names),):
            raise ArgumentError(f"`jump` returned {out.size} values for {len(names)} parameters.")
        if np.isnan(out).any():
            raise ArgumentError(f"`jump` returned {new!r}; the next point is needed, a number for each parameter.")
        return out


def as_jump(jump: Any, parameters: Parameters, lower: Vector, upper: Vector, theta0: Vector) -> Matrix | JumpFunction:
    """Return `jump` as the lower factor L of the proposal covariance L L', or as a function.

    Parameters
    ----------
    jump : None, number, sequence, dict or Series by name, matrix, table, or callable
        None: standard deviations 0.1 |p|, see `default_sd`. A number or a vector: standard deviations, negative ones
        replaced by the default, with a warning. A matrix: the covariance; a table is matched by its labels, and may be
        of more parameters. A callable gives the next point.

    Warns
    -----
    UserWarning
        `jump` is NaN for some parameters, as a fit's covariance is for those on a bound, or negative: they take the
        default.

    Raises
    ------
    ArgumentError
        The wrong number of values, an unknown name, a zero, a covariance that is not symmetric positive definite.

    Examples
    --------
    >>> p = Parameters(("a", "b"), np.array([1.0, 2.0]))
    >>> as_jump([0.5, 0.2], p, np.full(2, -np.inf), np.full(2, np.inf), p.values)
    array([[0.5, 0. ],
           [0. , 0.2]])
    """
    if callable(jump) and not isinstance(jump, (Mapping, pd.Series, pd.DataFrame)):
        return JumpFunction(jump, parameters)
    names = parameters.names
    sd = default_sd(theta0, lower, upper)
    if jump is None:
        return np.diag(sd)
    values: Any
    if isinstance(jump, pd.DataFrame):
        values = in_order(_covariance_of(jump, names), names, "jump")
    elif isinstance(jump, (Mapping, pd.Series)):
        values = _labelled_vector(jump, names)
    else:
        try:
            values = np.array(jump, dtype=float)
        except (TypeError, ValueError, OverflowError):
            of_fit = f" Give the fit in the place of `p`, or jump=fit.cov_scaled * 2.4**2 / {len(names)}."
            hint = "" if getattr(jump, "cov_scaled", None) is None else of_fit
            raise ArgumentError(
                f"`jump` must hold numbers, or be a function; got {type(jump).__name__}.{hint}"
            ) from None
    if values.ndim == 2:
        C = in_order(values, names, "jump")
        missing = _is_missing(C.diagonal(), names)
        C = np.where(missing[:, None] | missing, np.diag(sd**2), C)
        return np.asarray(np.linalg.cholesky(checked_covariance(C, names, "jump")), dtype=np.float64)
    if values.ndim > 2 or values.size not in (1, len(names)):
        raise ArgumentError(
            f"`jump` has shape {values.shape} for {len(names)} parameters ({listed(names)}). Give one standard "
            "deviation, one for each, or a covariance matrix."
        )
    values = np.broadcast_to(values.reshape(-1), (len(names),))
    values = np.where(_is_missing(values, names), sd, values)
    if not np.all(np.isfinite(values)) or np.any(values == 0):
        raise ArgumentError(
            f"`jump` has the standard deviations {values.tolist()}; one that is 0 never moves its parameter. Leave the "
            "parameter out of `p` to keep it fixed."
        )
    if (below := np.flatnonzero(values < 0)).size:
        warn(
            f"modMCMC: `jump` is negative for {listed(names[i] for i in below)} ({values[below[0]]:g}): it means, as "
            f"in FME, the default standard deviation ({sd[below[0]]:g}). A step of your own is positive."
        )
    return np.diag(np.where(values < 0, sd, values))


def _covariance_of(jump: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the covariance of `names` alone: a fit may have more parameters than the chain."""
    place = {normal_name(k): k for k in labels_of(jump) or ()}
    wanted = [place.get(normal_name(n)) for n in names]
    return jump.loc[wanted, wanted] if None not in wanted and set(wanted) <= set(jump.index) else jump


def _is_missing(values: Vector, names: Sequence[str]) -> BoolVector:
    """Return which parameters have no number, and warn about them."""
    missing = np.isnan(values)
    if missing.any():
        these = [n for n, m in zip(names, missing, strict=True) if m]
        warn(
            f"modMCMC: `jump` has no number for {listed(these)}, as the covariance of a fit has none for a parameter "
            "on a bound or at a kink: the first proposals of it have the default standard deviation (0.1 |p|), "
            "independent of the others."
        )
    return missing


def _labelled_vector(jump: Any, names: Sequence[str]) -> Vector:
    labels = [str(k) for k in jump.keys()]  # noqa: SIM118    # a Series iterates over its values
    values = as_numbers(list(jump.values()) if isinstance(jump, Mapping) else jump, "jump")
    if labels == [str(i) for i in range(len(names))]:  # a Series without labels
        return values
    labels = list(check_names(labels, names, argument="jump"))
    missing = [n for n in names if n not in labels]
    if missing:
        raise ArgumentError(f"`jump` has nothing for {listed(missing)}. Give a standard deviation for each parameter.")
    return values[[labels.index(n) for n in names]]
