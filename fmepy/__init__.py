"""fmepy calibrates dynamic models: run, compare, fit, screen, sample.

A *model* is a function of its parameters; a *cost* is a model held against data. Everything else takes one of the two
and asks a question of it. Start with `OdeModel` (or any function of your own), `SimulationCost` (or `modCost`) and
`modFit`.
"""

import typing as _typing

from fmepy import command_line as _command_line  # noqa: F401    # the first: what it does is for the others' time
from fmepy import datasets, errors
from fmepy.boundary import BoundaryFit, fit_boundary
from fmepy.costs import BoundCost, Cost, ModCost, PredictionErrorCost, SimulationCost, SumCost, modCost
from fmepy.costs.mapped import transformed
from fmepy.fimlof import BadData, FilterResult, FilterSummary, FimlofCost, Forecast, Sector, screen_bad_data, sector
from fmepy.fitting import (
    FitComparison,
    Landscape,
    ModFit,
    ModFitSummary,
    Prediction,
    Profile,
    PseudoOptim,
    compare_fits,
    confidence,
    derived,
    landscape,
    modFit,
    predict,
    profile,
    pseudoOptim,
    sandwich,
)
from fmepy.journal.saving import load
from fmepy.language.equations import Equations
from fmepy.language.tracing import lag
from fmepy.mcmc import ModMCMC, modMCMC, resume_mcmc
from fmepy.models.base import BoundModel, Model
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from fmepy.models.ode_run import ode, ode_1d
from fmepy.models.steady import SteadyModel
from fmepy.models.steady_run import runsteady, steady, steady_1d
from fmepy.models.steady_state import SteadyState
from fmepy.models.transport import Grid1D, Transport, transport_1d
from fmepy.montecarlo import (
    Grid,
    Halton,
    Latinhyper,
    ModCRL,
    Norm,
    RangeSummary,
    Scenarios,
    ScenarioSummary,
    SensRange,
    Sobol,
    Unif,
    modCRL,
    scenarios,
    sensRange,
)
from fmepy.parallel import Runs, run_many
from fmepy.plotting.models import plot_model
from fmepy.plotting.obsplot import obsplot
from fmepy.sensitivity import (
    Collin,
    GlobalIndices,
    Identifiability,
    IdentifiableFit,
    SensFun,
    SensFunSummary,
    collin,
    global_indices,
    identifiability,
    identifiable_fit,
    sensFun,
)
from fmepy.tables.long_tables import cross2long, gaussianWeights

if _typing.TYPE_CHECKING:
    from fmepy import dmi, workflow

__version__ = "0.1.0"

__all__ = [
    "BadData",
    "BoundCost",
    "BoundModel",
    "BoundaryFit",
    "Collin",
    "Cost",
    "DifferenceModel",
    "Equations",
    "FilterResult",
    "FilterSummary",
    "FimlofCost",
    "FitComparison",
    "Forecast",
    "GlobalIndices",
    "Grid",
    "Grid1D",
    "Halton",
    "Identifiability",
    "IdentifiableFit",
    "Landscape",
    "Latinhyper",
    "ModCRL",
    "ModCost",
    "ModFit",
    "ModFitSummary",
    "ModMCMC",
    "Model",
    "Norm",
    "OdeModel",
    "Prediction",
    "PredictionErrorCost",
    "Profile",
    "PseudoOptim",
    "RangeSummary",
    "Runs",
    "ScenarioSummary",
    "Scenarios",
    "Sector",
    "SensFun",
    "SensFunSummary",
    "SensRange",
    "SimulationCost",
    "Sobol",
    "SteadyModel",
    "SteadyState",
    "SumCost",
    "Transport",
    "Unif",
    "__version__",
    "collin",
    "compare_fits",
    "confidence",
    "cross2long",
    "datasets",
    "derived",
    "dmi",
    "errors",
    "fit_boundary",
    "gaussianWeights",
    "global_indices",
    "identifiability",
    "identifiable_fit",
    "lag",
    "landscape",
    "load",
    "modCRL",
    "modCost",
    "modFit",
    "modMCMC",
    "obsplot",
    "ode",
    "ode_1d",
    "plot_model",
    "predict",
    "profile",
    "pseudoOptim",
    "resume_mcmc",
    "run_many",
    "runsteady",
    "sandwich",
    "scenarios",
    "screen_bad_data",
    "sector",
    "sensFun",
    "sensRange",
    "steady",
    "steady_1d",
    "transformed",
    "transport_1d",
    "workflow",
]

_ROOMS = ("dmi", "workflow")


def __getattr__(name: str) -> _typing.Any:
    """Return the rooms of modular models and of calibration files, which are imported when they are asked for."""
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"fmepy.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
