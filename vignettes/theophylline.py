"""Theophylline in twelve subjects: one curve for all, or a curve each; the dose is an event.

A dose by mouth goes into the gut, from there at the rate ka into the blood, and leaves it at the rate ke (Boeckmann,
Sheiner and Beal 1994; the data set `Theoph` of R)::

    d(gut)/dt = -ka gut        d(central)/dt = ka gut - ke central        conc = central / V

Every subject got a dose of its own: the table of events has a column ``Subject``, as the data have, so that the doses
belong to the subjects. The size of the errors is estimated with the model (``measurement_noise=``): every fit is
a likelihood, and they can be compared. All twelve are fitted at once, three times:

* pooled: ka, ke, V shared, as if all were one person;
* by subject: ``entity_parms=["ka", "ke", "V"]``, 36 parameters. The residual standard error is that of R's ``nlsList``
  (Pinheiro and Bates 2000), 0.7002 on 96 degrees of freedom;
* by subject with noise that grows: its sd is ``sqrt(a**2 + (b*conc)**2)``, as that of assays often is.

Run it by ``python vignettes/theophylline.py [folder]``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

PARMS = {"ka": 1.5, "ke": 0.08, "V": 30.0}
UNITS = {"ka": "1/h", "ke": "1/h", "V": "l"}


def rates(t: Any, gut: Any, central: Any, *, ka: Any, ke: Any) -> Any:
    """First-order absorption and elimination, mg an hour."""
    return -ka * gut, ka * gut - ke * central


def main(output: Path = Path("results/theophylline")) -> dict[str, Any]:
    """Fit the subjects together and each by itself, draw both, and return what was found."""
    theo = fme.datasets.load("Theoph")
    subjects = theo.groupby("Subject", sort=False).first()
    doses = pd.DataFrame(
        {
            "Subject": subjects.index,
            "var": "gut",
            "time": 0.0,
            "value": subjects["Dose"] * subjects["Wt"],
            "method": "add",
        }
    )
    model = fme.OdeModel(
        rates,
        state={"gut": 0, "central": 0},
        times=np.linspace(0, 25, 101),
        parms=PARMS,
        outputs={"conc": "central / V"},
        events=doses,
    )
    readings = theo[["Subject", "Time", "conc"]]
    pooled = fme.SimulationCost(model, readings, x="Time", entity="Subject", measurement_noise={"conc": "estimate"})
    own = pooled.replace(entity_parms=["ka", "ke", "V"])
    grows = own.replace(measurement_noise={"conc": "sqrt(a**2 + (b*conc)**2)"}, parms={"a": 0.3, "b": 0.1})
    costs = {"pooled": pooled, "by subject": own, "noise that grows": grows}
    fits = {name: fme.modFit(cost, lower=0) for name, cost in costs.items()}
    comparison = fme.compare_fits(fits)
    table = fits["noise that grows"].by_entity()
    # the likelihood divides the squares by n, nlsList by n less the 36 parameters of the curves
    sd, degrees = fits["by subject"].par["sd_v_conc"], len(readings) - 36
    sigma = float(sd * np.sqrt(len(readings) / degrees))

    print(f"Data: {theo.attrs.get('title', 'Theoph')}\n      {theo.attrs.get('source', '')}\n")
    print(f"{fits['pooled'].summary()}\n\nBy subject, noise that grows (.se: standard error):\n\n{table.round(3)}\n")
    print(f"Residual standard error by subject: {sigma:.4f} mg/l on {degrees} degrees.\n")
    print(f"The sd of an error goes from {fits['noise that grows'].par['a']:.2f} mg/l near zero to "
          f"{100 * fits['noise that grows'].par['b']:.0f} % of a high concentration.\n")  # fmt: skip
    print(comparison)

    output.mkdir(parents=True, exist_ok=True)
    table.to_csv(output / "by_subject.csv")
    labels = {"xlabel": "time, h", "ylabel": "mg/l"}
    curves = pooled.plot(fits["pooled"].par, color="C1", label="pooled", **labels)
    grows.plot(fits["noise that grows"].par, axes=curves, color="C0", label="own", **labels)
    for ax in curves:
        ax.label_outer()
    curves[0].legend(*_lines(curves[0]), frameon=False, fontsize="small")
    save(curves, output / "curves")
    save(fits["noise that grows"].plot(), output / "residuals")
    save(draw_estimates(table, fits["pooled"]), output / "estimates")
    print(f"\nTables (CSV) and pictures (PNG, SVG) are in {output}/:")
    print("  " + "  ".join(sorted(p.name for p in output.iterdir())))
    return {"fits": fits, "by_subject": table, "sigma": sigma, "comparison": comparison}


def _lines(ax: Any) -> tuple[list[Any], list[str]]:
    named = {line.get_label(): line for line in ax.lines if line.get_label() in ("pooled", "own")}
    return list(named.values()), list(named)


def draw_estimates(table: pd.DataFrame, pooled: fme.ModFit) -> Any:
    """Draw the estimates of all subjects with 95 % intervals, of the logarithms; those of all together as a line."""
    _, axes = plt.subplots(1, 3, figsize=(9, 3.4), sharey=True, layout="constrained")
    at = np.arange(len(table))
    for ax, (name, unit) in zip(axes, UNITS.items(), strict=True):
        factor = np.exp(1.98 * table[f"{name}.se"] / table[name])
        width = [table[name] * (1 - 1 / factor), table[name] * (factor - 1)]
        ax.errorbar(table[name], at, xerr=width, fmt="o", color="C0", markersize=4, label="own")
        ax.axvline(pooled.par[name], color="C1", label="pooled")
        ax.set(xlabel=f"{name}, {unit}", yticks=at, yticklabels=table.index)
    axes[0].set_ylabel("subject")
    axes[0].legend(frameon=False, fontsize="small")
    axes[0].set_xscale("log")
    return axes


def save(axes: object, path: Path) -> None:
    """Write the figure of some Axes as PNG and SVG, and close it."""
    figure = np.ravel(np.asarray(axes, dtype=object))[0].figure
    for suffix in (".png", ".svg"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
