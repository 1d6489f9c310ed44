"""``sample``: how sure the parameters are, by a chain from the fit; it goes on where it was killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.fitting.result import ModFit
from fmepy.mcmc.modmcmc import modMCMC, resume_mcmc
from fmepy.mcmc.result import ModMCMC
from fmepy.parallel.folder import HEADER
from fmepy.workflow.steps.base import Doing, Results, Tables, best_fit
from fmepy.workflow.steps.scale import natural_chain

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "sample"
NITER = 1000
_RHAT, _ESS = 1.01, 400
_OF_BOX, _OF_SIZE = 0.01, 0.1  # first steps of what has no standard error: of its box, else of its size
_LOOK = 1.0  # seconds between looks at the checkpoints of chains in other processes


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fit, at which it starts."""
    return ("fit",)


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    n = arguments.get("chains", 1)
    return f"{n} {'chain' if n == 1 else 'chains'} of {arguments.get('niter', NITER)} iterations"


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse nothing."""


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> ModMCMC:
    """Return the chain, on the scale of the task."""
    fit = best_fit(done)
    words: dict[str, Any] = {"niter": NITER, **_from_fit(task, fit, arguments, doing), **arguments}
    how = {"executor": doing.executor, "progress": doing.progress, "prior": task.chain_prior}
    n = words.get("chains", 1)
    with _watched(doing, n, n * words["niter"]) if doing.executor is not None and n > 1 else nullcontext():
        if (doing.checkpoint / HEADER).exists():
            chain = resume_mcmc(task.scaled_cost, doing.checkpoint, **how)
        else:
            chain = modMCMC(
                task.scaled_cost, fit.par, lower=task.lower.to_dict(), upper=task.upper.to_dict(), seed=doing.seed,
                checkpoint=doing.checkpoint, checkpoint_every=doing.every, **how, **words,
            )  # fmt: skip
    if chain.message:
        doing.remember(chain.message)
    return chain


@contextmanager
def _watched(doing: Doing, chains: int, total: int) -> Iterator[None]:
    """Tell how far chains in other processes are, by the parts of their checkpoints."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK):
            parts = sum(1 for _ in doing.checkpoint.glob("chain-*.part-*.npz"))
            doing.progress(min(max(parts - chains, 0) * doing.every, total), total)

    thread = threading.Thread(target=watch, daemon=True)
    if callable(doing.progress):
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()


def _from_fit(task: Task, fit: ModFit, arguments: Mapping[str, Any], doing: Doing) -> dict[str, Any]:
    """Return the proposal and the variance of the residuals that the fit gives."""
    words: dict[str, Any] = {}
    covariance = fit.cov_scaled
    known = np.isfinite(np.diag(covariance.to_numpy()))
    if known.any():
        box = (task.upper - task.lower).to_numpy(dtype=float)
        sd = np.where(np.isfinite(box), _OF_BOX * box, _OF_SIZE * np.abs(fit.par.to_numpy()) + _OF_BOX)
        filled = np.where(np.outer(known, known), covariance.to_numpy(), np.diag(sd**2))
        words["jump"] = pd.DataFrame(filled, covariance.index, covariance.columns) * (2.4**2 / len(fit.par))
    if not known.all() and "jump" not in arguments:
        why = f"{', '.join(fit.at_bound)} lies on a bound" if fit.at_bound else "it is singular"
        size = "a tenth of each"
        if known.any():
            size = "a hundredth of the bounds" if np.isfinite(box[~known]).all() else "a size of its own"
            size += f" for {'it' if sum(~known) == 1 else 'them'}"
        doing.remember(f"The fit has no covariance of all parameters ({why}): the chain begins with steps of {size}.")
    weighted = fit.cost is not None and not np.allclose(fit.cost.residuals["weight"].to_numpy(dtype=float), 1.0)
    if not fit.is_scalar and not (fit.with_prior and weighted):  # with a prior errors that are given are the errors
        words["var0"] = fit.ms if fit.cost is None else fit.var_ms_unweighted
    return words


def tables(task: Task, result: ModMCMC) -> Tables:
    """Return sample.csv, a row a draw, and sample_summary.csv, a row a parameter."""
    own = natural_chain(task, result)
    return {"sample.csv": own.pars.reset_index(), "sample_summary.csv": _summary(own)}


def _summary(chain: ModMCMC) -> pd.DataFrame:
    """Return a row a parameter, and a sampled variance: mean, quantiles, and how far they can be trusted."""
    whole = chain.summary().frame.T
    trust = chain.diagnostics()[["rhat", "ess_bulk", "ess_tail", "mcse"]]
    return whole.join(trust).rename_axis("parameter").reset_index()


def verdict(task: Task, result: ModMCMC) -> str:
    """Return whether the chains can be trusted."""
    found = result.diagnostics()
    rhat, ess = worst(found, "rhat"), worst(found, "ess_bulk")
    ok = rhat <= _RHAT and ess >= _ESS
    n = len(result.chains)
    return (
        f"{n} {'chain' if n == 1 else 'chains'} of {result.n_draw} draws; the largest R-hat is {rhat:.4g}, the least "
        f"effective sample {ess:.4g}: {'they can be trusted' if ok else 'too few draws, or chains that disagree'}."
    )


def worst(diagnostics: pd.DataFrame, what: str) -> float:
    """Return the worst R-hat, or the least effective size, of all parameters; NaN if one of them cannot be said."""
    values = diagnostics[what].to_numpy(dtype=float)
    if np.isnan(values).any():
        return float("nan")
    return float(values.max() if what == "rhat" else values.min())


def failed_runs(result: ModMCMC) -> tuple[int, int, str]:
    """Return how many proposals failed, of how many, and the last one's message."""
    return result.failures, int(result.iterations.sum() + result.count["dr_steps"].sum()), result.last_failure
