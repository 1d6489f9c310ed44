"""Costs: a model compared with data."""

from fmepy.costs.base import BoundCost, Cost
from fmepy.costs.likelihood_cost import BoundLikelihood
from fmepy.costs.modcost import ModCost, modCost
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.costs.sum import SumCost

__all__ = [
    "BoundCost",
    "BoundLikelihood",
    "Cost",
    "ModCost",
    "PredictionErrorCost",
    "SimulationCost",
    "SumCost",
    "modCost",
]
