"""Find the parameters: modFit and its methods, pseudoOptim, confidence intervals, bands of the fitted curve."""

from fmepy.fitting.compare import FitComparison, compare_fits
from fmepy.fitting.derived import derived, sandwich
from fmepy.fitting.landscape import Landscape, landscape
from fmepy.fitting.methods.pseudo_optim import PseudoOptim, pseudoOptim
from fmepy.fitting.modfit import modFit
from fmepy.fitting.predict import Prediction, predict
from fmepy.fitting.profile_result import Profile
from fmepy.fitting.profiles import confidence, profile
from fmepy.fitting.result import ModFit
from fmepy.fitting.summary import ModFitSummary

__all__ = [
    "FitComparison", "Landscape", "ModFit", "ModFitSummary", "Prediction", "Profile", "PseudoOptim", "compare_fits",
    "confidence", "derived", "landscape", "modFit", "predict", "profile", "pseudoOptim", "sandwich",
]  # fmt: skip
