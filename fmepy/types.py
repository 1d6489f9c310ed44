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
    from fmepy import (
        BadData as BadData,
    )  # fmt: skip
    from fmepy import (
        BoundaryFit as BoundaryFit,
    )
    from fmepy import (
        BoundCost as BoundCost,
    )
    from fmepy import (
        BoundLikelihood as BoundLikelihood,
    )
    from fmepy import (
        BoundModel as BoundModel,
    )
    from fmepy import (
        Collin as Collin,
    )
    from fmepy import (
        Cost as Cost,
    )
    from fmepy import (
        FilterResult as FilterResult,
    )
    from fmepy import (
        FilterSummary as FilterSummary,
    )
    from fmepy import (
        FitComparison as FitComparison,
    )
    from fmepy import (
        Forecast as Forecast,
    )
    from fmepy import (
        GlobalIndices as GlobalIndices,
    )
    from fmepy import (
        Identifiability as Identifiability,
    )
    from fmepy import (
        IdentifiableFit as IdentifiableFit,
    )
    from fmepy import (
        Landscape as Landscape,
    )
    from fmepy import (
        ModCost as ModCost,
    )
    from fmepy import (
        ModCRL as ModCRL,
    )
    from fmepy import (
        Model as Model,
    )
    from fmepy import (
        ModFit as ModFit,
    )
    from fmepy import (
        ModFitSummary as ModFitSummary,
    )
    from fmepy import (
        ModMCMC as ModMCMC,
    )
    from fmepy import (
        Prediction as Prediction,
    )
    from fmepy import (
        Profile as Profile,
    )
    from fmepy import (
        PseudoOptim as PseudoOptim,
    )
    from fmepy import (
        RangeSummary as RangeSummary,
    )
    from fmepy import (
        Runs as Runs,
    )
    from fmepy import (
        Scenarios as Scenarios,
    )
    from fmepy import (
        ScenarioSummary as ScenarioSummary,
    )
    from fmepy import (
        Sector as Sector,
    )
    from fmepy import (
        SensFun as SensFun,
    )
    from fmepy import (
        SensFunSummary as SensFunSummary,
    )
    from fmepy import (
        SensRange as SensRange,
    )
    from fmepy import (
        SteadyState as SteadyState,
    )
    from fmepy import (
        SumCost as SumCost,
    )
    from fmepy import (
        Transport as Transport,
    )

RESULTS_AND_CONTRACTS = (
    "BadData", "BoundCost", "BoundLikelihood", "BoundModel", "BoundaryFit", "Collin", "Cost", "FilterResult",
    "FilterSummary",
    "FitComparison", "Forecast", "GlobalIndices", "Identifiability", "IdentifiableFit", "Landscape", "ModCRL",
    "ModCost", "ModFit", "ModFitSummary", "ModMCMC", "Model", "Prediction", "Profile", "PseudoOptim",
    "RangeSummary", "Runs", "ScenarioSummary", "Scenarios", "Sector", "SensFun", "SensFunSummary", "SensRange",
    "SteadyState", "SumCost", "Transport",
)  # fmt: skip
__all__ = [
    "ArrayLike", "AxesArray", "BoolVector", "Cube", "IntMatrix", "IntVector", "Matrix", "Seed", "UserBounds",
    "UserParameters", "Vector", "Which",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return a class of results or a contract from the room that it belongs to."""
    if name in RESULTS_AND_CONTRACTS:
        return getattr(import_module("fmepy"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *RESULTS_AND_CONTRACTS})
