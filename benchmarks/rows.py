"""The rows of the table: each asserts its answer, then times it beside its peers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import fmepy as fme
from benchmarks import hiv
from benchmarks.timing import fresh_process, side_by_side

__all__ = ["ROWS", "Row"]

R_TIMINGS = Path(__file__).parent.parent / "tests" / "reference" / "fme" / "timing.json"
MONOD = pd.read_csv(hiv.DATA / "monod.csv")


@dataclass(frozen=True)
class Row:
    """One kind of work and what it took.

    Attributes
    ----------
    work, peer : str
        What was done, and what else was timed beside it.
    seconds, peer_seconds : float
        Of one call.
    goals : list of (str, bool)
        What it should be, with the figure reached, and whether it is.
    r_seconds : float or None
        What R's FME took, on another machine.
    """

    work: str
    seconds: float
    peer: str
    peer_seconds: float
    goals: list[tuple[str, bool]] = field(default_factory=list)
    r_seconds: float | None = None


@cache
def r_fme(name: str) -> float:
    """Return what R's FME took, seconds."""
    (case,) = json.loads(R_TIMINGS.read_text(encoding="utf-8"))["cases"]
    return float(case["outputs"][name])


def at_most(value: float, goal: float, text: str) -> tuple[str, bool]:
    """Return a goal that `value` should not exceed."""
    return f"{text.format(value)}; goal <= {goal:g}", value <= goal


def at_least(value: float, goal: float, text: str) -> tuple[str, bool]:
    """Return a goal that `value` should reach."""
    return f"{text.format(value)}; goal >= {goal:g}", value >= goal


def somewhere_near(theta: np.ndarray) -> Callable[[], np.ndarray]:
    """Return a function that gives another point near `theta` at each call: nobody may answer from memory."""
    points = theta * (1 + 0.01 * np.random.default_rng(1).standard_normal((64, len(theta))))
    endless: Iterator[np.ndarray] = itertools.cycle(points)
    return lambda: next(endless)


def prepared_cost() -> Row:
    """One evaluation on the default engine."""
    return _prepared_cost("auto")


def prepared_cost_numba() -> Row:
    """One evaluation on the explicit engine."""
    return _prepared_cost("numba")


def _prepared_cost(engine: str) -> Row:
    """One evaluation of a prepared cost: residuals at a point."""
    cost = hiv.cost(hiv.model(engine))
    bound, plain, bare = cost.bind(list(hiv.TRUTH)), hiv.plain_residuals(), hiv.bare_solve()
    peer = hiv.cost(hiv.odeint_model()).bind(list(hiv.TRUTH))
    theta = np.array(list(hiv.TRUTH.values()))
    assert abs(cost().model - 47.55) < 0.01, cost().model
    np.testing.assert_allclose(bound.residuals(theta), plain(hiv.TRUTH), atol=2e-3)
    np.testing.assert_allclose(peer.residuals(theta), plain(hiv.TRUTH), atol=1e-5)
    point = somewhere_near(theta)
    ours, peer_seconds, by_hand, solve = side_by_side(
        lambda: bound.residuals(point()),
        lambda: peer.residuals(point()),
        lambda: plain(dict(zip(hiv.TRUTH, point(), strict=True))),
        lambda: bare(point()),
    )
    goals = [
        at_most(ours / solve, 1.25, "{:.2f} bare solves"),
        at_least(peer_seconds / ours, 5, "{:.1f} times the peer's speed"),
        (f"{by_hand / ours:.1f} times that of odeint by hand", True),
    ]
    return Row(
        "one prepared cost, HIV" + hiv.told(engine),
        ours,
        "the same through odeint",
        peer_seconds,
        goals,
        r_fme("cost_hiv_R_function"),
    )


def differences(residuals: Callable[[dict[str, float]], np.ndarray], x: np.ndarray, step: float) -> np.ndarray:
    """Return the Jacobian by central differences: the best there is without derivatives."""
    columns = []
    for j, h in enumerate(step * np.abs(x)):
        up, down = x.copy(), x.copy()
        up[j] += h
        down[j] -= h
        above, below = (residuals(dict(zip(hiv.TRUTH, p, strict=True))) for p in (up, down))
        columns.append((above - below) / (2 * h))
    return np.column_stack(columns)


def exact_jacobian() -> Row:
    """Return residuals and Jacobian on the default engine."""
    return _exact_jacobian("auto")


def exact_jacobian_numba() -> Row:
    """Return residuals and Jacobian on the explicit engine."""
    return _exact_jacobian("numba")


