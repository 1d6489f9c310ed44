"""Pictures of chains: traces, pairs, histograms, running quantiles, autocorrelations, ranks.

Chains share a panel, a colour each. `which` selects parameters; ``Full=True`` adds the sum of squares and the sampled
variances, and with ``which=[]`` shows only these. `remove` leaves draws out of every chain: a number of first draws, a
slice, or positions from 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.mcmc.chain_summary import kept_rows, sampled_values
from fmepy.mcmc.convergence import autocorrelation
from fmepy.mcmc.draws import draws_by_chain
from fmepy.mcmc.running import rank_counts, running_mean, running_quantiles
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_axes, picture, set_axes
from fmepy.plotting.ranges import plot_pairs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fmepy.mcmc.chain_summary import Chain, Remove
    from fmepy.plotting.axes import AxesArray
    from fmepy.types import Matrix, Vector

Which = str | int | Sequence[str | int] | None
_MOST_NAMED = 8  # chains that a legend can hold


@picture
def plot_chains(
    chain: Chain,
    *,
    Full: bool = False,
    which: Which = None,
    trace: bool = True,
    remove: Remove = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw the draws of every parameter by iteration, a line per chain; return the Axes.

    Parameters
    ----------
    chain : ModMCMC
    Full : bool
        Add the sum of squares and the sampled variances, on a log axis where they are positive.
    which : names or positions from 0, optional
        Parameters; ``[]`` with `Full` for none.
    trace : bool
        Add the running mean of each chain (FME: a lowess line).
    remove : int, slice or positions, optional
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    shown, on_log = _selected(chain, Full, which, remove)
    chains = list(_each_chain(shown))
    look = {"linewidth": 0.8, "alpha": 0.45 if trace else 0.8}
    panels = get_axes(shown.shape[1], axes)
    for j, (ax, name) in enumerate(zip(panels, shown.columns, strict=True)):
        for i, (label, iteration, values) in enumerate(chains):
            color = kwargs.get("color", _color(i))
            told = {} if trace else {"label": _named(label)}
            ax.plot(iteration, values[:, j], **{**look, "color": color, **told, **kwargs})
            if trace:
                mean = running_mean(values[:, j])[0]
                # a halo, so that the mean stands out from the draws it runs through
                ax.plot(iteration, mean, color="white", linewidth=3.5, alpha=0.8, zorder=3)
                ax.plot(iteration, mean, color=color, linewidth=1.6, zorder=4, label=_named(label))
        if name in on_log and (shown.iloc[:, j] > 0).all():
            ax.set_yscale("log")
        set_axes(ax, "iteration", name)
    _name_chains(panels, len(chains))
    return panels


@picture
def pairs_chains(
    chain: Chain,
    *,
    Full: bool = False,
    which: Which = None,
    remove: Remove = None,
    nsample: int | None = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw parameters against each other; return the Axes, shape (n, n).

    Points above the diagonal, correlations (of all draws) below, histograms on it; chains are pooled.

    Parameters
    ----------
    chain : ModMCMC
    Full : bool
        Add the sum of squares and the sampled variances.
    which : names or positions from 0, optional
    remove : int, slice or positions, optional
    nsample : int, optional
        At most so many points, evenly spaced over the draws.
    axes : array of Axes, shape (n, n), optional
    **kwargs
        Of the points: keywords of ``Axes.plot``.

    Raises
    ------
    ArgumentError
        Fewer than two quantities.
    """
    shown, _ = _selected(chain, Full, which, remove)
    return plot_pairs(shown, nsample=nsample, axes=axes, **kwargs)


