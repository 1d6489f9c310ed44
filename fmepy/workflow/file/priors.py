"""Priors of a file: distributions of scipy.stats by their arguments, of the natural value of a parameter.

On another scale theta the density of the value p is taken at p(theta). For a mode (`modFit`) that is all: the mode is
that of p. A chain samples theta, whose density is that of p times dp / dtheta.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.errors import did_you_mean, listed
from fmepy.parameters.maps import Elementwise
from fmepy.workflow.file.task import Parameter
from fmepy.workflow.file.toml import TomlTable


@dataclass(frozen=True, eq=False)
class ScaledPrior:
    """A prior of a natural value p, of theta = log p or logit p.

    Attributes
    ----------
    natural : frozen distribution
        Of p.
    scale : {"log", "logit"}
    jacobian : bool
        Whether the density is of theta (dp/dtheta is in it), or of p.
    """

    natural: Any
    scale: str
    jacobian: bool

    def support(self) -> tuple[float, float]:
        """Return the lowest and the highest theta that have a density."""
        low, high = Elementwise(("p",), {"p": self.scale}).bounds(*np.atleast_2d(self.natural.support()).T)
        return float(low[0]), float(high[0])

    def logpdf(self, theta: float) -> float:
        """Return the logarithm of the density."""
        theta = float(theta)
        log_p = log_slope = theta
        if self.scale == "logit":
            log_p = -float(np.logaddexp(0.0, -theta))
            log_slope = log_p - float(np.logaddexp(0.0, theta))
        if log_p > 700:  # beyond the largest number
            return -math.inf
        return float(self.natural.logpdf(math.exp(log_p))) + (log_slope if self.jacobian else 0.0)


def read_prior(section: TomlTable, parameter: Parameter) -> Any:
    """Return the frozen distribution of a parameter's key ``prior``.

    Parameters
    ----------
    section : TomlTable
        The parameter's table.
    parameter : Parameter
        With a prior.

    Raises
    ------
    ArgumentError
        An unknown distribution or argument (the nearest is named), one that is missing or cannot be, a start without
        density; with the line.
    """
    from scipy import stats

    given = dict(parameter.prior or {})
    table = section.table("prior")
    known = sorted(n for n, d in vars(stats).items() if isinstance(d, stats.rv_continuous))
    name = given.pop("dist", None)
    if name not in known:
        if name is None:
            raise section.error("prior", "`prior` needs `dist`, a distribution of scipy.stats such as 'norm'.")
        whole = isinstance(getattr(stats, str(name), None), stats.rv_discrete)
        hint = " It is one of whole numbers." if whole else did_you_mean(name, known)
        some = "norm, lognorm, uniform, gamma, beta, halfnorm, truncnorm"
        raise table.error(
            "dist", f"`dist={name!r}` is not a distribution of numbers of scipy.stats.{hint} Some are {some}."
        )
    dist = getattr(stats, name)
    shapes = [s.strip() for s in (dist.shapes or "").split(",") if s.strip()]
    arguments = [*shapes, "loc", "scale"]
    table.check(["dist", *arguments])
    for key, value in given.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise table.error(key, f"`{key}` of a prior must be a number; got {value!r}.")
    missing = [s for s in shapes if s not in given]
    if missing:
        raise table.error(
            (), f"the distribution {name!r} needs {listed(missing)}; its arguments are {listed(arguments)}."
        )
    frozen = dist(**given)
    if given.get("scale", 1) <= 0 or np.isnan(frozen.support()).any():
        raise table.error((), f"there is no distribution {name!r} of {_said(given)}. (A scale is above 0.)")
    if not np.isfinite(frozen.logpdf(parameter.start)):
        low, high = frozen.support()
        where = f"that of {name!r} lies between {low:g} and {high:g}."
        raise section.error(
            "start", f"`start` of {parameter.name!r} is {parameter.start:g}, where its prior has no density; {where}"
        )
    return frozen


def priors_on(scales: Mapping[str, str], natural: Mapping[str, Any], *, jacobian: bool) -> dict[str, Any] | None:
    """Return priors by name on the scales on which parameters are fitted; None where there are none."""
    found = {n: ScaledPrior(d, scales[n], jacobian) if n in scales else d for n, d in natural.items()}
    return found or None


def _said(given: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} = {v:g}" for k, v in given.items()) or "no arguments"
