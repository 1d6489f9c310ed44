"""Costs: a model held against data."""

from fmepy.costs.bad_data import BadData, screen_bad_data
from fmepy.costs.base import BoundCost, Cost
from fmepy.costs.fimlof import FimlofCost
from fmepy.costs.modcost import ModCost, modCost
from fmepy.costs.sector import Sector, sector
from fmepy.costs.simulation import SimulationCost
from fmepy.costs.sums import SumCost

__all__ = [
    "BadData",
    "BoundCost",
    "Cost",
    "FimlofCost",
    "ModCost",
    "Sector",
    "SimulationCost",
    "SumCost",
    "modCost",
    "screen_bad_data",
    "sector",
]
