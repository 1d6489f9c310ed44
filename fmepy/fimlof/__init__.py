"""Full-information maximum likelihood via optimal filtering: the cost, its results and their diagnostics."""

from fmepy.fimlof.bad_data import BadData, screen_bad_data
from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.forecasting import Forecast
from fmepy.fimlof.report import FilterSummary
from fmepy.fimlof.result import FilterResult
from fmepy.fimlof.sector import Sector, sector

__all__ = ["BadData", "FilterResult", "FilterSummary", "FimlofCost", "Forecast", "Sector", "screen_bad_data", "sector"]
