"""Market growth (Forrester 1968): one noisy history, and twenty, by simulation, one-step least squares and FIMLOF.

A firm hires salesmen out of what it delivers; orders that wait make the delivery delay long, which puts off the market,
and, later, makes the firm order capacity. Nine levels (months are the unit of time)::

    SM    salesmen                                 SM'   = (12 DRA / 2000 - SM) / SAT + w_SM
    BL    backlog of orders                        BL'   = OB - DR
    DRA   average of the delivery rate             DRA'  = (DR + w_DRA - DRA) / DRAT
    DDRC  delivery delay as the company sees it    DDRC' = (BL / DRA + w_DDI - DDRC) / 4
    DDRM  delivery delay as the market sees it     DDRM' = (DDRC + w_DDRM - DDRM) / 6
    L1-L3, PC  capacity on order, in three stages, and capacity
    OB    orders      SM SE(DDRM) + w_OB           SE(m) = SEM (1 + SED1 m + SED2 m^2 + SED3 m^3)
    DR    deliveries  PC PCF(BL / PC) + w_DR       PCF(d) = PCE1 d + PCE2 d^2 + PCE3 d^3
    PCO   capacity ordered  PC CEF(DDRC / 2 - 0.3) + w_PCO        CEF(q) = CEF1 + CEF2 q + CEF3 q^2 + CEF4 q^3

The noise w (a new draw every half month) is large, 6 % of orders and deliveries, 60 % of hiring, 60 and 150 % of the
delays that are seen, and stays in the system; every level is read with an error of 10 %. Thirteen parameters are
wanted. Histories are simulated, so that the truth is known.

The coefficients of a table function hang together: one history cannot tell them apart, and FIMLOF's standard errors say
so. The functions themselves, where the system has been, are known to a few percent from one history, and to better than
two from twenty. One-step least squares finds SAT half as large as it is, and coefficients of the ordering of capacity a
third to two thirds too small, however many histories there are; its prediction errors remember, and give it away.
Simulation goes astray even from the truth: the path without noise is not where the firms have been.

Run it by ``python vignettes/market_growth.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

DT, MONTHS = 0.5, 100
LEVELS = ["SM", "BL", "DRA", "DDRC", "DDRM", "L1", "L2", "L3", "PC"]
START = dict(SM=10.0, BL=8000.0, DRA=4270.8, DDRC=1.8732, DDRM=1.8732, L1=-788.52, L2=-788.52, L3=-788.52, PC=12000.0)
NOISE = dict(w_SM=0.688, w_OB=812.1, w_DR=767.7, w_DRA=767.7, w_DDI=1.997, w_DDRM=4.9, w_PCO=27.14)
LOWER = {"DRAT": 0.3, "SAT": 1.0}  # times are positive; DRAT above half the step, where averaging is stable
COLORS = {"simulation": "#b5651d", "one-step": "#7a7a7a", "FIMLOF": "#2f5d8a"}


def market(
    t, SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC, *, SEM=400.0, SED1=-0.0281, SED2=-0.0295, SED3=0.00228,
    PCE1=0.61782, PCE2=-0.13244, PCE3=0.00973, CEF1=-0.0698, CEF2=0.12442, CEF3=-0.08138, CEF4=0.027704,
    DRAT=1.0, SAT=20.0, w_SM=0.0, w_OB=0.0, w_DR=0.0, w_DRA=0.0, w_DDI=0.0, w_DDRM=0.0, w_PCO=0.0,
):  # fmt: skip
    """Return the rates of change of the nine levels, per month."""
    q, d = DDRC / 2 - 0.3, BL / PC
    OB = SM * SEM * (1 + SED1 * DDRM + SED2 * DDRM**2 + SED3 * DDRM**3) + w_OB
    DR = PC * (PCE1 * d + PCE2 * d**2 + PCE3 * d**3) + w_DR
    PCO = PC * (CEF1 + CEF2 * q + CEF3 * q**2 + CEF4 * q**3) + w_PCO
    return (
        *((12 * DRA / 2000 - SM) / SAT + w_SM, OB - DR, (DR + w_DRA - DRA) / DRAT, (BL / DRA + w_DDI - DDRC) / 4),
        *((DDRC + w_DDRM - DDRM) / 6, PCO - L1 / 4, (L1 - L2) / 4, (L2 - L3) / 4, L3 / 4),
    )


def sales(p, m):
    """Return the orders that a salesman takes a month at a delivery delay of m months."""
    return p["SEM"] * (1 + p["SED1"] * m + p["SED2"] * m**2 + p["SED3"] * m**3)


def production(p, d):
    """Return the share of capacity in use at a backlog of d months of capacity."""
    return p["PCE1"] * d + p["PCE2"] * d**2 + p["PCE3"] * d**3


def ordering(p, q):
    """Return the capacity ordered, as a share of capacity a month, at a delay pressure q."""
    return p["CEF1"] + p["CEF2"] * q + p["CEF3"] * q**2 + p["CEF4"] * q**3


def functions(p) -> dict[str, float]:
    """Return the three functions at places that the system goes through."""
    return {
        **{f"SE({m:g})": sales(p, m) for m in (2, 3, 4, 5)},
        **{f"PCF({d:g})": production(p, d) for d in (1, 2.5, 4)},
        **{f"CEF({q:g})": ordering(p, q) for q in (0.8, 1.2, 1.8)},
    }


def make_model() -> fme.OdeModel:
    """Return the model; its Euler step is part of it."""
    return fme.OdeModel(market, state=START, times=np.arange(0, MONTHS, DT), method="euler", dt=DT)


def simulated(model: fme.OdeModel, firms: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return readings of some firms, and the standard deviations of their errors.

    A history in which something turns negative, or a delay very long, is drawn anew.
    """
    rng = np.random.default_rng(seed)
    times = model.times
    x = np.repeat(np.array(list(START.values()))[:, None], 4 * firms, axis=1)
    path = [x]
    with np.errstate(all="ignore"):  # some histories blow up, and are drawn anew
        for t in times[:-1]:
            noise = {k: sd * rng.standard_normal(4 * firms) for k, sd in NOISE.items()}
            x = x + DT * np.array(market(t, *x, **noise))
            path.append(x)
        history = np.array(path)  # time, level, history
        sound = (history[:, [0, 1, 2, 3, 4, 8]] > 0).all(axis=(0, 1)) & (history[:, 4] < 12).all(axis=0)
        sound &= (history[:, 1] / history[:, 8] < 8).all(axis=0)
    kept = np.flatnonzero(sound)[:firms]
    sd = 0.1 * model()[LEVELS].abs().mean()
    rows = history[:, :, kept].transpose(2, 0, 1).reshape(-1, len(LEVELS))
    table = pd.DataFrame(rows + sd.to_numpy() * rng.standard_normal(rows.shape), columns=LEVELS)
    table.insert(0, "time", np.tile(times, len(kept)))
    table.insert(0, "firm", np.repeat(np.arange(1, len(kept) + 1), len(times)))
    return table, sd


