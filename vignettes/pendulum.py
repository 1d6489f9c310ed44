"""A pendulum whose length is sought: simulation has seventeen minima, prediction one.

::

    d(theta)/dt = omega
    d(omega)/dt = -(g / L) sin(theta)           L = 1 m; 1,000 readings of the angle within 20 s

A simulation with a wrong length runs out of step with the data, and the sum of squares goes up and down with the number
of swings that it has gained or lost. A model that its data correct while it runs never loses its step; what is left is
how well it predicts the next reading. Two ways to correct it:

* the observer, theta' = omega + K (y(t) - theta), K = 1 per second, y(t) a straight line between the readings;
* at every reading: predict it, score, then correct the angle and the speed by a part of the error.

The first uses y(t) while it predicts y(t). With a gain that is given this does no harm; a gain that is fitted would
grow without end, and so fmepy refuses it. The second predicts a reading before it sees it, and its gains can be fitted:
with exact readings of a pendulum without process noise (here with an error of 0.1 rad) they come out as nothing.

Run it by ``python vignettes/pendulum.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

TIMES = np.linspace(0.1, 20.0, 1000)
LENGTHS = {"L": (0.01, 2.0)}  # in steps of a centimetre
FIRST = 0.7  # where a search begins; the truth is 1
NOISE, SEED = 0.1, 2


def rates(t: float, theta: float, omega: float, *, L: float = FIRST, g: float = 9.82) -> tuple[float, float]:
    """Return the rates of angle and speed."""
    return omega, -g / L * np.sin(theta)


def pendulum(**words: object) -> fme.OdeModel:
    """Return the model; the angle is what is read."""
    state = {"theta": 0.0, "omega": 3.0}
    return fme.OdeModel(rates, state=state, times=TIMES, outputs={"y": "theta"}, **words)


def readings(noise: float = 0.0) -> pd.DataFrame:
    """Return readings of a pendulum of one metre."""
    exact = pendulum(rtol=1e-10, atol=1e-12)({"L": 1.0})
    errors = noise * np.random.default_rng(SEED).standard_normal(len(TIMES))
    return pd.DataFrame({"time": TIMES, "y": exact["y"] + errors})


def costs(data: pd.DataFrame) -> dict[str, fme.SimulationCost]:
    """Return the three ways to hold the model against the data."""
    model = pendulum()
    at_readings = {"theta": {"y": 0.05}, "omega": {"y": 0.1}}
    return {
        "simulation": fme.SimulationCost(model, data),
        "observer, K = 1": fme.PredictionErrorCost(model, data, gain={"theta": {"y": 1.0}}, form="observer"),
        "corrected at every reading": fme.PredictionErrorCost(model, data, gain=at_readings),
    }


def with_fitted_gains(data: pd.DataFrame) -> fme.PredictionErrorCost:
    """Return the cost whose gains are parameters."""
    gain = {"theta": {"y": "K1"}, "omega": {"y": "K2"}}
    return fme.PredictionErrorCost(pendulum(), data, gain=gain, parms={"K1": 0.1, "K2": 0.1})


def draw_landscapes(found: dict[str, fme.Landscape]) -> np.ndarray:
    """Draw the sums of squares over the length, one below the other."""
    _, panels = plt.subplots(len(found), 1, figsize=(7, 7), sharex=True, layout="constrained")
    for ax, (name, one) in zip(panels, found.items(), strict=True):
        one.plot(ax=ax)
        ax.axvline(FIRST, color="0.5", lw=0.8, ls=":")
        ax.set(xlabel="", ylabel="sum of squares, rad²")
        n = len(one.minima)
        ax.set_title(f"{name}: {n} {'minimum (dot)' if n == 1 else 'minima (dots)'}", loc="left", fontsize=10)
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    panels[0].annotate("start", (FIRST, 0.06), (4, 0), xycoords=("data", "axes fraction"), textcoords="offset points")
    panels[-1].set_xlabel("length L, m")
    return panels


def draw_runs(simulation: fme.SimulationCost, free: fme.PredictionErrorCost, at: dict[str, float]) -> np.ndarray:
    """Draw what both costs compare with the data at a wrong length."""
    _, panels = plt.subplots(2, 1, figsize=(7, 5), sharex=True, sharey=True, layout="constrained")
    for ax, (name, cost) in zip(panels, {"simulated": simulation, "predicted": free}.items(), strict=True):
        run, data = cost.run(at), cost.obs
        ax.plot(data["time"], data["y"], ".", ms=2, color="0.7", label="readings, sd 0.1")
        ax.plot(run["time"], run["y"], lw=1.2, color="#2f5d8a", label=f"{name}, L = {at['L']:g}")
        ax.set_ylabel("angle, rad")
        ax.legend(loc="upper right", ncols=2, fontsize=9)
        ax.set_ylim(-1.7, 2.1)
    panels[-1].set_xlabel("time, s")
    return panels


def main(output: Path = Path("results/pendulum")) -> dict[str, object]:
    """Draw the landscapes, fit from 0.7 m, then with noise; write tables and pictures."""
    exact, noisy = costs(readings()), readings(NOISE)
    found = {name: fme.landscape(cost, LENGTHS, num=200) for name, cost in exact.items()}
    fits = {name: fme.modFit(cost, ["L"]) for name, cost in exact.items()}
    fits_noisy = {name: fme.modFit(cost, ["L"]) for name, cost in costs(noisy).items()}
    free = with_fitted_gains(noisy)
    fit = fme.modFit(free, ["L", "K1", "K2"])
    table = pd.DataFrame({
        "minima": {name: len(one.minima) for name, one in found.items()},
        "L": {name: one.par["L"] for name, one in fits.items()},
        "L, noise 0.1": {name: one.par["L"] for name, one in fits_noisy.items()},
        "standard error": {name: one.std_error["L"] for name, one in fits_noisy.items()},
    })  # fmt: skip
    print(f"From L = {FIRST}:\n\n{table.to_string(float_format='{:.5f}'.format)}\n")
    print(f"Gains fitted too, noise {NOISE}:\n\n{fit.summary()}")

    output.mkdir(parents=True, exist_ok=True)
    table.to_csv(output / "estimates.csv", index_label="cost")
    pd.concat([one.frame.assign(what=name) for name, one in found.items()]).to_csv(
        output / "landscapes.csv", index=False
    )
    save(draw_landscapes(found), output / "landscapes")
    save(draw_runs(fme.SimulationCost(pendulum(), noisy), free, {"L": FIRST}), output / "runs")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return {"table": table, "landscapes": found, "fits": fits, "noisy": fits_noisy, "fit": fit}


def save(axes: np.ndarray, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = axes.flat[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
