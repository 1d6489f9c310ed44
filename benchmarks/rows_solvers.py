"""Rows beside other solvers, by the time of the processor: CVODE through casadi and with a band, and diffrax.

A peer that is not installed is left out, and the row says so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.integrate import odeint
from scipy.interpolate import CubicSpline

import fmepy as fme
from benchmarks import hiv, rows_stiff
from benchmarks.row import Goal, Row, at_least, at_most, within
from benchmarks.timing import side_by_side
from fmepy.compiled import explicit_runs

RTOL, ATOL = 1e-6, 1e-10


def hires(y: Sequence[Any], k: Sequence[Any]) -> list[Any]:
    """Return the rates of HIRES, of numbers or of whatever else can be added and multiplied."""
    return [
        -k[0] * y[0] + k[1] * y[1] + 8.32 * y[2] + 0.0007,
        k[0] * y[0] - 8.75 * y[1],
        -10.03 * y[2] + k[1] * y[3] + 0.035 * y[4],
        8.32 * y[1] + k[0] * y[2] - 1.12 * y[3],
        -1.745 * y[4] + k[1] * (y[5] + y[6]),
        -k[2] * y[5] * y[7] + k[3] * y[3] + k[0] * y[4] - k[1] * y[5] + k[3] * y[6],
        k[2] * y[5] * y[7] - k[4] * y[6],
        -k[2] * y[5] * y[7] + k[5] * y[6],
    ]


def by_casadi(start: np.ndarray, times: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return ``solve(theta) -> Y`` by CVODES."""
    import casadi  # type: ignore[import-not-found, unused-ignore]

    y, k = casadi.SX.sym("y", 8), casadi.SX.sym("k", 6)
    rates = {"x": y, "p": k, "ode": casadi.vertcat(*hires([y[i] for i in range(8)], [k[i] for i in range(6)]))}
    solve = casadi.integrator("hires", "cvodes", rates, 0, times[1:].tolist(), {"reltol": RTOL, "abstol": ATOL})
    return lambda theta: np.vstack([start, solve(x0=start, p=theta)["xf"].full().T])


