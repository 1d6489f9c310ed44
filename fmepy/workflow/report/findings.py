"""What the sections of the report are written from: the task, the results, and what follows from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.fitting.curves import FittedPanel
from fmepy.fitting.result import ModFit
from fmepy.workflow.report.pictures import Pictures, drawn_each
from fmepy.workflow.report.tables import Table, table_of
from fmepy.workflow.report.words import short
from fmepy.workflow.steps.base import FITS, CalibrationTask, best_fit
from fmepy.workflow.steps.scale import natural, natural_fit


@dataclass(frozen=True, eq=False)
class Findings:
    """A calibration as the report tells it.

    Attributes
    ----------
    task : CalibrationTask
    results : mapping of str to result
        By step.
    record : mapping
        What ``run.json`` holds (`fmepy.workflow.runner`).
    tables : mapping of str to DataFrame
        What is written, by the name of the file.
    doubts : list of (str, str)
        What sections found that speaks against relying on the results, in a sentence, with the section's name; the
        first section of the page tells it.
    """

    task: CalibrationTask
    results: Mapping[str, Any]
    record: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    doubts: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def fit(self) -> ModFit | None:
        """The fit, the better one of several, of those that count if any does; None where nothing was fitted."""
        fits = {name: self.results[name] for name in FITS if self.results.get(name) is not None}
        counting = {name: fit for name, fit in fits.items() if not self.has_failed(name)}
        return best_fit(counting or fits) if fits else None

    @property
    def steps(self) -> Mapping[str, Mapping[str, Any]]:
        """What the record says of each step."""
        records: Mapping[str, Mapping[str, Any]] = self.record.get("steps") or {}
        return records

    def step(self, name: str) -> Mapping[str, Any]:
        """Return what the record says of a step."""
        return self.steps.get(name) or {}

    def has_failed(self, name: str) -> bool:
        """Tell whether a step failed, though it may have a result that tells why."""
        return self.step(name).get("state") == "failed"

    @property
    def broken(self) -> list[str]:
        """The steps that failed or were interrupted."""
        return [name for name, step in self.steps.items() if step.get("state") in ("failed", "interrupted")]

    @property
    def left(self) -> list[str]:
        """The steps that were not begun."""
        return [name for name, step in self.steps.items() if step.get("state") == "not run"]

    @property
    def demands(self) -> list[Mapping[str, Any]]:
        """What the file demands, and whether it is met."""
        return list(self.record.get("demands") or [])

    @property
    def missed(self) -> list[str]:
        """The demands that are not met."""
        return [str(d["demand"]) for d in self.demands if d["met"] is False]

    @cached_property
    def par(self) -> dict[str, float]:
        """The parameters of the fit, or else where it would begin, on their natural scale."""
        values = natural(self.task, self.task.start if self.fit is None else self.fit.par)
        return {str(name): float(value) for name, value in values.items()}

    def of_parameter(self, what: str, name: str) -> str:
        """Return the "unit" or the "description" of a parameter, "" where the file has none."""
        return str(getattr(self.task.case.parameter(name), what, ""))

    def table(self, file: str, caption: str, **how: Any) -> Table | None:
        """Return a table that a step wrote, see `table_of`."""
        return table_of(self.tables.get(file), caption, file=file, **how)

    def add_units(self, table: pd.DataFrame, at: int | None = None) -> None:
        """Give a table of parameters a column of their units, where there are any; without `at` the last one."""
        units = [self.of_parameter("unit", str(name)) for name in table["parameter"]]
        if any(units):
            table.insert(len(table.columns) if at is None else at, "unit", units)

    def label(self, name: str) -> str:
        """Return a parameter's name with its unit, as an axis bears it."""
        unit = self.of_parameter("unit", name)
        return f"{short(name, 28)}, {short(unit, 20)}" if unit else name

    @cached_property
    def readings(self) -> pd.DataFrame | None:
        """The data that are compared, in their own units: name, x, obs, entity, sign of a limit; None if not known."""
        cost = self.task.cost
        if (comparison := getattr(cost, "comparison", None)) is not None:
            out: pd.DataFrame = cost.readings.assign(limit=0 if comparison.marks is None else comparison.marks)
            out["entity"] = out["entity"].map(str) if "entity" in out else None
            return out if comparison.depths is None else out.assign(depth=comparison.depths)
        if self.filtered is not None:
            out = pd.DataFrame(self.filtered.data_as_given)
            column = self.filtered.entity_column
            out = out.assign(entity=None if column is None else out[column].map(str), limit=0)
            return out[["name", "x", "obs", "entity", "limit"]]
        return None

    @property
    def x_name(self) -> str:
        """What the independent variable is called."""
        comparison = getattr(self.task.cost, "comparison", None)
        given = getattr(comparison, "x_name", None) or getattr(self.task.cost, "x", None)
        if given:
            return str(given)
        return self.filtered.xlabel if self.filtered is not None else "x"

    @property
    def x_label(self) -> str:
        """The independent variable with its unit."""
        unit = self.task.x_unit
        return f"{self.x_name}, {unit}" if unit and unit not in self.x_name else self.x_name

    @cached_property
    def panels(self) -> Sequence[FittedPanel]:
        """The data with the fitted curves and their bands; of a function of the user's without bands."""
        if self.fit is None:
            return []
        return natural_fit(self.task, self.fit).fitted_panels() or self._read_panels()

    def _read_panels(self) -> list[FittedPanel]:
        table = getattr(self.fit.cost if self.fit else None, "residuals", None)
        if not isinstance(table, pd.DataFrame) or not {"name", "x", "obs", "mod"} <= set(table) or "entity" in table:
            return []
        curves = table.rename(columns={"name": "var", "mod": "fit"}).assign(lower=np.nan, upper=np.nan)
        parts = [(curves[curves["var"] == n].sort_values("x"), own) for n, own in table.groupby("name", sort=False)]
        return [FittedPanel("", self.x_name, curve, seen, False, "") for curve, seen in parts]

    @cached_property
    def filtered(self) -> Any:
        """The filter at the fit, of costs that have one; None of others, and where it cannot be run.

        It is run anew, for a result that was kept in a file holds numbers only.
        """
        done = self.results.get("filter")
        if not hasattr(self.task.cost, "filter"):
            return None if done is None else done.result
        try:
            return self.task.cost.filter(self.par, smooth=True if done is None else done.result.smooth)
        except Exception:  # a report is written of what failed, too
            return None if done is None else done.result

    @cached_property
    def filter_summary(self) -> Any:
        """What the tests of the filter at the fit say; None of costs without a filter."""
        flt = self.filtered
        return None if flt is None else flt.summary([k for k in self.par if k in flt.parms.index])

    def filtered_pictures(self, **words: Any) -> Pictures:
        """Return pictures of the states and outputs of a filter, with bands and data; words in ``filtered.html``."""
        flt = self.filtered
        kind = "smoothed" if flt.smooth else "filtered"
        known = [str(c) for c in getattr(flt, kind).columns if c not in ("time", flt.entity_column)]
        shown = [name for name in known if name not in flt.measured_states]
        return drawn_each(shown, lambda names, axes: flt.plot(names, kind, axes=axes), **words)
