"""The rows of costs and fits: each asserts its answer, then times it beside its peers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import fmepy as fme
from benchmarks import hiv, lsoda
from benchmarks.row import Row, at_least, at_most, r_fme, within
from benchmarks.timing import side_by_side

MONOD = pd.read_csv(hiv.DATA / "monod.csv")


def somewhere_near(theta: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a function that gives another point near `theta` at each call: nobody may answer from memory."""
    points = theta * (1 + 0.01 * np.random.default_rng(1).standard_normal((64, len(theta))))
    endless: Iterator[np.ndarray] = itertools.cycle(points)
    return lambda: next(endless)


def prepared_cost() -> Row:
    """One evaluation as a chain sees it, beside the limit and beside what a user would write."""
    cost, theta = hiv.cost(hiv.model()), np.array(list(hiv.TRUTH.values()))
    bound, plain = cost.bind(list(hiv.TRUTH)), hiv.plain_residuals()
    assert abs(cost().model - 47.55) < 0.01, cost().model
    np.testing.assert_allclose(bound.residuals(theta), plain(hiv.TRUTH), atol=2e-3)
    point = somewhere_near(theta)
    work, r = "one prepared cost, HIV, as a chain sees it", r_fme("cost_hiv_R_function")

    def by_hand() -> np.ndarray:
        return plain(dict(zip(hiv.TRUTH, point(), strict=True)))

    try:
        limit = lsoda.residuals()
    except ImportError:
        ours, hand = side_by_side(lambda: bound.residuals(point()), by_hand)
        goals = [("LSODA in C is not installed (extra `bench`)", False)]
        return Row(work, ours, "odeint by hand", hand, goals, r)
    np.testing.assert_allclose(limit(theta), plain(hiv.TRUTH), atol=1e-5)
    ours, peer, hand = side_by_side(lambda: bound.residuals(point()), lambda: limit(point()), by_hand)
    goals = [
        at_most(ours / peer, 1.25, "{:.2f} times LSODA in C"),
        at_least(hand / ours, 15, "{:.1f} times the speed of odeint by hand"),
    ]
    return Row(work, ours, "LSODA in C, rates behind a function pointer", peer, goals, r)


def exact_jacobian() -> Row:
    """Residuals and their exact Jacobian at a point, as something that asks often sees them."""
    bound = hiv.cost(hiv.model()).bind(list(hiv.TRUTH))
    theta, plain = np.array(list(hiv.TRUTH.values())), hiv.plain_residuals()
    assert bound.has_jacobian
    scale = np.abs(bound.jacobian(theta)).max(axis=0)
    sharp = hiv.differences(hiv.plain_residuals(tolerance=1e-11), theta, 1e-4)
    np.testing.assert_allclose(bound.jacobian(theta) / scale, sharp / scale, atol=1e-3)
    point = somewhere_near(theta)

    def both() -> Any:
        x = point()
        return bound.residuals(x), bound.jacobian(x)

    def by_differences() -> Any:
        x = point()
        return plain(dict(zip(hiv.TRUTH, x, strict=True))), hiv.differences(plain, x, 1e-3)

    ours, peer, run = side_by_side(both, by_differences, lambda: bound.residuals(point()))
    goals = [at_most(ours / run, 3.5, "{:.2f} runs")]
    peer_name = "odeint by hand, central differences"
    return Row("residuals and exact Jacobian, HIV, 6 parameters", ours, peer_name, peer, goals)


def fit_hiv() -> Row:
    """Five parameters from twice the truth, on the log scale."""
    model, plain = hiv.model(), hiv.plain_residuals()
    cost = fme.transformed(hiv.cost(model), "log")
    start = np.log(2 * model.parms[hiv.FITTED])
    fit = fme.modFit(cost, start)
    assert abs(fit.ssr - 44.627) < 0.005, fit.ssr

    def by_hand(p: dict[str, float]) -> np.ndarray:
        return plain({name: float(np.exp(value)) for name, value in p.items()})

    ours, peer, hand = side_by_side(
        lambda: fme.modFit(cost, start), lambda: fme.modFit(by_hand, dict(start)), lambda: plain(hiv.TRUTH), rounds=9
    )
    goals = [within(ours, 0.015, hand), (f"ssr {fit.ssr:.3f}, the optimum is 44.627", True)]
    work = "modFit HIV, 5 parameters from twice the truth"
    return Row(work, ours, "modFit of odeint by hand", peer, goals, r_fme("modFit_hiv_R_function_Marq"))


