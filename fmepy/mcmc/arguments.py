"""Validation of the arguments of `modMCMC`: iterations, starts, chains, tries, and the options of each sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import whole_number
from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError, check_choice, listed, shortened, warn
from fmepy.mcmc.kernels.base import Dispersion, Kernel, Settings
from fmepy.mcmc.kernels.registry import SAMPLERS
from fmepy.mcmc.proposals import JumpFunction
from fmepy.mcmc.runner import ChainSpec, Plan
from fmepy.mcmc.target import Target, differ_within
from fmepy.parameters.named import generated_names
from fmepy.types import Matrix

_DRSCALE = (1 / 5, 1 / 4, 1 / 3)  # FME's; 1/3 from the third on


def as_plan(niter: int, burninlength: int, outputlength: Any) -> Plan:
    """Return which iterations to run and to save."""
    if burninlength >= niter:
        raise ArgumentError(
            f"`burninlength={burninlength}` leaves nothing of `niter={niter}` iterations; niter includes the burn-in."
        )
    most = niter - burninlength
    length = most if outputlength is None else whole_number(outputlength, "outputlength", 1)
    if length > most:
        warn(f"`outputlength={length}` is more than the {most} iterations after burn-in; it is set to {most}.")
    return Plan.of(niter, burninlength, length)


def as_starts(p: Any, chains: int) -> tuple[Any, Matrix | None, int]:
    """Return the parameters for the objective, the table of starts (None: `p` is one), and the number of chains."""
    if isinstance(p, np.ndarray) and p.ndim == 2:
        p = pd.DataFrame(p, columns=list(generated_names(p.shape[1])))
    if not isinstance(p, pd.DataFrame) or len(p) == 1:
        return p, None, chains
    if len(p) == 0:
        raise ArgumentError("`p` is a table without rows; give one start a chain.")
    try:
        table = p.to_numpy(dtype=float, copy=True)
    except (TypeError, ValueError):
        raise ArgumentError("`p` is a table that holds something else than numbers.") from None
    if not np.isfinite(table).all():
        raise ArgumentError("`p` is a table with values that are not finite.")
    chains = len(p) if chains == 1 else chains
    if len(p) % chains:
        raise ArgumentError(f"`p` is a table of {len(p)} starts for {chains} chains; give one start a chain.")
    return p.iloc[0], table, chains


def proposal_from_fit(fit: Any, objective: Objective, jump: Any, var0: Any, sampled: bool) -> tuple[Any, Any]:
    """Return the proposal and the variance of the residuals, by default those of the fit that a chain starts at.

    The proposal is ``2.4**2 / n_par`` times the fit's covariance; the variance is that of `residual_variance`.
    """
    if jump is None:
        jump = fit.cov_scaled * (2.4**2 / len(fit.par))
    return jump, (residual_variance(fit, sampled) if var0 is None and not objective.is_scalar else var0)


def residual_variance(fit: Any, sampled: bool) -> Any:
    """Return the variance of a fit's residuals, unweighted, by variable, as `var0`; None where others are known.

    A likelihood has its own. With a prior, stated errors are the errors; and where they differ within a variable, of
    which one variance would count all readings alike, unless variances are to be sampled.
    """
    if fit.is_scalar or fit.cost is None:
        return None if fit.is_scalar else fit.ms
    weights = fit.cost.residuals["weight"].to_numpy(dtype=float)
    if (fit.with_prior and not np.allclose(weights, 1.0)) or (not sampled and differ_within(weights, fit.groups)):
        return None
    return fit.var_ms_unweighted


def check_starts(target: Target, starts: Matrix) -> None:
    """Raise an ArgumentError for a start of zero probability."""
    dispersion = Dispersion(target, np.zeros((target.n_par, target.n_par)))
    for row in starts:
        dispersion.given(row)


def as_chains(starts: Matrix, chains: int, n_member: int, seeds: list[np.random.SeedSequence]) -> list[ChainSpec]:
    """Return the chains to run: all from one start, or one start each (of ensembles also one a member)."""
    if len(starts) == 1:
        return [ChainSpec(k, seeds[k], starts, k > 0) for k in range(chains)]
    each = len(starts) // chains
    if each not in (1, n_member):
        members = f", or {chains * n_member} (one per member)" if n_member > 1 else ""
        raise ArgumentError(f"`p` is a table of {len(starts)} starts; {chains} (one per chain){members} are needed.")
    return [ChainSpec(k, seeds[k], starts[k * each : (k + 1) * each], False) for k in range(chains)]


def as_drscale(drscale: Any, ntrydr: int) -> tuple[float, ...]:
    """Return the factors of the second and later tries."""
    n = ntrydr - 1
    if drscale is None:
        return tuple(_DRSCALE[min(k, len(_DRSCALE) - 1)] for k in range(n))
    try:
        values = np.atleast_1d(np.array(drscale, dtype=float))
    except (TypeError, ValueError):
        raise ArgumentError(f"`drscale={drscale!r}` must hold positive numbers.") from None
    if values.size == 1:
        values = np.repeat(values, max(n, 1))
    if values.ndim != 1 or values.size < n or not np.all((values > 0) & np.isfinite(values)):
        raise ArgumentError(
            f"`drscale={drscale!r}` must be a positive number, or {n} of them: one for each try after the first."
        )
    return tuple(float(v) for v in values[:n])


def as_control(control: Mapping[str, Any] | None, method: str, n_par: int) -> dict[str, Any]:
    """Return the `control` of a sampler, defaults filled in."""
    if not isinstance(control, Mapping | None):
        raise ArgumentError(f"`control={shortened(control)}` must be a dict by name.")
    sampler, values = SAMPLERS[method], dict(control or {})
    for name in values:
        if not sampler.control:
            instead = "; use updatecov, covscale, ntrydr and drscale" if sampler.adapts else ""
            raise ArgumentError(f"method={method!r} has no `control`{instead}.")
        check_choice(name, sampler.control, "control")
    return sampler.checked({**sampler.control, **values}, n_par)


def check_settings(settings: Settings, proposal: Matrix | JumpFunction, covscale: Any, drscale: Any) -> None:
    """Raise an ArgumentError for settings that exclude each other."""
    delayed = bool(settings.drscale)
    if not SAMPLERS[settings.method].adapts:
        adaptive = {"updatecov": settings.updatecov, "covscale": covscale, "ntrydr": delayed, "drscale": drscale}
        wrong = [name for name, value in adaptive.items() if value is not None and value is not False and value != 0]
        if wrong:
            raise ArgumentError(
                f"{listed(wrong)} belong to {_adaptive()}; {settings.method!r} adapts by itself. Leave them out."
            )
        if isinstance(proposal, JumpFunction):
            raise ArgumentError(
                f"`jump` as a function belongs to {_adaptive()}; {settings.method!r} makes proposals of its own. Give "
                "standard deviations, by which its members start apart."
            )
    elif isinstance(proposal, JumpFunction):
        if settings.updatecov:
            raise ArgumentError(
                "`updatecov` adapts a covariance, but `jump` is a function. Leave one of them out, or give the "
                "covariance of the first proposals as `jump`."
            )
        if delayed:
            raise ArgumentError(
                "`ntrydr` above 1 must know the density of the proposals, but `jump` is a function. Give a covariance."
            )


def _adaptive() -> str:
    return " or ".join(f"method={name!r}" for name, sampler in SAMPLERS.items() if sampler.adapts)


def make_kernel(settings: Settings, target: Target, proposal: Matrix | JumpFunction) -> Kernel:
    """Return the kernel that the settings describe."""
    dispersion = Dispersion.of(target, proposal, target.objective.theta0)
    return SAMPLERS[settings.method].kernel(target, proposal, dispersion, settings)
