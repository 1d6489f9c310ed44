"""The first crossing of a condition within a step is found, wherever it lies, and no more is looked at than need be."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.compiled.crossings import LEAST, NEVER, first_crossing, has_crossed
from fmepy.compiled.status import WATCH_ROWS


def crossing(*conditions):
    """Return the first crossing of functions of the fraction of a step, and how many places were looked at."""
    marks, places = np.zeros((WATCH_ROWS, len(conditions))), []

    def dense(s, y, c, row):
        places.append(s)
        row[0] = s

    def watch(t, row, model, out):
        out[:] = [g(row[0]) for g in conditions]

    for k, s in enumerate((0.0, 1.0)):
        watch(s, [s], None, marks[k])
    return first_crossing(dense, watch, None, 0.0, 1.0, None, None, marks, np.zeros(1)), len(places)


def test_the_first_root_of_a_polynomial_of_order_four_is_found():
    rng = np.random.default_rng(1)
    for _ in range(400):
        roots = np.sort(rng.uniform(-0.5, 1.5, 4))
        if np.diff(roots).min() < 2 * LEAST:
            continue
        p = np.poly1d(roots, r=True) * rng.choice([-1, 1])
        inside = roots[(roots > 0) & (roots < 1)]
        s, looks = crossing(p)
        assert s == pytest.approx(inside[0] if len(inside) else NEVER, abs=1e-9)  # it is written out
        assert len(inside) or looks < 200


def test_a_crossing_is_located_to_the_last_bit_in_fewer_looks_than_it_has_bits():
    for g, at in (
        (lambda s: s - 0.3, 0.3),
        (lambda s: 1 - np.exp(3 * s) / 5, np.log(5) / 3),
        (lambda s: 0.2 - s**3, 0.2 ** (1 / 3)),
    ):
        s, looks = crossing(g)
        assert s == pytest.approx(at, abs=4e-16)
        assert looks < 32


def test_a_condition_far_from_zero_is_looked_at_four_times():
    assert crossing(lambda s: 2 + np.cos(2 * s)) == (NEVER, 4)
    assert crossing(lambda s: 1 + s**4) == (NEVER, 4)


@pytest.mark.parametrize("w", [1, 3, 10, 40, 200])
def test_a_condition_that_swings_within_the_step_is_followed(w):
    g = lambda s: np.cos(2 * np.pi * w * s) + 0.99  # noqa: E731    # it is negative for 4.5 % of a period
    at = (np.pi - np.arccos(0.99)) / (2 * np.pi * w)
    assert crossing(g)[0] == pytest.approx(at, abs=1e-12)
    s, looks = crossing(lambda s: g(s) + 0.02)
    assert s == NEVER
    assert looks < 6 / LEAST


def test_the_first_of_several_conditions_is_found_whichever_it_is():
    rng = np.random.default_rng(2)
    for _ in range(300):
        pairs = [np.sort(rng.uniform(-0.3, 1.3, 2)) for _ in range(4)]
        inside = [r for pair in pairs for r in pair if 0 < r < 1]
        if any(b - a < 2 * LEAST for a, b in pairs):
            continue
        s, _ = crossing(*(lambda s, a=a, b=b: (s - a) * (s - b) for a, b in pairs))
        assert s == pytest.approx(min(inside, default=NEVER), abs=1e-12)


@pytest.mark.parametrize("at", [0.25, 1 / 3, 0.5, 0.7, 1.0])
def test_a_touch_of_zero_ends_whatever_rounding_makes_of_it(at):
    for depth in (0.0, 1e-17, -1e-17, 1e-13, -1e-13):
        s, looks = crossing(lambda s, depth=depth: (s - at) ** 2 - depth)
        assert s == NEVER or s == pytest.approx(at, abs=LEAST)
        assert looks < 500


def test_what_is_nan_or_always_zero_has_no_say():
    nan = lambda s: np.nan  # noqa: E731
    zero = lambda s: 0.0  # noqa: E731
    assert crossing(nan, zero) == (NEVER, 4)
    assert crossing(nan, zero, lambda s: 0.3 - s)[0] == pytest.approx(0.3)
    with np.errstate(invalid="ignore"):
        assert crossing(lambda s: np.sqrt(0.5 - s) - 0.5)[0] == pytest.approx(0.25)
        assert crossing(lambda s: np.sqrt(s - 0.5) - 0.5)[0] == NEVER  # it has no side where the step begins
    assert not has_crossed(np.array([np.nan, 0.0]), np.array([0.0, -1.0]))
    assert has_crossed(np.array([np.nan, 1.0]), np.array([0.0, 0.0]))
