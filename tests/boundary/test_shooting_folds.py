"""Other starts: unknown initial values follow them, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.boundary import fit as boundary_fit
from fmepy.boundary.shooting_segments import Segments
from fmepy.boundary.shooting_starts import following, near_their_data, squares_of


@pytest.fixture
def problem_of(monkeypatch):
    """The problem that a call of fit_boundary comes to."""

    def made(*args, **words):
        held, own = [], boundary_fit._result
        monkeypatch.setattr(boundary_fit, "_result", lambda problem, *more: held.append(problem) or own(problem, *more))
        fme.fit_boundary(*args, **words)
        return held[0]

    return made


def spring(state, parms):
    return fme.OdeModel(
        "d(x)/dt = v\nd(v)/dt = -k*x", state=state, parms={"k": 1.0, **parms}, times=np.linspace(0, 9, 31),
        rtol=1e-8, atol=1e-8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "parms", "wanted"),
    [
        ("v0", {"v0": 1.0}, {"v0": 2.5}),
        ("3 - 2*w", {"w": 1.0}, {"w": 0.25}),
        ("exp(w)", {"w": 0.0}, {"w": np.log(2.5)}),
    ],
)
def test_initial_values_go_where_the_path_begins_whatever_their_expression(problem_of, start, parms, wanted):
    model = spring({"x": "x0", "v": start}, {"x0": 1.0, **parms})
    data = {"time": model().time, "x": model().x + 0.01 * np.cos(40 * model().time)}
    segments = Segments(problem_of(model, data, ["k", "x0", *parms], segments=3))
    X = np.array([[1.5, 2.5], [0.0, 0.0], [0.0, 0.0]])
    theta = following(segments, segments.problem.start, X)
    found = dict(zip(segments.problem.names, theta, strict=True))
    assert found == pytest.approx({"k": 1.0, "x0": 1.0, **wanted}, abs=1e-6)  # x is observed: its data say


def test_a_start_that_is_known_or_has_data_is_not_looked_for(problem_of):
    model = spring({"x": "x0", "v": 1.0}, {"x0": 1.0})
    data = {"time": model().time, "x": model().x + 0.01 * np.cos(40 * model().time)}
    segments = Segments(problem_of(model, data, ["k", "x0"], segments=3))
    assert segments.unobserved.tolist() == [[False, False], [False, True], [False, True]]


def test_segments_come_near_their_own_data_at_other_unknowns(problem_of):
    model = spring({"x": "x0", "v": "v0"}, {"x0": 1.0, "v0": 1.0})
    data = {"time": model().time, "x": model().x + 0.01 * np.cos(40 * model().time)}
    segments = Segments(problem_of(model, data, ["k", "x0", "v0"], segments=3))
    far = segments.at(segments.problem.start, np.array([[1.0, -3.0], [2.0, 0.0], [0.0, 2.0]]))
    near = list(near_their_data(segments, [far], np.ones(2)))
    assert (np.array([squares_of(p) for p in near]).min(axis=0) < 1e-3 * squares_of(far)).all()
    assert all((p.theta[:2] == far.theta[:2]).all() for p in near)
