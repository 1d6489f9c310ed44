"""simulation_based_calibration: whether the posteriors of a cost and a sampler hold, on data drawn from the model.

A parameter is drawn from the prior, data are drawn from it, and its posterior is sampled from these data::

    theta ~ prior,    y ~ p(y | theta),    theta_1, ..., theta_L ~ p(theta | y)

Then theta and the theta_l are exchangeable, so that the rank of theta among them, 0 to L, is uniform (Talts et al.,
2018). It is not where the likelihood is not that of the data, or where the sampler has not converged: ranks that crowd
at both ends are of posteriors too narrow, in the middle too wide, on one side of estimates that are biased.

The p-value is that of chi-square of the ranks in bins of equal width; the coverage is the share of truths inside the
central interval of a level.

References
----------
Talts, S., Betancourt, M., Simpson, D., Vehtari, A. and Gelman, A. (2018). Validating Bayesian inference algorithms with
simulation-based calibration. arXiv:1804.06788.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1, whole_number
from fmepy.costs.user_function import is_cost
from fmepy.errors import ArgumentError, FmepyError, ParameterError, SimulationError, check_choice, counted, listed
from fmepy.mcmc.convergence import ess_bulk
from fmepy.mcmc.kernels.registry import SAMPLERS
from fmepy.mcmc.modmcmc import modMCMC
from fmepy.parallel.interruption import interruptible
from fmepy.parallel.resumable import resumable_tasks
from fmepy.parallel.runs import counted_failures
from fmepy.parameters.named import by_parameter
from fmepy.results.tables import Part, Shown, table
from fmepy.types import AxesArray, Seed, Vector
from fmepy.vocabulary import unknown_argument

_DRAWS = 99  # that a truth is ranked among: 100 ranks
_BINS = (20, 10, 5, 4, 2)  # divisors of 100
_LEAST = 5.0  # expected in a bin
_RARE = 0.01
_OWN_ARGUMENTS = ("num", "simulate", "executor", "progress", "checkpoint")
_CHAIN_ARGUMENTS = tuple(
    n for n in inspect.signature(modMCMC).parameters if n not in ("f", "p", "args", "kwargs", "checkpoint")
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CalibrationCheck(Shown):
    """Ranks of truths among draws of their posteriors; made by `simulation_based_calibration`.

    Attributes
    ----------
    ranks : DataFrame, shape (num, n_par)
        Whole numbers 0 .. `n_draws`: how many of the thinned draws lie below the truth; NaN where a replicate failed.
    truth : DataFrame, shape (num, n_par)
        The parameters that the data were drawn with.
    ess : DataFrame, shape (num, n_par)
        Effective draws of every chain; NaN where it failed.
    n_draws : int
        Draws that a truth is ranked among.
    failures : DataFrame
        One row per failed replicate: `run`, `parameters`, `error`, `message`.
    method : str
        The sampler.
    interrupted : bool
        True if Ctrl-C ended it; the replicates that were not done are failures named "Interrupted".
    message : str
        What a reader should know.
    """

    ranks: pd.DataFrame
    truth: pd.DataFrame
    ess: pd.DataFrame
    n_draws: int
    failures: pd.DataFrame
    method: str
    interrupted: bool = False
    message: str = ""

    @property
    def n_done(self) -> int:
        """Replicates that succeeded."""
        return int(self.ranks.notna().all(axis=1).sum())

    def summary(self, level: float = 0.9) -> pd.DataFrame:
        """Return a row a parameter: p_value of uniform ranks, coverage of the central intervals, and their level.

        Parameters
        ----------
        level : float
        """
        level = between_0_and_1(level, "level")
        ranks = self.ranks.dropna()
        # of the ranks 0 .. L those that are as central as the level says
        tail = 0.5 * (1 - level) * (self.n_draws + 1)
        inside = (ranks + 0.5 > tail) & (ranks + 0.5 < self.n_draws + 1 - tail)
        return pd.DataFrame(
            {"p_value": [self._p_value(ranks[k]) for k in ranks], "coverage": inside.mean(), "level": level},
            index=ranks.columns,
        )

    def bins(self) -> int:
        """Return the number of bins in which ranks are counted: at least five are expected in each."""
        most = min(self.n_done / _LEAST, self.n_draws + 1)
        return next((b for b in _BINS if b <= most), _BINS[-1])

    def _p_value(self, ranks: pd.Series) -> float:
        from scipy.special import chdtrc

        n, bins = len(ranks), self.bins()
        if not n:
            return np.nan
        edges = np.linspace(0, self.n_draws + 1, bins + 1) - 0.5
        expected = n * np.diff(np.ceil(edges)) / (self.n_draws + 1)  # of whole ranks
        counts = np.histogram(ranks, edges)[0]
        return float(chdtrc(bins - 1, ((counts - expected) ** 2 / expected).sum()))

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the ranks of every parameter as a histogram, see `fmepy.plotting.chains.plot_calibration`."""
        from fmepy.parameters.selection import chosen
        from fmepy.plotting.chains import plot_calibration

        names = chosen(which, list(map(str, self.ranks.columns)), what="parameter")
        return plot_calibration(self.ranks[names].dropna(), self.n_draws, self.bins(), axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the number of replicates, the summary, and the message."""
        n, L = self.n_done, self.n_draws
        head = f"Simulation-based calibration by {self.method}: {n} replicates, ranks among {L} draws"
        parts: list[str | Part] = ["; ".join([head, *counted_failures(self.failures)])]
        if self.n_done:
            parts.append(table(self.summary(), "{:.3g}"))
        return [*parts, *filter(None, [self.message])]


@dataclass(frozen=True, slots=True, eq=False)
class _Replicate:
    """One replicate, as a task for workers."""

    cost: Any
    prior: Mapping[str, Any]
    simulate: Callable[[Any, np.random.Generator], Any]
    n_draws: int
    arguments: Mapping[str, Any]

    def __call__(self, theta: Vector, rng: np.random.Generator) -> dict[str, Vector]:
        truth = dict(zip(self.prior, map(float, theta), strict=True))
        cost = self.cost.replace(obs=self.simulate(truth, rng))
        chain = modMCMC(cost, truth, prior=dict(self.prior), seed=rng, **self.arguments)
        draws = chain.pars[list(self.prior)].to_numpy()
        some = draws[np.linspace(0, len(draws) - 1, self.n_draws).round().astype(int)]
        ties = (some == theta).sum(axis=0)  # a chain that began at the truth may have stayed there
        ranks = (some < theta).sum(axis=0) + rng.integers(0, ties + 1)
        by_chain = chain.draws()
        ess = [float(ess_bulk(by_chain[:, :, list(chain.pars.columns).index(k)])) for k in self.prior]
        return {"ranks": ranks.astype(float), "ess": np.array(ess)}


@interruptible(lambda check: check.message)
def simulation_based_calibration(
    cost: Any,
    prior: Mapping[str, Any],
    *,
    num: int = 100,
    method: str = "dram",
    simulate: Callable[[Any, np.random.Generator], Any] | None = None,
    seed: Seed = None,
    executor: Any = None,
    progress: Any = False,
    checkpoint: Any = None,
    **arguments: Any,
) -> CalibrationCheck:
    """Return whether truths lie among the draws of their posteriors as they should: ranks, p-values, coverage.

    Parameters
    ----------
    cost : SimulationCost, PredictionErrorCost or FimlofCost
        Its model, its times, and its noise, which must be known or among its parameters; its data are replaced.
    prior : dict of frozen scipy.stats distributions by name
        Truths are drawn from it, and it is the prior of the chains. These parameters are sampled; the others stay at
        the cost's values.
    num : int
        Replicates.
    method : str
        The sampler, see `modMCMC`.
    simulate : callable, optional
        ``simulate(p, rng)`` returns a table of data in the form of the cost's, p being a dict of the parameters in
        `prior`. Default: ``cost.simulate``, the cost's own noise. Another one shows what comes of a wrong likelihood.
    seed, executor, progress, checkpoint
        See `fmepy.parallel.run_many`: the same ranks for any number of workers; the same call with the same folder goes
        on where it was ended.
    **arguments
        Of `modMCMC`: niter, burninlength, jump, chains, updatecov, control, ... Chains start at the truth.

    Returns
    -------
    CalibrationCheck

    Raises
    ------
    ArgumentError
        A cost that cannot draw data and no `simulate`; a prior that is no dict of distributions with ``rvs``; an
        argument of `modMCMC` that is this function's; all replicates failed.
    ParameterError
        The prior of a parameter that the cost does not have; a prior that is improper.

    Notes
    -----
    Ranks are taken among 99 draws, evenly spaced over all chains; correlated draws make them crowd at the ends, which
    `message` tells where the chains have fewer effective draws than that: raise `niter`.

    Examples
    --------
    >>> from scipy import stats
    >>> from fmepy import OdeModel, SimulationCost
    >>> model = OdeModel("dA/dt = -k * A", state={"A": 10.0}, times=[0, 1, 2, 3], parms={"k": 0.5})
    >>> data = {"time": [1, 2, 3], "A": [6.0, 3.7, 2.2]}
    >>> cost = SimulationCost(model, data, measurement_noise={"A": 0.5})
    >>> check = simulation_based_calibration(cost, {"k": stats.lognorm(0.3, scale=0.5)}, num=20, niter=1000,
    ...                                      burninlength=200, updatecov=50, seed=1)
    >>> check.summary()["p_value"].between(0.01, 1).all()
    np.True_
    """
    num = whole_number(num, "num", 1)
    check_choice(method, SAMPLERS, "method")
    prior = _by_parameter(cost, prior)
    names = list(prior)
    for name in arguments:
        if name in ("f", "p", "args", "kwargs"):
            raise ArgumentError(f"`{name}` is set here: chains start at the truth, with the cost's data. Leave it out.")
        if name not in _CHAIN_ARGUMENTS:
            raise unknown_argument("simulation_based_calibration", name, [*_OWN_ARGUMENTS, *_CHAIN_ARGUMENTS])
    draw = simulate if simulate is not None else getattr(cost, "simulate", None)
    if not callable(draw) or not hasattr(cost, "replace"):
        raise ArgumentError(
            f"A {type(cost).__name__} draws no data of its own. Give one SimulationCost or FimlofCost, or "
            "simulate=, a function (p, rng) that returns a table of data."
        )
    burnin = whole_number(arguments.get("burninlength", 0), "burninlength", 0)
    n_saved = max(whole_number(arguments.get("niter", 1000), "niter", 1) - burnin, 1)
    n_draws = min(_DRAWS, n_saved * whole_number(arguments.get("chains", 1), "chains", 1))
    task = _Replicate(cost, prior, draw, n_draws, {"method": method, **arguments})
    with resumable_tasks(checkpoint, "a simulation-based calibration", seed=seed) as tasks:
        truth = np.column_stack([np.asarray(d.rvs(size=num, random_state=tasks.rng)) for d in prior.values()])
        if (improper := ~np.isfinite(truth).all(axis=0)).any():
            raise ParameterError(
                f"`prior`: that of {names[int(np.argmax(improper))]!r} draws numbers that are not finite, as an "
                "improper one does. Truths are drawn from it: give a proper one, such as scipy.stats.norm(0.6, 0.1)."
            )
        question = {
            "parameters": names, "replicates": num, "method": method, "truths": truth, "draws": n_draws,
            "cost": repr(cost), "-2 log L at the cost's own values": _value(cost, names),
            "simulate": _as_text(draw), "arguments": {k: _as_text(v) for k, v in arguments.items()},
        }  # fmt: skip
        runs = tasks.spread(task, list(truth), question=question, seeded=True, executor=executor, progress=progress)
    if not any(runs.ok) and not runs.interrupted:
        raise FmepyError(f"All {num} replicates failed. The first: {runs.failures['message'].iloc[0]}")
    failed = {"ranks": np.full(len(names), np.nan), "ess": np.full(len(names), np.nan)}
    results = [failed if run is None else run for run in runs.results]
    ranks, ess = (pd.DataFrame([run[k] for run in results], columns=names) for k in ("ranks", "ess"))
    truths = pd.DataFrame(truth, columns=names)
    check = CalibrationCheck(ranks, truths, ess, n_draws, runs.failures, method, runs.interrupted)
    return replace(check, message=" ".join([*tasks.notes, *_notes(check)]))


def _value(cost: Any, names: list[str]) -> float | None:
    """Return -2 log L at the cost's own values, which differs with other data or noise; None where it fails."""
    bound = cost.bind(names)
    try:
        return float(bound.minus2loglik(bound.theta0))
    except SimulationError:
        return None


def _as_text(value: Any) -> str:
    """Return an argument as text for the header of a checkpoint: a function by its name."""
    return str(getattr(value, "__qualname__", None) or repr(value))


def _by_parameter(cost: Any, prior: Any) -> dict[str, Any]:
    """Return the distributions by the cost's parameters."""
    if not is_cost(cost):
        raise ArgumentError(
            f"`cost` must be a fmepy cost, whose data can be replaced; got {type(cost).__name__}. Make one: "
            "SimulationCost(model, data, measurement_noise=...)."
        )
    if not isinstance(prior, Mapping) or not prior:
        raise ArgumentError(
            "`prior` must be a dict of scipy.stats distributions by parameter name: truths are drawn from it, so that "
            "a function, or no prior, will not do."
        )
    for name, distribution in prior.items():
        if not (hasattr(distribution, "rvs") and hasattr(distribution, "logpdf")):
            raise ParameterError(
                f"`prior`: {name!r} has {distribution!r}; a frozen scipy.stats distribution that draws is needed, such "
                "as scipy.stats.norm(0.6, 0.1)."
            )
    return by_parameter(prior, tuple(map(str, cost.parms.index)), "prior")


def _notes(check: CalibrationCheck) -> list[str]:
    """Return messages about ranks that are not uniform, and chains that are too short."""
    notes = []
    if check.n_done and not check.interrupted:
        p = check.summary()["p_value"] * len(check.ranks.columns)  # the smallest of several
        bad = [f"{k!r}" for k in p.index[p < _RARE]]
        if bad:
            notes.append(
                f"The ranks of {', '.join(bad)} are not uniform (p below {_RARE:g}): the posteriors do not hold. See "
                "plot(): ranks that crowd at both ends are of posteriors too narrow, in the middle too wide."
            )
        few = check.ess[check.ranks.notna().all(axis=1)].fillna(1.0).median()  # a chain that stays has one draw
        short = [str(k) for k in few.index[few < check.n_draws]]
        if short:
            notes.append(
                f"Chains have about {few[short].min():.0f} effective draws of {listed(short)}, fewer than the "
                f"{check.n_draws} that truths are ranked among: the ranks need not be uniform then. Raise niter."
            )
    if check.interrupted:
        notes.append(f"{check.n_done} of {len(check.ranks)} replicates are done.")
    elif len(check.failures):
        notes.append(
            f"{counted(len(check.failures), 'replicate')} failed; the first: {check.failures['message'].iloc[0]}"
        )
    return notes
