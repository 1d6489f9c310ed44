"""``sample``: how sure the parameters are, by a chain from the fit; it goes on where it was killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.fitting.result import ModFit
from fmepy.journal.folder import HEADER
from fmepy.mcmc.arguments import as_control, residual_variance
from fmepy.mcmc.kernels.registry import SAMPLERS
from fmepy.mcmc.modmcmc import modMCMC, resume_mcmc
from fmepy.mcmc.result import ModMCMC
from fmepy.workflow.file.signatures import COUNT, NO_FILE, Key, arguments_of
from fmepy.workflow.file.toml import TomlTable
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import PANEL, Pictures, drawn_each
from fmepy.workflow.steps.base import (
    CalibrationStep,
    CalibrationTask,
    Requirement,
    Results,
    RunOptions,
    Tables,
    best_fit,
)
from fmepy.workflow.steps.scale import natural_chain, with_line

_OF_BOX, _OF_SIZE = 0.01, 0.1  # first steps of what has no standard error: of its box, else of its size
_LOOK = 1.0  # seconds between looks at the checkpoints of chains in other processes
_NUMBERS = {"kinds": (float, list), "items": Key((float,), least=0), "least": 0}
_MOST_DRAWN = 400  # draws of a chain in the picture of its course
_HEADS = {"2.5%": "2.5 %", "50%": "median", "97.5%": "97.5 %", "rhat": "R-hat", "ess_bulk": "effective draws",
          "ess_tail": "effective draws, tails"}  # fmt: skip
_DRAWS = ("ess_bulk", "ess_tail")
_ADVICE = (
    ", drop the beginning (burninlength, or remove here), or start from a fit and jump with its covariance (p=fit.par, "
    "jump=fit.cov_scaled)."
)  # which it does


class SampleStep(CalibrationStep):
    """Chains from the fit."""

    name = "sample"
    says = "Chains: the posterior distribution of the parameters."
    purpose = "Draw parameter values that are plausible given the data (Markov chain Monte Carlo)"
    title = "Which values are plausible"
    takes = ("fit",)
    unit = "iteration"
    niter = 1000
    rhat, ess = 1.01, 400  # from which chains agree, and are long enough
    requirements: ClassVar[Mapping[str, Requirement]] = {
        "rhat": Requirement(
            Key((float,), "The largest R-hat of the chains' parameters.", least=1, open=True),
            lambda chain: float(chain.diagnostics()["rhat"].max(skipna=False)), "the largest R-hat is {:.4g}"),
        "ess": Requirement(
            Key((float,), "The smallest effective number of draws of a parameter.", least=0, open=True),
            lambda chain: float(chain.diagnostics()["ess_bulk"].min(skipna=False)),
            "the least effective sample is {:.4g}", at_least=True),
    }  # fmt: skip

    keys = arguments_of(
        modMCMC, (*NO_FILE, "checkpoint_every"), method={"choices": tuple(SAMPLERS)},
        jump={"kinds": (float, list, dict)}, wvar0=_NUMBERS, n0=_NUMBERS, burninlength={**COUNT, "least": 0},
        covscale={"least": 0, "open": True}, niter=COUNT, outputlength=COUNT, updatecov=COUNT, ntrydr=COUNT,
        chains=COUNT,
    )  # fmt: skip

    def read(self, section: TomlTable, arguments: dict[str, Any]) -> dict[str, Any]:
        niter, burnin = arguments.get("niter", self.niter), arguments.get("burninlength", 0)
        if burnin >= niter:
            raise section.error(
                "burninlength",
                f"`burninlength` = {burnin} leaves nothing of {niter} iterations; niter includes the burn-in.",
            )
        return arguments

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        if "control" in arguments:
            given = (arguments["control"], arguments.get("method", "dram"), len(task.start))
            with_line(task, (self.name, "control"), as_control, *given)

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> ModMCMC:
        fit = best_fit(done)
        keywords: dict[str, Any] = {"niter": self.niter, **_from_fit(task, fit, arguments, options), **arguments}
        how = {"executor": options.executor, "progress": options.progress, "prior": task.chain_prior}
        n = keywords.get("chains", 1)
        with _watched(options, n, n * keywords["niter"]) if options.executor is not None and n > 1 else nullcontext():
            if (options.checkpoint / HEADER).exists():
                chain = resume_mcmc(task.scaled_cost, options.checkpoint, **how)
            else:
                chain = modMCMC(
                    task.scaled_cost, fit.par, lower=task.lower.to_dict(), upper=task.upper.to_dict(),
                    seed=options.seed, checkpoint=options.checkpoint, checkpoint_every=options.every, **how, **keywords,
                )  # fmt: skip
        options.remember(chain.message)
        return chain

    def tables(self, task: CalibrationTask, result: ModMCMC) -> Tables:
        own = natural_chain(task, result)
        trust = own.diagnostics()[["rhat", "ess_bulk", "ess_tail", "mcse"]]
        summary = own.summary().frame.T.join(trust).rename_axis("parameter").reset_index()
        return {"sample.csv": own.pars.reset_index(), "sample_summary.csv": summary}

    def failed_runs(self, result: ModMCMC) -> tuple[int, int, str]:
        return result.failures, int(result.iterations.sum() + result.count["dr_steps"].sum()), result.last_failure

    def facts(self, findings: Findings, result: ModMCMC) -> Mapping[str, Any]:
        chain = natural_chain(findings.task, result)
        summary, own = chain.summary(), [str(c) for c in chain.pars.columns]
        one_in = max(1, -(-chain.n_draw // _MOST_DRAWN))
        return {
            "chain": chain,
            "advice": [s.replace(_ADVICE, " or drop more of the beginning (burninlength).") for s in summary.advice],
            "one_in": one_in, "summary": _summary(findings, summary), "HEADS": _HEADS, "tone": _tone,
            "histograms": partial(
                drawn_each, own, lambda shown, axes: chain.hist(which=shown, axes=axes),
                finish=lambda ax, k: ax.set_xlabel(findings.label(own[k])), size=(3.4, 2.3)),
            "courses": partial(_courses, findings, chain, own, one_in),
        }  # fmt: skip


@contextmanager
def _watched(options: RunOptions, chains: int, total: int) -> Iterator[None]:
    """Show the progress of chains in other processes, by the parts of their checkpoints."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK):
            parts = sum(1 for _ in options.checkpoint.glob("chain-*.part-*.npz"))
            options.progress(min(max(parts - chains, 0) * options.every, total), total)

    thread = threading.Thread(target=watch, daemon=True)
    if callable(options.progress):
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.is_alive():
            thread.join()


