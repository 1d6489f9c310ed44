"""Which searches came to the same optimum, and the chance that one was missed."""

import numpy as np
import pytest

from fmepy.fitting.optima import missed_share, optimum_numbers


def numbers(above, unit, converged=None, between=None):
    above = np.array(above, dtype=float)
    good = np.ones(above.size, bool) if converged is None else np.array(converged)
    return optimum_numbers(above, np.array(unit, dtype=float).reshape(above.size, -1), good, between).tolist()


def test_the_same_value_at_the_same_place_is_one_optimum():
    assert numbers([0, 5, 0.05, 5.02, 0], [0.3, 0.9, 0.3, 0.9, 0.3]) == [1, 2, 1, 2, 1]


def test_another_value_at_the_same_place_is_another_one():
    assert numbers([0, 0.2], [0.3, 0.3]) == [1, 2]


def test_the_same_value_at_another_place_is_another_one_unless_a_valley_joins_them():
    def hill(points):
        return np.full(len(points), 3.0)

    def valley(points):
        return np.zeros(len(points))

    ends = [0.1, 0.5, 0.9]
    assert numbers([0, 0, 0], ends, between=hill) == [1, 2, 3]
    assert numbers([0, 0, 0], ends, between=valley) == [1, 1, 1]
    assert numbers([0, 0, 0], ends) == [1, 2, 3]


def test_a_bent_valley_is_one_optimum_where_ends_lie_close_along_it():
    angle = np.linspace(0, np.pi, 60)
    ring = np.column_stack([np.cos(angle), np.sin(angle)])
    far = np.vstack([ring, [[3.0, 0.0]]])

    def cost(points):
        return 100 * (np.hypot(*points.T) - 1) ** 2

    assert numbers(np.zeros(60), ring, between=cost) == [1] * 60
    assert numbers(np.zeros(61), far, between=cost) == [1] * 60 + [2]


def test_what_did_not_converge_is_of_an_optimum_only_where_others_converged():
    assert numbers([0, 0.01, 7, 7], [0.1, 0.1, 0.5, 0.5], [True, False, False, False]) == [1, 1, 0, 0]
    assert numbers([0, 7], [0.1, 0.5], [False, False]) == [0, 0]
    assert numbers([-1 + 1, np.nan, 2], [0.1, np.nan, 0.5], [True, False, True]) == [1, 0, 2]


def test_places_where_the_cost_fails_lie_between_optima():
    assert numbers([0, 0], [0.1, 0.9], between=lambda points: np.full(len(points), np.inf)) == [1, 2]


def test_the_share_that_was_missed_is_boender_and_rinnooy_kans():
    assert missed_share(100, 1) == pytest.approx(2 / 9900)
    assert missed_share(20, 4) == pytest.approx(20 / 380)
    assert missed_share(2, 2) == missed_share(1, 1) == 1.0
    assert np.isnan(missed_share(0, 0))


def test_the_share_that_was_missed_is_right_on_average():
    """Of problems with up to 40 optima, shares drawn evenly: those in which 50 starts came to three of them."""
    rng = np.random.default_rng(1)
    n, w, missed = 50, 3, []
    for k in range(1, 41):
        shares = rng.dirichlet(np.ones(k), 1500)
        found = rng.multinomial(n, shares) > 0
        like = found.sum(axis=1) == w
        missed += (shares * ~found).sum(axis=1)[like].tolist()
    assert len(missed) > 1000
    assert np.mean(missed) == pytest.approx(missed_share(n, w), rel=0.1)
