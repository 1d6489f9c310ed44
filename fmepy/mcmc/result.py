"""The result of modMCMC: FME's fields, one table of everything, and its printed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers
from fmepy.costs.noise import SaidNoise
from fmepy.errors import ArgumentError, counted
from fmepy.journal.encoding import Gone, live
from fmepy.mcmc.chain_summary import ChainSummary, selected_draws, summarise
from fmepy.mcmc.diagnostics import chain_diagnostics, draws_by_chain
from fmepy.parameters.selection import chosen
from fmepy.results.tables import Part, Shown, table
from fmepy.types import Cube
from fmepy.vocabulary import by_name

_FEW = 20  # draws of a chain that show whether its tables belong together


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModMCMC(Shown):
    """Result of `modMCMC`: draws from the posterior, one row per draw, indexed (chain, iteration).

    `pars`, `SS`, `sig`, `prior` and `log_posterior` share that index; the iteration counts from 1, burn-in included.

    Attributes
    ----------
    pars : DataFrame
        The parameters, one column each.
    SS : Series
        Sum of squares of the draw (not divided by the variance), or -2 log likelihood where there is no `var0`.
    sig : DataFrame or None
        The variances of the draw, columns "var_<name>" ("var_model" where var0 had no name); None without `var0`.
    prior : Series
        -2 log prior density.
    bestpar : Series
        The point of highest posterior among all that were evaluated.
    bestfunp : float
        Minus its log posterior, up to the same constant as `log_posterior`.
    naccepted : Series
        Accepted moves by chain, burn-in included.
    count : DataFrame
        By chain: ``dr_steps`` second and later tries, ``Alfasteps`` evaluations of the acceptance probability of
        delayed rejection as its recursion counts them, ``num_accepted``, ``num_covupdate`` adaptations.
    accepted_by_try : DataFrame
        Accepted moves by chain (rows) and by try of delayed rejection (columns 1, 2, ...).
    settings : DataFrame or str
        The table ``var0, n0, N`` by variance where variances are sampled; else a sentence.
    log_posterior : Series
        Log posterior density up to a constant: of the parameters alone, variances that are sampled integrated out.
    iterations : Series
        Iterations run by chain, burn-in included.
    failures : int
        Runs of the cost that failed; they count as zero likelihood. `last_failure` tells the last one.
    retries : int
        Runs that the model's engine could not finish and another one did.
    method : str
        "dram", "demcz", "emcee" or "nuts".
    burninlength : int
        Iterations before the first that could be saved.
    lower, upper : Series
        The bounds.
    message : str
        Warnings: interrupted, failed runs, a solver whose error is not small.
    solver_error : float or None
        The effect of the solver's own error: the change of -2 log posterior at `bestpar` with tolerances a hundred
        times smaller. NaN if that run failed, None if no adaptive solver of ours ran.
    interrupted : bool
        True if Ctrl-C ended it.
    engine : str
        What ran the model; "" where the cost does not say.
    divergences : int
        Trajectories of "nuts" after burn-in that met a place where the posterior bends more sharply than their steps
        can follow: draws from beyond it are missing. `message` says where they are. 0 for the other methods.
    divergent : DataFrame or None
        Parameters where divergent steps began, a row each, at most 100 a chain; None where there are none.
    noise : SaidNoise or None
        Description of the noise model, for `predict`; None for a sum of squares, a function, and transformed draws.
    calendar : tuple or None
        What the dates of the cost's data were, see `fmepy.tables.sheet.with_times`, for `predict`.

    Notes
    -----
    The members of an ensemble ("demcz", "emcee") are chains here; those of one ensemble depend on each other.

    *Differs from FME*: iteration numbers and the log posterior are kept; `sig` is the current draw, not that of the
    last acceptance; `bestpar` may come from a delayed try, and compares posteriors that can be compared.
    """

    elsewhere = by_name(
        {
            "chain flatchain samples get_chain posterior trace draw params parameters par x": "`pars`",
            "lnprobability flatlnprobability log_prob get_log_prob lp": "`log_posterior`",
            "acceptance_fraction accept_rate accepted acceptance": "`acceptance_rate`",
            "get_autocorr_time autocorr": "`autocorrelation()`; effective draws are in `diagnostics()`",
            "rhat r_hat ess gelman_rubin effectiveSize": "`diagnostics()`",
            "corner pairplot pair": "`pairs()`",
            "trace_plot plot_trace": "`plot()`",
            "best best_fit map MAP mode maximum": "`bestpar`",
            "success": "`message`, and `diagnostics()`",
        }
    )
    pars: pd.DataFrame
    SS: pd.Series
    sig: pd.DataFrame | None
    prior: pd.Series
    bestpar: pd.Series
    bestfunp: float
    naccepted: pd.Series
    count: pd.DataFrame
    accepted_by_try: pd.DataFrame
    settings: pd.DataFrame | str
    log_posterior: pd.Series
    iterations: pd.Series
    failures: int
    retries: int
    last_failure: str
    method: str
    burninlength: int
    lower: pd.Series
    upper: pd.Series
    message: str = field(default="")
    solver_error: float | None = None
    interrupted: bool = False
    engine: str = ""
    noise: SaidNoise | None = None
    calendar: Any = None
    divergences: int = 0
    divergent: pd.DataFrame | None = None
    source: Any = field(
        default=None, repr=False, metadata=live("to_arviz() of what modMCMC returned has the likelihood of readings.")
    )

    def check_loaded(self) -> None:
        """Raise an error where tables do not agree with each other; a few draws show it in milliseconds."""
        repr(self)
        few = self.pars.groupby(level=0).head(_FEW).index
        some: dict[str, Any] = {}
        for name in ("pars", "SS", "sig", "prior", "log_posterior"):
            if (draws := getattr(self, name)) is not None:
                if not draws.index.equals(self.pars.index):
                    raise ValueError(f"`{name}` has other rows than `pars`")
                some[name] = draws.loc[few]
        repr(replace(self, **some).summary())

    # --- numbers

    @property
    def acceptance_rate(self) -> pd.Series:
        """Accepted moves per iteration, by chain."""
        rate: pd.Series = self.naccepted / self.iterations
        return rate.rename("acceptance_rate")

    @property
    def acceptance_by_try(self) -> pd.DataFrame:
        """Accepted moves per try made, by chain and by try of delayed rejection."""
        accepted = self.accepted_by_try
        earlier = accepted.cumsum(axis=1).shift(1, axis=1, fill_value=0)
        made = earlier.rsub(self.iterations, axis=0)  # a try is made where all before it were rejected
        return accepted / made.where(made > 0)

    @property
    def chains(self) -> tuple[int, ...]:
        """The numbers of the chains."""
        return tuple(int(k) for k in self.pars.index.unique(level=0))

    @property
    def n_draw(self) -> int:
        """Draws of the shortest chain."""
        return int(self.pars.groupby(level=0).size().min())

    def draws(self) -> Cube:
        """Return the parameters as an array, shape (n_chain, n_draw, n_par), cut to the shortest chain."""
        return draws_by_chain(self.pars)

    @property
    def frame(self) -> pd.DataFrame:
        """One table: parameters, variances, ``SS``, ``prior``, ``log_posterior``."""
        return pd.concat([self._sampled, self.SS, self.prior, self.log_posterior], axis=1)

    @property
    def _sampled(self) -> pd.DataFrame:
        """Parameters and variances."""
        return pd.concat([self.pars, self.sig], axis=1)  # pandas leaves out None

    def __len__(self) -> int:
        return len(self.pars)

    def transform(self, function: Callable[[Any], Any]) -> ModMCMC:
        """Return the chain with its parameters transformed: ``function`` of the table, such as ``numpy.exp``.

        Parameters
        ----------
        function : callable
            Gets a table, one column per parameter, and returns one of the same shape. `bestpar` and the bounds go the
            same way (bounds only where the result is a number).

        Notes
        -----
        `log_posterior` stays the density on the scale that was sampled. Draws remember that scale, and models that take
        another refuse them; what was transformed is taken as it comes.
        """
        if not callable(function):
            raise ArgumentError(f"`function` must be one of the table of draws, such as numpy.exp; got {function!r}.")
        pars = _like(function(self.pars.copy()), self.pars)
        best = _like(function(self.bestpar.to_frame().T), self.bestpar.to_frame().T).iloc[0]
        with np.errstate(all="ignore"):
            ends = [_bound(function, b) for b in (self.lower, self.upper)]
        lower = pd.Series(np.fmin(ends[0], ends[1]), index=self.lower.index).fillna(-np.inf)
        upper = pd.Series(np.fmax(ends[0], ends[1]), index=self.upper.index).fillna(np.inf)
        return replace(self, pars=pars, bestpar=best.rename(None), lower=lower, upper=upper, noise=None, source=None)

    def to_arviz(self, *, log_likelihood: bool = True) -> Any:
        """Return the chain in ArviZ's form: posterior, and ``lp`` and ``SS`` as statistics of the sample.

        Parameters
        ----------
        log_likelihood : bool
            Whether the group ``log_likelihood`` holds the log density of every reading, as ``readings`` (chain, draw,
            reading), for ``arviz.loo``, ``arviz.waic`` and ``arviz.compare``. It takes a run of the model for every
            different draw.

        Notes
        -----
        A log density is of the reading in its own units, all constants included, with the variances of the draw where
        they are sampled; of a reading beyond a limit it is the log probability of that; of a filter that of the reading
        given those before it (data that a diffuse start uses up have none). The group is left out where readings are
        not known: of a function that returns -2 log L, of transformed draws, and of a result read from a file.

        Raises
        ------
        ArgumentError
            ArviZ is not installed.
        SimulationError
            The cost fails at a draw where it did not before.
        """
        try:
            import arviz  # type: ignore[import-not-found, unused-ignore]    # optional
        except ImportError as error:
            raise ArgumentError(
                "to_arviz() needs ArviZ, which is not installed. Install it: pip install arviz. diagnostics() and "
                "summary() work without it."
            ) from error
        sampled = self._sampled
        posterior = {str(k): draws_by_chain(sampled[k]) for k in sampled.columns.unique()}
        stats = {"lp": draws_by_chain(self.log_posterior), "SS": draws_by_chain(self.SS)}
        groups = {"posterior": posterior, "sample_stats": stats}
        if log_likelihood and (readings := self._log_likelihood()) is not None:
            groups["log_likelihood"] = {"readings": readings}
        from_dict: Any = arviz.from_dict  # from version 1 on it takes one dict of all groups
        return from_dict(groups) if int(str(arviz.__version__).split(".")[0]) >= 1 else from_dict(**groups)

    def _log_likelihood(self) -> Cube | None:
        """Return the log density of every reading, shape (n_chain, n_draw, n_obs)."""
        if self.source is None or isinstance(self.source, Gone):
            return None
        sig = None if self.sig is None else np.concatenate(draws_by_chain(self.sig))
        densities = self.source.at_draws(np.concatenate(self.draws()), sig)
        return None if densities is None else densities.reshape(len(self.chains), self.n_draw, -1)

    # --- summaries and pictures

    def summary(self, remove: Any = None) -> ChainSummary:
        """Return mean, sd, extremes and quantiles, and whether the sample can be trusted, see `ChainSummary`."""
        return summarise(self, remove=remove)

    def diagnostics(self) -> pd.DataFrame:
        """Return effective sample sizes, R-hat, Monte Carlo errors and the like, one row per parameter."""
        return chain_diagnostics(self.pars)

    def plot(self, Full: bool = False, which: Any = None, trace: bool = True, remove: Any = None, **kwargs: Any) -> Any:
        """Draw the trace of each parameter, see `fmepy.plotting.chains.plot_chains`."""
        from fmepy.plotting.chains import plot_chains

        draws = selected_draws(self, Full, which, remove)
        parameters = set(self.pars.columns)
        return plot_chains(draws, trace=trace, on_log=[c for c in draws.columns if c not in parameters], **kwargs)

    def pairs(
        self, Full: bool = False, which: Any = None, remove: Any = None, nsample: int | None = None, **kwargs: Any
    ) -> Any:
        """Draw the parameters against each other, see `fmepy.plotting.ranges.plot_pairs`."""
        from fmepy.plotting.ranges import plot_pairs

        return plot_pairs(selected_draws(self, Full, which, remove), nsample=nsample, **kwargs)

    def hist(
        self, Full: bool = False, which: Any = None, remove: Any = None, *, prior: Any = None, **kwargs: Any
    ) -> Any:
        """Draw histograms, see `fmepy.plotting.chains.hist_chains`."""
        from fmepy.plotting.chains import hist_chains

        if isinstance(prior, dict):
            chosen(list(map(str, prior)), [str(c) for c in self.pars.columns], "prior", "parameter")
        return hist_chains(selected_draws(self, Full, which, remove), prior=prior, **kwargs)

    def cumuplot(self, which: Any = None, *, remove: Any = None, **kwargs: Any) -> Any:
        """Draw the running quantiles, see `fmepy.plotting.chains.cumuplot`."""
        from fmepy.plotting.chains import cumuplot

        return cumuplot(selected_draws(self, False, which, remove), **kwargs)

    def autocorrelation(self, which: Any = None, *, remove: Any = None, **kwargs: Any) -> Any:
        """Draw the autocorrelation of each parameter by lag, see `fmepy.plotting.chains.plot_autocorrelation`."""
        from fmepy.plotting.chains import plot_autocorrelation

        return plot_autocorrelation(selected_draws(self, False, which, remove), **kwargs)

    def ranks(self, which: Any = None, *, remove: Any = None, **kwargs: Any) -> Any:
        """Draw histograms of the ranks by chain, see `fmepy.plotting.chains.plot_ranks`."""
        from fmepy.plotting.chains import plot_ranks

        return plot_ranks(selected_draws(self, False, which, remove), **kwargs)

    # --- printed

    def _head(self) -> str:
        per_chain = self.pars.groupby(level=0).size()
        draws = f"{per_chain.min()}" + ("" if per_chain.min() == per_chain.max() else f" to {per_chain.max()}")
        rate = self.acceptance_rate
        rates = f"{rate.min():.3g}" + (f" to {rate.max():.3g}" if len(rate) > 1 else "")
        return (
            f"ModMCMC by {self.method}: {counted(len(per_chain), 'chain')} of {draws} draws, "
            f"{int(self.iterations.max())} iterations, {self.burninlength} of them burn-in; acceptance rate {rates}"
        )

    def _table(self) -> pd.DataFrame:
        whole = self._sampled
        sd = whole.std().mask(whole.max() == whole.min(), 0.0 if len(whole) > 1 else np.nan)  # without rounding
        best = [*self.bestpar, *[np.nan] * (whole.shape[1] - len(self.bestpar))]
        return pd.DataFrame({"mean": whole.mean().to_numpy(), "sd": sd.to_numpy(), "best": best}, index=whole.columns)

    def shown(self) -> list[str | Part]:
        """Return the sampler and its runs, mean, sd and best value of each parameter, and the message."""
        return [self._head(), table(self._table(), "{:.6g}", na_rep=""), *filter(None, [self.message])]


def _like(values: Any, table: pd.DataFrame) -> pd.DataFrame:
    """Return `values` with the labels of `table`."""
    array = as_numbers(values, "function(draws)")
    if array.shape != table.shape:
        raise ArgumentError(
            f"`function` returned shape {array.shape} for a table of shape {table.shape}; one value per value is "
            "needed, such as numpy.exp gives."
        )
    if isinstance(values, pd.DataFrame) and list(values.columns) != list(table.columns):
        raise ArgumentError(f"`function` changed the columns {list(table.columns)} to {list(values.columns)}.")
    out = pd.DataFrame(array, index=table.index, columns=table.columns)
    out.attrs.update(table.attrs)  # the mark of a scale counts where the numbers stay what they were
    return out


def _bound(function: Callable[[Any], Any], bound: pd.Series) -> Any:
    try:
        return np.asarray(function(bound.to_frame().T), dtype=float).ravel()
    except Exception:  # a function of draws need not know what to do at infinity
        return np.full(len(bound), np.nan)
