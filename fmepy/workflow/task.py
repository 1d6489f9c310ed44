"""What a calibration file describes, ready to be worked on: data read, model and cost built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fmepy.workflow.case import Case


@dataclass(frozen=True, eq=False)
class Task:
    """Data, model, cost and parameters of a file.

    Attributes
    ----------
    case : Case
        What the file says.
    data : DataFrame
        The observations as read, numbers as numbers.
    told : tuple of str
        What reading found (separator, encoding, decimal comma, replicates ...), for stderr and the report.
    model : Model or callable or None
        On the natural scale; None where the file names a Python function, which is a cost already.
    cost : Cost or callable
        On the natural scale: a SimulationCost, PredictionErrorCost, FimlofCost, or the file's function ``f(p)``.
    scale : mapping of str to str
        The fitted parameters that are fitted on another scale: "log" or "logit" by name.
    scaled_model, scaled_cost
        `fmepy.transformed` of them; the same objects where `scale` is empty.
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
    """

    case: Case
    data: pd.DataFrame
    told: tuple[str, ...]
    model: Any
    cost: Any
    scale: Mapping[str, str]
    scaled_model: Any
    scaled_cost: Any
    start: pd.Series[float]
    lower: pd.Series[float]
    upper: pd.Series[float]
    fit_prior: Mapping[str, Any] | Callable[..., float] | None
    chain_prior: Mapping[str, Any] | Callable[..., float] | None
    units: Mapping[str, str]
    descriptions: Mapping[str, str]
    inputs: Mapping[str, str]


def read_task(case: Case, *, python: bool = True) -> Task:
    """Return the task of a file: read its data, build its model and cost; nothing is run."""
    raise NotImplementedError
