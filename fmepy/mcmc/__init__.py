"""Markov chains: how sure the parameters are."""

from fmepy.mcmc.modmcmc import modMCMC, resume_mcmc
from fmepy.mcmc.result import ModMCMC
from fmepy.mcmc.simulation_based import CalibrationCheck, simulation_based_calibration

__all__ = ["CalibrationCheck", "ModMCMC", "modMCMC", "resume_mcmc", "simulation_based_calibration"]
