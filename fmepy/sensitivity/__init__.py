"""Which parameters matter, and which of them can be told apart: sensitivities, collinearity, global indices."""

from fmepy.sensitivity.collin import Collin, collin
from fmepy.sensitivity.global_indices import GlobalIndices, global_indices
from fmepy.sensitivity.identifiability import Identifiability, identifiability
from fmepy.sensitivity.identifiable_fit import IdentifiableFit, identifiable_fit
from fmepy.sensitivity.sensfun import SensFun, sensFun
from fmepy.sensitivity.summary import SensFunSummary

__all__ = [
    "Collin", "GlobalIndices", "Identifiability", "IdentifiableFit", "SensFun", "SensFunSummary", "collin",
    "global_indices", "identifiability", "identifiable_fit", "sensFun",
]  # fmt: skip
