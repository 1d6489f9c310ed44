"""What would happen? Parameter sets to try, and what a model makes of them."""

from fmepy.montecarlo.crl import ModCRL, modCRL
from fmepy.montecarlo.normal import Norm
from fmepy.montecarlo.ranges import RangeSummary, SensRange, sensRange
from fmepy.montecarlo.samplers import Grid, Halton, Latinhyper, Sobol, Unif
from fmepy.montecarlo.scenarios import Scenarios, ScenarioSummary, scenarios

__all__ = [
    "Grid", "Halton", "Latinhyper", "ModCRL", "Norm", "RangeSummary", "ScenarioSummary", "Scenarios", "SensRange",
    "Sobol", "Unif", "modCRL", "scenarios", "sensRange",
]  # fmt: skip
