"""Work against precision: what a run costs and how wrong it is, at tolerances from 1e-3 to 1e-10, beside other solvers.

Four stiff models above, four that are not below. Every solver gets the same model, tolerances and times; LSODA, Radau
and DOP853 are scipy's, LSODA in C stands for what machine code would make of the first. The error is the largest at any
time of any state, by the largest value of that state; the reference is fmepy's own run at 3e-12 or less, and the
others' lines show whether it is right: they would end where it is wrong. What takes longer than `MOST_SECONDS` or fails
ends its line; DOP853, an explicit method, is not tried on the stiff ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fmepy as fme
from benchmarks import lsoda, rows_stiff
from benchmarks.timing import side_by_side

RTOLS = tuple(10.0**-k for k in range(3, 11))
MOST_SECONDS = 3.0
OREGONATOR = """
d(x)/dt = k * (y + x * (1 - 8.375e-6 * x - y))
d(y)/dt = (z - (1 + x) * y) / k
d(z)/dt = 0.161 * (x - z)"""
PREY = "d(x)/dt = a*x - x*y\nd(y)/dt = x*y - y"
LORENZ = "d(x)/dt = 10*(y - x)\nd(y)/dt = x*(r - z) - y\nd(z)/dt = x*y - 8/3*z"
NEURON = "d(v)/dt = v - v**3/3 - w + i\nd(w)/dt = 0.08*(v + 0.7 - 0.8*w)"
ARENSTORF = """
m = 1 - k
d1 = ((x + k)**2 + y**2)**1.5
d2 = ((x - m)**2 + y**2)**1.5
d(x)/dt = u
d(y)/dt = v
d(u)/dt = x + 2*v - m*(x + k)/d1 - k*(x - m)/d2
d(v)/dt = y - 2*u - m*y/d1 - k*y/d2"""
Line = tuple[list[float], list[float]]
"""Errors and seconds."""


def models() -> dict[str, tuple[fme.OdeModel, float, bool]]:
    """Return each model with atol in units of rtol, and whether it is stiff."""
    stiff = rows_stiff.models()
    found = {name: (stiff[name][0], 1e6 * stiff[name][2], True) for name in list(stiff)[:3]}
    of_earth = {"x": 0.994, "y": 0, "u": 0, "v": -2.00158510637908}
    for name, text, state, parms, end, is_stiff in (
        ("Oregonator (3)", OREGONATOR, {"x": 1, "y": 2, "z": 3}, {"k": 77.27}, 360, True),
        ("Lotka-Volterra (2)", PREY, {"x": 2, "y": 1}, {"a": 1.5}, 30, False),
        ("Lorenz (3)", LORENZ, {"x": 1, "y": 1, "z": 1}, {"r": 28}, 5, False),
        ("FitzHugh and Nagumo's neuron (2)", NEURON, {"v": -1, "w": 1}, {"i": 0.5}, 200, False),
        ("Arenstorf's orbit (4)", ARENSTORF, of_earth, {"k": 0.012277471}, 17, False),
    ):
        times = np.linspace(0, end, 41)
        found[name] = fme.OdeModel(text, state=state, parms=parms, times=times), 1e-2, is_stiff
    return found


def solvers(model: fme.OdeModel, atol: float, rtol: float, is_stiff: bool) -> dict[str, Callable[[], np.ndarray]]:
    """Return what gives the rows of a model at its own parameters."""
    found = {}
    for name, words in {
        "fmepy": {},
        "LSODA": {"method": "lsoda"},
        "Radau": {"method": "Radau"},
        "DOP853": {"method": "DOP853"},
    }.items():
        if name != "DOP853" or not is_stiff:
            bound = model.replace(rtol=rtol, atol=rtol * atol, engine="auto" if words else "compiled", **words).bind()
            found[name] = lambda b=bound: b.simulate(b.theta0)[:, : len(model.states)]
    try:
        in_c, theta = lsoda.of_model(model, rtol * atol, rtol), model.parms.to_numpy(float)
        found["LSODA in C"] = lambda: in_c(theta)
    except ImportError:
        pass
    return found


def lines(model: fme.OdeModel, atol: float, is_stiff: bool) -> dict[str, Line]:
    """Return errors and seconds of every solver, tolerance by tolerance."""
    least = 3e-12 if is_stiff else 1e-13  # what rounding leaves of the factors of W
    sharp = model.replace(rtol=least, atol=least * atol, engine="compiled").bind()
    exact = sharp.simulate(sharp.theta0)[:, : len(model.states)]
    assert sharp.retries == 0
    found: dict[str, Line] = {}
    ended = set()
    for rtol in RTOLS:
        for name, run in solvers(model, atol, rtol, is_stiff).items():
            if name in ended:
                continue
            try:
                error = float((np.abs(run() - exact) / np.abs(exact).max(axis=0)).max())  # what is compiled, is now
                began = time.process_time()
                run()
                once = time.process_time() - began
            except fme.FmepyError:
                ended.add(name)
                continue
            seconds = side_by_side(run, rounds=5, seconds=0.01)[0] if once < 0.1 else once
            if seconds > MOST_SECONDS:
                ended.add(name)
            errors, times = found.setdefault(name, ([], []))
            errors.append(error)
            times.append(seconds)
    return found


def draw(path: Path) -> None:
    """Run all of them and write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(2, 4, figsize=(15, 7.5), layout="constrained")
    marks = {"fmepy": "o-", "LSODA in C": "s-", "LSODA": "s--", "Radau": "^--", "DOP853": "v--"}
    colours = dict(zip(marks, ("C3", "C0", "C0", "C2", "C1"), strict=True))
    for ax, (title, (model, atol, is_stiff)) in zip(axes.ravel(), models().items(), strict=True):
        for name, (errors, seconds) in lines(model, atol, is_stiff).items():
            ax.loglog(errors, 1e3 * np.array(seconds), marks[name], color=colours[name], label=name, ms=4)
        ax.set(title=title + (", stiff" if is_stiff else ""), xlabel="error", ylabel="milliseconds")
        ax.invert_xaxis()
        ax.grid(which="major", alpha=0.3)
    handles = {label: h for ax in axes.ravel() for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    fig.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
    fig.suptitle("A run at rtol 1e-3 to 1e-10: to the right is more exact, below is faster")
    fig.savefig(path, dpi=110)
    plt.close(fig)
