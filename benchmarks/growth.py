"""How cost grows: runs with the states, filters with states and samples, scores with the parameters; one picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import odeint

import fmepy as fme
from benchmarks import market
from benchmarks.timing import side_by_side

STATES, FILTERED, SAMPLES, PARAMETERS = (
    (2, 5, 10, 20, 50, 100, 200),
    (2, 5, 10, 20),
    (50, 200, 800, 3200),
    (1, 2, 4, 8, 13),
)
TIMES = np.linspace(0.0, 10.0, 21)
SMALL = 50  # states up to which one run is drawn: beyond, its engine compiles for seconds and more
Line = tuple[str, Sequence[int], list[float]]


def chain_of(n: int, **arguments: Any) -> fme.OdeModel:
    """Return n pools in a row, each flowing into its neighbours, the first filled and emptied by a saturating rate."""
    names = [f"x{i}" for i in range(n)]
    rates = []
    for i, x in enumerate(names):
        flows = [f"k * ({names[j]} - {x})" for j in (i - 1, i + 1) if 0 <= j < n]
        rates.append(f"d({x})/dt = {' + '.join(flows)}" + (f" + inflow - v * {x} / (1 + {x})" if i == 0 else ""))
    parms = {"k": 1.0, "inflow": 0.5, "v": 1.0, **dict.fromkeys(arguments.pop("noise", ()), 0.0)}
    return fme.OdeModel("\n".join(rates), state=dict.fromkeys(names, 1.0), times=TIMES, parms=parms, **arguments)


def _by_odeint(n: int) -> Callable[[], np.ndarray]:
    """Return the same as a user writes it with arrays, through scipy's odeint."""

    def rates(y: np.ndarray, t: float) -> np.ndarray:
        flow = y[:-1] - y[1:]
        out = np.zeros(n)
        out[:-1] -= flow
        out[1:] += flow
        out[0] += 0.5 - y[0] / (1 + y[0])
        return out

    return lambda: odeint(rates, np.ones(n), TIMES, rtol=1e-6, atol=1e-6)


def runs() -> list[Line]:
    """Return seconds of a run by the number of states: asked once, asked often, by hand."""
    once, often, hand = [], [], []
    for n in STATES:
        model, by_hand = chain_of(n), _by_odeint(n)
        many = model.bind(["k"])
        np.testing.assert_allclose(many.simulate(many.theta0), by_hand(), rtol=1e-3, atol=1e-4)
        took = side_by_side(lambda f=many: f.simulate(f.theta0), by_hand, rounds=3)
        often.append(took[0])
        hand.append(took[1])
        if n <= SMALL:
            few = model.bind(["k"])
            np.testing.assert_allclose(few.simulate(few.theta0), by_hand(), rtol=1e-3, atol=1e-4)
            once += side_by_side(lambda f=few: f.simulate(f.theta0), rounds=3)
    return [
        ("fmepy, one run", STATES[: len(once)], once),
        ("fmepy, one of 100,000", STATES, often),
        ("odeint, rates in numpy", STATES, hand),
    ]


@cache
def filtered(n: int, samples: int) -> fme.FimlofCost:
    """Return the likelihood of readings of all n pools, a noise in each, Euler steps."""
    model = chain_of(n, method="euler", dt=0.1).replace(times=0.1 * np.arange(samples + 1))
    names, rng = list(model.states), np.random.default_rng(1)
    data = {"time": model.times[1:], **{x: 1 + 0.1 * rng.standard_normal(samples) for x in names}}
    return fme.FimlofCost(
        model, data, process_noise=dict.fromkeys(names, 0.1), measurement_noise=dict.fromkeys(names, 0.1)
    )


def _passes(cost: fme.FimlofCost) -> float:
    bound = cost.bind(["k", "v"])
    assert np.isfinite(bound.minus2loglik(bound.theta0))
    rng = np.random.default_rng(1)
    (took,) = side_by_side(lambda: bound.minus2loglik(bound.theta0 * (1 + 1e-6 * rng.standard_normal(2))), rounds=3)
    return took


def filters() -> list[Line]:
    """Return seconds of a value by the number of states, of 200 samples, and of samples, with 5 states."""
    return [
        ("states (200 samples)", FILTERED, [_passes(filtered(n, 200)) for n in FILTERED]),
        ("samples (5 states)", SAMPLES, [_passes(filtered(5, n)) for n in SAMPLES]),
    ]


def scores() -> list[Line]:
    """Return seconds of a score by the number of parameters, the market's likelihood, beside differences of values."""
    own, differences = [], []
    for n in PARAMETERS:
        bound = market.cost().bind(market.THIRTEEN[:n])
        rng = np.random.default_rng(1)

        def near(bound: Any = bound, rng: Any = rng) -> np.ndarray:
            return bound.theta0 * (1 + 1e-6 * rng.standard_normal(bound.theta0.size))

        score, value = side_by_side(
            lambda b=bound, at=near: b.score(at()), lambda b=bound, at=near: b.minus2loglik(at()), rounds=3
        )
        own.append(score)
        differences.append((2 * n + 1) * value)
    return [("score", PARAMETERS, own), ("central differences of values", PARAMETERS, differences)]


def draw(path: Path) -> None:
    """Time all of them and write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = [
        ("A run by its states", "states", runs()),
        ("A filter's value by states and samples", "states, samples", filters()),
        ("A score by its parameters\n(10 states, 1,000 samples)", "parameters", scores()),
    ]
    fig, axes = plt.subplots(1, 3, figsize=(13, 5), layout="constrained")
    for ax, (title, unit, lines) in zip(axes, panels, strict=True):
        for name, x, seconds in lines:
            slope = np.polyfit(np.log(x[-3:]), np.log(seconds[-3:]), 1)[0]
            ax.loglog(x, 1e3 * np.array(seconds), "o-", label=f"{name}: n^{slope:.1f} at the end")
        ax.set(title=title, xlabel=unit, ylabel="milliseconds")
        ax.grid(which="both", alpha=0.25)
        ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), frameon=False)  # below: it hides nothing
    fig.savefig(path)
    plt.close(fig)
