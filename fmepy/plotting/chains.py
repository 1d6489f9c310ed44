"""Pictures of chains: traces, histograms, running quantiles, autocorrelations, ranks.

All take a table of draws, a column a quantity, indexed by (chain, iteration); without such an index the rows are one
chain. Chains share a panel, a colour each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.numerics.draw_statistics import autocorrelation, rank_counts, running_mean, running_quantiles
from fmepy.plotting.axes import bins_of, color, each_panel, picture, zero_line
from fmepy.types import Axes, AxesArray, Matrix, Vector

Draw = Callable[[Axes, int, list[tuple[str | None, Vector, Vector]]], object]

_MOST_NAMED = 8  # chains that a legend can hold


@picture
def plot_chains(
    draws: pd.DataFrame, *, trace: bool = True, on_log: Sequence[str] = (), axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw the draws of every quantity by iteration, a line per chain; return the Axes.

    Parameters
    ----------
    draws : DataFrame
    trace : bool
        Add the running mean of each chain (FME: a lowess line).
    on_log : sequence of str
        Quantities that stand on a log axis where they are positive.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    look = {"linewidth": 0.8, "alpha": 0.45 if trace else 0.8}

    def draw(ax: Axes, j: int, chains: Any) -> None:
        for i, (label, iteration, values) in enumerate(chains):
            shade = kwargs.get("color", color(i))
            ax.plot(iteration, values, **{**look, "color": shade, "label": None if trace else label, **kwargs})
            if trace:
                mean = running_mean(values)[0]
                # a halo, so that the mean stands out from the draws it runs through
                ax.plot(iteration, mean, color="white", linewidth=3.5, alpha=0.8, zorder=3)
                ax.plot(iteration, mean, color=shade, linewidth=1.6, zorder=4, label=label)
        if draws.columns[j] in on_log and (draws.iloc[:, j] > 0).all():
            ax.set_yscale("log")

    return _each_quantity(draws, draw, axes, x="iteration")


@picture
def hist_chains(
    draws: pd.DataFrame, *, prior: Mapping[str, Any] | None = None, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw the density of every quantity as a histogram, chains pooled; return the Axes.

    Parameters
    ----------
    draws : DataFrame
    prior : mapping of name to frozen scipy.stats distribution, optional
        Densities to draw over the histograms of these parameters.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for ``Axes.hist``, such as ``bins=20``.

    Raises
    ------
    ArgumentError
        A prior that has no density.
    """
    priors = _checked_priors(prior)
    look = {"bins": bins_of(draws), "density": True, "color": "0.75", "edgecolor": "white", "linewidth": 0.4, **kwargs}

    def draw(ax: Axes, j: int, chains: Any) -> None:
        ax.hist(draws.iloc[:, j].to_numpy(), **look)
        if (name := str(draws.columns[j])) in priors:
            left, right = ax.get_xlim()
            grid = np.linspace(left, right, 300)
            ax.plot(grid, priors[name].pdf(grid), color=color(1), label="prior")
            ax.set_xlim(left, right)

    return _each_quantity(draws, draw, axes, y="density" if look["density"] else "draws")


