"""
Which cost? One oscillator, four records of it, and the ways to hold a model against data
=========================================================================================

A mass on a spring that grows stiffer as it is drawn, read at its place y = x::

    x'' = force cos t - damping x' - stiffness x^3         damping 0.1, stiffness 1

    record     force   process noise   measurement noise
    quiet      0       none            0.1
    shaken     0       0.5             0.01
    both       0       0.5             0.3
    chaotic    7.5     none            0.1

Each is fitted by simulation, by errors of one-step predictions (with a gain of 0.5, and with a fitted one), by FIMLOF
(both noises fitted, but for the chaotic record, where a process noise of 0.1 is put in) and by multiple shooting over
20 segments, from starts 20 % off. The page "Which cost?" of the documentation says what there is to learn from it;
``python vignettes/which_cost.py docs`` draws its pictures anew.
"""

import math
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

TRUTH = {"damping": 0.1, "stiffness": 1.0}
START = {"damping": 0.12, "stiffness": 0.8}
RECORDS = {"quiet": (0.0, 0.0, 0.1), "shaken": (0.0, 0.5, 0.01), "both": (0.0, 0.5, 0.3), "chaotic": (7.5, 0.0, 0.1)}
TIMES = {name: np.arange(0.25, 60.1 if name == "chaotic" else 40.1, 0.25) for name in RECORDS}
TITLES = {"both": "The record with both noises"}
COLORS = {
    "simulation": "#b5651d",
    "fixed gain": "#b0a080",
    "prediction": "#7a7a7a",
    "FIMLOF": "#2f5d8a",
    "shooting": "#3d8a5a",
}


def spring(t, x, v, *, damping=0.1, stiffness=1.0, force=0.0):
    """Return the rates of place and speed."""
    return v, force * np.cos(t) - damping * v - stiffness * x**3


# %%
# Four records
# ------------
# The chaotic one is driven; the others are let go.


def model_of(record: str) -> fme.OdeModel:
    """Return the model; along a chaotic record errors of the solver grow as all others do, so they must be small."""
    return fme.OdeModel(
        spring, state={"x": 3.0, "v": 0.0}, times=np.append(0.0, TIMES[record]), parms={"force": RECORDS[record][0]},
        outputs={"y": "x"}, rtol=1e-8, atol=1e-8,
    )  # fmt: skip


def drawn(record: str, seed: int = 1) -> pd.DataFrame:
    """Return readings of the place, from the true parameters, by short steps between which the system is shaken."""
    force, shaken, error = RECORDS[record]
    h, rng, places = 0.01, np.random.default_rng(seed), []
    x, v = 3.0, 0.0
    for k in range(round(TIMES[record][-1] / h)):
        t = k * h
        dx1, dv1 = spring(t, x, v, force=force)
        dx2, dv2 = spring(t + h / 2, x + h / 2 * dx1, v + h / 2 * dv1, force=force)
        dx3, dv3 = spring(t + h / 2, x + h / 2 * dx2, v + h / 2 * dv2, force=force)
        dx4, dv4 = spring(t + h, x + h * dx3, v + h * dv3, force=force)
        x = x + h / 6 * (dx1 + 2 * dx2 + 2 * dx3 + dx4)
        v = v + h / 6 * (dv1 + 2 * dv2 + 2 * dv3 + dv4) + shaken * math.sqrt(h) * rng.standard_normal()
        places.append(x)
    at = np.rint(TIMES[record] / h).astype(int) - 1
    return pd.DataFrame({"time": TIMES[record], "y": np.array(places)[at] + error * rng.standard_normal(len(at))})


# %%
# Five ways
# ---------
# Every search begins 20 % off in both parameters.


def prediction_cost(model: fme.OdeModel, data: pd.DataFrame) -> fme.PredictionErrorCost:
    """Return the errors of one step, each state corrected at every sample by a gain of its own."""
    return fme.PredictionErrorCost(
        model, data, gain={"x": {"y": "gain_x"}, "v": {"y": "gain_v"}}, parms={"gain_x": 0.5, "gain_v": 0.5}
    )


def fitted(record: str, way: str, model: fme.OdeModel, data: pd.DataFrame) -> tuple[object, object, str]:
    """Return the cost, its fit, and whether the fit says that it converged."""
    if way == "shooting":
        found = fme.fit_boundary(model, data, START, segments=20)
        return fme.SimulationCost(model, data), found.fit, found.converged
    if way == "simulation":
        cost, start = fme.SimulationCost(model, data), START
    elif way in ("prediction", "fixed gain"):
        cost = prediction_cost(model, data)
        start = START | ({"gain_x": 0.5, "gain_v": 0.5} if way == "prediction" else {})
    else:
        known = record == "chaotic"
        cost = fme.FimlofCost(
            model, data, process_noise={"v": 0.1 if known else "sd_w"}, measurement_noise={"y": "sd_v"},
            parms={"sd_v": 0.1} if known else {"sd_w": 0.1, "sd_v": 0.1}, propagation="rk4", dt=0.125,
        )  # fmt: skip
        start = START | {name: 0.1 for name in cost.parms.index if name.startswith("sd_")}
    fit = fme.modFit(cost, start, lower={name: 0.0 for name in start if name.startswith("gain_")} or -np.inf)
    return cost, fit, fit.converged


