"""Costs: a model held against data."""

from fmepy.costs.base import BoundCost, Cost
from fmepy.costs.modcost import ModCost, modCost
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.costs.sum import SumCost

__all__ = ["BoundCost", "Cost", "ModCost", "PredictionErrorCost", "SimulationCost", "SumCost", "modCost"]
