"""What a calibration file describes: as it says it (`Case`), and ready to be worked on (`CalibrationTask`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.workflow.file.toml import Key, TomlTable


@dataclass(frozen=True)
class Parameter:
    """A parameter of the file.

    Attributes
    ----------
    name : str
    start : float
        Its value where it is fixed, else where the search begins; of the natural scale, as are the bounds.
    fitted : bool
        A table in the file is fitted, a plain number is fixed.
    lower, upper : float
        Bounds; minus and plus infinity where there is none.
    scale : {"", "log", "logit"}
        The scale on which it is fitted and sampled; "" is its own.
    prior : mapping or None
        ``dist`` and the arguments of that distribution of scipy.stats, of the natural value.
    description, unit : str
        Of the report alone.
    """

    name: str
    start: float
    fitted: bool
    lower: float = -float("inf")
    upper: float = float("inf")
    scale: str = ""
    prior: Mapping[str, Any] | None = None
    description: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Case:
    """A calibration file, checked against what a file may hold (`keys`).

    Attributes
    ----------
    section : TomlTable
        The file with the lines of its keys; ``case.section.error(("fit", "method"), "...")`` makes the message
        ``file.toml:7: ...``.
    title, description : str
        Of the report alone.
    parameters : mapping of str to Parameter
        In the order of the file.
    steps : mapping of str to mapping
        The sections of steps that are in the file, in the order in which steps run; each holds the arguments that
        the file gives, by the names of the functions that they go to.
    require : mapping
        ``converged``, ``failures``, ``rhat``, ``max_collinearity``, ``ess``: those that the file demands.
    run : mapping
        ``seed``, ``executor``, ``output``, ``checkpoint_every``: those that the file gives.
    content : mapping
        The whole file as plain values, numbers as their keys want them.
    """

    section: TomlTable
    title: str
    description: str
    parameters: Mapping[str, Parameter]
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    require: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The TOML file."""
        return self.section.file

    @property
    def fitted(self) -> list[str]:
        """Names of the parameters that are fitted, in the order of the file."""
        return [p.name for p in self.parameters.values() if p.fitted]


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

    def error(self, key: str | Key, message: str) -> ArgumentError:
        """Return the error about a key of the file, with its line."""
        return self.case.section.error(key, message)
