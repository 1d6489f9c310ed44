"""fmepy calibrates dynamic models: run, compare, fit, screen, sample.

A *model* is a function of its parameters; a *cost* is a model compared with data. Everything else takes one of the two
and asks a question of it. Start with `OdeModel` (or any function of your own), `SimulationCost` (or `modCost`) and
`modFit`. Classes of results, and the contracts of models and costs, are in `fmepy.types`.
"""

import typing as _typing

from fmepy import command_line as _command_line  # noqa: F401    # the first: what it does is for the others' time
from fmepy import datasets, errors, types
from fmepy.boundary import BoundaryFit as BoundaryFit
from fmepy.boundary import fit_boundary
from fmepy.costs import BoundCost as BoundCost
from fmepy.costs import BoundLikelihood as BoundLikelihood
from fmepy.costs import Cost as Cost
from fmepy.costs import ModCost as ModCost
from fmepy.costs import PredictionErrorCost, SimulationCost, modCost
from fmepy.costs import SumCost as SumCost
from fmepy.costs.mapped import transformed
from fmepy.designs import OptimalDesign as OptimalDesign
from fmepy.designs import StructuralIdentifiability as StructuralIdentifiability
from fmepy.designs import design, structural_identifiability
from fmepy.exchange import PetabProblem as PetabProblem
from fmepy.exchange import SbmlModel as SbmlModel
from fmepy.exchange import read_petab, read_sbml
from fmepy.fimlof import BadData as BadData
from fmepy.fimlof import FilterResult as FilterResult
from fmepy.fimlof import FilterSummary as FilterSummary
from fmepy.fimlof import FimlofCost, screen_bad_data, sector
from fmepy.fimlof import Forecast as Forecast
from fmepy.fimlof import Sector as Sector
from fmepy.fitting import FitComparison as FitComparison
from fmepy.fitting import Landscape as Landscape
from fmepy.fitting import ModFit as ModFit
from fmepy.fitting import ModFitSummary as ModFitSummary
from fmepy.fitting import Prediction as Prediction
from fmepy.fitting import Profile as Profile
from fmepy.fitting import PseudoOptim as PseudoOptim
from fmepy.fitting import compare_fits, confidence, derived, landscape, modFit, predict, profile, pseudoOptim, sandwich
from fmepy.journal.saving import load
from fmepy.language.equations import Equations
from fmepy.language.tracing import lag
from fmepy.mcmc import CalibrationCheck as CalibrationCheck
from fmepy.mcmc import ModMCMC as ModMCMC
from fmepy.mcmc import modMCMC, resume_mcmc, simulation_based_calibration
from fmepy.models.base import BoundModel as BoundModel
from fmepy.models.base import Model as Model
from fmepy.models.continuation import Branch as Branch
from fmepy.models.continuation import continuation
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from fmepy.models.ode_run import ode, ode_1d
from fmepy.models.steady import SteadyModel
from fmepy.models.steady_run import runsteady, steady, steady_1d
from fmepy.models.steady_state import SteadyState as SteadyState
from fmepy.models.transport import Grid1D, transport_1d
from fmepy.models.transport import Transport as Transport
from fmepy.montecarlo import Grid, Halton, Latinhyper, Norm, Sobol, Unif, modCRL, scenarios, sensRange
from fmepy.montecarlo import ModCRL as ModCRL
from fmepy.montecarlo import RangeSummary as RangeSummary
from fmepy.montecarlo import Scenarios as Scenarios
from fmepy.montecarlo import ScenarioSummary as ScenarioSummary
from fmepy.montecarlo import SensRange as SensRange
from fmepy.parallel import Runs as Runs
from fmepy.parallel import run_many
from fmepy.plotting.models import plot_model
from fmepy.plotting.obsplot import obsplot
from fmepy.sensitivity import Collin as Collin
from fmepy.sensitivity import GlobalIndices as GlobalIndices
from fmepy.sensitivity import Identifiability as Identifiability
from fmepy.sensitivity import IdentifiableFit as IdentifiableFit
from fmepy.sensitivity import SensFun as SensFun
from fmepy.sensitivity import SensFunSummary as SensFunSummary
from fmepy.sensitivity import collin, global_indices, identifiability, identifiable_fit, sensFun
from fmepy.tables.long_tables import cross2long, gaussianWeights

if _typing.TYPE_CHECKING:
    from fmepy import dmi, workflow

__version__ = "0.1.0"

__all__ = [
    "DifferenceModel", "Equations", "FimlofCost", "Grid", "Grid1D", "Halton", "Latinhyper", "Norm", "OdeModel",
    "PredictionErrorCost", "SimulationCost", "Sobol", "SteadyModel", "Unif", "__version__", "collin", "compare_fits",
    "confidence", "continuation", "cross2long", "datasets", "derived", "design", "dmi", "errors", "fit_boundary",
    "gaussianWeights", "global_indices", "identifiability", "identifiable_fit", "lag", "landscape", "load", "modCRL",
    "modCost", "modFit", "modMCMC", "obsplot", "ode", "ode_1d", "plot_model", "predict", "profile", "pseudoOptim",
    "read_petab", "read_sbml", "resume_mcmc", "run_many", "runsteady", "sandwich", "scenarios", "screen_bad_data",
    "sector", "sensFun", "sensRange", "simulation_based_calibration", "steady", "steady_1d",
    "structural_identifiability", "transformed", "transport_1d", "types", "workflow",
]  # fmt: skip

_ROOMS = ("dmi", "workflow")


def __getattr__(name: str) -> _typing.Any:
    """Return the rooms of modular models and of calibration files, which are imported when they are asked for."""
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"fmepy.{name}")
    import sys

    from fmepy.vocabulary import answer_of

    own = answer_of("function", name)
    message = f"module {__name__!r} has no attribute {name!r}{f'; here it is {own}' if own else ''}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])  # Python says what is near


def __dir__() -> list[str]:
    """Return what completion offers: what one calls. Classes of results are in `fmepy.types`."""
    return list(__all__)
