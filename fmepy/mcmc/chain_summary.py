"""The summary of a chain: a table, and advice in sentences when it should not be trusted.

The table has the rows of R's ``summary`` with quantiles that are what their labels say: FME calls the 25, 50 and 75 %
quantiles q025, q050 and q075; here they are ``25%``, ``50%`` and ``75%``, beside ``2.5%`` and ``97.5%``.

A sample is not believed when (thresholds of Vehtari et al. 2021 for the first two):

* R-hat of a parameter or variance exceeds 1.01;
* it is worth fewer than 400 independent draws, or fewer than 100 a chain, in its middle or its tails (the members of an
  ensemble are not chains of this kind: there 400 do);
* less than 5 % or more than 70 % of the proposals of a chain were accepted;
* runs of the model failed;
* a chain never moves, or stays at one point for a tenth of its draws;
* draws crowd at a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, counted, shortened
from fmepy.mcmc.diagnostics import chain_diagnostics, chains_of
from fmepy.parameters.selection import chosen
from fmepy.results.tables import Framed, Part, bullets, table
from fmepy.types import BoolVector, IntVector, Matrix, Vector, Which

if TYPE_CHECKING:
    from fmepy.mcmc.result import ModMCMC

Remove = int | slice | range | Sequence[int] | None

_QUANTILES = {"2.5%": 0.025, "25%": 0.25, "50%": 0.5, "75%": 0.75, "97.5%": 0.975}
_RHAT = 1.01
_NO_MINIMUM = -1e100  # no likelihood of data is so large
_FALL = 50.0  # of the median of -2 log L from one quarter of a chain to the next; of order one when converged
_ESS, _ESS_A_CHAIN = 400, 100
_ACCEPTED = (0.05, 0.70)
_ENSEMBLES = ("demcz", "emcee")
_OWN_STEPS = (*_ENSEMBLES, "nuts")
"""Samplers that find the length of their steps themselves."""
_STUCK = 0.1
_FEWEST_STUCK = 20  # draws; in a short chain a tenth of the draws at one point is chance
_NEAR = 0.05  # a draw is near its bound within this share of the width of the 95 % interval
_CROWDED = 0.03  # a sample that is uniform between its bounds has 5 % there, one that ends 2 sd from its mean 1 %
_FEWEST_CROWDED = 5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ChainSummary(Framed):
    """Summary table of a chain, with advice.

    Attributes
    ----------
    frame : DataFrame
        Rows mean, sd, min, 2.5%, 25%, 50%, 75%, 97.5%, max; a column per parameter and per sampled variance, in their
        units.
    advice : list of str
        Why not to trust the sample, and what to try; empty if there is no reason.
    diagnostics : DataFrame
        What the advice stays on: `fmepy.mcmc.diagnostics.chain_diagnostics` of the same columns.
    n_chain : int
    n_draw : int
        Draws of all chains that were summarised.
    """

    frame: pd.DataFrame
    advice: list[str]
    diagnostics: pd.DataFrame
    n_chain: int
    n_draw: int

    def shown(self) -> list[str | Part]:
        """Return the table, how many draws it is of, and the advice."""
        of = f"{counted(self.n_draw, 'draw')}, {counted(self.n_chain, 'chain')}"
        return [table(self.frame), of, *bullets(self.advice, "! ")]


def summarise(chain: ModMCMC, remove: Remove = None) -> ChainSummary:
    """Return the summary table of a chain, with advice when it should not be trusted.

    Parameters
    ----------
    chain : ModMCMC
        Or anything with its fields `pars`, `SS`, `sig`, `acceptance_rate`, `acceptance_by_try`, `failures`, `method`,
        `lower` and `upper`.
    remove : int, slice, range or sequence of int, optional
        Draws to leave out, *of every chain*, from the parameters and from the variances: a number n means the first n,
        anything else positions from 0 (negative ones count from the chain's end).

    Returns
    -------
    ChainSummary

    Raises
    ------
    ArgumentError
        Positions that a chain does not have; nothing left.

    Notes
    -----
    FME: ``summary.modMCMC``. One variance keeps its name (var_model), several are called sig.<name>, as in R.

    Differs from FME: quantiles carry their right names; `remove` acts on the variances too (R shortens the parameters
    only); there is advice.
    """
    values = sampled_values(chain)[remaining_rows(chain, remove)]
    diagnostics = chain_diagnostics(values)
    chains = chains_of(values)
    n_par = chain.pars.shape[1]
    advice = [
        *_on_endless_fall(chain),
        *_on_mixing(diagnostics, len(chains), len(values), chain.method),
        *_on_acceptance(chain.acceptance_rate, chain.acceptance_by_try.to_numpy()[:, 0], chain.method),
        *_on_failures(chain.failures),
        *_on_stuck([c[:, :n_par] for c in chains]),
        *_on_bounds(values.iloc[:, :n_par], chain.lower, chain.upper),
    ]
    return ChainSummary(_table(values), advice, diagnostics, len(chains), len(values))


def _table(values: pd.DataFrame) -> pd.DataFrame:
    x = values.to_numpy(dtype=float)
    deviation = x.std(axis=0, ddof=1) if len(x) > 1 else np.full(x.shape[1], np.nan)
    deviation[np.isfinite(deviation) & (np.ptp(x, axis=0) == 0)] = 0.0  # without rounding
    rows: dict[str, Vector] = {"mean": x.mean(axis=0), "sd": deviation, "min": x.min(axis=0)}
    rows |= {label: np.quantile(x, q, axis=0) for label, q in _QUANTILES.items()}
    rows["max"] = x.max(axis=0)
    return pd.DataFrame(rows, index=values.columns).T


# --- rows of a chain


def sampled_values(chain: ModMCMC) -> pd.DataFrame:
    """Return parameters and variances side by side, indexed as the parameters; several variances as sig.<name>."""
    pars = chain.pars
    if chain.sig is None:
        return pars.copy()
    sig = pd.DataFrame(chain.sig)
    names = [str(c) if sig.shape[1] == 1 else f"sig.{c}" for c in sig.columns]
    both = np.column_stack([pars.to_numpy(dtype=float), sig.to_numpy(dtype=float)])
    return pd.DataFrame(both, index=pars.index, columns=[*map(str, pars.columns), *names])


def selected_draws(chain: ModMCMC, full: bool = False, which: Which = None, remove: Remove = None) -> pd.DataFrame:
    """Return the draws of some parameters, with `full` also the sum of squares and the sampled variances.

    Raises
    ------
    ArgumentError
        Nothing is selected, or nothing left.
    """
    known = [str(c) for c in chain.pars.columns]
    names = chosen(which, known, what="parameter")
    if not names and not full:
        raise ArgumentError("`which` is empty: nothing would be shown. With Full=True it shows SS and the variances.")
    values = sampled_values(chain)
    shown = values.iloc[:, [known.index(n) for n in names]]
    if full:
        ss = pd.Series(np.asarray(chain.SS, dtype=float), index=values.index, name="SS")
        shown = pd.concat([shown, ss, values.iloc[:, len(known) :]], axis=1)
    return shown[remaining_rows(chain, remove)]


def remaining_rows(chain: ModMCMC, remove: Remove) -> BoolVector:
    """Return which rows of `chain.pars` stay when `remove` is left out of every chain.

    Parameters
    ----------
    chain : ModMCMC
    remove : int, slice, range, sequence of int, or None
        See `summarise`.

    Raises
    ------
    ArgumentError
        Positions that a chain does not have; nothing left.
    """
    remains: BoolVector = np.ones(len(chain.pars), dtype=bool)
    if remove is None:
        return remains
    for c, rows in chain.pars.groupby(level=0).indices.items():
        remains[rows[_positions(remove, len(rows))]] = False
        if not remains[rows].any():
            raise ArgumentError(f"`remove={shortened(remove, 40)}` leaves none of the {len(rows)} draws of chain {c}.")
    return remains


def _positions(remove: Any, n: int) -> slice | IntVector:
    """Return what selects the rows to drop of a chain of n draws."""
    if isinstance(remove, (int, np.integer)) and not isinstance(remove, bool):
        if remove < 0:
            raise ArgumentError(f"`remove={remove}` must not be negative: it is the number of first draws to drop.")
        return slice(int(remove))
    try:
        positions = np.arange(n)[remove] if isinstance(remove, slice) else np.asarray(remove)
    except (TypeError, ValueError):
        positions = np.asarray(None)
    if positions.ndim != 1 or (positions.size and positions.dtype.kind not in "iu"):
        raise ArgumentError(
            f"`remove` must be a number of first draws, a slice, or positions from 0 in each chain; got {remove!r}."
        )
    wrong = positions[(positions >= n) | (positions < -n)]
    if len(wrong):
        raise ArgumentError(
            f"`remove`: a chain has no draw {int(wrong[0])}; its {n} draws are counted from 0 to {n - 1}."
        )
    return positions.astype(np.intp)


# --- advice: each returns sentences, none if all is well


def _on_mixing(diagnostics: pd.DataFrame, n_chain: int, n_draw: int, method: str) -> list[str]:
    out, jumps, independent = [], method not in _OWN_STEPS, method not in _ENSEMBLES
    unequal = diagnostics["rhat"][diagnostics["rhat"] > _RHAT].sort_values(ascending=False)
    if len(unequal):
        where = "the chains do not agree" if n_chain > 1 else "the halves of the chain do not agree"
        out.append(
            f"R-hat of {_worst(unequal, '.3g')} is above {_RHAT}: {where}. Run longer (niter), drop the beginning "
            "(burninlength, or remove here), or start from a fit"
            + (" and jump with its covariance (p=fit.par, jump=fit.cov_scaled)." if jumps else " (p=fit.par).")
        )
    needed = max(_ESS, _ESS_A_CHAIN * n_chain) if independent else _ESS
    n_effective = diagnostics[["ess_bulk", "ess_tail"]].min(axis=1).fillna(n_draw)  # NaN of too few to tell
    few = n_effective[n_effective < needed].sort_values()
    if len(few):
        out.append(
            f"The sample of {_worst(few, '.0f')} is worth fewer than {needed} independent draws"
            + (f" ({_ESS_A_CHAIN} a chain)" if needed > _ESS else "")
            + f": quantiles and sd are rough. Run longer (niter){' or mix better (updatecov, ntrydr=2)' * jumps}."
        )
    return out


def _worst(values: pd.Series, form: str) -> str:
    """Return "a (1.08), b (1.03)" of the first three, and how many more there are."""
    listing = ", ".join(f"{name} ({value:{form}})" for name, value in values.iloc[:3].items())
    return listing + (f" and {len(values) - 3} more" if len(values) > 3 else "")


def _on_endless_fall(chain: ModMCMC) -> list[str]:
    """Return advice on a cost that falls faster and faster, such as a log density in the place of -2 log L."""
    costs = pd.DataFrame({"SS": np.asarray(chain.SS)}, index=chain.pars.index)
    for ss in (c for c in chains_of(costs) if len(c) > 3):
        first, second, third, last = (np.sort(part)[len(part) // 2] for part in np.array_split(ss[:, 0], 4))
        if last < _NO_MINIMUM or (last < 0 and _FALL < first - second < second - third < third - last):
            return [
                f"The cost falls faster and faster ({first:.3g} to {last:.3g} from the first to the last quarter of a "
                "chain): nothing bounds it. A number from `f` must be -2 log L, least where the fit is best; a log "
                "density has the other sign (return -2 times it). Else give bounds or a prior."
            ]
    return []


def _on_acceptance(rate: Any, first: Vector, method: str) -> list[str]:
    jumps = method not in _OWN_STEPS
    rates = np.atleast_1d(np.asarray(rate, dtype=float))
    low, high = rates[rates < _ACCEPTED[0]], first[first > _ACCEPTED[1]]  # later tries are short on purpose
    out = []
    if len(low):
        out.append(
            f"Only {100 * low.min():.2g} % of the proposals were accepted{_in_chains(low, rates)}: "
            + (
                "the jumps are too long or in the wrong directions. Take a smaller jump, the covariance of a fit, "
                "updatecov, or ntrydr=2."
                if jumps
                else "start from a fit (p=fit.par), with a longer burninlength."
            )
        )
    if len(high) and jumps:
        out.append(
            f"{100 * high.max():.0f} % of the proposals were accepted{_in_chains(high, rates)}: the jumps are so short "
            "that the chain crawls. Take a larger jump, or updatecov."
        )
    return out


def _in_chains(some: Vector, rates: Vector) -> str:
    return "" if len(rates) == 1 else f" in {len(some)} of {len(rates)} chains"


def _on_failures(failures: int) -> list[str]:
    if failures == 0:
        return []
    runs = f"{counted(failures, 'run')} of the model"
    return [
        f"{runs} failed and counted as impossible: where the model cannot be run, nothing was sampled. Bounds "
        "(lower, upper) that leave the region out, or tighter tolerances, help."
    ]


def _on_stuck(chains: list[Matrix]) -> list[str]:
    still = [i for i, c in enumerate(chains) if len(c) > 1 and (np.ptp(c, axis=0) == 0).all()]
    stays = {i: _longest_stay(c) for i, c in enumerate(chains) if i not in still}
    slow = {i: n for i, n in stays.items() if n >= max(_STUCK * len(chains[i]), _FEWEST_STUCK)}
    out = []
    if still:
        which = "The chain" if len(chains) == 1 else f"Of {len(chains)} chains, {len(still)}"
        out.append(
            f"{which} never moved from its start. Start where the model runs and fits (p=fit.par), with a smaller jump."
        )
    if slow:
        longest = max(slow, key=lambda i: slow[i])
        which = "" if len(chains) == 1 else f" (chain {longest})"
        out.append(
            f"The chain{which} was stuck at one point for {slow[longest]} of its {len(chains[longest])} draws. Take a "
            "smaller jump or ntrydr=2; if only one chain is stuck, it may be at a local optimum."
        )
    return out


def _longest_stay(x: Matrix) -> int:
    """Return the largest number of successive draws that are equal."""
    moved = np.flatnonzero((x[1:] != x[:-1]).any(axis=1)) + 1
    return int(np.diff(np.concatenate([[0], moved, [len(x)]])).max())


def _on_bounds(pars: pd.DataFrame, lower: Any, upper: Any) -> list[str]:
    x = pars.to_numpy(dtype=float)
    reach = _NEAR * (np.quantile(x, 0.975, axis=0) - np.quantile(x, 0.025, axis=0))
    limits = {"lower": np.asarray(lower, dtype=float), "upper": np.asarray(upper, dtype=float)}
    out = []
    for side, bound in limits.items():
        near = (np.abs(x - bound) <= reach).sum(axis=0)  # none of them where there is no bound
        crowded = (near >= max(_CROWDED * len(x), _FEWEST_CROWDED)) & (np.ptp(x, axis=0) > 0)
        if crowded.any():
            shares = pd.Series(near / len(x), index=pars.columns)[crowded].sort_values(ascending=False)
            movable = (bound[crowded] != 0).any()  # zero is where sds, rates and sizes end by nature
            what = "Widen it if it is not physical; else read" if movable else "Read"
            out.append(
                f"Draws crowd at the {side} bound of {_worst(shares, '.0%')}: the bound decides there, not the data. "
                f"{what} quantiles rather than mean and sd."
            )
    return out
