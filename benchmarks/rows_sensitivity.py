"""The rows of sensitivities: the Jacobian of the HIV cost as sensFun gives it, all subsets of collin."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks import hiv
from benchmarks.rows import Row, at_most, differences, r_fme
from benchmarks.timing import side_by_side
from fmepy.sensitivity import collin, sensFun

__all__ = ["ROWS"]


def sensitivities_of_a_cost() -> Row:
    """Return what the sensitivities of the HIV cost to six parameters take; the Jacobian alone is the goal."""
    cost, bare, plain = hiv.cost(hiv.model()), hiv.bare_solve(), hiv.plain_residuals()
    theta = np.array(list(hiv.TRUTH.values()))
    bound = cost.bind(list(hiv.TRUTH))
    found = sensFun(cost, weighted=True, parscale=1)
    assert found.method == "exact"
    J = bound.jacobian(theta)
    order = np.argsort([found.var.index(name) for name in bound.names], kind="stable")
    np.testing.assert_allclose(found.matrix, J[order], rtol=1e-12)
    size = np.abs(J).max(axis=0)
    sharp = differences(hiv.plain_residuals(tolerance=1e-11), theta, 1e-4)
    np.testing.assert_allclose(J / size, sharp / size, atol=1e-3)
    ours, peer, jacobian, solve = side_by_side(
        lambda: sensFun(cost),
        lambda: differences(plain, theta, 1e-3),
        lambda: bound.jacobian(theta),
        lambda: bare(theta),
    )
    goals = [
        at_most(jacobian / solve, 8, "its Jacobian {:.2f} bare solves"),
        (f"binding, scales and table bring it to {ours / solve:.1f}", True),
    ]
    return Row(
        "sensFun of the HIV cost, 6 parameters",
        ours,
        "odeint by hand, central differences",
        peer,
        goals,
        r_fme("sensFun_hiv_cost_R_function"),
    )


def all_subsets() -> Row:
    """Collinearity of all 32,752 subsets of 15 parameters."""
    S = np.random.default_rng(0).normal(size=(51, 15))
    s = S / np.linalg.norm(S, axis=0)
    gram = s.T @ s

    def one_by_one() -> np.ndarray:
        out = [
            1 / np.sqrt(np.linalg.eigvalsh(gram[np.ix_(members, members)])[0])
            for n in range(2, 16)
            for members in combinations(range(15), n)
        ]
        return np.array(out)

    found = collin(S, maxcomb=10_000)
    assert len(found) == 32752
    np.testing.assert_allclose(found["collinearity"], one_by_one(), rtol=1e-10)
    ours, peer = side_by_side(lambda: collin(S, maxcomb=10_000), one_by_one, rounds=5)
    goals = [at_most(ours, 0.2, "{:.3f} s")]
    work = "collin, all 32,752 subsets of 15"
    return Row(work, ours, "numpy's eigvalsh, one by one", peer, goals, r_fme("collin_32752_sets_of_15"))


ROWS: list[Callable[[], Any]] = [sensitivities_of_a_cost, all_subsets]
