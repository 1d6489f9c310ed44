"""Diagnostics of chains in one table: R-hat, effective sample sizes, transients, lengths needed.

The methods and their papers are described in `convergence` (R-hat, effective sizes, error of the mean)
and `coda` (Geweke; Raftery and Lewis).

**Defined answers.** NaN stands for "cannot be said": fewer draws than the method needs (4 a chain for R-hat and
effective sizes, 50 for Geweke, N_min for Raftery and Lewis), a draw that is not finite, and a series that never
changes, which has no variance to compare. Chains that never change but stand at different places have an R-hat of
infinity. One chain is enough everywhere: R-hat then compares its halves, and cannot see what the chain never reached.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.mcmc.coda import geweke, raftery_lewis
from fmepy.mcmc.convergence import ess_bulk, ess_tail, mcse, rhat
from fmepy.types import Cube, Matrix


def chain_diagnostics(pars: pd.DataFrame) -> pd.DataFrame:
    """Return one row of diagnostics per parameter.

    Parameters
    ----------
    pars : DataFrame, shape (n_row, n_par)
        Draws; the first level of a MultiIndex tells the chains apart, any other index means one chain. Of chains of
        different length (one that was interrupted) the first draws count, as many of each as the shortest has.

    Returns
    -------
    DataFrame, shape (n_par, 8)
        mean, sd (unit of the parameter), mcse (of the mean), ess_bulk, ess_tail (draws), rhat, geweke_z (of the chain
        where it is farthest from 0), raftery_lewis (draws a chain needs for its 2.5 % quantile to +- 0.005, of the
        neediest chain). NaN where a method has no answer; see the module's docstring.

    Examples
    --------
    >>> pars = pd.DataFrame({"k": np.random.default_rng(1).normal(5.0, 0.1, 4000)})
    >>> chain_diagnostics(pars).round(2)[["mean", "sd", "rhat"]]
       mean   sd  rhat
    k   5.0  0.1   1.0
    """
    cube = draws_by_chain(pars)
    rows = [_row(cube[:, :, j]) for j in range(cube.shape[2])]
    columns = ["mean", "sd", "mcse", "ess_bulk", "ess_tail", "rhat", "geweke_z", "raftery_lewis"]
    return pd.DataFrame(rows, index=pd.Index([str(c) for c in pars.columns]), columns=pd.Index(columns), dtype=float)


def draws_by_chain(pars: pd.DataFrame | pd.Series) -> Cube:
    """Return a table or a column as an array (n_chain, n_draw, ...): the first draws, cut to the shortest chain.

    Raises
    ------
    ArgumentError
        A table without rows.
    """
    if len(pars) == 0:
        raise ArgumentError("There are no draws: the table has no rows.")
    chains = chains_of(pars)
    shortest = min(map(len, chains))
    return np.stack([c[:shortest] for c in chains])


def chains_of(pars: pd.DataFrame | pd.Series) -> list[Matrix]:
    """Return the draws of each chain; a table that names none is one chain."""
    if not isinstance(pars.index, pd.MultiIndex):
        return [pars.to_numpy(dtype=float)]
    return [chain.to_numpy(dtype=float) for _, chain in pars.groupby(level=0, sort=False)]


def _row(x: Matrix) -> list[float]:
    z = geweke(x)
    lengths = np.array([raftery_lewis(chain) for chain in x])
    worst = np.nan if np.isnan(z).all() else float(z[np.nanargmax(np.abs(z))])
    needed = np.nan if np.isnan(lengths).all() else float(np.nanmax(lengths))
    finite = np.isfinite(x).all()
    spread = float(x.std(ddof=1)) if finite and x.size > 1 else np.nan
    mean = float(x.mean()) if finite else np.nan
    return [mean, spread, mcse(x), ess_bulk(x), ess_tail(x), rhat(x), worst, needed]
