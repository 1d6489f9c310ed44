"""The Nile at Aswan, 1871-1970: a level that wanders, read with error; a jump in it, and ten years ahead.

The local level model (Durbin and Koopman 2001, chapter 2), flow in 1e8 m3 a year::

    level(n) = level(n-1) + w,  w of standard deviation sd_w        what the river's regime does
    flow(n)  = level(n) + v,    v of standard deviation sd_v        the single year's weather

Nothing is known of the level before 1871: the start is diffuse. The estimates are those of the literature, variances
1469 of the level and 15099 of the flow. The prediction errors are white and normal: nothing speaks against the model,
taken as a whole. But of all jumps of the level the data ask most for one in 1899, when a dam at Aswan was begun. With a
free jump in that year, put in as a forcing, the level needs no other noise: log L rises by 10 for one parameter more,
and forecasts differ: a level that wanders may be anywhere in ten years, one that has jumped once will stay.

Run it by ``python vignettes/nile.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

FLOW = "flow, 1e8 m3 a year"
YEAR = 1899


def make_models(years: pd.Series) -> tuple[fme.DifferenceModel, fme.DifferenceModel]:
    """Return the level, and the level that jumps in one year."""
    settings = {"state": {"level": 1000.0}, "times": years, "outputs": {"flow": "level"}}
    level = fme.DifferenceModel("next(level) = level", **settings)
    pulse = {"pulse": (years, (years == YEAR).astype(float))}
    jump = fme.DifferenceModel("next(level) = level + jump * pulse", parms={"jump": 0.0}, forcings=pulse, **settings)
    return level, jump


def fitted() -> tuple[fme.FimlofCost, fme.ModFit, fme.FimlofCost, fme.ModFit]:
    """Return cost and fit without a jump, and with one."""
    nile = fme.datasets.load("Nile")
    level, jump = make_models(nile["year"])
    river = fme.FimlofCost(
        level, nile, x="year", process_noise={"level": "sd_w"}, measurement_noise={"flow": "sd_v"},
        parms={"sd_w": 50.0, "sd_v": 100.0}, initial="diffuse",
    )  # fmt: skip
    jumped = river.replace(model=jump)
    return river, fme.modFit(river, seed=1), jumped, fme.modFit(jumped, seed=1)


def draw_levels(results: dict[str, fme.FilterResult]) -> np.ndarray:
    """Draw the smoothed levels with their bands over the data."""
    _, panels = plt.subplots(2, 1, figsize=(7, 6), sharex=True, sharey=True, layout="constrained")
    for ax, (name, result) in zip(panels, results.items(), strict=True):
        result.plot("flow", axes=[ax])
        ax.set(ylabel=FLOW, ylim=(400, 1420))
        ax.set_title(name, loc="right")
    panels[0].set_xlabel("")
    panels[1].get_legend().remove()
    return panels


def draw_shocks(results: dict[str, fme.FilterResult]) -> np.ndarray:
    """Draw, for every year, the jump of the level that all data ask for, in its standard deviations."""
    _, panels = plt.subplots(2, 1, figsize=(7, 4.6), sharex=True, sharey=True, layout="constrained")
    for ax, (name, result) in zip(panels, results.items(), strict=True):
        shocks = result.shocks
        ax.vlines(shocks["time"], 0, shocks["AUXS"], color="0.4", lw=1)
        ax.axhline(0, color="black", lw=0.8)
        for limit in (-result.threshold, result.threshold):
            ax.axhline(limit, color="0.5", lw=0.8, ls=":")
        ax.set(title=name, ylabel="jump / its sd", ylim=(-4.5, 4.5))
    panels[0].annotate(str(YEAR), (YEAR, shock_of(results["without a jump"], YEAR)), (6, 0), textcoords="offset points")
    panels[1].set_xlabel("year")
    return panels


def draw_forecasts(ahead: dict[str, fme.Forecast]) -> np.ndarray:
    """Draw what comes next: bands of the level and of a year's flow."""
    _, panels = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for ax, (name, forecast) in zip(panels, ahead.items(), strict=True):
        forecast.plot("flow", axes=[ax])
        ax.set(ylabel=FLOW, title=f"{name}\n")  # the legend stands above the panel
    panels[1].set_ylabel("")
    panels[1].get_legend().remove()
    return panels


def shock_of(result: fme.FilterResult, year: int) -> float:
    """Return the jump of the level that the data ask for in a year, in its standard deviations."""
    shocks = result.shocks
    return float(shocks.loc[shocks["time"] == year, "AUXS"].iloc[0])


def main(output: Path = Path("results/nile")) -> dict[str, object]:
    """Fit both models, look at what the filter says, compare, look ahead; write tables and pictures."""
    river, fit, jumped, fit_jump = fitted()
    flt, flt_jump = river.filter(fit.par), jumped.filter(fit_jump.par)
    print(f"The level:\n\n{fit.summary()}\n\nVariances {fit.par['sd_w'] ** 2:.1f} and {fit.par['sd_v'] ** 2:.1f}.\n")
    print(flt.summary(fit.par))
    shocks = flt.shocks.set_index("time")["AUXS"]
    year, size = int(shocks.abs().idxmax()), shocks.abs().max()
    print(f"\nThe largest jump of the level that the data ask for: {year}, {size:.2f} sd.\n")

    comparison = fme.compare_fits({"level": fit, "level with a jump": fit_jump})
    p_value = float(comparison.tests["p_value"].iloc[0])
    any_year = min(1.0, p_value * fit.nobs)  # the year was looked for among all: Bonferroni
    print(f"With a jump in {YEAR}:\n\n{fit_jump.summary()}\n\n{comparison}\n")
    print(f"The year was chosen by these data: the chance that some year looks like this is below {any_year:.2g}.")

    ahead = {
        "without a jump": flt.forecast(10, level=0.9, parm_cov=fit.cov_scaled),
        f"with a jump in {YEAR}": flt_jump.forecast(10, level=0.9, parm_cov=fit_jump.cov_scaled),
    }
    bands = ["mean", "lower", "upper", "reading_lower", "reading_upper"]
    for name, forecast in ahead.items():
        rows = forecast.frame.query("name == 'flow' and time in (1971, 1980)").set_index("time")[bands]
        print(f"\nAhead {name}, 90 % bands of the level and of a year's flow:\n\n{rows.round(0).to_string()}")

    output.mkdir(parents=True, exist_ok=True)
    flt.smoothed.assign(sd=flt.sd()["level"]).to_csv(output / "smoothed.csv", index=False)
    flt.residuals.to_csv(output / "residuals.csv", index=False)
    comparison.frame.to_csv(output / "comparison.csv", index_label="model")
    pd.concat([f.frame.assign(model=name) for name, f in ahead.items()]).to_csv(output / "forecast.csv", index=False)
    results = {"without a jump": flt, f"with a jump in {YEAR}": flt_jump}
    save(draw_levels(results), output / "levels")
    save(draw_shocks(results), output / "shocks")
    save(flt.plot_diagnostics(), output / "diagnostics")
    save(draw_forecasts(ahead), output / "forecast")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return {"fit": fit, "fit_jump": fit_jump, "filter": flt, "comparison": comparison, "year": year, "forecast": ahead}


def save(axes: object, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
