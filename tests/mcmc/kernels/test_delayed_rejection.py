"""Delayed rejection keeps detailed balance at any order, with any proposal densities."""

import itertools
from math import exp, inf, log

import numpy as np
import pytest

from fmepy.mcmc.kernels.delayed_rejection import acceptance, n_terms, second_acceptance

RNG = np.random.default_rng(3)
N_STATE = 4


def tables(order, seed=5):
    """Return densities q_k(x, y1..y_{k-1}; y_k) that depend on the whole path, one table an order."""
    rng = np.random.default_rng(seed)
    out = []
    for k in range(1, order + 1):
        q = rng.random((N_STATE,) * (k + 1)) + 0.05
        out.append(q / q.sum(axis=-1, keepdims=True))
    return out


def alpha(pi, q, states):
    """Call the sampler's function on a path of states."""
    log_pi = [log(pi[s]) if pi[s] > 0 else -np.inf for s in states]

    def log_q(path):
        return log(q[len(path) - 2][tuple(states[i] for i in path)])

    return acceptance(log_pi, log_q)


def flow(pi, q, states):
    """Return the probability of standing at states[0], trying all that follow, and moving to the last."""
    out = pi[states[0]]
    for k in range(1, len(states)):
        a = alpha(pi, q, states[: k + 1])
        out *= q[k - 1][tuple(states[: k + 1])] * (a if k == len(states) - 1 else 1 - a)
    return out


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("pi", [[0.1, 0.2, 0.3, 0.4], [0.7, 0.0, 0.05, 0.25]], ids=["positive", "one state impossible"])
def test_the_flow_along_every_path_equals_the_flow_back(order, pi):
    q = tables(order)
    checked = 0
    for states in itertools.product(range(N_STATE), repeat=order + 1):
        if pi[states[0]] == 0:
            continue
        forwards, backwards = flow(pi, q, states), flow(pi, q, states[::-1]) if pi[states[-1]] else 0.0
        assert forwards == pytest.approx(backwards, rel=1e-12, abs=1e-15), states
        checked += forwards > 0
    assert checked >= 9  # paths that are really gone


@pytest.mark.parametrize("order", [2, 3])
def test_the_whole_kernel_leaves_the_target_as_it_is(order):
    pi, q = np.array([0.1, 0.2, 0.3, 0.4]), tables(order)
    P = np.zeros((N_STATE, N_STATE))
    for n in range(1, order + 1):
        for states in itertools.product(range(N_STATE), repeat=n + 1):
            P[states[0], states[-1]] += flow(pi, q, list(states)) / pi[states[0]]
    P += np.diag(1 - P.sum(axis=1))  # all tries rejected
    assert P.min() >= 0
    np.testing.assert_allclose(pi @ P, pi, rtol=1e-12)
    assert np.trace(P) < N_STATE - 0.5


def test_a_first_order_move_is_metropolis_hastings():
    q = tables(1)
    assert alpha([0.1, 0.2, 0.3, 0.4], q, (3, 0)) == pytest.approx(min(1, 0.1 * q[0][0, 3] / (0.4 * q[0][3, 0])))


def test_a_second_try_follows_mira_by_hand():
    pi, q = [0.1, 0.2, 0.3, 0.4], tables(2)
    between = 0
    for x, y1, y2 in itertools.product(range(N_STATE), repeat=3):
        a1 = min(1, pi[y1] * q[0][y1, x] / (pi[x] * q[0][x, y1]))
        b1 = min(1, pi[y1] * q[0][y1, y2] / (pi[y2] * q[0][y2, y1]))
        if a1 == 1:
            continue
        up = pi[y2] * q[0][y2, y1] * q[1][y2, y1, x] * (1 - b1)
        down = pi[x] * q[0][x, y1] * q[1][x, y1, y2] * (1 - a1)
        assert alpha(pi, q, (x, y1, y2)) == pytest.approx(min(1, up / down), rel=1e-12, abs=1e-15)
        between += 0 < up / down < 1
    assert between >= 3


def test_what_is_known_changes_no_probability():
    log_pi = RNG.normal(size=5).tolist()

    def log_q(path):
        return -0.3 * (log_pi[path[0]] - log_pi[path[-1]]) ** 2 / len(path)

    known = {}
    for n in range(2, 6):
        assert acceptance(log_pi[:n], log_q, None, known) == acceptance(log_pi[:n], log_q)


def test_the_number_of_terms_is_that_of_the_recursion():
    assert [n_terms(n) for n in (1, 2, 3, 4)] == [1, 3, 9, 27]


@pytest.mark.parametrize("tried", [-inf, -3.0, 0.4, 2.0])
def test_the_formula_of_a_second_try_is_the_recursion_where_proposals_are_symmetric(tried):
    for here, last, *at in RNG.normal(size=(20, 5)):
        log_pi = [here, tried, last]

        def log_q(path, at=at):
            return -0.5 * len(path) * (at[path[-1]] - at[path[0]]) ** 2

        first = min(1.0, exp(min(0.0, tried - here)))
        quick = second_acceptance(log_pi, log_q((2, 1)) - log_q((0, 1)), first)
        assert quick == pytest.approx(acceptance(log_pi, log_q), rel=1e-12, abs=1e-15)