def _exact_jacobian(engine: str) -> Row:
    """Residuals and their exact Jacobian at a point."""
    bound, bare = hiv.cost(hiv.model(engine)).bind(list(hiv.TRUTH)), hiv.bare_solve()
    theta = np.array(list(hiv.TRUTH.values()))
    assert bound.has_jacobian
    scale = np.abs(bound.jacobian(theta)).max(axis=0)
    sharp = differences(hiv.plain_residuals(tolerance=1e-11), theta, 1e-4)
    np.testing.assert_allclose(bound.jacobian(theta) / scale, sharp / scale, atol=1e-3)
    point = somewhere_near(theta)

    plain = hiv.plain_residuals()

    def both() -> Any:
        x = point()
        return bound.residuals(x), bound.jacobian(x)

    def by_differences() -> Any:
        x = point()
        return plain(dict(zip(hiv.TRUTH, x, strict=True))), differences(plain, x, 1e-3)

    ours, peer_seconds, solve = side_by_side(both, by_differences, lambda: bare(point()))
    goals = [at_most(ours / solve, 8, "{:.2f} bare solves")]
    peer = "odeint by hand, central differences"
    return Row("residuals and exact Jacobian, HIV, 6 parameters" + hiv.told(engine), ours, peer, peer_seconds, goals)


def fit_hiv() -> Row:
    """Five parameters from twice the truth, on the log scale."""
    model, plain = hiv.model(), hiv.plain_residuals()
    cost = fme.transformed(hiv.cost(model), "log")
    start = np.log(2 * model.parms[hiv.FITTED])
    fit = fme.modFit(cost, start)
    assert abs(fit.ssr - 44.627) < 0.005, fit.ssr

    def by_hand(p: dict[str, float]) -> np.ndarray:
        return plain({name: float(np.exp(value)) for name, value in p.items()})

    ours, peer = side_by_side(lambda: fme.modFit(cost, start), lambda: fme.modFit(by_hand, dict(start)), rounds=7)
    goals = [at_most(1e3 * ours, 25, "{:.1f} ms"), (f"ssr {fit.ssr:.3f}, the optimum is 44.627", True)]
    work = "modFit HIV, 5 parameters from twice the truth"
    return Row(work, ours, "modFit of odeint by hand", peer, goals, r_fme("modFit_hiv_R_function_Marq"))


def fit_monod() -> Row:
    """Fit a trivial function: two parameters, seven points."""
    import lmfit

    x, y = MONOD["x"].to_numpy(float), MONOD["y"].to_numpy(float)

    def residuals(p):
        return p[0] * x / (x + p[1]) - y

    start = lmfit.create_params(p1=0.1, p2=1.0)

    def by_lmfit():
        return lmfit.minimize(lambda q: q["p1"].value * x / (x + q["p2"].value) - y, start)

    fit = fme.modFit(residuals, [0.1, 1])
    np.testing.assert_allclose(fit.par, [0.14542, 49.0529], rtol=1e-4)
    ours, peer = side_by_side(lambda: fme.modFit(residuals, [0.1, 1]), by_lmfit)
    goals = [at_most(1e3 * ours, 3, "{:.2f} ms")]
    return Row("modFit Monod, 7 points", ours, "lmfit.minimize", peer, goals, r_fme("modFit_monod_Marq"))


def import_time() -> Row:
    """Import of the package, in a new process."""
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    ours, peer = fresh_process([code.format("fmepy"), code.format("pandas, scipy.optimize")])
    goals = [at_most(ours / peer, 1.3, "{:.2f} times the peer")]
    return Row("import fmepy", ours, "import pandas, scipy.optimize", peer, goals)


def first_run() -> Row:
    """From the definition of a model to its first trajectory, in a new process after the import."""
    code = """
import time
import numpy as np
from benchmarks import hiv
t = time.perf_counter()
model = hiv.model()
out = model()
first = time.perf_counter() - t
assert abs(out["logV"].iloc[0] - 10.8198) < 1e-3
assert model.engine == "diffsol", model.engine_note
t = time.perf_counter()
model()
print({})
"""
    ours, peer = fresh_process([code.format("first"), code.format("time.perf_counter() - t")], rounds=5)
    goals = [at_most(ours, 0.5, "{:.2f} s")]
    return Row("first run of a compiled model, HIV", ours, "its second run", peer, goals)


def mod_cost() -> Row:
    """Hold a run that is there against data with FME's function, one table."""
    return _mod_cost(chained=False)


def mod_cost_chained() -> Row:
    """Hold a run that is there against data with FME's function, two tables chained."""
    return _mod_cost(chained=True)


def _mod_cost(chained: bool) -> Row:
    """Hold tables against a run with FME's function, and with numpy.interp by hand."""
    run = hiv.model()()
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
    seconds, peer = side_by_side(ours, by_hand)
    goal = at_most(1e3 * seconds, 1.0 if chained else 0.5, "{:.2f} ms")
    work = f"modCost, {'two tables chained' if chained else 'one table'}, HIV"
    return Row(work, seconds, "numpy.interp by hand", peer, [goal, (f"{seconds / peer:.1f} times by hand", True)])


ROWS: list[Callable[[], Any]] = [
    prepared_cost,
    prepared_cost_numba,
    mod_cost,
    mod_cost_chained,
    exact_jacobian,
    exact_jacobian_numba,
    fit_hiv,
    fit_monod,
    import_time,
    first_run,
]