def errors_of(way: str, cost: object, fit: object, data: pd.DataFrame) -> np.ndarray:
    """Return what the way leaves unexplained of every reading, in order of time: errors of the path, or of one step."""
    if way == "FIMLOF":
        return cost.filter(fit.par).residuals["innovation"].to_numpy()
    names = [n for n in fit.par.index if n in cost.parms.index]
    return data["y"].to_numpy() - cost(fit.par[names]).residuals["mod"].to_numpy()


def correlation(errors: np.ndarray, lag: int) -> float:
    """Return the correlation of errors with those some samples later."""
    e = errors - errors.mean()
    return float(e[lag:] @ e[:-lag] / (e @ e))


def compared(records: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, dict[tuple[str, str], np.ndarray]]:
    """Return estimates of all ways on all records, and their errors."""
    rows, errors = [], {}
    for record, data in records.items():
        model = model_of(record)
        for way in COLORS:
            cost, fit, converged = fitted(record, way, model, data)
            errors[record, way] = e = errors_of(way, cost, fit, data)
            row = {"record": record, "way": way}
            for name in TRUTH:
                row |= {name: fit.par[name], f"se_{name}": fit.std_error[name]}
            rows.append(row | {"sd_error": e.std(), "rho_1": correlation(e, 1), "converged": converged})
    return pd.DataFrame(rows).set_index(["record", "way"]), errors


# %%
# What is drawn
# -------------
# Of each record what its way leaves over, and the estimates with two standard errors.


def draw_intervals(table: pd.DataFrame, record: str, panels: np.ndarray) -> None:
    """Draw estimates with two standard errors, a panel a parameter."""
    for ax, name in zip(panels, TRUTH, strict=True):
        for k, (way, color) in enumerate(COLORS.items()):
            row = table.loc[(record, way)]
            ax.errorbar(k, row[name], 2 * row[f"se_{name}"], fmt="o", color=color, capsize=4)
        ax.axhline(TRUTH[name], color="black", lw=0.8)
        ax.set(xticks=range(len(COLORS)), xlim=(-0.5, len(COLORS) + 0.3), title=f"{name} ± 2 s.e.")
        ax.set_xticklabels(list(COLORS), fontsize="small", rotation=30, ha="right")
    panels[0].annotate("truth", (5.25, TRUTH["damping"]), ha="right", va="bottom", fontsize="small")


def draw_path(ax: plt.Axes, data: pd.DataFrame, errors: dict[str, np.ndarray], until: float = 40.0) -> None:
    """Draw the record and what ways make of it."""
    ax.plot(data["time"], data["y"], ".", color="black", ms=3, label="readings")
    for way, e in errors.items():
        ax.plot(data["time"], data["y"] - e, color=COLORS[way], lw=1.2, label=way)
    ax.set(xlabel="time", ylabel="place y", xlim=(0, until))
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.25 * (high - low))
    ax.legend(loc="upper right", ncols=3, fontsize="small", frameon=False)


def draw_correlations(ax: plt.Axes, errors: dict[str, np.ndarray], lags: int = 20) -> None:
    """Draw the correlations of errors by lag, with the limits of errors that are none of the model's."""
    for way, e in errors.items():
        ax.plot(range(1, lags + 1), [correlation(e, k) for k in range(1, lags + 1)], "o-", ms=3, color=COLORS[way],
                label=way)  # fmt: skip
    limit = 1.96 / np.sqrt(len(e))
    ax.axhspan(-limit, limit, color="0.9", zorder=0, label="95 % of white noise")
    ax.set(xlabel="lag in samples", ylabel="correlation of errors", ylim=(-1, 1.4), xticks=range(5, lags + 1, 5))
    ax.legend(loc="upper right", ncols=2, fontsize="small", frameon=False)


def draw_landscapes(ax: plt.Axes, scapes: dict[str, fme.Landscape]) -> None:
    """Draw sums of squares along the stiffness, each in units of its smallest, with their minima."""
    for way, scape in scapes.items():
        smallest, n = scape.frame["cost"].min(), len(scape.minima)
        told = f"{way}: {n} {'minimum' if n == 1 else 'minima'}"
        ax.semilogy(scape.frame["stiffness"], scape.frame["cost"] / smallest, color=COLORS[way], label=told)
        ax.semilogy(scape.minima["stiffness"], scape.minima["cost"] / smallest, ".", color=COLORS[way])
    ax.axvline(TRUTH["stiffness"], color="black", lw=0.8)
    low, high = ax.get_ylim()
    ax.set(xlabel="stiffness", ylabel="sum of squares / smallest", ylim=(low, high**1.3))
    ax.legend(loc="upper right", fontsize="small", frameon=False)


