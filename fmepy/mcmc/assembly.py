"""The assembly of finished chains into a `ModMCMC`: tables by chain and iteration, counts, messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import CostData, densities_of_residuals, log_densities, residuals_many
from fmepy.costs.noise import SaidNoise, said_noise
from fmepy.costs.solver_error import solver_error, told_error
from fmepy.errors import SimulationError
from fmepy.mcmc.kernels.base import Settings
from fmepy.mcmc.result import ModMCMC
from fmepy.mcmc.runner import ChainRun, Chains, Plan
from fmepy.mcmc.target import Target
from fmepy.parameters.scales import mark, mark_sampled
from fmepy.tables.sheet import calendar_of
from fmepy.types import Matrix

_Runs = list[tuple[int, ChainRun]]


@dataclass(frozen=True, slots=True, eq=False)
class ReadingDensities:
    """Log densities of the readings at draws.

    Attributes
    ----------
    bound : BoundCost
    data : CostData
    grouping : str
        That of the variances; "" without any.
    """

    bound: Any
    data: CostData
    grouping: str

    def at_draws(self, Theta: Matrix, sig: Matrix | None) -> Matrix | None:
        """Return the log density of every reading, shape (n_draw, n_obs), for draws and their variances.

        None where the cost gives one number alone. A draw at which the cost fails raises its error.
        """
        different, inverse = np.unique(Theta, axis=0, return_inverse=True)
        if self.bound.is_scalar:
            rows = [log_densities(self.bound, theta) for theta in different]
            return None if any(row is None for row in rows) else np.array(rows)[inverse.ravel()]
        r, failures = residuals_many(self.bound, different)
        if reasons := [text for text in failures if text]:
            raise SimulationError(f"The cost fails at a draw where it did not before: {reasons[0]}")
        w, r = self.data.weights, r[inverse.ravel()]
        variances = w**-2.0
        if sig is not None:
            which = {"pooled": lambda: sig, "variable": lambda: sig[:, self.data.groups], "datum": lambda: sig / w**2}
            variances = which[self.grouping]()
        return np.asarray(densities_of_residuals(self.data, r, variances))


def assemble(target: Target, plan: Plan, settings: Settings, ran: Chains) -> ModMCMC:
    """Return the result of some chains; each member of an ensemble is a chain there."""
    runs, names, var = ran.runs, list(target.names), target.variances
    index = _index(runs)

    def rows(key: str) -> Any:
        return np.concatenate([run.rows[key][:, m] for _, run in runs for m in range(_n_member(run))])

    def column(key: str) -> pd.Series:
        return pd.Series(rows(key), index=index, name=key)

    counts, by_try = _counts(runs)
    iterations = counts.pop("iterations")
    best = max((run for _, run in runs), key=lambda run: run.counts.best_log_posterior).counts
    error = None if ran.interrupted else solver_error(target.objective, lambda f: target.minus2log_by(f, best.best))
    pars = pd.DataFrame(rows("pars"), index=index, columns=names)
    divergences, divergent = _divergences(runs, names)
    notes = [*ran.notes, *_failures(runs), told_error(error), _on_divergences(divergences, divergent, pars)]
    return ModMCMC(
        pars=mark_sampled(mark(pars, target.objective.transforms)),
        SS=column("SS"),
        sig=None if var is None else pd.DataFrame(rows("sig"), index=index, columns=var.columns),
        prior=column("prior"),
        bestpar=mark(pd.Series(best.best.copy(), index=names), target.objective.transforms),
        bestfunp=-best.best_log_posterior,
        naccepted=counts["num_accepted"].rename("naccepted"),
        count=counts,
        accepted_by_try=by_try,
        settings="constant variance = 1" if var is None else var.settings(),
        log_posterior=column("log_posterior"),
        iterations=iterations,
        failures=sum(run.failures for _, run in runs),
        retries=sum(run.retries for _, run in runs),
        last_failure=_last_failure(runs),
        method=settings.method,
        burninlength=plan.burninlength,
        lower=pd.Series(target.lower.copy(), index=names),
        upper=pd.Series(target.upper.copy(), index=names),
        message=" ".join(filter(None, notes)),
        solver_error=error,
        engine=target.objective.engine,
        interrupted=ran.interrupted,
        noise=_noise(target),
        calendar=calendar_of(target.objective.f),
        divergences=divergences,
        divergent=divergent,
        source=ReadingDensities(target.objective.bound, target.objective.data, "" if var is None else var.grouping),
    )


def _divergences(runs: _Runs, names: list[str]) -> tuple[int, pd.DataFrame | None]:
    """Return the number of divergences, and where some of them began."""
    places = [run.counts.divergent for _, run in runs if run.counts.divergent is not None]
    table = pd.DataFrame(np.concatenate(places), columns=names) if places else None
    return sum(run.counts.divergences for _, run in runs), table if table is not None and len(table) else None


def _on_divergences(n: int, divergent: pd.DataFrame | None, pars: pd.DataFrame) -> str:
    """Return a message about divergences: the parameter that distinguishes them best, and what to do."""
    if not n or divergent is None:
        return ""
    sd = pars.std(ddof=0).replace(0.0, np.nan)
    shift = ((divergent.median() - pars.median()) / sd).fillna(0.0)
    name = str(shift.abs().idxmax())
    where = f"where {name!r} is {'small' if shift[name] < 0 else 'large'} (about {divergent[name].median():.3g})"
    return (
        f"{n} {'trajectory' if n == 1 else 'trajectories'} diverged after burn-in, {where}: the posterior bends more "
        "sharply there than the steps can follow, and draws may be missing. Give control={'target_accept': 0.95}, "
        f"bounds or a prior for {name!r}, or its logarithm (transformed(cost, {{{name!r}: 'log'}}))."
    )


def _noise(target: Target) -> SaidNoise | None:
    """Return the noise model of the cost, with lmfit's values of fixed parameters; tied ones have none."""
    noise, parameters = said_noise(target.objective.f), target.objective.parameters.lmfit
    if noise is None or parameters is None:
        return noise
    fixed = {q.name: float(q.value) for q in parameters.values() if q.expr is None}
    return replace(noise, values={name: fixed[name] for name in noise.values if name in fixed})


