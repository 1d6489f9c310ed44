"""How sure are we? Two posteriors by modMCMC: Monod's growth with an unknown error, and a bent target.

**Growth.** The growth rate of bacteria on a substrate of concentration x (mg COD per litre) is held against seven
readings (per hour)::

    y = mumax x / (x + ks) + error,      error normal, of unknown variance

Seven readings say little about ks, and the variance is sampled beside the parameters: its prior counts as much as one
set of data (``wvar0=1``). The bands then hold what is unknown: of the parameters, and of the next reading.

**A bent target.** x1 and x2 - x1^2 - 1 are normal with correlation 0.9, so that the region of high density is a banana.
The proposal is far too long (5 in both directions). Adaptation learns from the moves that were accepted, delayed
rejection follows a rejected try by a shorter one, DRAM does both; DE-MC(Z) takes its jumps from the past of its
members. What counts is the number of effective draws for the evaluations that they cost.

Source of the readings: Berthouex, P. M. and Brown, L. C. (2002), Statistics for Environmental Engineers, 2nd ed.

Run it by ``python vignettes/monod_mcmc.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

OBS = pd.DataFrame(
    {"x": [28, 55, 83, 110, 138, 225, 375.0], "y": [0.053, 0.06, 0.112, 0.105, 0.099, 0.122, 0.125]},
)
CORRELATION = 0.9
WAYS = {
    "fixed proposal": {},
    "adaptive": {"updatecov": 100},
    "DRAM": {"updatecov": 100, "ntrydr": 2},
    "DE-MC(Z)": {"method": "demcz", "niter": 2500, "burninlength": 500},
}


def growth(p, x):
    """Return the table of growth rates, per hour."""
    return pd.DataFrame({"x": x, "y": p["mumax"] * x / (x + p["ks"])})


def residuals(p):
    """Return model minus readings, per hour."""
    x = OBS["x"].to_numpy()
    return p["mumax"] * x / (x + p["ks"]) - OBS["y"].to_numpy()


def banana(p):
    """Return -2 log density of the bent target, up to a constant."""
    a, b = p["x1"], p["x2"] - p["x1"] ** 2 - 1
    return (a * a - 2 * CORRELATION * a * b + b * b) / (1 - CORRELATION**2)


def sample_growth() -> tuple[object, object, object]:
    """Return the fit, the chains, and the ensemble of curves with the error of a reading added."""
    fit = fme.modFit(residuals, {"mumax": 0.1, "ks": 50.0}, lower=0)
    chain = fme.modMCMC(
        residuals, fit.par, jump=fit.cov_scaled * 2.4**2 / 2, var0=fit.ssr / fit.df_residual, wvar0=1.0, lower=0,
        niter=6000, burninlength=1000, updatecov=100, ntrydr=2, chains=2, seed=1,
    )  # fmt: skip
    grid = np.linspace(5, 400, 80)
    curves = fme.sensRange(lambda p: growth(p, grid), parInput=chain.pars, num=500, seed=2)
    return fit, chain, curves


def sample_banana() -> dict[str, object]:
    """Return one chain of every way."""
    settings = {"jump": 5.0, "niter": 7500, "burninlength": 1500, "seed": 5}
    return {name: fme.modMCMC(banana, {"x1": 0.0, "x2": 0.5}, **{**settings, **way}) for name, way in WAYS.items()}


def compared(chains: dict[str, object]) -> pd.DataFrame:
    """Return what each way made of its evaluations."""
    rows = {}
    for name, chain in chains.items():
        evaluations = chain.iterations.sum() + chain.count["dr_steps"].sum()
        effective = chain.diagnostics()["ess_bulk"].min()
        rows[name] = {
            "acceptance": chain.acceptance_rate.mean(),
            "evaluations": evaluations,
            "effective draws": effective,
            "per 1000 evaluations": 1000 * effective / evaluations,
        }
    return pd.DataFrame(rows).T


def draw_bananas(chains: dict[str, object]) -> object:
    """Draw the draws of every way over the lines that hold 50 and 95 % of the density; return the Axes."""
    _, panels = plt.subplots(1, len(chains), figsize=(11, 3.4), sharex=True, sharey=True, layout="constrained")
    x1, x2 = np.meshgrid(np.linspace(-4, 4, 200), np.linspace(-2.5, 14, 200))
    height = banana({"x1": x1, "x2": x2})  # chi-square with two degrees of freedom, for it is a normal, bent
    for ax, (name, chain) in zip(panels, chains.items(), strict=True):
        ax.plot(chain.pars["x1"], chain.pars["x2"], ".", markersize=1.5, alpha=0.3)
        ax.contour(x1, x2, height, levels=[-2 * np.log(0.5), -2 * np.log(0.05)], colors="black", linewidths=0.8)
        ax.set(title=name, xlabel="x1", xlim=(-4, 4), ylim=(-2.5, 14), xticks=[-3, 0, 3])
    panels[0].set_ylabel("x2")
    return panels


def main(output: Path = Path("results/monod_mcmc")) -> dict[str, object]:
    """Sample both posteriors, print what is found, and write tables and pictures."""
    fit, chain, curves = sample_growth()
    print(f"The fit:\n\n{fit.summary()}\n\nThe chains:\n\n{chain.summary()}")
    band, readings = curves.summary(), curves.with_error(chain.sig, seed=3).summary()
    bananas = sample_banana()
    table = compared(bananas)
    print(f"\nThe banana:\n\n{table.round(2)}")

    output.mkdir(parents=True, exist_ok=True)
    chain.frame.to_csv(output / "draws.csv")
    readings.frame.to_csv(output / "prediction.csv", index=False)
    table.to_csv(output / "banana.csv", index_label="way")
    save(chain.plot(Full=True), output / "traces")
    save(chain.pairs(nsample=1000), output / "pairs")
    look = {"quant": True, "obs": OBS, "xlabel": "substrate, mg COD per litre", "ylabel": "growth rate, per hour"}
    _, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    band.plot(axes=[panels[0]], title="the curve", legpos=None, **look)
    readings.plot(axes=[panels[1]], title="the next reading", legpos="bottomright", **look)
    panels[1].set_ylabel("")
    save(panels, output / "bands")
    save(draw_bananas(bananas), output / "bananas")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return {"fit": fit, "chain": chain, "band": band, "readings": readings, "bananas": bananas, "table": table}


def save(axes: object, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
