"""Types for annotations: arrays, so that signatures read like the mathematics; classes of results; contracts.

Shapes are told in docstrings with fixed symbols: ``n_obs``, ``n_time``, ``n_var``, ``n_par``, ``n_draw``,
``n_chain``. The classes that public functions return (`ModFit`, `ModMCMC`, `SensRange`, ...) and the contracts of
models and costs (`Model`, `Cost`, `BoundModel`, `BoundCost`) live in the rooms that make them, and are looked up there.

Examples
--------
>>> from fmepy.types import ModFit
>>> def best(fits: list[ModFit]) -> ModFit:
...     return min(fits, key=lambda fit: fit.deviance)
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Cube: TypeAlias = NDArray[np.float64]
IntVector: TypeAlias = NDArray[np.intp]
IntMatrix: TypeAlias = NDArray[np.intp]
BoolVector: TypeAlias = NDArray[np.bool_]
AxesArray: TypeAlias = NDArray[np.object_]
"""Panels of a picture: matplotlib Axes."""
Seed: TypeAlias = int | np.random.Generator | None
UserParameters: TypeAlias = Any
"""Whatever a user may give as ``p``: dict, Series, table row, sequence, number, lmfit.Parameters, names, None."""
UserBounds: TypeAlias = Any
"""A number, a sequence, a dict by name; None and NaN mean no bound."""

Which: TypeAlias = str | int | Sequence[str | int] | None
"""Names or positions from 0; None is all."""

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    # each name would stand on a line of its own
    # isort: off
    from fmepy import (
        BadData, BoundaryFit, BoundCost, BoundLikelihood, BoundModel, Branch, CalibrationCheck, Collin, Cost,
        FilterResult, FilterSummary, FitComparison, Forecast, GlobalIndices, Identifiability, IdentifiableFit,
        Landscape, ModCost, ModCRL, Model, ModFit, ModFitSummary, ModMCMC, OptimalDesign, PetabProblem, Prediction,
        Profile, PseudoOptim, RangeSummary, Runs, SbmlModel, Scenarios, ScenarioSummary, Sector, SensFun,
        SensFunSummary, SensRange, SteadyState, StructuralIdentifiability, SumCost, Transport,
    )  # fmt: skip
    # isort: on
else:
    Axes = Any  # matplotlib is imported when something is drawn

__all__ = [
    "ArrayLike", "Axes", "AxesArray", "BadData", "BoolVector", "BoundCost", "BoundLikelihood", "BoundModel",
    "BoundaryFit", "Branch", "CalibrationCheck", "Collin", "Cost", "Cube", "FilterResult", "FilterSummary",
    "FitComparison", "Forecast", "GlobalIndices", "Identifiability", "IdentifiableFit", "IntMatrix", "IntVector",
    "Landscape", "Matrix", "ModCRL", "ModCost", "ModFit", "ModFitSummary", "ModMCMC", "Model", "OptimalDesign",
    "PetabProblem", "Prediction", "Profile", "PseudoOptim", "RangeSummary", "Runs", "SbmlModel", "ScenarioSummary",
    "Scenarios", "Sector", "Seed", "SensFun", "SensFunSummary", "SensRange", "SteadyState",
    "StructuralIdentifiability", "SumCost", "Transport", "UserBounds", "UserParameters", "Vector", "Which",
]  # fmt: skip
RESULTS_AND_CONTRACTS = tuple(name for name in __all__ if name not in globals())


def __getattr__(name: str) -> Any:
    """Return a class of results or a contract from the room that it belongs to."""
    if name in RESULTS_AND_CONTRACTS:
        return getattr(import_module("fmepy"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