def fit_subjects() -> Row:
    """Twelve subjects at once, three parameters each, beside twelve fits by hand."""
    from scipy.integrate import odeint
    from scipy.optimize import least_squares

    theo = fme.datasets.load("Theoph")
    doses = theo.groupby("Subject").first().eval("dose = Dose * Wt")[["dose"]]

    def oral(t: Any, gut: Any, central: Any, *, dose: float = 320.0, ka: float = 1.5, ke: float = 0.08) -> Any:
        return -ka * gut, ka * gut - ke * central

    state, outputs, parms = {"gut": "dose", "central": 0}, {"conc": "central / V"}, {"V": 30.0}
    model = fme.OdeModel(oral, state=state, times=np.linspace(0, 25, 101), outputs=outputs, parms=parms)
    data = theo[["Subject", "Time", "conc"]]
    local = ["ka", "ke", "V"]
    cost = fme.SimulationCost(model, data, x="Time", entity="Subject", conditions=doses, entity_parms=local)

    def ours() -> Any:
        return fme.modFit(cost, lower=0)

    def by_hand() -> float:
        total = 0.0
        for label, part in theo.groupby("Subject"):
            t, conc, start = part["Time"].to_numpy(), part["conc"].to_numpy(), [doses["dose"][label], 0.0]

            def residuals(p: np.ndarray, t: Any = t, conc: Any = conc, start: Any = start) -> np.ndarray:
                path = odeint(lambda y, _: [-p[0] * y[0], p[0] * y[0] - p[1] * y[1]], start, t, rtol=1e-6, atol=1e-6)
                return path[:, 1] / p[2] - conc

            total += 2 * least_squares(residuals, [1.5, 0.08, 30.0], x_scale=[1.5, 0.08, 30.0]).cost
        return total

    fit, plain = ours(), hiv.plain_residuals()
    assert abs(fit.ssr - 47.0658) < 0.001, fit.ssr
    assert abs(by_hand() - 47.0658) < 0.001
    seconds, peer, hand = side_by_side(ours, by_hand, lambda: plain(hiv.TRUTH), rounds=5)
    work = "twelve subjects, 36 parameters, fitted at once (theophylline)"
    return Row(work, seconds, "twelve fits of least_squares with odeint by hand", peer, [within(seconds, 0.5, hand)])


def profiles_hiv() -> Row:
    """Profile five parameters on the log scale, both sides, beside lmfit's limits of the same by odeint."""
    import lmfit

    model, plain = hiv.model(), hiv.plain_residuals()
    cost = fme.transformed(hiv.cost(model), "log")
    fit = fme.modFit(cost, np.log(2 * model.parms[hiv.FITTED]))
    prof = fme.profile(cost, fit)

    def by_hand(q: Any) -> np.ndarray:
        return plain({name: float(np.exp(q[name].value)) for name in hiv.FITTED})

    def by_lmfit() -> Any:
        start = lmfit.create_params(**fit.par.to_dict())
        mini = lmfit.Minimizer(by_hand, start)
        return lmfit.conf_interval(mini, mini.leastsq(epsfcn=1e-8), sigmas=[0.95])

    began = time.thread_time()
    found = by_lmfit()  # long enough to be timed by one call
    peer = time.thread_time() - began
    limits = pd.DataFrame({n: [v for _, v in ends] for n, ends in found.items()}).T[[0, 2]]
    np.testing.assert_allclose(prof.intervals[["lower", "upper"]], limits, atol=1e-2)
    ours, hand = side_by_side(lambda: fme.profile(cost, fit), lambda: plain(hiv.TRUTH), rounds=5)
    goals = [
        within(ours, 1.0, hand),
        at_least(peer / ours, 5, "{:.1f} times the speed of lmfit.conf_interval"),
        (f"{len(prof)} places, limits as lmfit's within 0.01", True),
    ]
    return Row("profiles of five HIV parameters", ours, "lmfit.conf_interval, odeint by hand", peer, goals)