def fimlof_cost(model: fme.OdeModel, data: pd.DataFrame, sd: pd.Series) -> fme.FimlofCost:
    """Return the likelihood; each firm starts from its first readings."""
    return fme.FimlofCost(
        model, data, entity="firm", initial="data", process_noise=NOISE, noise_kind="per_step",
        measurement_noise=dict(sd),
    )  # fmt: skip


def one_step_cost(model: fme.OdeModel, data: pd.DataFrame, sd: pd.Series) -> fme.FimlofCost:
    """Return one-step least squares: the readings are exact, and every equation has an error in proportion to `sd`."""
    return fme.FimlofCost(
        model, data, entity="firm", initial="data", process_noise=dict(sd), noise_kind="per_step",
        measurement_noise=dict.fromkeys(LEVELS, 0.0),
    )  # fmt: skip


def simulation_cost(model: fme.OdeModel, data: pd.DataFrame, sd: pd.Series) -> fme.SimulationCost:
    """Return the misfit of the one path without noise, from the true start, against the firms' mean."""
    long = fme.cross2long(data.groupby("time")[LEVELS].mean().reset_index(), "time")
    return fme.SimulationCost(model, long.assign(sd=long["name"].map(sd).astype(float)), x="x", y="y", err="sd")


def fitted(model: fme.OdeModel, data: pd.DataFrame, sd: pd.Series, seed: int = 3) -> dict[str, fme.ModFit]:
    """Return the fits: the simple ways start at the truth, FIMLOF about 10 % off."""
    truth = true_values(model)
    start = truth * np.exp(0.1 * np.random.default_rng(seed).standard_normal(len(truth)))
    return {
        "simulation": fme.modFit(
            simulation_cost(model, data, sd), truth, lower=LOWER, hessian=False, control={"maxiter": 50}
        ),
        "one-step": fme.modFit(one_step_cost(model, data, sd), truth, lower=LOWER, hessian=False),
        "FIMLOF": fme.modFit(fimlof_cost(model, data, sd), start, lower=LOWER, seed=seed),
    }


def true_values(model: fme.OdeModel) -> pd.Series:
    """Return the thirteen parameters that are wanted."""
    return model.parms.drop(list(NOISE))


