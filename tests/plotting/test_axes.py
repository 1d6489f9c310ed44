"""Axes: those given or new ones, legends in R's words, selections by name or position."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from fmepy.errors import ArgumentError
from fmepy.plotting.axes import add_legend, check_which, get_ax, get_axes, legend_location


def test_new_axes_are_as_many_as_asked_for():
    for n in (1, 2, 4, 5, 7):
        axes = get_axes(n)
        assert axes.shape == (n,)
        assert len(axes[0].figure.axes) == n


def test_given_axes_are_returned():
    figure, grid = plt.subplots(2, 2)
    assert get_axes(3, grid).tolist() == grid.ravel().tolist()[:3]
    assert get_ax(grid[0, 0]) is grid[0, 0]
    assert plt.get_fignums() == [figure.number]


def test_what_is_no_axes_is_refused():
    with pytest.raises(ArgumentError, match=r"`ax` must be matplotlib Axes; got Figure"):
        get_ax(plt.figure())
    with pytest.raises(ArgumentError, match="`axes` must be"):
        get_axes(1, ["a"])


def test_legends_take_the_words_of_r_and_of_matplotlib():
    assert legend_location("bottomleft") == legend_location("lower left") == "lower left"
    assert legend_location(None) is None
    with pytest.raises(ArgumentError, match="Did you mean 'topright'"):
        legend_location("topwright")


def test_a_legend_needs_labels_and_a_place():
    ax = get_ax()
    ax.plot([1, 2])
    add_legend(ax, "topleft")
    assert ax.get_legend() is None
    ax.plot([2, 1], label="line")
    add_legend(ax, None)
    assert ax.get_legend() is None
    add_legend(ax, "topleft")
    assert ax.get_legend() is not None


def test_selections():
    assert check_which(None, ["a", "b"]) == ["a", "b"]
    assert check_which(1, ["a", "b"]) == ["b"]
    assert check_which([], ["a", "b"]) == []
    with pytest.raises(ArgumentError, match="positions go from 0 to 1"):
        check_which(2, ["a", "b"])
    with pytest.raises(ArgumentError, match="Did you mean 'gamma'"):
        check_which("gama", ["alpha", "gamma"], what="parameter")
