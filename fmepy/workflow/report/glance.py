"""The first screen of the report: the verdict in a few sentences, data with the fitted curve, the estimates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmepy.fitting.result import ModFit
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn
from fmepy.workflow.report.tables import Table, table_of
from fmepy.workflow.report.words import many, names, number, percent
from fmepy.workflow.steps.fit import best_facts
from fmepy.workflow.steps.scale import LEVEL, estimates, interval

MOST_SHOWN = 4
"""Panels of the first screen; the others stand with the data."""
_MOST_ESTIMATES = 20
_WIDE, _LOW, _SMALL = (5.7, 4.0), (5.7, 2.25), (2.85, 2.25)


def glance_facts(found: Findings, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what the first screen shows."""
    fit = found.fit
    best = None if fit is None else best_facts(found, "fit")
    variables = best["agreement"]["variables"] if best and best["agreement"] else []
    return {
        "counts": len(warnings) + len(found.doubts), "best": best, "explained": _explained(variables),
        "estimates": None if fit is None else _estimates(found, fit),
        "curves": found.panels and (lambda: _curves(found)), "notes": [v["note"] for v in variables if v["note"]],
    }  # fmt: skip


def _explained(variables: Sequence[Mapping[str, Any]]) -> str:
    """Return how much of each variable the fit explains: "94 % of Hare and 92 % of Lynx"."""
    told = [v for v in variables if v["is_told"]]
    return names([f"{percent(max(v['explained'], 0.0))} of {v['name']}" for v in told], 4) if told else ""


def _estimates(found: Findings, fit: ModFit) -> Table | None:
    """Return a line for each estimate: by profile likelihood where there is one of the level, else by curvature."""
    shown = estimates(found.task, fit)[["parameter", "estimate"]]
    ends = interval(found.task, fit).set_axis(shown["parameter"], axis=0)
    profiles, by_profile = found.tables.get("intervals.csv"), False
    if profiles is not None and "profile" in found.results and not found.has_failed("profile"):
        rows = profiles[profiles["level"] == LEVEL].set_index("parameter")[["lower", "upper"]]
        rows = rows.loc[np.isfinite(rows).all(axis=1) & rows.index.isin(ends.index)]
        ends.loc[rows.index, ["lower", "upper"]] = rows
        by_profile = bool(len(rows))
    both = zip(ends["lower"], ends["upper"], strict=True)
    shown[f"{100 * LEVEL:g} % interval"] = [f"{number(a, 3)} to {number(b, 3)}" if a == a else "–" for a, b in both]
    found.add_units(shown)
    caption = "Estimates" + ", with intervals by profile likelihood where there are profiles" * by_profile
    return table_of(shown, caption, file="estimates.csv", most=_MOST_ESTIMATES)


def _curves(found: Findings) -> Pictures:
    """Return the data with the fitted curves and their bands, a panel a variable or an entity."""
    from fmepy.plotting.fits import draw_fitted

    panels = found.panels[:MOST_SHOWN]
    size = {1: _WIDE, 2: _LOW}.get(len(panels), _SMALL)

    def draw(axes: Any) -> None:
        for ax, panel in zip(axes, panels, strict=True):
            draw_fitted(ax, panel)
            ax.set_xlabel(found.x_label)
            if panel.title and len(panels) > 1:  # the letters of a small panel are for its numbers
                ax.set_ylabel("")

    of = f" of {panels[0].curves['var'].iloc[0]}" if panels[0].title and panels[0].curves["var"].nunique() == 1 else ""
    titles = [p.title or str(p.curves["var"].iloc[0]) for p in panels]
    has_band = any(p.curves["upper"].notna().any() for p in panels)
    n = len(found.panels)
    rest = f" Here are {len(panels)} of {many(n, 'panel')}; all stand with the data." if n > len(panels) else ""
    made = drawn(
        draw, [f"{t}: readings as points, the fitted curve{' and its band' * has_band}, over {found.x_name}."
               for t in titles], size=size,
        caption=f"Points: readings{of}. Line: the fit.{' Band: 95 % of the fitted curve.' * has_band}{rest}",
    )  # fmt: skip
    return replace(made, is_wide=len(panels) <= 2)
