"""Pictures of chains show the draws, and the numbers that diagnostics and quantiles have."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fmepy.errors import ArgumentError
from fmepy.mcmc import ModMCMC, modMCMC
from fmepy.mcmc.chain_summary import selected_draws
from fmepy.numerics.draw_statistics import autocorrelation, rank_counts
from fmepy.plotting import chains, ranges


def of_chain(draw):
    """Return a picture of draws as one of a chain, as ModMCMC has it."""

    def drawn(chain, *, Full=False, which=None, remove=None, **kwargs):
        shown = selected_draws(chain, Full, which, remove)
        if draw is chains.plot_chains:
            kwargs["on_log"] = [c for c in shown.columns if c not in chain.pars.columns]
        return draw(shown, **kwargs)

    return drawn


plot_chains, hist_chains, cumuplot = map(of_chain, (chains.plot_chains, chains.hist_chains, chains.cumuplot))
plot_autocorrelation, plot_ranks = of_chain(chains.plot_autocorrelation), of_chain(chains.plot_ranks)
pairs_chains = of_chain(ranges.plot_pairs)


def sample(lengths=(200, 200), sig=("var_T", "var_V"), seed=1):
    """Return draws of a, b and c as modMCMC keeps them; iterations are thinned by 5."""
    rng = np.random.default_rng(seed)
    index = pd.MultiIndex.from_tuples(
        [(c, 5 * i + 5) for c, n in enumerate(lengths) for i in range(n)], names=["chain", "iteration"]
    )
    n = len(index)
    pars = pd.DataFrame(rng.normal(size=(n, 3)), index=index, columns=["a", "b", "c"])
    variances = None
    if sig:
        variances = pd.DataFrame(rng.chisquare(5, size=(n, len(sig))), index=index, columns=list(sig))
    return SimpleNamespace(pars=pars, SS=pd.Series(rng.chisquare(5, size=n), index=index), sig=variances)


def labels(panels):
    return [ax.get_ylabel() for ax in panels]


def legend(ax):
    return [] if ax.get_legend() is None else [t.get_text() for t in ax.get_legend().get_texts()]


# --- traces


def test_traces_show_every_draw_of_every_chain_at_its_iteration():
    chain = sample()
    panels = plot_chains(chain, trace=False)
    assert labels(panels) == ["a", "b", "c"]
    assert [ax.get_xlabel() for ax in panels] == ["iteration"] * 3
    for ax, name in zip(panels, "abc", strict=True):
        assert len(ax.lines) == 2
        for c, line in enumerate(ax.lines):
            np.testing.assert_array_equal(line.get_xdata(), chain.pars.loc[c].index)
            np.testing.assert_array_equal(line.get_ydata(), chain.pars.loc[c, name])
    assert legend(panels[0]) == ["chain 0", "chain 1"]
    assert legend(panels[1]) == []


def test_the_trace_line_is_the_running_mean():
    chain = sample((50,), sig=())
    line = plot_chains(chain, which="b")[0].lines[-1]
    np.testing.assert_allclose(line.get_ydata(), chain.pars["b"].expanding().mean())


def test_full_adds_ss_and_variances_on_log_axes():
    panels = plot_chains(sample(), Full=True)
    assert labels(panels) == ["a", "b", "c", "SS", "sig.var_T", "sig.var_V"]
    assert [ax.get_yscale() for ax in panels] == ["linear"] * 3 + ["log"] * 3


def test_which_empty_with_full_shows_only_ss_and_variances():
    chain = sample(sig=("var_model",))
    assert labels(plot_chains(chain, Full=True, which=[])) == ["SS", "var_model"]
    assert labels(plot_chains(chain, Full=True, which=[2, "a"])) == ["c", "a", "SS", "var_model"]
    with pytest.raises(ArgumentError, match="nothing would be shown"):
        plot_chains(chain, which=[])


def test_a_sum_of_squares_that_is_not_positive_has_a_linear_axis():
    chain = sample(sig=())
    chain.SS.iloc[3] = -1.0  # -2 log likelihood may be
    assert plot_chains(chain, Full=True)[-1].get_yscale() == "linear"


def test_variances_of_one_name_are_drawn_each():
    chain = sample(sig=("var_y", "var_y"))
    panels = plot_chains(chain, Full=True, which=[], trace=False)
    assert labels(panels) == ["SS", "sig.var_y", "sig.var_y"]
    np.testing.assert_array_equal(panels[2].lines[0].get_ydata(), chain.sig.iloc[:200, 1])
    assert len(hist_chains(chain, Full=True)) == 6


def test_removed_draws_are_not_drawn():
    chain = sample((30, 20))
    for c, line in enumerate(plot_chains(chain, which="a", trace=False, remove=10)[0].lines):
        np.testing.assert_array_equal(line.get_ydata(), chain.pars.loc[c, "a"].iloc[10:])
    line = plot_chains(chain, Full=True, which=[], trace=False, remove=[0, 1])[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), chain.SS.loc[0].iloc[2:])


def test_traces_draw_on_given_axes_with_given_looks():
    _, given = plt.subplots(1, 3)
    panels = plot_chains(sample((20,)), axes=given, title="DRAM", color="red", trace=False)
    assert panels[2] is given[2]
    assert [ax.get_title() for ax in panels] == ["DRAM"] * 3
    assert panels[0].lines[0].get_color() == "red"


def test_many_chains_have_no_legend():
    assert legend(plot_chains(sample((10,) * 8))[0]) == [f"chain {c}" for c in range(8)]
    assert legend(plot_chains(sample((10,) * 9))[0]) == []


def test_an_unknown_parameter_is_told():
    with pytest.raises(ArgumentError, match="no parameter 'd'"):
        plot_chains(sample(), which="d")


# --- pairs and histograms


def test_pairs_have_points_above_and_correlations_below_the_diagonal():
    chain = sample()
    panels = pairs_chains(chain, nsample=50, remove=100)
    assert panels.shape == (3, 3)
    rest = chain.pars.groupby(level=0).tail(100)
    points = panels[0, 2].lines[0]
    assert len(points.get_xdata()) == 50
    assert np.isin(points.get_xdata(), rest["c"]).all()
    assert panels[2, 0].texts[0].get_text() == f"{rest.corr().loc['a', 'c']:.2f}"
    assert sum(p.get_height() for p in panels[1, 1].patches) == 200


def test_full_pairs_take_ss_and_variances_along():
    assert pairs_chains(sample(), Full=True, which="a").shape == (4, 4)


def test_histograms_are_densities_of_all_chains():
    chain = sample()
    panels = hist_chains(chain, bins=20, Full=True)
    assert [ax.get_xlabel() for ax in panels] == ["a", "b", "c", "SS", "sig.var_T", "sig.var_V"]
    heights, edges = np.histogram(chain.pars["b"], 20, density=True)
    np.testing.assert_allclose([p.get_height() for p in panels[1].patches], heights)
    np.testing.assert_allclose([p.get_x() for p in panels[1].patches], edges[:-1])


def test_priors_are_drawn_over_their_histograms():
    panels = hist_chains(sample(), prior={"b": stats.norm(0.5, 2)})
    (line,) = panels[1].lines
    np.testing.assert_allclose(line.get_ydata(), stats.norm(0.5, 2).pdf(line.get_xdata()))
    assert (len(panels[0].lines), legend(panels[0]), legend(panels[1])) == (0, [], ["prior"])


def test_wrong_priors_are_told():
    with pytest.raises(ArgumentError, match="`prior`: there is no parameter 'd'"):
        ModMCMC.hist(sample(), prior={"d": stats.norm()})
    with pytest.raises(ArgumentError, match=r"frozen scipy\.stats distribution"):
        hist_chains(sample(), prior={"a": 3.0})
    with pytest.raises(ArgumentError, match="must be a dict"):
        hist_chains(sample(), prior=lambda p: 0.0)


def test_a_parameter_that_never_changed_is_drawn():
    chain = sample()
    chain.pars["b"] = 0.1
    for draw in (plot_chains, hist_chains, cumuplot, plot_autocorrelation, plot_ranks, pairs_chains):
        panels = draw(chain)
        panels.flat[0].figure.canvas.draw()


# --- quantiles, autocorrelations, ranks


def test_running_quantiles_end_at_the_quantiles_of_each_chain():
    chain = sample()
    panels = cumuplot(chain, which=["c"])
    lines = [line for line in panels[0].lines if len(line.get_xdata())]
    ends = [[line.get_ydata()[-1] for line in lines[3 * c : 3 * c + 3]] for c in (0, 1)]
    for c in (0, 1):
        np.testing.assert_allclose(ends[c], chain.pars.loc[c, "c"].quantile([0.5, 0.025, 0.975]))
    assert lines[0].get_xdata()[-1] == 1000
    assert legend(panels[0]) == ["chain 0", "chain 1", "2.5 and 97.5 %"]
    assert legend(cumuplot(sample((50,)))[0]) == ["median", "2.5 and 97.5 %"]


def test_autocorrelations_are_those_of_each_chain():
    chain = sample((200, 150))
    panels = plot_autocorrelation(chain, which="a", max_lag=12)
    lines = [line for line in panels[0].lines if len(line.get_xdata()) == 13]
    for c, line in enumerate(lines):
        np.testing.assert_allclose(line.get_ydata(), autocorrelation(chain.pars.loc[c, "a"], 12)[0])
    assert len(lines) == 2
    assert panels[0].get_title() == "a"


def test_ranks_are_shared_out_among_the_chains():
    chain = sample()
    panels = plot_ranks(chain, bins=10)
    expected = rank_counts(chain.pars["b"].to_numpy().reshape(2, 200), 10)[1]
    for c, step in enumerate(panels[1].patches):
        np.testing.assert_allclose(step.get_data().values, expected[c])
    assert panels[0].lines[0].get_ydata()[0] == 20  # what each would have were they even
    assert len(plot_ranks(sample((30, 20)))) == 3
    with pytest.raises(ArgumentError, match="there is one"):
        plot_ranks(sample((50,)))


def test_a_table_without_chains_is_one_chain():
    chain = sample((40,), sig=())
    chain.pars = chain.pars.reset_index(drop=True)
    line = plot_chains(chain, trace=False)[0].lines[0]
    np.testing.assert_array_equal(line.get_xdata(), np.arange(40))
    np.testing.assert_array_equal(line.get_ydata(), chain.pars["a"])


@pytest.mark.parametrize("bins", [0, -1, 2.5, np.nan])
def test_bins_are_counted(bins):
    chain = modMCMC(lambda p: float(p[0] ** 2), [0.1], niter=50, jump=0.5, seed=1)
    with pytest.raises(ArgumentError, match=r"`bins=.* must be a whole number, at least 1"):
        chain.hist(bins=bins)
    assert len(chain.hist(bins=5.0)[0].patches) == 5
