"""plot_model draws every run and every observation where it belongs, and touches nothing else."""

from __future__ import annotations

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, DataError
from fmepy.plotting.models import plot_model

RUN = pd.DataFrame({"time": [0.0, 1.0, 2.0], "A": [1.0, 2.0, 3.0], "B": [9.0, 8.0, 7.0]})
OTHER = pd.DataFrame({"time": [0.0, 2.0], "A": [0.0, 5.0]})


def data_of(line):
    return np.column_stack(line.get_data()).tolist()


def test_one_panel_a_variable_with_x_first():
    panels = plot_model(RUN)
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in panels] == [("time", "A"), ("time", "B")]
    assert data_of(panels[1].lines[0]) == [[0, 9], [1, 8], [2, 7]]


def test_a_single_row_is_a_dot():
    (ax, _), (of_lines, _) = plot_model(RUN.head(1)), plot_model(RUN)
    assert ax.lines[0].get_marker() == "o"
    assert of_lines.lines[0].get_marker() == "None"


def test_runs_share_panels_and_may_lack_variables_and_times():
    a, b = plot_model(RUN, OTHER, labels=["first", "second"])
    assert [data_of(line) for line in a.lines] == [[[0, 1], [1, 2], [2, 3]], [[0, 0], [2, 5]]]
    assert len(b.lines) == 1
    assert [t.get_text() for t in a.get_legend().get_texts()] == ["first", "second"]
    assert a.lines[0].get_color() != a.lines[1].get_color()


def test_which_selects_in_its_order_by_name_or_position():
    assert [ax.get_ylabel() for ax in plot_model(RUN, which=["B", 0])] == ["B", "A"]
    assert [ax.get_ylabel() for ax in plot_model(RUN, which="B")] == ["B"]


def test_an_unknown_variable_is_told_with_the_nearest():
    with pytest.raises(ArgumentError, match=r"no variable 'Bact'.*Did you mean 'Bac'"):
        plot_model(RUN.rename(columns={"A": "Bac"}), which="Bact")


def test_wide_observations_become_points():
    a, b = plot_model(RUN, obs={"A": [1.5, 2.5], "note": ["x", "y"], "time": [0.5, 1.5]})
    assert data_of(a.lines[1]) == [[0.5, 1.5], [1.5, 2.5]]
    assert a.lines[1].get_linestyle() == "None"
    assert len(b.lines) == 1


def test_long_observations_go_to_their_panels():
    long = pd.DataFrame({"name": ["B", "A", "B", "C"], "time": [0, 1, 2, 0], "val": [9.5, 2.5, 7.5, 0], "err": 1.0})
    a, b = plot_model(RUN, obs=long)
    assert data_of(a.lines[1]) == [[1, 2.5]]
    assert data_of(b.lines[1]) == [[0, 9.5], [2, 7.5]]


def test_a_first_column_of_labels_is_not_a_column_of_names():
    (a,) = plot_model(RUN, which="A", obs=pd.DataFrame({"animal": ["x", "y"], "time": [0, 1], "A": [1.1, 2.1]}))
    assert data_of(a.lines[1]) == [[0, 1.1], [1, 2.1]]


def test_repeated_columns_are_replicates_and_several_tables_are_all_drawn():
    twice = pd.DataFrame([[0, 1.1, 1.2]], columns=["time", "A", "A"])
    (a,) = plot_model(RUN, which="A", obs=[twice, {"time": [1], "A": [2.1]}], obspar={"color": "red"})
    assert [data_of(line) for line in a.lines[1:]] == [[[0, 1.1]], [[0, 1.2]], [[1, 2.1]]]
    assert {line.get_color() for line in a.lines[1:]} == {"red"}


def test_swapped_axes_show_profiles_downwards():
    (a, _) = plot_model(RUN, xyswap=True)
    assert data_of(a.lines[0]) == [[1, 0], [2, 1], [3, 2]]
    assert (a.get_xlabel(), a.get_ylabel()) == ("A", "time")
    assert a.yaxis_inverted()


def test_keywords_reach_axes_and_lines():
    a, b = plot_model(RUN, OTHER, xlabel="hour", ylabel=["of A", "of B"], ylim=(0, 10), color=["C7", "C8"], linewidth=3)
    assert (a.get_xlabel(), b.get_xlabel(), a.get_ylabel(), b.get_ylabel()) == ("hour", "hour", "of A", "of B")
    assert b.get_ylim() == (0, 10)
    assert [line.get_color() for line in a.lines] == ["C7", "C8"]
    assert a.lines[0].get_linewidth() == 3


def test_given_axes_are_used_and_no_figure_is_made():
    figure, axes = plt.subplots(1, 3)
    panels = plot_model(RUN, axes=axes)
    assert [id(ax) for ax in panels] == [id(ax) for ax in axes[:2]]
    assert plt.get_fignums() == [figure.number]
    assert not axes[2].lines


def test_what_cannot_be_drawn_is_told():
    with pytest.raises(ArgumentError, match="`axes` holds 1 Axes; 2 are needed"):
        plot_model(RUN, axes=plt.subplots()[1])
    with pytest.raises(ArgumentError, match="`outputs` is missing"):
        plot_model()
    with pytest.raises(ArgumentError, match=r"`outputs\[1\]` must be a table"):
        plot_model(RUN, 3)
    with pytest.raises(ArgumentError, match="`labels"):
        plot_model(RUN, labels=["one", "two"])
    for wrong in ("topleftt", [], ["top"]):
        with pytest.raises(ArgumentError, match=re.escape(f"`legpos={wrong!r}`")):
            plot_model(RUN, legpos=wrong)
    with pytest.raises(ArgumentError, match="`ylabel` has 3 values for 2 panels"):
        plot_model(RUN, ylabel=["one", "two", "three"])
    with pytest.raises(DataError, match=r"no column 'time'.*'hour'"):
        plot_model(RUN, obs={"hour": [1], "A": [1]})
    with pytest.raises(DataError, match="none of the variables shown"):
        plot_model(RUN, obs={"time": [1], "C": [1]})
