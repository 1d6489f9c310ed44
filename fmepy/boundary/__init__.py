"""Observations as boundary conditions of a model's equations: superposed solutions, multiple shooting."""

from fmepy.boundary.fit import fit_boundary
from fmepy.boundary.result import BoundaryFit

__all__ = ["BoundaryFit", "fit_boundary"]
