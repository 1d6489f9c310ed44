"""Stiff models: one run and its sensitivities beside LSODA in C, whose rates are machine code too; a large network."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.integrate import odeint

import fmepy as fme
from benchmarks import boehm, hiv, lsoda
from benchmarks.row import Row, at_most, within
from benchmarks.timing import side_by_side

RTOL = 1e-6
ROBERTSON = """
d(A)/dt = -k1 * A + k3 * B * C
d(B)/dt = k1 * A - k3 * B * C - k2 * B**2
d(C)/dt = k2 * B**2"""
HIRES = """
d(y1)/dt = -k1 * y1 + k2 * y2 + 8.32 * y3 + 0.0007
d(y2)/dt = k1 * y1 - 8.75 * y2
d(y3)/dt = -10.03 * y3 + k2 * y4 + 0.035 * y5
d(y4)/dt = 8.32 * y2 + k1 * y3 - 1.12 * y4
d(y5)/dt = -1.745 * y5 + k2 * (y6 + y7)
d(y6)/dt = -k3 * y6 * y8 + k4 * y4 + k1 * y5 - k2 * y6 + k4 * y7
d(y7)/dt = k3 * y6 * y8 - k5 * y7
d(y8)/dt = -k3 * y6 * y8 + k6 * y7"""
_K = [0.35, 26.6, 1.23e4, 8.6e-4, 8.2e-4, 1.5e4, 1.3e-4, 2.4e4, 1.65e4, 9e3, 0.022, 1.2e4, 1.88, 1.63e4, 4.8e6, 3.5e-4,
      0.0175, 1e8, 4.44e11, 1240, 2.1, 5.78, 0.0474, 1780, 3.12]  # fmt: skip
_OF = ["y1", "y2*y4", "y5*y2", "y7", "y7", "y7*y6", "y9", "y9*y6", "y11*y2", "y11*y1", "y13", "y10*y2", "y14", "y1*y6",
       "y3", "y4", "y4", "y16", "y16", "y17*y6", "y19", "y19", "y1*y4", "y19*y1", "y20"]  # fmt: skip
_NET = [
    "-r1-r10-r14-r23-r24+r2+r3+r9+r11+r12+r22+r25", "-r2-r3-r9-r12+r1+r21", "-r15+r1+r17+r19+r22",
    "-r2-r16-r17-r23+r15",
    "-r3+2*r4+r6+r7+r13+r20", "-r6-r8-r14-r20+r3+2*r18", "-r4-r5-r6+r13", "r4+r5+r6+r7", "-r7-r8", "-r12+r7+r9",
    "-r9-r10+r8+r11", "r9", "-r11+r10", "-r13+r12", "r14", "-r18-r19+r16", "-r20", "r20", "-r21-r22-r24+r23+r25",
    "-r25+r24",
]  # fmt: skip
POLLUTION = "\n".join(
    [f"r{i} = k{i} * {e}" for i, e in enumerate(_OF, 1)] + [f"d(y{i})/dt = {e}" for i, e in enumerate(_NET, 1)]
)


def _model(text: str, start: dict[str, float], parms: dict[str, float], times: np.ndarray, atol: float) -> fme.OdeModel:
    return fme.OdeModel(text, state=start, parms=parms, times=times, rtol=RTOL, atol=atol)


def models() -> dict[str, tuple[fme.OdeModel, list[str], float]]:
    """Return each model with the parameters that its sensitivities are asked for, and its absolute tolerance."""
    of_hires = dict(zip(["k1", "k2", "k3", "k4", "k5", "k6"], [1.71, 0.43, 280.0, 0.69, 1.81, 1.81], strict=True))
    none = dict.fromkeys([f"y{i}" for i in range(1, 21)], 0.0)
    of_pollution = {**none, "y2": 0.2, "y4": 0.04, "y7": 0.1, "y8": 0.3, "y9": 0.01, "y17": 0.007}
    eight, dimers = {k: none[k] for k in list(none)[:8]}, boehm.model()
    rates = dict(zip(boehm.RATES, boehm.NOMINAL, strict=True))
    start = dict(zip(dimers.states, map(float, dimers.definition.initial), strict=True))
    times = np.array(boehm.TIMES, dtype=float)
    of_boehm = fme.OdeModel(boehm.dimers, state=start, parms=rates, times=times, rtol=RTOL, atol=1e-6)
    return {
        "Robertson (3 states)": (
            _model(ROBERTSON, {"A": 1, "B": 0, "C": 0}, {"k1": 0.04, "k2": 3e7, "k3": 1e4},
                   np.r_[0, np.logspace(-5, 6, 25)], 1e-12), ["k1", "k2", "k3"], 1e-12),
        "HIRES (8)": (
            _model(HIRES, {**eight, "y1": 1, "y8": 0.0057}, of_hires, np.linspace(0, 321.8122, 41), 1e-10),
            list(of_hires), 1e-10),
        "Pollution (20)": (
            _model(POLLUTION, of_pollution, {f"k{i}": k for i, k in enumerate(_K, 1)}, np.linspace(0, 60, 31), 1e-12),
            [f"k{i}" for i in (1, 2, 3, 12, 14, 15)], 1e-12),
        "Boehm (8)": (of_boehm, boehm.RATES, 1e-6),
    }  # fmt: skip


def error_of(Y: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest difference, by the largest value of each state."""
    Y, exact = Y[:, : exact.shape[1]], exact[:, : Y.shape[1]]  # LSODA gives states alone
    return float((np.abs(Y - exact) / np.abs(exact).max(axis=0)).max())


