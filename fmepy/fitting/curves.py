"""Fitted curves with their bands and the data: the panels of a fit above its residuals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import FmepyError
from fmepy.fitting.lmfit_result import values_at
from fmepy.fitting.predict import predict
from fmepy.journal.encoding import Gone
from fmepy.models.on_grid import profiles_at_rest
from fmepy.tables.cells import some_of
from fmepy.tables.sheet import time_text

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit

_MOST = 12  # entities; `cost.plot(fit.par)` draws all
_MOST_TIMES = 5  # profiles in a panel


@dataclass(frozen=True, slots=True, eq=False)
class FittedPanel:
    """Curves and data of one panel: of a variable, or of all variables of an entity.

    Attributes
    ----------
    title : str
        The entity; empty where there is none.
    x_name : str
    curves : DataFrame
        Columns x, var, fit, lower, upper; ends of a band that is not known are NaN.
    seen : DataFrame
        Columns name, x, obs, and censored where some readings are limits.
    on_log : bool
        The data were compared as logarithms.
    band : str
        What the band contains.
    upright : bool
        x is a depth, downwards.
    quantity : str
        Of what the curves are profiles, at times that var and name say; empty of others.
    """

    title: str
    x_name: str
    curves: pd.DataFrame
    seen: pd.DataFrame
    on_log: bool
    band: str
    upright: bool = False
    quantity: str = ""


def fitted_panels(fit: ModFit) -> list[FittedPanel]:
    """Return the panels of fitted curves; none for a function, or for a result from a file."""
    out: list[FittedPanel] = []
    for part in () if isinstance(fit.source, Gone) else getattr(fit.source, "parts", (fit.source,)):
        with suppress(FmepyError):  # what cannot be run is left out: residuals are drawn in any case
            if hasattr(part, "readings") and part.x is not None:
                out += list((_of_runs if part.comparison.depths is None else _of_profiles)(fit, part))
            elif hasattr(part, "filter"):
                out += list(_of_filter(fit, part))
    return out


def _of_runs(fit: ModFit, cost: Any) -> Iterator[FittedPanel]:
    """Yield the panels of a cost by simulation: one a variable, or one an entity."""
    names, seen, upright = list(cost.comparison.group_names), cost.readings, bool(profiles_at_rest(cost.predictor))
    on_log = cost.comparison.scale.is_logarithmic(len(cost.comparison))
    labels = (None,) if cost.experiments is None else cost.experiments.column.labels
    for label in labels[:_MOST]:
        models = [cost.predictor] if cost.plain_run else list(cost.runs_of(label).values())
        tables = [_curve(fit, model, names) for model in models]
        gap = pd.DataFrame({"var": names})  # between the runs of one entity
        curves = pd.concat([t for table in tables for t in (table, gap)][:-1], ignore_index=True)
        if label is not None:
            mine = seen[seen["entity"].map(str) == str(label)]
            yield FittedPanel(f"{cost.entity} {label}", cost.x, curves, mine, on_log, "95 %", upright)
            continue
        for name in names:
            rows = curves[curves["var"] == name], seen[seen["name"] == name]
            yield FittedPanel("", cost.x, *rows, on_log, "95 % of the model's value", upright)


def _of_profiles(fit: ModFit, cost: Any) -> Iterator[FittedPanel]:
    """Yield a panel a variable (of an entity) of a cost by time and depth: profiles at times of the data."""
    seen = cost.readings.assign(depth=cost.comparison.depths)
    labels = (None,) if cost.experiments is None else cost.experiments.column.labels
    for label in labels[:_MOST]:
        mine = seen if label is None else seen[seen["entity"].map(str) == str(label)]
        (model,) = [cost.predictor] if cost.plain_run else cost.runs_of(label).values()
        times = some_of(np.unique(mine["x"]), _MOST_TIMES)
        try:
            table = predict(model, fit, times=times).frame
        except FmepyError:
            table = model(_values(fit, model) or None, times).melt(["time", "x"], var_name="var", value_name="fit")
            table = table.assign(lower=np.nan, upper=np.nan)
        days = {t: f"{cost.x} {time_text(t, cost.calendar)}" for t in times}
        for name in dict.fromkeys(mine["name"]):
            rows, own = table[table["var"] == name], mine[(mine["name"] == name) & mine["x"].isin(times)]
            yield FittedPanel(
                "", "depth",
                rows.assign(var=rows["time"].map(days)),
                own.assign(name=own["x"].map(days), x=own["depth"]), False, "95 %", True,
                name if label is None else f"{name}, {cost.entity} {label}",
            )  # fmt: skip


def _curve(fit: ModFit, model: Any, names: list[str]) -> pd.DataFrame:
    try:
        table = predict(model, fit).frame
    except FmepyError:  # no band: nothing that the model has was fitted, a parameter is tied, its sensitivities fail
        table = model(_values(fit, model) or None)
        table = table.melt(table.columns[0], var_name="var", value_name="fit").assign(lower=np.nan, upper=np.nan)
    return table[table["var"].isin(names)].rename(columns={table.columns[0]: "x"})


def _values(fit: ModFit, thing: Any) -> dict[str, float]:
    """Return the fitted values of the parameters of a model or cost, with those that lmfit fixes or ties."""
    return {k: v for k, v in values_at(fit).items() if k in thing.parms.index}


def _of_filter(fit: ModFit, cost: Any) -> Iterator[FittedPanel]:
    """Yield the smoothed states and outputs of a filter, one a variable, or one an entity."""
    flt = cost.filter(_values(fit, cost))
    if flt.failure is not None:
        return
    fine, seen = flt.drawn_through(), flt.data_as_given
    tables = [t.set_index("time") for t in (fine.smoothed, *fine.limits())]
    names = list(dict.fromkeys(n for n in seen["name"] if n in tables[0].columns))
    columns = [t[names].melt(ignore_index=False, var_name="var") for t in tables]
    curves = columns[0].rename(columns={"value": "fit"}).rename_axis("x").reset_index()
    curves = curves.assign(lower=columns[1]["value"].to_numpy(), upper=columns[2]["value"].to_numpy())
    entity = flt.entity_column
    of = np.full(len(curves), "") if entity is None else np.tile(fine.smoothed[entity].map(str), len(names))
    for label in flt.entities[:_MOST]:
        if label is not None:
            mine = curves[of == str(label)], flt.rows_of(seen, label)
            yield FittedPanel(f"{entity} {label}", flt.xlabel, *mine, False, "95 %")
            continue
        for name in names:
            rows = curves[curves["var"] == name], seen[seen["name"] == name]
            yield FittedPanel("", flt.xlabel, *rows, False, "95 % of the state")
