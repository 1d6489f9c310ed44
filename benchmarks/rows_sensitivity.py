"""The rows of sensitivities: those of the HIV cost as sensFun gives them, all subsets of collin."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from benchmarks import hiv
from benchmarks.row import Row, at_least, at_most, r_fme, within
from benchmarks.timing import side_by_side
from fmepy import OdeModel, SimulationCost
from fmepy.sensitivity import collin, sensFun


def sensitivities_of_a_cost() -> Row:
    """Return what the sensitivities of the HIV cost to six parameters take, from binding to the table."""
    cost, plain = hiv.cost(hiv.model()), hiv.plain_residuals()
    theta = np.array(list(hiv.TRUTH.values()))
    bound = cost.bind(list(hiv.TRUTH))
    found = sensFun(cost, weighted=True, parscale=1)
    assert found.method == "exact"
    J = bound.jacobian(theta)
    order = np.argsort([found.var.index(name) for name in bound.names], kind="stable")
    np.testing.assert_allclose(found.matrix, J[order], rtol=1e-12)
    size = np.abs(J).max(axis=0)
    sharp = hiv.differences(hiv.plain_residuals(tolerance=1e-11), theta, 1e-4)
    np.testing.assert_allclose(J / size, sharp / size, atol=1e-3)
    ours, peer, jacobian, run = side_by_side(
        lambda: sensFun(cost),
        lambda: hiv.differences(plain, theta, 1e-3),
        lambda: bound.jacobian(theta),
        lambda: bound.residuals(theta),
    )
    goals = [
        at_most(jacobian / run, 5, "its Jacobian {:.2f} runs"),
        at_most(ours / jacobian, 3, "with binding, scales and the values {:.1f} Jacobians"),
    ]
    peer_name = "odeint by hand, central differences"
    work = "sensFun of the HIV cost, 6 parameters"
    return Row(work, ours, peer_name, peer, goals, r_fme("sensFun_hiv_cost_R_function"))


def all_subsets() -> Row:
    """Collinearity of all 32,752 subsets of 15 parameters."""
    S = np.random.default_rng(0).normal(size=(51, 15))
    s = S / np.linalg.norm(S, axis=0)
    gram, plain = s.T @ s, hiv.plain_residuals()

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
    ours, peer, hand = side_by_side(lambda: collin(S, maxcomb=10_000), one_by_one, lambda: plain(hiv.TRUTH), rounds=5)
    goals = [within(ours, 0.08, hand)]  # 0.06 s when it was written down; a third for chance
    work = "collin, all 32,752 subsets of 15"
    return Row(work, ours, "numpy's eigvalsh, one by one", peer, goals, r_fme("collin_32752_sets_of_15"))


def network(n: int, n_params: int) -> OdeModel:
    """Return a network of n species and fluxes between them."""
    rng, parms = np.random.default_rng(0), dict[str, float]()
    rates: list[list[str]] = [[] for _ in range(n)]
    for k in range(n_params):
        i, j = rng.choice(n, 2, replace=False)
        parms[f"k{k}"] = float(10 ** rng.uniform(-1, 0.5))
        other = int(rng.integers(n))
        flux = f"k{k}*x{i}" if k % 3 else f"k{k}*x{i}*x{other}/(1 + x{other})"
        rates[i].append(f"- {flux}")
        rates[j].append(f"+ {flux}")
    text = "\n".join(f"d(x{i})/dt = {' '.join(own) or 0}" for i, own in enumerate(rates))
    state = {f"x{i}": 1.0 + i % 3 for i in range(n)}
    return OdeModel(text, state=state, parms=parms, times=np.linspace(0, 20, 41))


def gradient_of_many_parameters() -> Row:
    """Return what the gradient of a cost to 113 parameters takes by one sweep back, beside sensitivities."""
    model = network(25, 113)
    data = model()[["time", "x0", "x3", "x7", "x12"]].iloc[1::4]
    bound = SimulationCost(model, data, weight="mean").bind()
    runs = model.bind()
    theta = bound.theta0 * 1.05
    assert bound.has_pull

    def by_sweep() -> np.ndarray:
        r, pull = bound.with_pull(theta)
        return np.asarray(2 * pull(r))

    def by_sensitivities() -> np.ndarray:
        r, J = bound.with_slopes(theta)
        return np.asarray(2 * r @ J)

    known = by_sensitivities()
    np.testing.assert_allclose(by_sweep(), known, atol=1e-5 * np.abs(known).max())
    ours, peer, run = side_by_side(by_sweep, by_sensitivities, lambda: runs.simulate(theta))
    goals = [at_most(ours / run, 8, "{:.1f} runs"), at_least(peer / ours, 5, "sensitivities {:.1f} times as long")]
    return Row("a gradient to 113 parameters of 25 states", ours, "by sensitivities", peer, goals)


ROWS = [gradient_of_many_parameters, sensitivities_of_a_cost, all_subsets]