@picture
def cumuplot(draws: pd.DataFrame, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw the median and the 2.5 and 97.5 % quantiles of the draws so far, by iteration; return the Axes.

    Lines that still drift at the end call for a longer chain. The draws up to 100 evenly spaced ones are used.

    Parameters
    ----------
    draws : DataFrame
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """

    def draw(ax: Axes, j: int, chains: Any) -> None:
        single = len(chains) == 1
        for i, (label, iteration, values) in enumerate(chains):
            counts, quantiles = running_quantiles(values)
            at, look = iteration[counts - 1], {"color": color(i), **kwargs}
            ax.plot(at, quantiles[0, :, 1], **{"linewidth": 1.5, "label": "median" if single else label, **look})
            ax.plot(at, quantiles[0, :, [0, 2]].T, **{"linewidth": 1.0, **look, "linestyle": "--"})
        if len(chains) <= _MOST_NAMED:
            ax.plot([], [], color=color(0) if single else "0.3", linestyle="--", label="2.5 and 97.5 %")

    return _each_quantity(draws, draw, axes, x="iteration")


@picture
def plot_autocorrelation(
    draws: pd.DataFrame, *, max_lag: int | None = None, axes: Any = None, **kwargs: Any
) -> AxesArray:
    """Draw the autocorrelation of every quantity by lag, a line per chain; return the Axes.

    Parameters
    ----------
    draws : DataFrame
    max_lag : int, optional
        In saved draws; 10 log10(n_draw) by default.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.

    Notes
    -----
    The grey band, +-1.96 / sqrt(n_draw), holds 95 % of the autocorrelations of independent draws.
    """

    def draw(ax: Axes, j: int, chains: Any) -> None:
        band = 1.96 / np.sqrt(min(len(values) for _, _, values in chains))
        ax.axhspan(-band, band, color="0.9", zorder=0)
        zero_line(ax)
        for i, (label, _, values) in enumerate(chains):
            correlations = autocorrelation(values, max_lag)[0]
            look = {"color": color(i), "marker": ".", "markersize": 4, "linewidth": 1.0, "label": label}
            ax.plot(np.arange(len(correlations)), correlations, **{**look, **kwargs})

    return _each_quantity(draws, draw, axes, x="lag (saved draws)", y="autocorrelation")


@picture
def plot_ranks(draws: pd.DataFrame, *, bins: int = 20, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw the distribution of the pooled ranks of the draws over the chains, a step line per chain; return the Axes.

    Chains that agree are even: near the dashed line everywhere. A chain high on the left has too many small values,
    one that is high at both ends is too wide.

    Parameters
    ----------
    draws : DataFrame
    bins : int
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.

    Raises
    ------
    ArgumentError
        One chain: there is nothing to compare it with.

    References
    ----------
    Vehtari et al. (2021), section 4.3; see `fmepy.mcmc.convergence`.
    """
    if len(list(_each_chain(draws))) < 2:
        raise ArgumentError("Rank plots compare chains, and there is one. Run modMCMC with chains=2 or more.")

    def draw(ax: Axes, j: int, chains: Any) -> None:
        shortest = min(len(values) for _, _, values in chains)
        edges, counts = rank_counts(np.array([values[:shortest] for _, _, values in chains]), bins)
        ax.axhline(shortest / bins, color="0.4", linestyle="--", linewidth=0.9)
        for i, (label, _, _) in enumerate(chains):
            look = {"color": color(i), "linewidth": 1.4, "label": label, "baseline": None}
            ax.stairs(counts[i], edges, **{**look, **kwargs})
        ax.set_ylim(0, None)

    return _each_quantity(draws, draw, axes, x="rank among all draws", y="draws")


@picture
def plot_calibration(ranks: pd.DataFrame, n_draws: int, bins: int, *, axes: Any = None, **kwargs: Any) -> AxesArray:
    """Draw how often a truth had which rank among draws of its posterior, one panel a parameter; return the Axes.

    The grey band holds 95 % of the bars where ranks are uniform.

    Parameters
    ----------
    ranks : DataFrame, shape (n_replicate, n_par)
    n_draws : int
        The highest rank.
    bins : int
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the bars.
    """
    from scipy.stats import binom

    edges = np.linspace(0, n_draws + 1, bins + 1) - 0.5
    low, high = binom.interval(0.95, len(ranks), 1 / bins)

    def draw(ax: Axes, name: str) -> None:
        ax.axhspan(low, high, color="0.9", zorder=0)
        ax.axhline(len(ranks) / bins, color="0.5", linewidth=0.9, linestyle="--", zorder=1)
        counts = np.histogram(ranks[name], edges)[0]
        ax.stairs(counts, edges, **{"fill": True, "color": color(0), "alpha": 0.7, **kwargs})
        ax.set_ylim(0, None)

    return each_panel([str(c) for c in ranks.columns], draw, axes, x="rank of the truth", y="replicates")


# --- what several of them need


def _each_quantity(draws: pd.DataFrame, draw: Draw, axes: Any, **labels: Any) -> AxesArray:
    """Return the panels after ``draw(ax, j, chains)``, chains being label, iterations and draws of quantity j."""
    split = list(_each_chain(draws))
    named = 2 <= len(split) <= _MOST_NAMED
    places = iter(range(draws.shape[1]))

    def one(ax: Axes, name: str) -> None:  # names may repeat
        j = next(places)
        draw(ax, j, [(f"chain {label}" if named else None, at, values[:, j]) for label, at, values in split])

    return each_panel([str(c) for c in draws.columns], one, axes, **labels)


def _each_chain(draws: pd.DataFrame) -> Iterator[tuple[Any, Vector, Matrix]]:
    """Yield label, iterations and draws of each chain."""
    if not isinstance(draws.index, pd.MultiIndex):
        yield 0, np.arange(len(draws), dtype=float), draws.to_numpy(dtype=float)
        return
    for label, chain in draws.groupby(level=0, sort=False):
        yield label, chain.index.get_level_values(1).to_numpy(dtype=float), chain.to_numpy(dtype=float)


def _checked_priors(prior: Mapping[str, Any] | None) -> dict[str, Any]:
    if prior is None:
        return {}
    if not isinstance(prior, Mapping):
        raise ArgumentError(
            f"`prior` must be a dict of scipy.stats distributions by parameter name; got {type(prior).__name__}."
        )
    for name, distribution in prior.items():
        if not hasattr(distribution, "pdf"):
            raise ArgumentError(
                f"`prior`: {name!r} has {distribution!r}; a frozen scipy.stats distribution with a density is needed, "
                "such as scipy.stats.norm(0.6, 0.1)."
            )
    return {str(k): d for k, d in prior.items()}
