"""HIV in the blood: which parameters matter, which can be told apart by the data, and what the model would do.

The model has uninfected cells T, infected cells I and free virus V::

    T' = lam - rho T - bet T V
    I' = bet T V - delt I
    V' = n delt I - c V - bet T V

Two records are held against it: the logarithm of the virus (every 1.7 days) and the number of T cells (every 4 days).
The questions before a fit: how strongly does each parameter act on what is measured, and which of them can be estimated
together? A collinearity index above about 20 says that a change of one parameter can be made up for by the others.

Run it by ``python vignettes/hiv_screening.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

PARMS = {"bet": 2e-5, "rho": 0.15, "delt": 0.55, "c": 5.5, "lam": 80.0, "n": 900.0}
FIVE = ["bet", "rho", "delt", "c", "lam"]


def rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741  # the field's own letter
    """Return the rates of change of T cells, infected cells and virus, per day."""
    infection = bet * T * V
    return lam - rho * T - infection, infection - delt * I, n * delt * I - c * V - infection


def make_model() -> fme.OdeModel:
    """Return the model, from day 0 to 60; infected cells start where the virus' first change says."""
    return fme.OdeModel(
        rates,
        state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000},
        times=np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)],
        outputs={"logV": "log(V)"},
        parms=PARMS,
    )


def make_data(model: fme.OdeModel, seed: int = 1257) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the two records with their errors: the model's own values plus normal noise."""
    rng = np.random.default_rng(seed)
    virus = model(times=np.r_[0, np.arange(0.1, 60, 1.7)])[["time", "logV"]].assign(sd=0.45)
    cells = model(times=np.arange(0, 60, 4.0))[["time", "T"]].assign(sd=4.5)
    virus["logV"] += rng.normal(0, 0.45, len(virus))
    cells["T"] += rng.normal(0, 4.5, len(cells))
    return virus, cells


def main(output: Path = Path("results/hiv_screening")) -> dict[str, object]:
    """Screen, fit the identifiable set, and look ahead; print what comes out and write tables and pictures."""
    model = make_model()
    virus, cells = make_data(model)
    cost = fme.SimulationCost(model, virus, err="sd") + fme.SimulationCost(model, cells, err="sd")

    sens = fme.sensFun(cost)
    print(f"Sensitivities ({sens.method}), ranked by L2:\n")
    print(sens.summary())
    collinearity = fme.collin(sens)
    two = fme.collin(sens, ["n", "delt"]).value
    five = fme.collin(sens, FIVE).value
    print(f"\nCollinearity of n and delt {two:.3g}, of {', '.join(FIVE)} {five:.3g}.")
    ident = fme.identifiability(sens)
    print(f"\n{ident}")

    log_cost = fme.transformed(cost, "log")
    fit = fme.modFit(log_cost, np.log(2 * model.parms[FIVE]))
    print(f"\nFit of the logarithms of {', '.join(FIVE)} from twice their values:\n\n{fit.summary()}")

    draws = np.exp(fme.Norm(fit.par, fit.cov_scaled, num=300, seed=1))
    ahead = fme.sensRange(model, parInput=draws, sensvar=["logV", "T"], num=300).summary()
    doses = fme.modCRL(
        lambda p: {"mean virus": model(p)["V"].mean()},
        parRange={k: (0.75 * v, 1.25 * v) for k, v in PARMS.items()},
        num=200,
        seed=1,
    )

    output.mkdir(parents=True, exist_ok=True)
    sens.summary().frame.to_csv(output / "sensitivities.csv", index_label="parameter")
    collinearity.frame.to_csv(output / "collinearity.csv", index=False)
    ahead.frame.to_csv(output / "ranges.csv", index=False)
    lines = sens.plot(which=["logV", "T"], legpos=None, xlabel="time, days")
    lines[-1].legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    save(lines, output / "sensitivities")
    save(collinearity.plot(threshold=20), output / "collinearity")
    both = pd.concat([virus.drop(columns="sd"), cells.drop(columns="sd")])
    save(ahead.plot(obs=both, legpos="topright", xlabel="time, days"), output / "ranges")
    save(doses.plot(trace=True), output / "mean_virus")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return {"sens": sens, "collinearity": collinearity, "five": five, "fit": fit, "ranges": ahead, "doses": doses}


def save(axes: object, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
