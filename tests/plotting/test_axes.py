"""Axes: those given or new ones, legends in R's words, selections by name or position."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.parameters.selection import chosen
from fmepy.plotting.axes import add_legend, get_ax, get_axes, legend_location, picture


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


def test_a_legend_needs_labels_and_stands_above_the_data():
    ax = get_ax()
    ax.plot([1, 2])
    add_legend(ax)
    assert ax.get_legend() is None
    ax.plot([2, 1], label="line")
    add_legend(ax)
    ax.figure.canvas.draw()
    assert ax.get_legend().get_window_extent().y0 >= ax.bbox.y1


@picture
def several(*, axes=None, **kwargs):
    panels = get_axes(2, axes)
    for ax in panels:
        ax.plot([1, 2], [2, 1], **{"label": "line", **kwargs})
        add_legend(ax)
    return panels


@picture
def single(*, ax=None, **kwargs):
    ax = get_ax(ax)
    ax.hist([1, 2, 3], **kwargs)
    return ax


def test_settings_go_to_the_panels_one_for_all_or_one_each():
    panels = several(title="both", xlabel=["a", "b"], ylim=(0, 5), xlim=[(0, 1), (0, 2)], figsize=(7, 2), lw=3)
    assert [ax.get_title() for ax in panels] == ["both", "both"]
    assert [ax.get_xlabel() for ax in panels] == ["a", "b"]
    assert [ax.get_xlim() for ax in panels] == [(0, 1), (0, 2)]
    assert panels[1].get_ylim() == (0, 5)
    assert tuple(panels[0].figure.get_size_inches()) == (7, 2)
    assert panels[0].lines[0].get_linewidth() == 3


def test_a_legend_stands_where_it_is_asked_for_or_nowhere():
    inside = several(legpos="bottomright")[0]
    inside.figure.canvas.draw()
    box = inside.get_legend().get_window_extent()
    assert inside.bbox.x0 < box.x0
    assert inside.bbox.y1 > box.y1
    assert [t.get_text() for t in inside.get_legend().get_texts()] == ["line"]
    assert several(legpos=None)[0].get_legend() is None


def test_an_unknown_keyword_is_answered_with_the_nearest_and_draws_nothing():
    with pytest.raises(ArgumentError, match=r"several takes no keyword `colr`. Did you mean 'color'\?"):
        several(colr="red")
    with pytest.raises(ArgumentError, match=r"`tilte`. Did you mean 'title'\?"):
        single(tilte="x")
    with pytest.raises(ArgumentError, match=r"single cannot draw with these keywords.*marker"):
        single(marker="o")  # a word of matplotlib's, but none of a histogram's
    with pytest.raises(ArgumentError, match=r"several draws several panels: pass `axes=` instead of `ax=`"):
        several(ax=None)
    with pytest.raises(ArgumentError, match=r"single draws one panel: pass `ax=` instead of `axes=`"):
        single(axes=None)
    assert plt.get_fignums() == []


def test_a_single_axes_will_do_for_both_words():
    _, ax = plt.subplots()
    assert single(ax=ax) is ax
    with pytest.raises(ArgumentError, match="`figsize` is the size of a new figure"):
        single(ax=ax, figsize=(3, 3))


def test_selections():
    assert chosen(None, ["a", "b"]) == ["a", "b"]
    assert chosen(1, ["a", "b"]) == ["b"]
    assert chosen([], ["a", "b"]) == []
    with pytest.raises(ArgumentError, match="positions go from 0 to 1"):
        chosen(2, ["a", "b"])
    with pytest.raises(ArgumentError, match="Did you mean 'gamma'"):
        chosen("gama", ["alpha", "gamma"], what="parameter")


@pytest.mark.parametrize("names", [["a", "quadratic approximation", "b", "threshold", "c"], list("abcdefgh")])
def test_a_legend_is_not_wider_than_its_panel(names):
    figure, ax = plt.subplots(figsize=(4.0, 3.0))
    for name in names:
        ax.plot([0, 1], [0, 1], label=name)
    add_legend(ax)
    figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    assert legend.x1 < figure.bbox.x1
    assert legend.width < 1.1 * ax.bbox.width
    assert ax.get_legend().get_title().get_text() == ""


def test_an_axis_as_r_asks_for_it_is_answered_and_a_histogram_counts_by_logarithms():
    with pytest.raises(ArgumentError, match=r"no keyword `log`\. Here it is `yscale`"):
        fme.obsplot({"t": [1, 2], "y": [1, 2]}, log="y")
    runs = fme.modCRL(lambda p: {"z": p["a"]}, parRange={"a": (0, 1)}, num=5, seed=1)
    assert runs.hist(which="a", log=True).ravel()[0].get_yscale() == "log"