def _row(name: str) -> Callable[[], Row]:
    def stiff_run() -> Row:
        model, names, atol = models()[name]
        bound, slopes = model.bind(), model.bind(names)
        theta, of_slopes = bound.theta0, slopes.theta0
        exact = model.replace(rtol=1e-11, atol=1e-4 * atol).bind().simulate(theta)
        ours = error_of(bound.simulate(theta), exact)
        np.testing.assert_allclose(slopes.sensitivities(of_slopes)[0], exact, rtol=1e-4, atol=1e3 * atol)
        assert bound.retries == slopes.retries == 0
        work, goals = f"a run of {name}, rtol 1e-6", [(f"error {ours:.1e}", True)]
        try:
            peer = lsoda.of_model(model, atol, RTOL)
        except ImportError:
            one, six = side_by_side(lambda: bound.simulate(theta), lambda: slopes.sensitivities(of_slopes))
            goals.append(at_most(six / one, 3, f"{len(names)} sensitivities in {{:.1f}} runs"))
            return Row(work, one, "LSODA in C (scijit is not installed)", goals=goals)
        theirs = error_of(peer(theta), exact)
        one, six, seconds = side_by_side(
            lambda: bound.simulate(theta), lambda: slopes.sensitivities(of_slopes), lambda: peer(theta)
        )
        goals += [
            at_most(one / seconds, 0.8, "{:.2f} of LSODA in C"),
            (f"whose error is {theirs:.1e}; goal no smaller", ours <= theirs),
            at_most(six / max(one, seconds), 3, f"{len(names)} sensitivities in {{:.1f}} runs (the longer of both)"),
        ]
        return Row(work, one, "LSODA in C", seconds, goals)

    stiff_run.__name__ = f"stiff_{name.split()[0].lower()}"
    return stiff_run


