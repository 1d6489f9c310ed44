"""The rows of steady states and transport: a sediment of three species, a plume of 500 boxes in time."""

from __future__ import annotations

import numpy as np
from scipy.integrate import odeint

import fmepy as fme
from benchmarks import hiv
from benchmarks.row import Goal, Row, at_least, at_most, within
from benchmarks.timing import side_by_side

GRID = fme.Grid1D(np.linspace(0, 10, 101))
NAMES = ["D", "r", "ks", "nit", "den"]
PARMS = dict(D=1.0, r=20.0, ks=5.0, nit=2.0, den=10.0)


def sediment_on(grid):
    """Return the model of a sediment in these cells."""

    def sediment(t, O2, NO3, NH3, *, D=1.0, r=20.0, ks=5.0, nit=2.0, den=10.0):
        """Return the rates of oxygen, nitrate and ammonium where organic matter decays."""
        decay, oxic = r * np.exp(-grid.mid / 2), O2 / (O2 + ks)
        aerobic, reduced, nitrified = decay * oxic, decay * (1 - oxic) * NO3 / (NO3 + den), nit * NH3 * oxic
        flow = [fme.transport_1d(C, grid, D=D, v=0.05, up=top) for C, top in ((O2, 300.0), (NO3, 20.0), (NH3, 1.0))]
        rates = (
            flow[0].rate - aerobic - 2 * nitrified,
            flow[1].rate - 0.8 * reduced + nitrified,
            flow[2].rate + 0.15 * (aerobic + reduced) - nitrified,
        )
        return rates, {"UpFlux": flow[0].flux[0]}

    return sediment


sediment = sediment_on(GRID)


def by_hand(theta: np.ndarray) -> np.ndarray:
    """Return the steady profiles as a user would find them with scipy alone: running on with a band."""
    p = dict(zip(NAMES, theta.tolist(), strict=True))

    def rates(t: float, z: np.ndarray) -> np.ndarray:
        return np.stack(sediment(t, *z.reshape(100, 3).T, **p)[0], axis=1).ravel()

    start = np.tile([100.0, 10.0, 10.0], 100)
    return np.asarray(odeint(rates, start, [0, 1e4], tfirst=True, ml=5, mu=5, rtol=1e-8, atol=1e-8, mxstep=10**5)[-1])