def _n_member(run: ChainRun) -> int:
    return int(run.rows["pars"].shape[1])


def _index(runs: _Runs) -> pd.MultiIndex:
    """Return the labels (chain, iteration) of every row."""
    labels = [(number * _n_member(run) + m, run.rows["saved"]) for number, run in runs for m in range(_n_member(run))]
    chain = np.concatenate([np.full(len(saved), label) for label, saved in labels])
    return pd.MultiIndex.from_arrays([chain, np.concatenate([s for _, s in labels])], names=["chain", "iteration"])


def _counts(runs: _Runs) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the counts by chain, and the accepted moves by try."""
    by_chain, by_try = {}, {}
    for number, run in runs:
        for m in range(_n_member(run)):
            label, accepted = number * _n_member(run) + m, int(run.counts.accepted[m])
            by_try[label] = run.counts.by_try or (accepted,)
            by_chain[label] = {
                "dr_steps": run.counts.dr_steps,
                "Alfasteps": run.counts.alfasteps,
                "num_accepted": accepted,
                "num_covupdate": run.counts.covupdates,
                "iterations": run.iterations,
            }
    tries = pd.DataFrame.from_dict(by_try, orient="index").rename_axis("chain")
    tries = tries.set_axis(pd.RangeIndex(1, tries.shape[1] + 1, name="try"), axis=1)
    return pd.DataFrame.from_dict(by_chain, orient="index").rename_axis("chain"), tries


def _last_failure(runs: _Runs) -> str:
    return next((run.last_failure for _, run in reversed(runs) if run.last_failure), "")


def _failures(runs: _Runs) -> list[str]:
    """Return the message about runs that failed, or that another engine finished."""
    failures, retries = sum(run.failures for _, run in runs), sum(run.retries for _, run in runs)
    notes = []
    if failures:
        which = "1 run failed and counts" if failures == 1 else f"{failures} runs failed and count"
        notes.append(f"{which} as zero likelihood; the last one: {_last_failure(runs)}")
    if retries:
        notes.append(f"{retries} run{'s were' if retries > 1 else ' was'} finished by a second engine.")
    return notes