def _from_fit(task: CalibrationTask, fit: ModFit, arguments: Mapping[str, Any], options: RunOptions) -> dict[str, Any]:
    """Return the proposal and the variance of the residuals that the fit gives."""
    keywords: dict[str, Any] = {}
    covariance = fit.cov_scaled
    known = np.isfinite(np.diag(covariance.to_numpy()))
    if known.any():
        box = (task.upper - task.lower).to_numpy(dtype=float)
        sd = np.where(np.isfinite(box), _OF_BOX * box, _OF_SIZE * np.abs(fit.par.to_numpy()) + _OF_BOX)
        filled = np.where(np.outer(known, known), covariance.to_numpy(), np.diag(sd**2))
        keywords["jump"] = pd.DataFrame(filled, covariance.index, covariance.columns) * (2.4**2 / len(fit.par))
    if not known.all() and "jump" not in arguments:
        held = ", ".join([*fit.at_bound, *fit.at_kink])
        why = f"{held} lies on a bound{' or a kink' if fit.at_kink else ''}" if held else "it is singular"
        size = "a tenth of each"
        if known.any():
            size = "a hundredth of the bounds" if np.isfinite(box[~known]).all() else "a size of its own"
            size += f" for {'it' if sum(~known) == 1 else 'them'}"
        options.remember(f"The fit has no covariance of all parameters ({why}): the chain begins with steps of {size}.")
    return keywords | {"var0": residual_variance(fit, "wvar0" in arguments or "n0" in arguments)}


# --- in the report


def _summary(findings: Findings, summary: Any) -> pd.DataFrame:
    table = summary.frame.T.join(summary.diagnostics.filter(["rhat", *_DRAWS])).round(dict.fromkeys(_DRAWS, 0))
    columns = ["mean", "sd", *(column for column in _HEADS if column in table)]
    shown: pd.DataFrame = table[columns].rename_axis("parameter").reset_index()
    findings.add_units(shown, 1)
    return shown


def _tone(row: Any, column: str) -> str:
    if column == "rhat":
        return "bad" * (not row[column] <= SampleStep.rhat)
    return "bad" * (column in _DRAWS and not row[column] >= SampleStep.ess)


def _courses(findings: Findings, chain: ModMCMC, own: list[str], one_in: int, **words: Any) -> Pictures:
    few = chain.pars.groupby(level=0, sort=False).cumcount().to_numpy() % one_in == 0
    thin = replace(
        chain, pars=chain.pars[few], SS=chain.SS[few], sig=None if chain.sig is None else chain.sig[few],
        prior=chain.prior[few], log_posterior=chain.log_posterior[few],
    )  # fmt: skip
    return drawn_each(
        own, lambda shown, axes: thin.plot(which=shown, axes=axes), size=(PANEL[0], 2.4),
        finish=lambda ax, k: ax.set_ylabel(findings.label(own[k])), **words,
    )  # fmt: skip