def network(n: int = 120, n_pairs: int = 45) -> tuple[fme.OdeModel, Callable[[], np.ndarray]]:
    """Return a chain of n species that turn into each other, and n_pairs of them anywhere into two others; and odeint.

    Rates are of mass action, their constants between 0.01 and 1000. The Jacobian has some 600 entries, its factors
    1,800.
    """
    rng = np.random.default_rng(1)
    reactions = [([i], [j]) for i in range(n - 1) for i, j in ((i, i + 1), (i + 1, i))]
    for _ in range(n_pairs):
        i, j, k, m = rng.choice(n, 4, replace=False).tolist()
        reactions.append(([i, j], [k, m]))
    parms = {f"k{r}": float(k) for r, k in enumerate(10 ** rng.uniform(-2, 3, len(reactions)))}
    start, terms = rng.uniform(0, 1, n), [[] for _ in range(n)]
    for r, (taken, made) in enumerate(reactions):
        for sign, species in (("-", taken), ("+", made)):
            for i in species:
                terms[i].append(f"{sign} r{r}")
    lines = [f"r{r} = k{r} * {' * '.join(f's{i}' for i in taken)}" for r, (taken, _) in enumerate(reactions)]
    lines += [f"d(s{i})/dt = {' '.join(of)}" for i, of in enumerate(terms)]
    times = np.r_[0, np.logspace(-4, 2, 30)]
    state = {f"s{i}": float(x) for i, x in enumerate(start)}
    model = fme.OdeModel("\n".join(lines), state=state, parms=parms, times=times, rtol=RTOL, atol=1e-9)
    first, last = (np.array([taken[i] for taken, _ in reactions]) for i in (0, -1))
    is_pair, k, balance = first != last, np.array(list(parms.values())), np.zeros((n, len(reactions)))
    for r, (taken, made) in enumerate(reactions):
        balance[taken, r] -= 1
        balance[made, r] += 1

    def rates(y: np.ndarray, t: float) -> np.ndarray:
        return balance @ (k * y[first] * np.where(is_pair, y[last], 1.0))

    return model, lambda: odeint(rates, start, times, rtol=RTOL, atol=1e-9, mxstep=50_000)


def _lsoda_or_nothing(model: fme.OdeModel, theta: np.ndarray, exact: np.ndarray) -> Callable[[], object]:
    """Return a run by LSODA in C, or what takes no time where scijit is not installed."""
    try:
        peer = lsoda.of_model(model, 1e-9, RTOL)
    except ImportError:
        return lambda: None
    assert error_of(peer(theta), exact) < 1e-4
    return lambda: peer(theta)


def stiff_network() -> Row:
    """Return the row of 120 species: the first run, one of many, and six sensitivities."""
    other, _ = network(3, 0)
    other()  # the loops are compiled
    model, by_hand = network()
    bound, began = model.bind(), time.process_time()
    ours = bound.simulate(bound.theta0)
    first = time.process_time() - began
    exact = model.replace(rtol=1e-10, atol=1e-13).bind().simulate(bound.theta0)
    assert bound.retries == 0
    assert error_of(by_hand(), exact) < 1e-4
    slopes = model.bind([f"k{r}" for r in range(0, 240, 40)])
    slopes.sensitivities(slopes.theta0)  # compiled
    plain = hiv.plain_residuals()
    run, six, odeints, hand, seconds = side_by_side(
        lambda: bound.simulate(bound.theta0),
        lambda: slopes.sensitivities(slopes.theta0),
        by_hand,
        lambda: plain(hiv.TRUTH),
        _lsoda_or_nothing(model, bound.theta0, exact),
        rounds=9,
    )
    goals = [
        (f"error {error_of(ours, exact):.1e}", error_of(ours, exact) < 1e-5),
        (f"first run {first:.2f} s, {within(first, 1.0, hand)[0]}", within(first, 1.0, hand)[1]),
        within(run, 4.5e-3, hand),
        at_most(six / max(run, seconds), 3, f"six sensitivities {six / run:.1f} runs, {{:.1f}} of LSODA's in C"),
    ]
    return Row("a network of 120 species, rtol 1e-6", run, "odeint by hand, its Jacobian dense", odeints, goals)


ROWS = [_row(name) for name in ("Robertson (3 states)", "HIRES (8)", "Pollution (20)", "Boehm (8)")] + [stiff_network]