@picture
def hist_chains(
    chain: Chain,
    *,
    Full: bool = False,
    which: Which = None,
    remove: Remove = None,
    prior: Mapping[str, Any] | None = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw the density of every parameter as a histogram, chains pooled; return the Axes.

    Parameters
    ----------
    chain : ModMCMC
    Full : bool
        Add the sum of squares and the sampled variances.
    which : names or positions from 0, optional
    remove : int, slice or positions, optional
    prior : mapping of name to frozen scipy.stats distribution, optional
        Densities to draw over the histograms of these parameters.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for ``Axes.hist``, such as ``bins=20``.

    Raises
    ------
    ArgumentError
        A prior of a parameter that is not there, or that has no density.
    """
    shown, _ = _selected(chain, Full, which, remove)
    priors = _checked_priors(prior, [str(c) for c in chain.pars.columns])
    panels = get_axes(shown.shape[1], axes)
    bins = "auto" if len(shown) < 2000 else 40
    look = {"bins": bins, "density": True, "color": "0.75", "edgecolor": "white", "linewidth": 0.4, **kwargs}
    for j, (ax, name) in enumerate(zip(panels, shown.columns, strict=True)):
        ax.hist(shown.iloc[:, j].to_numpy(), **look)
        ax.locator_params(axis="x", nbins=5)  # so that numbers such as 0.00025 keep apart
        if name in priors:
            left, right = ax.get_xlim()
            grid = np.linspace(left, right, 300)
            ax.plot(grid, priors[name].pdf(grid), color="C1", label="prior")
            ax.set_xlim(left, right)
        set_axes(ax, name, "density" if look["density"] else "draws")
    for ax in panels:
        if ax.get_legend_handles_labels()[0]:
            add_legend(ax)
            break
    return panels


@picture
def cumuplot(
    chain: Chain,
    *,
    which: Which = None,
    remove: Remove = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw the median and the 2.5 and 97.5 % quantiles of the draws so far, by iteration; return the Axes.

    Lines that still drift at the end call for a longer chain. The draws up to 100 evenly spaced ones are used.

    Parameters
    ----------
    chain : ModMCMC
    which : names or positions from 0, optional
    remove : int, slice or positions, optional
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.
    """
    shown, _ = _selected(chain, False, which, remove)
    chains = list(_each_chain(shown))
    single = len(chains) == 1
    panels = get_axes(shown.shape[1], axes)
    for j, (ax, name) in enumerate(zip(panels, shown.columns, strict=True)):
        for i, (label, iteration, values) in enumerate(chains):
            counts, quantiles = running_quantiles(values[:, j])
            at = iteration[counts - 1]
            median = {"color": _color(i), "linewidth": 1.5, "label": "median" if single else _named(label), **kwargs}
            ax.plot(at, quantiles[0, :, 1], **median)
            outer = {"color": _color(i), "linewidth": 1.0, **kwargs, "linestyle": "--"}
            ax.plot(at, quantiles[0, :, [0, 2]].T, **outer)
        set_axes(ax, "iteration", name)
    if len(chains) <= _MOST_NAMED:
        panels[0].plot([], [], color=_color(0) if single else "0.3", linestyle="--", label="2.5 and 97.5 %")
        add_legend(panels[0])
    return panels


@picture
def plot_autocorrelation(
    chain: Chain,
    *,
    which: Which = None,
    remove: Remove = None,
    max_lag: int | None = None,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw the autocorrelation of every parameter by lag, a line per chain; return the Axes.

    Parameters
    ----------
    chain : ModMCMC
    which : names or positions from 0, optional
    remove : int, slice or positions, optional
    max_lag : int, optional
        In saved draws; 10 log10(n_draw) by default.
    axes : Axes or array of Axes, optional
    **kwargs
        Settings of all pictures (`fmepy.plotting.axes.picture`); the rest for the lines.

    Notes
    -----
    The grey band, +-1.96 / sqrt(n_draw), holds 95 % of the autocorrelations of independent draws.
    """
    shown, _ = _selected(chain, False, which, remove)
    chains = list(_each_chain(shown))
    panels = get_axes(shown.shape[1], axes)
    band = 1.96 / np.sqrt(min(len(values) for _, _, values in chains))
    for j, (ax, name) in enumerate(zip(panels, shown.columns, strict=True)):
        ax.axhspan(-band, band, color="0.9", zorder=0)
        ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=1)
        for i, (label, _, values) in enumerate(chains):
            found = autocorrelation(values[:, j], max_lag)[0]
            look = {"color": _color(i), "marker": ".", "markersize": 4, "linewidth": 1.0, "label": _named(label)}
            ax.plot(np.arange(len(found)), found, **{**look, **kwargs})
        ax.set_title(name, fontsize="medium")
        set_axes(ax, "lag (saved draws)", "autocorrelation")
    _name_chains(panels, len(chains))
    return panels


@picture
def plot_ranks(
    chain: Chain,
    *,
    which: Which = None,
    remove: Remove = None,
    bins: int = 20,
    axes: Axes | Iterable[Axes] | None = None,
    **kwargs: Any,
) -> AxesArray:
    """Draw how the pooled ranks of the draws are shared out among the chains, a step line per chain; return the Axes.

    Chains that agree are even: near the dashed line everywhere. A chain high on the left has too many small values,
    one that is high at both ends is too wide.

    Parameters
    ----------
    chain : ModMCMC
    which : names or positions from 0, optional
    remove : int, slice or positions, optional
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
    shown, _ = _selected(chain, False, which, remove)
    labels = [label for label, _, _ in _each_chain(shown)]
    if len(labels) < 2:
        raise ArgumentError("Rank plots compare chains, and there is one. Run modMCMC with chains=2 or more.")
    cube = draws_by_chain(shown)
    panels = get_axes(shown.shape[1], axes)
    for j, (ax, name) in enumerate(zip(panels, shown.columns, strict=True)):
        edges, counts = rank_counts(cube[:, :, j], bins)
        ax.axhline(cube.shape[1] / bins, color="0.4", linestyle="--", linewidth=0.9)
        for i, label in enumerate(labels):
            look = {"color": _color(i), "linewidth": 1.4, "label": _named(label), "baseline": None}
            ax.stairs(counts[i], edges, **{**look, **kwargs})
        ax.set_ylim(0, None)
        ax.set_title(name, fontsize="medium")
        set_axes(ax, "rank among all draws", "draws")
    _name_chains(panels, len(labels))
    return panels


# --- what several of them need


def _selected(chain: Chain, full: bool, which: Which, remove: Remove) -> tuple[pd.DataFrame, set[str]]:
    """Return the columns to show, and the names of those that belong on a log axis."""
    known = [str(c) for c in chain.pars.columns]
    names = chosen(which, known, what="parameter")
    if not names and not full:
        raise ArgumentError("`which` is empty: nothing would be shown. With Full=True it shows SS and the variances.")
    values = sampled_values(chain)
    variances = [str(c) for c in values.columns[len(known) :]]
    shown = values.iloc[:, [known.index(n) for n in names]]
    if full:
        ss = pd.Series(np.asarray(chain.SS, dtype=float), index=values.index, name="SS")
        shown = pd.concat([shown, ss, values.iloc[:, len(known) :]], axis=1)
    return shown[kept_rows(chain, remove)], {"SS", *variances} if full else set()


def _each_chain(shown: pd.DataFrame) -> Iterator[tuple[Any, Vector, Matrix]]:
    """Yield label, iterations and draws of each chain."""
    values = shown.to_numpy(dtype=float)
    if not isinstance(shown.index, pd.MultiIndex):
        yield 0, np.arange(len(shown), dtype=float), values
        return
    codes, labels = pd.factorize(shown.index.get_level_values(0))
    iterations = shown.index.get_level_values(1).to_numpy(dtype=float)
    for code, label in enumerate(labels):
        yield label, iterations[codes == code], values[codes == code]


def _checked_priors(prior: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any]:
    if prior is None:
        return {}
    if not isinstance(prior, Mapping):
        raise ArgumentError(
            f"`prior` must be a dict of scipy.stats distributions by parameter name; got {type(prior).__name__}."
        )
    chosen([str(k) for k in prior], names, "prior", "parameter")
    for name, distribution in prior.items():
        if not hasattr(distribution, "pdf"):
            raise ArgumentError(
                f"`prior`: {name!r} has {distribution!r}; a frozen scipy.stats distribution with a density is needed, "
                "such as scipy.stats.norm(0.6, 0.1)."
            )
    return {str(k): d for k, d in prior.items()}


def _color(i: int) -> str:
    return f"C{i % 10}"


def _named(label: Any) -> str:
    return f"chain {label}"


def _name_chains(panels: AxesArray, n: int) -> None:
    """Draw a legend in the first panel if there are several chains, and few enough to be told apart."""
    if 2 <= n <= _MOST_NAMED:
        add_legend(panels[0])
