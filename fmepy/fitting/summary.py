"""R's summary of a fit: the table of estimates, how it prints, and what to hold in mind."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fmepy.errors import counted
from fmepy.results.printing import MOST_CORRELATED, coefficient_cells, coefficient_table, fixed_matrix, significant
from fmepy.results.tables import Part, Shown, table, wrapped
from fmepy.results.writing import LEGEND, as_latex, as_markdown, marks
from fmepy.types import Vector

COLUMNS = ["Estimate", "Std. Error", "t value", "Pr(>|t|)"]
_FEW = 25
"""Readings below which an interval of estimate ± 1.96 standard errors of an sd, relative error 1 / sqrt(2 n), holds the
truth in less than 93 of 100 cases (by chi-square: 90 with 10 readings, 86 with 5; of its logarithm 93 and 92)."""


def noise_note_of(names: Sequence[str], estimates: Vector, errors: Vector, scales: Collection[str]) -> str:
    """Return the message where noise, with the parameters `scales`, was estimated from few data."""
    with np.errstate(divide="ignore", invalid="ignore"):
        data = 0.5 * (estimates / errors) ** 2
    few = {n: d for n, d in zip(names, data.tolist(), strict=True) if n in scales and d < _FEW}
    if not few:
        return ""
    sds = ", ".join(f"{n} as uncertain as from about {counted(max(round(d), 1), 'reading')}" for n, d in few.items())
    return (
        f"The size of the noise is estimated from few data ({sds}). Intervals of estimate ± 2 standard errors, of all "
        "parameters, then hold the truth in fewer than 95 of 100 cases; take intervals from profile(cost, fit)."
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModFitSummary(Shown):
    """R's summary of a fit.

    Attributes
    ----------
    par : DataFrame
        Estimate, Std. Error, t value, Pr(>|t|); normal instead of t where there are no degrees of freedom (-2 log L).
    cov_unscaled, cov_scaled, correlation : DataFrame
    residualVariance, sigma, modVariance : float
        ``ssr / df``, its square root, ``ssr / n``.
    df : (int, float)
        Number of parameters, residual degrees of freedom.
    residuals : Series
    info : bool
        True if the fit converged.
    niter : int
    stopmess : str
    no_covariance : str
        Why there is none, where there is none.
    solver_note : str
        What is to be said of the solver's error, if anything.
    noise_note : str
        What is to be said of noise that was estimated from few data, if anything.
    at_bound : tuple of str
        Parameters on a bound: no standard error, t and p.
    at_kink : tuple of str
        Parameters held at the kink of their prior, likewise.
    """

    par: pd.DataFrame
    cov_unscaled: pd.DataFrame
    cov_scaled: pd.DataFrame
    correlation: pd.DataFrame
    residualVariance: float
    sigma: float
    modVariance: float
    df: tuple[int, float]
    residuals: pd.Series
    info: bool
    niter: int
    stopmess: str
    minus2loglik: float
    with_prior: bool
    no_covariance: str = ""
    solver_note: str = ""
    noise_note: str = ""
    at_bound: tuple[str, ...] = ()
    at_kink: tuple[str, ...] = ()

    @property
    def frame(self) -> pd.DataFrame:
        """The table of estimates."""
        return self.par

    def _tail(self) -> str:
        if np.isnan(self.modVariance):
            return f"-2 log likelihood: {significant(self.minus2loglik, 7)}"
        line = f"Residual standard error: {significant(self.sigma, 4)} on {self.df[1]:g} degrees of freedom"
        if self.with_prior:
            line += "\n(with a prior residuals count in units of their errors, else of 1; no standard error is scaled)"
        return line

    def shown(self, stars: bool = False) -> list[str | Part]:
        """Return the coefficients as R prints them, the residual error, correlations, and warnings."""
        names = [str(n) for n in self.par.index]
        coefficients = coefficient_table(names, self.par.to_numpy(), COLUMNS)
        cells = pd.DataFrame(coefficient_cells(self.par.to_numpy()), index=names, columns=COLUMNS)
        if stars:
            cells[""] = marks(self.par.iloc[:, 3].tolist())
        html = table(self.par, "{:.4g}").html
        parts: list[str | Part] = ["Parameters:", Part(coefficients, html, cells), *([LEGEND] if stars else [])]
        parts += ["", self._tail()]
        for held, where in ((self.at_bound, "on a bound"), (self.at_kink, "at the kink of its prior")):
            parts += [wrapped(_without_error(held, where))] if held else []
        stop = "" if self.info else f"NOT converged: {self.stopmess}"
        if not np.isfinite(self.correlation.to_numpy()).any():
            twice = stop and self.no_covariance == f": {self.stopmess}"  # the message says why of both
            parts += ["", wrapped(f"No covariance{'.' if twice else self.no_covariance}")]
        elif len(names) > MOST_CORRELATED:
            parts += ["", f"Parameter correlation: of {len(names)} parameters, see `correlation`."]
        else:
            matrix = fixed_matrix(names, self.correlation.to_numpy())
            parts += ["", "Parameter correlation:", table(self.correlation, "{:.4g}")._replace(text=matrix)]
        if stop:
            parts += ["", wrapped(stop)]
        if self.solver_note and self.solver_note not in "\n".join(map(str, parts)).replace("\n", " "):
            parts += ["", wrapped(self.solver_note)]
        if self.noise_note:
            parts += ["", wrapped(self.noise_note)]
        return [*parts, ""]

    def to_markdown(self, *, stars: bool = False) -> str:
        r"""Return the summary in Markdown.

        Parameters
        ----------
        stars : bool
            Mark significance behind the p-values, as R does.

        Examples
        --------
        >>> from fmepy import modFit
        >>> x = np.arange(6.0)
        >>> fit = modFit(lambda p: p["a_0"] + p["b"] * x - [1.1, 1.9, 3.2, 3.9, 5.1, 6.0], {"a_0": 0.0, "b": 1.0})
        >>> print("\n".join(fit.summary().to_markdown(stars=True).splitlines()[2:6]))
        |      | Estimate | Std. Error | t value | Pr(\>\|t\|) |        |
        | ---- | -------: | ---------: | ------: | ----------: | ------ |
        | a\_0 |  1.04762 |    0.09761 |   10.73 |    0.000427 | \*\*\* |
        | b    |  0.99429 |    0.03224 |   30.84 |    6.59e-06 | \*\*\* |
        """
        return as_markdown(self.shown(stars))

    def to_latex(self, *, caption: str | None = None, label: str | None = None, stars: bool = False) -> str:
        """Return the summary in LaTeX; no package is needed.

        Parameters
        ----------
        caption, label : str, optional
            Given, all stands in a ``table`` that floats.
        stars : bool
            Mark significance behind the p-values, as R does.
        """
        return as_latex(self.shown(stars), caption, label)


def _without_error(held: Sequence[str], where: str) -> str:
    return (
        f"NA: {', '.join(held)} {where}, where t and p have no meaning; the standard errors of the "
        "others hold for a value fixed there."
    )
