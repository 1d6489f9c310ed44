"""The samplers of modMCMC, by name: a new one is one file and one line here.

See `fmepy.mcmc.kernels.base` for what its file must provide; one of your own joins by
``SAMPLERS["mine"] = Sampler(...)``.
"""

from __future__ import annotations

from fmepy.mcmc.kernels import differential_evolution, ensemble, metropolis, nuts
from fmepy.mcmc.kernels.base import Sampler

SAMPLERS: dict[str, Sampler] = {
    "dram": metropolis.SAMPLER,
    "demcz": differential_evolution.SAMPLER,
    "emcee": ensemble.SAMPLER,
    "nuts": nuts.SAMPLER,
}
