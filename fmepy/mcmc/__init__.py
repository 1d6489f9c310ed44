"""Markov chains: how sure the parameters are."""

from fmepy.mcmc.modmcmc import modMCMC, resume_mcmc
from fmepy.mcmc.result import ModMCMC

__all__ = ["ModMCMC", "modMCMC", "resume_mcmc"]