def steady_sediment() -> Row:
    """Return what a steady profile of 100 boxes and 3 species takes: warm, cold, with its Jacobian."""
    state = {"O2": 100.0, "NO3": 10.0, "NH3": 10.0}
    model = fme.SteadyModel(sediment, state=state, grid=GRID, positive=True)
    bound, far = model.bind(NAMES), model.replace(start="given").bind(NAMES)
    near = np.array([PARMS[k] for k in NAMES]) * 1.05
    turn = [near * (1 + 1e-9 * k) for k in range(64)]  # never the last one asked for
    count = iter(range(10**9))

    def next_theta() -> np.ndarray:
        return turn[next(count) % len(turn)]

    peer = by_hand(near).reshape(100, 3)
    np.testing.assert_allclose(bound.simulate(near)[:, :3], peer, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(far.simulate(near), bound.simulate(near), rtol=1e-7)
    plain = hiv.plain_residuals()
    warm, cold, jacobian, by_odeint, hand = side_by_side(
        lambda: bound.simulate(next_theta()),
        lambda: far.simulate(next_theta()),
        lambda: bound.sensitivities(next_theta()),
        lambda: by_hand(next_theta()),
        lambda: plain(hiv.TRUTH),
        rounds=5,
    )
    goals: list[Goal] = [
        within(warm, 2e-3, hand),
        within(cold, 8e-3, hand),
        at_most(jacobian / max(cold, warm), 2, "with its Jacobian to 5 parameters {:.2f} cold runs"),
    ]
    return Row("steady sediment, 100 boxes x 3 species, warm", warm, "odeint by hand, band given, until it rests",
               by_odeint, goals)  # fmt: skip


def transport_in_time() -> Row:
    """Return what a run of 500 boxes takes beside odeint, with and without the band that fmepy finds by itself."""
    n, times = 500, np.linspace(0, 50, 26)
    grid = fme.Grid1D(np.linspace(0, 10, n + 1))

    def rates(t: float, C: np.ndarray, p: dict[str, float]) -> np.ndarray:
        return np.asarray(fme.transport_1d(C, grid, D=p["D"], v=p["v"], up=1.0).rate - p["k"] * C)

    p, start, words = {"D": 0.5, "v": 0.3, "k": 0.05}, np.zeros(n), {"rtol": 1e-6, "atol": 1e-6, "tfirst": True}
    model = fme.OdeModel(rates, state=start, times=times, parms=p, rtol=1e-6, atol=1e-6)
    bound = model.bind()
    theta = bound.theta0

    def plain(**band: int) -> np.ndarray:
        return np.asarray(odeint(rates, start, times, args=(p,), **words, **band))

    np.testing.assert_allclose(bound.simulate(theta), plain(ml=1, mu=1), atol=1e-4)
    ours, banded, full = side_by_side(
        lambda: bound.simulate(theta), lambda: plain(ml=1, mu=1), plain, seconds=0.2, rounds=7
    )
    goals = [
        at_least(full / ours, 8, "without a band {:.1f} times as long"),
        at_least(banded / ours, 1, "with one {:.2f} times as long"),
    ]
    return Row("500 boxes of advection and diffusion in time", ours, "odeint by hand, without a band", full, goals)


def sediment_in_time() -> Row:
    """Return what a year of the sediment takes by profiles beside odeint with its band, and in ten times the cells."""
    times, start = np.arange(0, 366), {"O2": 100.0, "NO3": 10.0, "NH3": 10.0}

    def column(grid: fme.Grid1D) -> fme.OdeModel:
        def rates(t, O2, NO3, NH3, *, D=1.0, r=20.0, ks=5.0, nit=2.0, den=10.0):
            return sediment_on(grid)(t, O2, NO3, NH3, D=D, r=r, ks=ks, nit=nit, den=den)[0]

        return fme.OdeModel(rates, state=start, grid=grid, times=times)

    def by_odeint() -> np.ndarray:
        def rates(t: float, z: np.ndarray) -> np.ndarray:
            return np.stack(sediment(t, *z.reshape(100, 3).T)[0], axis=1).ravel()

        words = {"tfirst": True, "ml": 5, "mu": 5, "rtol": 1e-6, "atol": 1e-6}
        return np.asarray(odeint(rates, np.tile([100.0, 10.0, 10.0], 100), times, **words))

    model, large_model = (column(g) for g in (GRID, fme.Grid1D(np.linspace(0, 10, 1001))))
    bound, fine = model.bind(NAMES), large_model.bind(NAMES)
    seen = model({"D": 1.2, "r": 25.0, "nit": 3.0}).query("time in (10, 60, 200, 365)").iloc[2::8]
    cost = fme.SimulationCost(model, seen.rename(columns={"x": "depth"}), x=["time", "depth"], weight="mean")
    theta = bound.theta0
    cells = bound.simulate(theta).reshape(366, 3, 100).transpose(0, 2, 1)
    np.testing.assert_allclose(cells.reshape(366, 300), by_odeint(), atol=2e-3)
    ours, slopes, large, fitted, hand = side_by_side(
        lambda: bound.simulate(theta),
        lambda: bound.sensitivities(theta),
        lambda: fine.simulate(theta),
        lambda: fme.modFit(cost, NAMES, lower=0),
        by_odeint,
        rounds=7,
    )
    goals = [
        at_least(hand / ours, 1, "odeint {:.1f} times as long"),
        at_most(1e3 * ours, 30, "{:.1f} ms"),
        at_most(slopes / ours, 4, "with sensitivities to 5 parameters {:.1f} runs"),
        at_most(large / ours, 12, "ten times the cells {:.1f} times as long"),
        at_most(fitted / ours, 300, "a fit {:.0f} runs"),
    ]
    return Row("a year of 3 species in 100 boxes, by profiles", ours, "odeint by hand, band given", hand, goals)


ROWS = [steady_sediment, transport_in_time, sediment_in_time]