def fit_monod() -> Row:
    """Fit a trivial function: two parameters, seven points."""
    import lmfit

    x, y = MONOD["x"].to_numpy(float), MONOD["y"].to_numpy(float)

    def residuals(p: Any) -> np.ndarray:
        return p[0] * x / (x + p[1]) - y

    start = lmfit.create_params(p1=0.1, p2=1.0)

    def by_lmfit() -> Any:
        return lmfit.minimize(lambda q: q["p1"].value * x / (x + q["p2"].value) - y, start)

    fit = fme.modFit(residuals, [0.1, 1])
    np.testing.assert_allclose(fit.par, [0.14542, 49.0529], rtol=1e-4)
    ours, bare, peer = side_by_side(
        lambda: fme.modFit(residuals, [0.1, 1]), lambda: fme.modFit(residuals, [0.1, 1], hessian=False), by_lmfit
    )
    goals = [
        at_most(ours / peer, 1.5, "{:.2f} times lmfit.minimize"),
        at_most(bare / peer, 1, "{:.2f} times with hessian=False"),
    ]
    return Row("modFit Monod, 7 points", ours, "lmfit.minimize", peer, goals, r_fme("modFit_monod_Marq"))


def mod_cost() -> Row:
    """Hold a run that is there against data with FME's function, one table."""
    return _mod_cost(chained=False)


def mod_cost_chained() -> Row:
    """Hold a run that is there against data with FME's function, two tables chained."""
    return _mod_cost(chained=True)


def _mod_cost(chained: bool) -> Row:
    """Hold tables against a run with FME's function, and with numpy.interp by hand."""
    run, plain = hiv.model()(), hiv.plain_residuals()
    tables = [(hiv.OBS_LOG_V, "logV"), (hiv.OBS_T, "T")][: 2 if chained else 1]

    def ours() -> float:
        cost = None
        for obs, _ in tables:
            cost = fme.modCost(run, obs, err="sd", cost=cost)
        return cost.model if cost is not None else 0.0

    def by_hand() -> float:
        total = 0.0
        for obs, name in tables:
            mod = np.interp(obs["time"].to_numpy(), run["time"].to_numpy(), run[name].to_numpy())
            total += float(np.sum(((mod - obs[name].to_numpy()) / obs["sd"].to_numpy()) ** 2))
        return total

    np.testing.assert_allclose(ours(), by_hand(), rtol=1e-10)
    seconds, peer, hand = side_by_side(ours, by_hand, lambda: plain(hiv.TRUTH))
    work = f"modCost, {'two tables chained' if chained else 'one table'}, HIV"
    return Row(work, seconds, "numpy.interp by hand", peer, [within(seconds, 1e-3 if chained else 0.5e-3, hand)])


def fit_many_subjects() -> Row:
    """Bind a cost of 1,000 subjects with a parameter each and fit it, beside 100 of them."""
    model = fme.OdeModel(
        "d(gut)/dt = -ka*gut\nd(central)/dt = ka*gut/V - ke*central", state={"gut": 10.0, "central": 0.0},
        times=np.linspace(0, 12, 25), parms={"ka": 1.2, "ke": 0.12, "V": 1.7},
    )  # fmt: skip

    def data(n: int) -> pd.DataFrame:
        rng = np.random.default_rng(1)
        t, ka = np.tile(np.linspace(0.5, 12, 10), n), np.repeat(np.exp(rng.normal(0.3, 0.3, n)), 10)
        y = 5 * ka / (ka - 0.15) * (np.exp(-0.15 * t) - np.exp(-ka * t)) + 0.1 * rng.normal(size=t.size)
        return pd.DataFrame({"subject": np.repeat(np.arange(n), 10), "time": t, "central": y})

    def fitted(table: pd.DataFrame) -> Any:
        return fme.modFit(fme.SimulationCost(model, table, entity="subject", entity_parms=["ka"]))

    few, many = data(100), data(1000)
    fit = fitted(many)
    assert fit.converged
    assert abs(fit.par["V"] - 2) < 4 * fit.std_error["V"], fit.par["V"]
    ours, tenth = side_by_side(lambda: fitted(many), lambda: fitted(few), rounds=3)
    goals = [at_most(ours, 0.5, "{:.2f} s"), at_most(ours / tenth, 15, "{:.1f} times 100 subjects")]
    return Row("cost and fit of 1,000 subjects, one parameter each", ours, "100 subjects", tenth, goals)


ROWS = [
    prepared_cost, exact_jacobian, mod_cost, mod_cost_chained, fit_hiv, fit_subjects, fit_many_subjects, profiles_hiv,
    fit_monod,
]  # fmt: skip
