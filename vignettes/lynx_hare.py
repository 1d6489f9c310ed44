"""Hares and lynx, 1900-1920: the predator-prey model calibrated on the pelts of the Hudson's Bay Company.

The model (Lotka and Volterra): hares multiply and are eaten, lynx multiply by eating and starve without::

    d(Hare)/dt = alpha * Hare - beta * Hare * Lynx
    d(Lynx)/dt = delta * Hare * Lynx - gamma * Lynx

Pelts (thousands a year) stand for the animals. Errors are multiplicative, so the logarithms of model and data are
compared; the four rates and the two initial values are positive, so they are fitted on the log scale. What comes out
agrees with the posterior means of Carpenter 2018 (Stan case study "Predator-Prey Population Dynamics: the
Lotka-Volterra model in Stan"): alpha 0.55, beta 0.028, gamma 0.80, delta 0.024.

Run it by ``make calibrate``, or ``python vignettes/lynx_hare.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy import stats

import fmepy as fme

EQUATIONS = """
    d(Hare)/dt = alpha * Hare - beta * Hare * Lynx
    d(Lynx)/dt = delta * Hare * Lynx - gamma * Lynx
    Hare(1900) = Hare0
    Lynx(1900) = Lynx0
"""
FIRST_GUESS = {"alpha": 0.5, "beta": 0.02, "gamma": 1.0, "delta": 0.02, "Hare0": 30.0, "Lynx0": 4.0}
LOWER = {"alpha": 0.01, "beta": 0.001, "gamma": 0.01, "delta": 0.001, "Hare0": 1.0, "Lynx0": 1.0}
UPPER = {"alpha": 2.0, "beta": 0.2, "gamma": 3.0, "delta": 0.2, "Hare0": 100.0, "Lynx0": 100.0}
PUBLISHED = pd.Series({"alpha": 0.55, "beta": 0.028, "gamma": 0.80, "delta": 0.024})

COLORS = {"Hare": "#b5651d", "Lynx": "#2f5d8a"}
LABEL = "pelts, thousands a year"


def main(output: Path = Path("results/lynx_hare"), data: pd.DataFrame | None = None) -> fme.ModFit:
    """Calibrate the model, print what comes out, write tables and pictures to `output`; return the fit."""
    pelts = fme.datasets.load("lynx_hare") if data is None else data
    model = fme.OdeModel(EQUATIONS, times=np.linspace(1900, 1920, 201), parms=FIRST_GUESS)
    cost = fme.SimulationCost(model, pelts, x="year", transform="log")

    log_cost = fme.transformed(cost, "log")
    fit = fme.modFit(log_cost, np.log(model.parms), lower=_log(LOWER), upper=_log(UPPER))
    summary = fit.summary()
    estimates = natural_scale(summary.par, fit.df_residual)
    band = fme.predict(fme.transformed(model, "log"), fit, level=0.95)

    print(f"Data: {pelts.attrs.get('title', 'pelts')}\n      {pelts.attrs.get('source', '')}\n")
    print("Fit of the logarithms of the parameters:\n")
    print(summary)
    print("\nOn the natural scale:\n")
    print(estimates.to_string(float_format="{:.4g}".format))

    output.mkdir(parents=True, exist_ok=True)
    estimates.to_csv(output / "estimates.csv", index_label="parameter")
    summary.par.to_csv(output / "summary_log_scale.csv", index_label="parameter")
    cost(np.exp(fit.par)).residuals.to_csv(output / "residuals.csv", index=False)
    band.frame.rename(columns={"time": "year"}).to_csv(output / "fitted.csv", index=False)

    initial, fitted = model(), model(np.exp(fit.par))
    save(draw_first_guess(initial, pelts), output / "first_guess")
    save(draw_fit(initial, fitted, band.frame, pelts), output / "fit")
    save(draw_phases(fitted, pelts), output / "phases")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return fit


def _log(bounds: dict[str, float]) -> dict[str, float]:
    return {name: float(np.log(value)) for name, value in bounds.items()}


def natural_scale(par: pd.DataFrame, df_residual: float) -> pd.DataFrame:
    """Return estimates, standard errors (first order) and 95 % intervals of the parameters themselves."""
    log_estimate, log_error = par["Estimate"], par["Std. Error"]
    half = stats.t.ppf(0.975, df_residual) * log_error
    estimate = np.exp(log_estimate)
    table = pd.DataFrame(
        {
            "estimate": estimate,
            "std_error": estimate * log_error,
            "lower_95": np.exp(log_estimate - half),
            "upper_95": np.exp(log_estimate + half),
        }
    )
    return table.join(PUBLISHED.rename("published"))


def draw_first_guess(initial: pd.DataFrame, pelts: pd.DataFrame) -> plt.Figure:
    """Return the data against the model at its first guess."""
    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 5.5), layout="constrained")
    run = initial.rename(columns={"time": "year"})
    fme.plot_model(run, obs=pelts, labels=["first guess"], axes=axes, color="0.4", xlabel="", legpos="upper right")
    _label(axes, "Before the fit")
    return figure


def draw_fit(initial: pd.DataFrame, fitted: pd.DataFrame, band: pd.DataFrame, pelts: pd.DataFrame) -> plt.Figure:
    """Return the data, the first guess, the fitted curve and its 95 % band."""
    figure, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 5.5), layout="constrained")
    for ax, species in zip(axes, COLORS, strict=True):
        rows = band[band["var"] == species]
        ax.fill_between(
            rows["time"], rows["lower"], rows["upper"], color=COLORS[species], alpha=0.25, lw=0, label="95 % band"
        )
        ax.plot(initial["time"], initial[species], color="0.6", ls=":", label="first guess")
        ax.plot(fitted["time"], fitted[species], color=COLORS[species], label="fitted")
        ax.plot(pelts["year"], pelts[species], "o", color="black", ms=4, label="observed")
        ax.legend(loc="upper right", ncols=4, fontsize="small", frameon=False)
        ax.set_ylim(0, 1.25 * max(pelts[species].max(), rows["upper"].max(), initial[species].max()))
    _label(axes, "Fitted")
    return figure


def draw_phases(fitted: pd.DataFrame, pelts: pd.DataFrame) -> plt.Figure:
    """Return lynx against hares: the fitted orbit and the years."""
    figure, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
    ax.plot(fitted["Hare"], fitted["Lynx"], color=COLORS["Lynx"], label="fitted")
    ax.plot(pelts["Hare"], pelts["Lynx"], "o:", color="black", ms=4, lw=0.7, label="observed")
    places = {1900: (6, -10), 1904: (6, 4), 1908: (-8, -14), 1912: (-6, 8), 1916: (-32, 3), 1920: (2, 8)}
    for row in pelts[pelts["year"].isin(list(places))].itertuples():
        where = {"xytext": places[row.year], "textcoords": "offset points"}
        ax.annotate(str(row.year), (row.Hare, row.Lynx), **where, fontsize="small")
    ax.set(
        xlabel=f"Hare: {LABEL}",
        ylabel=f"Lynx: {LABEL}",
        title="Hares lead, lynx follow",
        xlim=(0, None),
        ylim=(0, None),
    )
    ax.legend(frameon=False)
    return figure


def _label(axes: np.ndarray, title: str) -> None:
    for ax, species in zip(axes, COLORS, strict=True):
        ax.set_ylim(bottom=0)
        ax.set_ylabel(f"{species}: {LABEL}")
        ax.set_xticks(range(1900, 1921, 4))
    axes[0].set_title(f"{title}: hare and lynx, Hudson's Bay Company")
    axes[1].set_xlabel("year")


def save(figure: plt.Figure, path: Path) -> None:
    """Write a figure as PNG and SVG, and close it."""
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=200)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
