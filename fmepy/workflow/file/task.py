"""What the steps of a calibration work on: data, model, cost and parameters, ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.workflow.file.toml import Place

if TYPE_CHECKING:
    from fmepy.workflow.file.case import Case


@dataclass(frozen=True, eq=False)
class CalibrationTask:
    """Data, model, cost and parameters of a file.

    Attributes
    ----------
    case : Case
        What the file says.
    data : DataFrame
        The observations as read, numbers as numbers.
    notes : tuple of str
        What reading found (separator, encoding, decimal comma, replicates ...), for stderr and the report.
    model : Model or callable or None
        On the natural scale; None where the file names a Python function that is a cost already.
    cost : Cost or callable
        On the natural scale: a SimulationCost, PredictionErrorCost, FimlofCost, or the file's function ``f(p)``.
    scale : mapping of str to str
        The fitted parameters that are fitted on another scale: "log" or "logit" by name.
    scaled_cost
        `fmepy.transformed` of it; the same object where `scale` is empty.
    start, lower, upper : Series
        Of the fitted parameters, on the scale on which they are fitted.
    fit_prior : mapping of str to callable or distribution, or None
        For `modFit(prior=)`: densities of the natural values, at the scaled ones.
    chain_prior : mapping or callable, or None
        For `modMCMC(prior=)`: with the Jacobian of the scale, so that the prior is that of the natural value.
    units, descriptions : mapping of str to str
        By parameter, where the file says them.
    inputs : mapping of str to str
        ``model``, ``data``, ``cost``, ``parameters``: the sha256 of what each part says and of the files that it
        names. Titles, descriptions and units are in none of them.
    written : mapping of str to str
        By "model" or "cost" the object of a Python file that it is, as ``file.py:object``.
    x_unit : str
        Of the times, with the origin where they are dates: "days since 2001-01-01".
    """

    case: Case
    data: pd.DataFrame
    notes: tuple[str, ...]
    model: Any
    cost: Any
    scale: Mapping[str, str]
    scaled_cost: Any
    start: pd.Series[float]
    lower: pd.Series[float]
    upper: pd.Series[float]
    fit_prior: Mapping[str, Any] | Callable[..., float] | None
    chain_prior: Mapping[str, Any] | Callable[..., float] | None
    units: Mapping[str, str]
    descriptions: Mapping[str, str]
    inputs: Mapping[str, str]
    written: Mapping[str, str] = field(default_factory=dict)
    x_unit: str = ""

    def error(self, key: str | Place, message: str) -> ArgumentError:
        """Return the error about a key of the file, with its line."""
        return self.case.section.error(key, message)