def by_diffrax(start: np.ndarray, times: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the same by Kvaerno's method of order 5, compiled by XLA."""
    import diffrax  # type: ignore[import-not-found, unused-ignore]
    import jax  # type: ignore[import-not-found, unused-ignore]

    jax.config.update("jax_enable_x64", True)
    term, rows = diffrax.ODETerm(lambda t, y, k: jax.numpy.stack(hires(y, k))), diffrax.SaveAt(ts=times)
    control = diffrax.PIDController(rtol=RTOL, atol=ATOL)

    @jax.jit
    def solve(theta: Any) -> Any:
        return diffrax.diffeqsolve(
            term, diffrax.Kvaerno5(), 0.0, times[-1], 1e-4, start, theta, saveat=rows, stepsize_controller=control,
            max_steps=100_000,
        ).ys  # fmt: skip

    return lambda theta: np.asarray(solve(theta))


def solver_hires() -> Row:
    """Return the row of HIRES beside casadi and diffrax."""
    model, _, _ = rows_stiff.models()["HIRES (8)"]
    bound, start = model.bind(), np.array([float(v) for v in model.definition.initial])
    theta = bound.theta0
    exact = model.replace(rtol=1e-11, atol=1e-14).bind().simulate(theta)
    calls: dict[str, Callable[[], Any]] = {"fmepy": lambda: bound.simulate(theta)}
    ours = rows_stiff.error_of(calls["fmepy"](), exact)
    goals: list[Goal] = [(f"error {ours:.1e}", True)]
    for name, make in {"casadi's CVODES": by_casadi, "diffrax's Kvaerno5": by_diffrax}.items():
        try:
            solve = make(start, model.times)
        except ImportError as error:
            goals.append((f"{name}: {error.name} is not installed", True))
            continue
        theirs = rows_stiff.error_of(solve(theta), exact)
        calls[name] = lambda solve=solve: solve(theta)
        goals.append((f"{name}: error {theirs:.1e}", theirs < 1e-2))
    took = dict(zip(calls, side_by_side(*calls.values(), rounds=7, clock=time.process_time), strict=True))
    one = took.pop("fmepy")
    goals += [at_most(one / seconds, 0.8, f"{{:.3f}} of {name}") for name, seconds in took.items()]
    name = min(took, key=lambda name: took[name], default="no other solver is installed")
    return Row("a run of HIRES, rtol 1e-6", one, name, took.get(name, np.nan), goals)


def fisher(cells: int) -> tuple[fme.OdeModel, Callable[..., np.ndarray], np.ndarray]:
    """Return Fisher's equation on a grid, its rates, and its start."""

    def rates(t: float, y: np.ndarray, p: dict[str, float]) -> np.ndarray:
        around = np.concatenate([y[:1], y, y[-1:]])
        return p["D"] * cells**2 * np.diff(np.diff(around)) + p["r"] * y * (1 - y)

    x = (np.arange(cells) + 0.5) / cells
    start = np.exp(-(((x - 0.5) / 0.05) ** 2))
    given = {"state": start, "parms": {"D": 1e-3, "r": 1.0}, "times": np.linspace(0, 10, 11)}
    return fme.OdeModel(rates, rtol=RTOL, atol=1e-8, **given), rates, start


def _fisher_row(cells: int) -> Callable[[], Row]:
    def solver_fisher() -> Row:
        """Return the row beside CVODE with a band, which gets rates in numpy, and scipy's LSODA with one."""
        before = time.process_time()
        model, rates, start = fisher(cells)
        bound = model.bind()
        Y = bound.simulate(bound.theta0)
        first = time.process_time() - before
        lsoda = model.replace(engine="scipy").bind()
        exact = model.replace(engine="scipy", rtol=1e-10, atol=1e-12).bind().simulate(bound.theta0)
        ours = rows_stiff.error_of(Y, exact)
        slopes = model.bind(["D", "r"])
        assert bound.engine == "compiled"
        calls: list[Callable[[], Any]] = [
            lambda: bound.simulate(bound.theta0), lambda: lsoda.simulate(bound.theta0),
            lambda: slopes.sensitivities(bound.theta0),
        ]  # fmt: skip
        goals: list[Goal] = [(f"error {ours:.1e}", True), at_most(first, 1, "first run, tracing included: {:.2f} s")]
        work, name = f"a run of Fisher's equation, {cells:,} cells", "CVODE, banded (scikit-sundae)"
        try:
            from sksundae.cvode import CVODE  # type: ignore[import-not-found, unused-ignore]
        except ImportError:
            one, banded, two = side_by_side(*calls, rounds=5, clock=time.process_time)
            goals += [
                (f"{one / banded:.2f} of scipy's banded LSODA", True),
                (f"2 sensitivities {two / one:.1f} runs", True),
            ]
            return Row(work, one, f"{name} is not installed", goals=goals)

        def fill(t: float, y: np.ndarray, out: np.ndarray) -> None:
            out[:] = rates(t, y, {"D": 1e-3, "r": 1.0})

        solver = CVODE(fill, rtol=RTOL, atol=1e-8, linsolver="band", lband=1, uband=1, max_num_steps=100_000)
        theirs = rows_stiff.error_of(np.asarray(solver.solve(model.times, start).y), exact)
        calls.append(lambda: solver.solve(model.times, start))
        one, banded, two, seconds = side_by_side(*calls, rounds=5, clock=time.process_time)
        goals += [
            at_most(one / seconds, 0.7, "{:.2f} of CVODE, banded"),
            (f"whose error is {theirs:.1e}; goal no smaller", ours <= theirs),
            (f"{one / banded:.2f} of scipy's banded LSODA", True),
            (f"2 sensitivities in {two / one:.1f} runs", True),
        ]
        return Row(work, one, name, seconds, goals)

    solver_fisher.__name__ = f"solver_fisher_{cells}"
    return solver_fisher


def one_run() -> Row:
    """Return the row of a run where one is asked for, beside one of many that are asked for at once."""

    def rates(t: float, x: float, y: float, *, a: float = 1.0, b: float = 0.1, c: float = 1.5, d: float = 0.075) -> Any:
        return a * x - b * x * y, d * x * y - c * y

    model = fme.OdeModel(rates, state={"x": 10, "y": 5}, times=np.linspace(0, 15, 31))
    bound, plain = model.bind(), hiv.plain_residuals()
    theta, many = bound.theta0, np.tile(bound.theta0, (100, 1))
    np.testing.assert_allclose(bound.simulate_many(many)[0][7], bound.simulate(theta))
    with patch.object(explicit_runs, "_WORTH_LANES", np.inf):  # those of many go one by one, too
        one, hundred, hand = side_by_side(
            lambda: bound.simulate(theta), lambda: bound.simulate_many(many), lambda: plain(hiv.TRUTH)
        )
    goals = [within(one, 25e-6, hand), at_most(one / (hundred / 100), 1.3, "{:.2f} of a run of many")]
    return Row("one run where one is asked for, Lotka-Volterra", one, "a run of a hundred", hundred / 100, goals)


def logarithms() -> Row:
    """Return the row of a run whose rates take the logarithms of their parameters."""

    def rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741    # the letters of the model
        return hiv.rates(t, T, I, V, bet=10**bet, rho=10**rho, delt=10**delt, c=10**c, lam=10**lam, n=10**n)

    plain = hiv.model()
    starts = {"T": 100, "I": "(-200750 + 10**c * 50000) / (10**n * 10**delt)", "V": 50000}
    parms = {name: float(np.log10(value)) for name, value in hiv.TRUTH.items()}
    model = plain.replace(rhs=rates, state=starts, parms=parms)
    ours, theirs = model.bind(), plain.bind()
    np.testing.assert_allclose(ours.simulate(ours.theta0), theirs.simulate(theirs.theta0), rtol=1e-5)
    one, peer = side_by_side(lambda: ours.simulate(ours.theta0), lambda: theirs.simulate(theirs.theta0))
    goals = [at_most(one / peer, 1.2, "{:.2f} times that")]
    return Row("one run of HIV, parameters as 10**p in the rates", one, "the parameters themselves", peer, goals)


def interpolants() -> Row:
    """Return the row of ten years of a function that looks up daily rain and the warmth of the year, beside odeint."""
    days = np.arange(3651.0)
    rain = np.maximum(np.random.default_rng(1).normal(0.0, 4.0, days.size), 0.0)
    warmth = CubicSpline(days[:366:73], 10 + 8 * np.cos(2 * np.pi * days[:366:73] / 365), bc_type="periodic")

    def store(t: float, S: float, *, k: float = 0.05, e: float = 0.1) -> Any:
        return np.interp(t, days, rain) - k * S - e * warmth(t % 365) * S / (50 + S)

    words: dict[str, Any] = {"state": {"S": 20.0}, "times": days[::10]}
    ours = fme.OdeModel(store, **words)
    given = fme.OdeModel(
        lambda t, S, *, k=0.05, e=0.1, rain=0.0, warmth=0.0: rain - k * S - e * warmth * S / (50 + S),
        **words, forcings={"rain": (days, rain), "warmth": (days, warmth(days))},
    )  # fmt: skip

    def by_odeint() -> np.ndarray:
        return np.asarray(
            odeint(lambda t, y: store(t, y[0]), 20.0, days[::10], tfirst=True, rtol=1e-6, atol=1e-6, hmax=1)
        )

    np.testing.assert_allclose(ours()["S"], by_odeint()[:, 0], rtol=1e-3)
    bound, forced = ours.bind(), given.bind()
    one, peer, series = side_by_side(
        lambda: bound.simulate(bound.theta0), by_odeint, lambda: forced.simulate(forced.theta0), rounds=3
    )
    goals = [at_least(peer / one, 50, "{:.0f} x"), at_most(one / series, 1.5, "{:.2f} of a run with them as forcings")]
    work = "ten years of daily rain and a spline of the year, looked up in the function"
    return Row(work, one, "odeint by hand", peer, goals)


def with_a_switch() -> Row:
    """Return the row of a run through eight crossings of a switch, beside one of the same rates without it."""
    given = {"state": {"x": 10, "y": 5}, "times": np.linspace(0, 20, 41), "parms": {"a": 1.0, "b": 0.1, "c": 1.5}}
    smooth = fme.OdeModel("dx/dt = a * x - b * x * y\ndy/dt = b * x * y - c * y", **given)
    bent = fme.OdeModel("dx/dt = a * x - b * x * max(y, 3)\ndy/dt = b * x * y - c * y", **given)
    ours, theirs = bent.bind(), smooth.bind()
    many = np.tile(ours.theta0, (100, 1))
    np.testing.assert_allclose(ours.simulate_many(many)[0][7], ours.simulate(ours.theta0))
    one, hundred, peer = side_by_side(
        lambda: ours.simulate(ours.theta0), lambda: ours.simulate_many(many), lambda: theirs.simulate(theirs.theta0)
    )
    goals = [
        at_most(one / peer, 2, "{:.2f} times that"),
        at_most(hundred / 100 / peer, 1.5, "{:.2f} where it is one of many"),
    ]
    return Row("one run with a switch, Lotka-Volterra", one, "without it", peer, goals)


def web(n: int, seed: int) -> fme.OdeModel:
    """Return a model of n states that nobody has compiled: a ring of species that also feed on others."""
    rng = np.random.default_rng(seed)
    eaten, speed, start = rng.integers(n, size=n), rng.uniform(size=n), rng.uniform(size=n)
    lines = [
        f"d(s{i})/dt = k{i} * s{i - 1 if i else n - 1} - (k{(i + 1) % n} + 0.5) * s{i} "
        f"+ {speed[i]} * s{j} * s{i} / (1 + s{j})"
        for i, j in enumerate(eaten.tolist())
    ]  # fmt: skip
    parms = {f"k{i}": float(k) for i, k in enumerate(rng.uniform(size=n))}
    state = {f"s{i}": float(x) for i, x in enumerate(start)}
    return fme.OdeModel("\n".join(lines), state=state, parms=parms, times=np.linspace(0, 5, 11))


def _new_model_row(n: int, goal: float) -> Callable[[], Row]:
    def new_model() -> Row:
        """Return the row of a new model's first run, text and all, where other models have run before."""
        plain, seeds = hiv.plain_residuals(), itertools.count()

        def first_run() -> None:
            bound = web(n, next(seeds)).bind()
            assert np.isfinite(bound.simulate(bound.theta0)).all()

        took, hand = side_by_side(first_run, lambda: plain(hiv.TRUTH), rounds=5)
        return Row(f"first run of a new model of {n} states", took, "-", goals=[within(took, goal, hand)])

    new_model.__name__ = f"new_model_{n}"
    return new_model


ROWS = [
    one_run,
    logarithms,
    interpolants,
    with_a_switch,
    _new_model_row(10, 30e-3),
    _new_model_row(50, 100e-3),
    solver_hires,
    _fisher_row(1000),
    _fisher_row(10_000),
]
