"""What steps give that is more than one result of fmepy: several of them together, saved and loaded as one."""

from __future__ import annotations

from dataclasses import dataclass

from fmepy.fimlof.forecasting import Forecast
from fmepy.fimlof.result import FilterResult
from fmepy.journal.saving import Saved
from fmepy.montecarlo.ranges import RangeSummary
from fmepy.montecarlo.scenarios import Scenarios
from fmepy.sensitivity.collin import Collin
from fmepy.sensitivity.sensfun import SensFun


@dataclass(frozen=True, slots=True, eq=False)
class Screened(Saved):
    """What the data say of the parameters at their start.

    Attributes
    ----------
    sensitivities : SensFun
        Of the model at the data, to the fitted parameters on the natural scale.
    collinearity : Collin or None
        Of sets of parameters; None where it was not asked for.
    together : float
        Collinearity of all fitted parameters; 1 of a single one.
    """

    sensitivities: SensFun
    collinearity: Collin | None
    together: float


@dataclass(frozen=True, slots=True, eq=False)
class Bands(Saved):
    """Bands of the model's variables.

    Attributes
    ----------
    parts : dict of str to RangeSummary
        By entity, as text; one of the name "" where there are none.
    by : str or None
        The column of the entities.
    num, failures : int
        Parameter sets of each part, and runs that failed, of all of them.
    source : str
        What the sets are: "the chain", or "ranges" that the file gives.
    interrupted : bool
    first_failure : str
        The message of the first run that failed.
    """

    parts: dict[str, RangeSummary]
    by: str | None
    num: int
    failures: int
    source: str
    interrupted: bool = False
    first_failure: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class WhatIf(Saved):
    """Runs of scenarios.

    Attributes
    ----------
    parts : dict of str to Scenarios
        By entity, as text; one of the name "" where the table names none.
    by : str or None
        The column of the entities.
    source : str
        What the parameter sets are: "the chain", "the fit's covariance", or "the fit" alone.
    """

    parts: dict[str, Scenarios]
    by: str | None
    source: str

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended one of them."""
        return any(part.interrupted for part in self.parts.values())


@dataclass(frozen=True, slots=True, eq=False)
class Filtering(Saved):
    """A filter run at the estimates, and what it expects beyond the data.

    Attributes
    ----------
    result : FilterResult
    forecast : Forecast or None
        None where it was not asked for.
    """

    result: FilterResult
    forecast: Forecast | None