def errors(fits: dict[str, fme.ModFit], truth: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return relative errors in percent, and FIMLOF's standard errors: of the parameters, and of the functions."""
    value = pd.Series(functions(truth))
    size = value.where(~value.index.str.startswith("CEF"), 0.03)  # CEF goes through zero: in percent of 3 % a month
    derived = fme.derived(fits["FIMLOF"], functions)
    parameters = pd.DataFrame({name: 100 * (fit.par / truth - 1) for name, fit in fits.items()})
    parameters["std_error"] = 100 * fits["FIMLOF"].std_error / truth.abs()
    curves = pd.DataFrame({k: 100 * (pd.Series(functions(fit.par)) - value) / size for k, fit in fits.items()})
    curves["std_error"] = 100 * derived["std_error"] / size
    return parameters, curves


def memory(model: fme.OdeModel, data: pd.DataFrame, sd: pd.Series, fits: dict[str, fme.ModFit]) -> pd.DataFrame:
    """Return the correlation of each prediction error with the one before: none, where the estimates are right."""
    costs = {"one-step": one_step_cost(model, data, sd), "FIMLOF": fimlof_cost(model, data, sd)}
    columns = {}
    for name, cost in costs.items():
        columns[name] = cost.filter(fits[name].par, smooth=False).correlations(1).time_constants["rho"]
    return pd.DataFrame(columns)


def draw_histories(model: fme.OdeModel, data: pd.DataFrame) -> np.ndarray:
    """Draw the readings of all firms, the first in black, over the path without noise."""
    names = {
        "BL": "backlog, orders",
        "DDRM": "delivery delay\nseen by the market, months",
        "PC": "capacity, orders a month",
    }
    _, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    path = model()
    for ax, (name, label) in zip(panels, names.items(), strict=True):
        for firm, rows in data.groupby("firm"):
            style = {"color": "black", "lw": 1.0, "zorder": 3} if firm == 1 else {"color": "0.75", "lw": 0.6}
            ax.plot(rows["time"], rows[name], label={1: "readings of firm 1", 2: "of the others"}.get(firm), **style)
        ax.plot(path["time"], path[name], color=COLORS["simulation"], lw=2, zorder=4, label="without noise")
        ax.set(xlabel="months", ylabel=label, ylim=(0, None))
    panels[0].legend(loc="upper left", frameon=False, fontsize="small")
    return panels


def draw_functions(fits: dict[str, dict[str, fme.ModFit]], truth: pd.Series) -> np.ndarray:
    """Draw the three table functions as they are and as they are found, with FIMLOF's 95 % band."""
    curves = {
        "orders a salesman takes a month": ("delay seen by the market, months", np.linspace(1, 6, 51), (0, 500), sales),
        "share of capacity used": ("backlog / capacity, months", np.linspace(0.5, 5, 51), (0, 1.4), production),
        "capacity ordered, 1 / month": ("delay pressure", np.linspace(0.4, 2.4, 51), (-0.1, 0.25), ordering),
    }
    _, panels = plt.subplots(len(fits), 3, figsize=(11, 3.2 * len(fits)), layout="constrained", squeeze=False)
    for row, (which, methods) in zip(panels, fits.items(), strict=True):
        for ax, (name, (x_label, x, limits, f)) in zip(row, curves.items(), strict=True):
            band = fme.derived(methods["FIMLOF"], lambda p, f=f, x=x: f(p, x))
            ax.fill_between(x, band["lower"], band["upper"], color=COLORS["FIMLOF"], alpha=0.25, lw=0)
            for method, fit in methods.items():
                ax.plot(x, f(fit.par, x), color=COLORS[method], lw=1.5, label=method)
            ax.plot(x, f(truth, x), color="black", lw=1, ls="--", label="truth")
            ax.set(xlabel=x_label, ylabel=name, ylim=limits, title=which)
        row[0].legend(frameon=False, fontsize="small", loc="lower left")
    return panels


def main(output: Path = Path("results/market_growth"), firms: int = 20) -> dict[str, object]:
    """Simulate, fit one history and all, print the tables, write them and pictures."""
    model = make_model()
    truth = true_values(model)
    data, sd = simulated(model, firms, seed=1)
    output.mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {}
    fits = {}
    for which, part in {"one history": data[data["firm"] == 1], f"{firms} histories": data}.items():
        fits[which] = fitted(model, part, sd)
        parameters, curves = errors(fits[which], truth)
        best = fits[which]["FIMLOF"]
        gain = best.loglik + 0.5 * fimlof_cost(model, part, sd)(truth)
        serial = memory(model, part, sd, fits[which])
        print(f"{which.capitalize()}, {best.nobs:g} data. Errors in percent of the true values:\n")
        print(parameters.round(1).to_string())
        print(f"\nOf the functions (CEF: in percent of 0.03 a month):\n\n{curves.round(1).to_string()}")
        print(f"\nSimulation: {fits[which]['simulation'].message}")
        print(f"\nlog L at the estimate lies {gain:.1f} above that at the truth; 6.5 are expected of 13 parameters.")
        print(f"\nCorrelation of each prediction error with the one before:\n\n{serial.round(2).T.to_string()}\n")
        found[which] = {"parameters": parameters, "functions": curves, "gain": gain, "memory": serial}
        name = which.replace(" ", "_")
        pd.concat([parameters, curves]).to_csv(output / f"{name}.csv", index_label="quantity")
    save(draw_histories(model, data), output / "histories")
    save(draw_functions(fits, truth), output / "functions")
    print(f"Tables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return found | {"fits": fits}


def save(axes: object, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