def draw(record: str, table: pd.DataFrame, errors: dict, scapes: dict, data: pd.DataFrame) -> plt.Figure:
    """Draw the picture of a record."""
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), width_ratios=[2.2, 1, 1])
    figure.subplots_adjust(left=0.065, right=0.99, bottom=0.24, top=0.82, wspace=0.25)
    mine = {way: errors[record, way] for way in COLORS}
    if record == "quiet":
        draw_path(panels[0], data, {"simulation": mine["simulation"]})
    elif record == "shaken":
        draw_path(panels[0], data, {k: mine[k] for k in ("simulation", "prediction")}, until=30.0)
    elif record == "both":
        draw_correlations(panels[0], {k: mine[k] for k in ("simulation", "prediction", "FIMLOF")})
    else:
        draw_landscapes(panels[0], scapes)
    draw_intervals(table, record, panels[1:])
    figure.suptitle(TITLES.get(record, f"The {record} record"))
    return figure


# %%
# Estimates
# ---------
# The truth is a damping of 0.1 and a stiffness of 1. Where the system itself is shaken, the simulated path is many of
# its own standard errors off, and so is multiple shooting, which ends in one path too.

records = {name: drawn(name) for name in RECORDS}
table, errors = compared(records)
off = (table["stiffness"] - 1.0).abs() / table["se_stiffness"]
print(table.assign(off=off).round(4).to_string())

stiffness, error = table["stiffness"], table["se_stiffness"]
assert np.isclose(stiffness["quiet", "simulation"], 0.9985, rtol=5e-3)
assert np.isclose(error["quiet", "simulation"], 0.001317, rtol=9e-3)
assert np.isclose(error["quiet", "fixed gain"], 0.01890, rtol=9e-3)
assert np.allclose(stiffness["quiet"][["fixed gain", "FIMLOF"]], [1.0010, 1.0003], rtol=5e-3)
assert np.allclose(stiffness["shaken"][["prediction", "FIMLOF"]], [0.9849, 0.9911], rtol=5e-3)
assert np.allclose(error["shaken"][["prediction", "FIMLOF"]], [0.02110, 0.01461], rtol=9e-3)
assert np.allclose(stiffness["both"][["prediction", "FIMLOF"]], [1.0520, 0.9970], rtol=5e-3)
assert np.allclose(error["both"][["prediction", "FIMLOF"]], [0.07240, 0.04033], rtol=9e-3)
assert np.allclose(stiffness["chaotic"][["prediction", "FIMLOF", "shooting"]], [0.9990, 1.0031, 0.9990], rtol=5e-3)
assert np.allclose(error["chaotic"][["prediction", "FIMLOF", "shooting"]], [0.003337, 0.008047, 0.003323], rtol=9e-3)
assert np.isclose(table["rho_1"]["shaken", "simulation"], 0.9121, rtol=5e-3)
assert abs(table["rho_1"]["quiet", "simulation"] + 0.0868) < 5e-4
assert table["converged"].all()
wrong = [(r, w) for r in ("shaken", "both") for w in ("simulation", "shooting")] + [("chaotic", "simulation")]
assert sorted(off.index[off > 3]) == sorted(wrong)

# %%
# The landscape of the chaotic record
# -----------------------------------
# Simulation has tens of minima along the stiffness (how many exactly is a matter of last bits), prediction one.

chaotic = model_of("chaotic").replace(rtol=1e-6, atol=1e-6)
ranges, num = {"stiffness": (0.6, 1.4)}, 161
scapes = {
    "simulation": fme.landscape(fme.SimulationCost(chaotic, records["chaotic"]), ranges, num=num),
    "fixed gain": fme.landscape(prediction_cost(chaotic, records["chaotic"]), ranges, num=num),
}
print(scapes["fixed gain"].minima.round(4))
assert len(scapes["fixed gain"].minima) == 1
assert len(scapes["simulation"].minima) > 25

# %%
# The pictures
# ------------
# The quiet, the shaken, the twice noisy and the chaotic record.

figures = {record: draw(record, table, errors, scapes, records[record]) for record in RECORDS}
if Path(sys.argv[0]).stem == "which_cost" and len(sys.argv) == 2:
    for record, figure in figures.items():
        figure.savefig(Path(sys.argv[1]) / f"which_cost_{record}.png", dpi=100)
plt.show()
