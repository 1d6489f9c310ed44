"""Pictures of several starts show their values in order, and their parameters on scales of their own."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from tests.fitting.starts_child import SETTINGS, cost


@pytest.fixture(scope="module")
def many():
    return fme.modFit(cost, **SETTINGS).multistart


def points(ax):
    """Return x and y by label."""
    return {line.get_label(): np.array(line.get_xydata()) for line in ax.lines if not line.get_label().startswith("_")}


def test_a_waterfall_shows_the_values_in_order_by_optimum(many):
    ax = many.plot()
    drawn = points(ax)
    together = np.vstack(list(drawn.values()))
    together = together[np.argsort(together[:, 0])]
    assert together[:, 0].tolist() == list(range(1, 21))
    np.testing.assert_allclose(together[:, 1], np.maximum(np.sort(many.above), 1e-3))
    assert ax.get_yscale() == "log"
    first = next(label for label in drawn if label.startswith("optimum 1"))
    assert len(drawn[first]) == many.optima["count"].iloc[0]


def test_parameters_stand_between_the_ends_of_the_box(many):
    ax = many.plot("parameters")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["w", "a (log)"]
    best = next(xy for label, xy in points(ax).items() if label.startswith("optimum 1"))
    w, a = many.optima.loc[0, ["w", "a"]]
    np.testing.assert_allclose(best[:, 1], [(w - 0.5) / 8.5, np.log(a / 0.1) / np.log(300)], atol=1e-6)
    assert [t.get_text() for t in ax.texts] == ["0.5", "9", "0.1", "30"]


def test_pictures_take_an_axes_and_keywords(many):
    _, given = plt.subplots()
    assert many.plot(ax=given, markersize=9, title="starts") is given
    assert given.get_title() == "starts"
    with pytest.raises(ArgumentError, match="kind='watterfall'"):
        many.plot("watterfall")


def test_pictures_of_starts_without_a_box_and_with_failures():
    table = {"w": [8.5, 2.9, 3.1, 1.0]}
    found = fme.modFit(cost, SETTINGS["p"], starts=table).multistart
    assert sum(len(xy) for xy in points(found.plot()).values()) == 3
    assert len(found.plot("parameters").get_xticks()) == 2
