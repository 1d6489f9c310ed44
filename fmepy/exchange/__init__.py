"""Models and problems from elsewhere: SBML and PEtab, read into models and costs, and written back."""

from fmepy.exchange.petab import PetabProblem, read_petab
from fmepy.exchange.sbml import SbmlModel, read_sbml

__all__ = ["PetabProblem", "SbmlModel", "read_petab", "read_sbml"]
