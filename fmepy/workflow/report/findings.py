"""What the sections of the report are made of: the task, the results, and how far model and data agree."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from fmepy.fitting.curves import FittedPanel
from fmepy.fitting.result import ModFit
from fmepy.tables.sheet import calendar_of, time_text
from fmepy.types import Axes, Vector
from fmepy.workflow.report.pictures import Pictures, drawn_each
from fmepy.workflow.report.tables import Table, table_of
from fmepy.workflow.report.words import number, short
from fmepy.workflow.steps.base import FITS, CalibrationTask, best_fit
from fmepy.workflow.steps.scale import natural, natural_fit

SUSPICIOUS = 3.0
"""Standard deviations beyond which a reading is suspicious."""
_FEWEST = 8  # readings from which a pattern can be judged
_PATTERN = 2.5  # standard errors beyond which a correlation of neighbours is a pattern
_RARE, _NOTED = 0.01, 0.05  # probability of the runs of signs below which the misfit has a pattern, and is noted
_AT_END = 4  # readings of one sign at the end that are noted, whatever their probability
_FOLLOWS = 0.5


@dataclass(frozen=True, eq=False)
class Findings:
    """A calibration as the report presents it.

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
        Reasons against relying on the results: the name of a section, and its sentence, which the first section of
        the page repeats.
    """

    task: CalibrationTask
    results: Mapping[str, Any]
    record: Mapping[str, Any]
    tables: Mapping[str, pd.DataFrame]
    doubts: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def fit(self) -> ModFit | None:
        """The best fit, of those that did not fail if there is one; None where nothing was fitted."""
        fits = {name: self.results[name] for name in FITS if self.results.get(name) is not None}
        counting = {name: fit for name, fit in fits.items() if not self.has_failed(name)}
        return best_fit(counting or fits) if fits else None

    @property
    def steps(self) -> Mapping[str, Mapping[str, Any]]:
        """The records of the steps."""
        return self.record.get("steps") or {}

    def step(self, name: str) -> Mapping[str, Any]:
        """Return the record of a step."""
        return self.steps.get(name) or {}

    def has_failed(self, name: str) -> bool:
        """Tell whether a step failed; it may have a result all the same."""
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

    def table(self, file: str, caption: str, times: Sequence[str] = (), **how: Any) -> Table | None:
        """Return a table that a step wrote, see `table_of`; `times` are its columns of times."""
        frame = self.tables.get(file)
        return table_of(None if frame is None else self.with_dates(frame, *times), caption, file=file, **how)

    def add_units(self, table: pd.DataFrame, at: int | None = None) -> None:
        """Insert a column of units into a table of parameters if there are any, at the end without `at`."""
        units = [self.of_parameter("unit", str(name)) for name in table["parameter"]]
        if any(units):
            table.insert(len(table.columns) if at is None else at, "unit", units)

    def label(self, name: str) -> str:
        """Return a parameter's name with its unit, for an axis."""
        unit = self.of_parameter("unit", name)
        return f"{short(name, 28)}, {short(unit, 20)}" if unit else name

    @cached_property
    def numbered(self) -> pd.DataFrame | None:
        """Variable, time, experiment and curve of every reading, of a model that numbers them (PEtab); None of others.

        A curve is an experiment, or one of its series where the readings of a variable are in several.
        """
        readings: pd.DataFrame | None = getattr(self.task.model, "readings", None)
        if readings is None:
            return None
        is_split = readings.groupby(["experiment", "variable"])["series"].nunique().max() > 1
        return readings.assign(curve=readings["experiment"] + (", " + readings["series"] if is_split else ""))

    def over_time(self, table: pd.DataFrame, by: str = "experiment") -> pd.DataFrame:
        """Return readings with their times and experiments (or curves) in x and entity, where x numbers them."""
        if self.numbered is None:
            return table
        of = self.numbered.loc[table["x"].astype(int)]
        several = self.numbered[by].nunique() > 1
        return table.assign(x=of["time"].to_numpy(), entity=of[by].to_numpy() if several else None)

    def by_curve(self, parts: Mapping[str, Any]) -> dict[str, Any]:
        """Return summaries of runs over time, one a curve where x numbers the readings; others as they are."""
        if self.numbered is None:
            return dict(parts)
        (part,) = parts.values()
        of = self.numbered["variable"].loc[part.frame["x"].astype(int)].to_numpy()
        frame = self.over_time(part.frame[part.frame["var"] == of], "curve")
        frame = frame.drop_duplicates(frame.columns.intersection(["scenario", "entity", "x", "var"]))
        curves = frame.sort_values("x", kind="stable").groupby(frame["entity"].fillna(""), sort=False)
        return {label: replace(part, frame=own.drop(columns="entity"), x_name="time") for label, own in curves}

    def draw_summary(self, ax: Axes, part: Any, name: str, **words: Any) -> None:
        """Draw one variable of a summary of runs; readings at rest stand behind the others."""
        from fmepy.plotting.petab import mark_rest, times_behind

        frame = part.frame[part.frame["var"] == name]
        if self.numbered is not None:
            part = replace(part, frame=frame.assign(x=times_behind(frame["x"])))
        part.plot(which=[name], axes=[ax], **words)
        mark_rest(ax, frame["x"])

    @property
    def entity_name(self) -> str:
        """What an entity is called."""
        return str(getattr(self.task.cost, "entity", None) or ("experiment" if self.numbered is not None else "entity"))

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
        if self.numbered is not None:
            return "time"
        comparison = getattr(self.task.cost, "comparison", None)
        of_cost = getattr(comparison, "x_name", None) or getattr(self.task.cost, "x", None)
        return str(of_cost or getattr(self.filtered, "xlabel", "x"))

    @cached_property
    def calendar(self) -> Any:
        """The calendar of the times if the data have dates, see `fmepy.tables.sheet.with_times`; else None."""
        return calendar_of(self.task.cost) or self.task.data.attrs.get("calendar")  # a function's cost has none

    def time_of(self, time: float) -> str:
        """Return the text of a time: a date if the data have dates."""
        if self.calendar is None or not np.isfinite(time):
            return number(time, 7)
        return time_text(time, self.calendar)

    def with_dates(self, table: pd.DataFrame, *columns: str) -> pd.DataFrame:
        """Return a table with the times in these columns as dates, if the data have dates."""
        dated = [name for name in columns if name in table and self.calendar is not None]
        return table.assign(**{name: table[name].map(self.time_of) for name in dated})

    @property
    def x_label(self) -> str:
        """The independent variable with its unit, where it is no date."""
        unit = "" if self.calendar is not None else self.task.x_unit
        is_there = unit in (f"{self.x_name}s", self.x_name, *re.split(r"[\W_]+", self.x_name))
        return self.x_name if is_there or not unit else f"{self.x_name}, {unit}"

    def label_x(self, ax: Any, _: int = 0) -> None:
        """Label the axis of x with unit or dates: the horizontal one, or the vertical one where x goes down."""
        from fmepy.plotting.ticks import date_ticks

        if self.numbered is not None and ax.get_xlabel() == self.task.model.x_name:
            return  # over the numbers of the readings
        if not ax.yaxis_inverted():
            ax.set_xlabel(self.x_label)
            if self.calendar is not None:
                date_ticks(ax.xaxis, *self.calendar[1:3])
        elif ax.get_ylabel() in ("x", self.x_name):  # not a depth beside the times, nor names of rows
            ax.set_ylabel(self.x_label)

    @cached_property
    def panels(self) -> Sequence[FittedPanel]:
        """The data with the fitted curves and their bands; without bands for a user's function."""
        if self.fit is None or self.numbered is not None:
            return []
        return natural_fit(self.task, self.fit).fitted_panels() or self._read_panels()

    @property
    def n_panels(self) -> int:
        """How many panels show the fitted curves."""
        return len(self.panels) if self.numbered is None or self.fit is None else self.numbered["observable"].nunique()

    def _read_panels(self) -> list[FittedPanel]:
        table = getattr(self.fit.cost if self.fit else None, "residuals", None)
        if not isinstance(table, pd.DataFrame) or not {"name", "x", "obs", "mod"} <= set(table) or "entity" in table:
            return []
        curves = table.rename(columns={"name": "var", "mod": "fit"}).assign(lower=np.nan, upper=np.nan)
        parts = [(curves[curves["var"] == n].sort_values("x"), own) for n, own in table.groupby("name", sort=False)]
        return [FittedPanel("", self.x_name, curve, seen, False, "") for curve, seen in parts]

    @cached_property
    def filtered(self) -> Any:
        """The filter at the fit; None for costs without one, and where it cannot be run.

        It is run again, for a result that was loaded from a file holds numbers only.
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
        """The summary of the filter at the fit; None for costs without a filter."""
        flt = self.filtered
        return None if flt is None else flt.summary([k for k in self.par if k in flt.parms.index])

    def filtered_pictures(self, **words: Any) -> Pictures:
        """Return pictures of the states and outputs of a filter, with bands and data; words in ``filtered.html``."""
        flt = self.filtered
        kind = "smoothed" if flt.smooth else "filtered"
        known = [str(c) for c in getattr(flt, kind).columns if c not in ("time", flt.entity_column)]
        shown = [name for name in known if name not in flt.measured_states]
        return drawn_each(shown, lambda names, axes: flt.plot(names, kind, axes=axes), **words)


# --- where model and data agree


@dataclass(frozen=True, eq=False)
class Agreement:
    """Deviations of the readings from a fit.

    Attributes
    ----------
    rows : DataFrame
        One a reading: name, x, obs, mod (as compared), deviation in sds (`z`), entity.
    kinds : dict of str to str
        The transform by variable, of those that have one.
    given : bool
        Whether the errors of the readings were given or are part of the model; else `z` is in units of the spread of
        the variable's other deviations.
    n_beyond : int
        Readings beyond a limit, which have no deviation and are not among the rows.
    """

    rows: pd.DataFrame
    kinds: dict[str, str]
    given: bool
    n_beyond: int

    @property
    def suspicious(self) -> pd.DataFrame:
        """The readings beyond three sds, the worst first."""
        rows = self.rows[self.rows["z"].abs() > SUSPICIOUS]
        return rows.iloc[np.argsort(-rows["z"].abs().to_numpy(), kind="stable")]


def agreement_of(findings: Findings) -> Agreement | None:
    """Return the deviations at the fit; None of costs that have no residuals of single readings."""
    fit = findings.fit
    table = getattr(None if fit is None else fit.cost, "residuals", None)
    if fit is None or not isinstance(table, pd.DataFrame) or not {"name", "obs", "mod", "res"} <= set(table.columns):
        return None
    is_beyond = table["censored"].to_numpy() != "" if "censored" in table else np.zeros(len(table), dtype=bool)
    table = table[~is_beyond]
    rows = pd.DataFrame({k: table[k].to_numpy() for k in ("name", "x", "obs", "mod")})
    rows["entity"] = [str(e) for e in table["entity"]] if "entity" in table else None
    rows = findings.over_time(rows)
    rows["x"] = rows["x"].fillna(0.0) if rows["x"].isna().all() else rows["x"]
    cost = findings.task.cost
    given = bool(getattr(fit.cost, "is_likelihood", False)) or getattr(cost, "err", None) is not None
    z = table["res"].to_numpy(dtype=float, copy=True)
    if not given:
        share = 1 - len(fit.names) / max(len(z), len(fit.names) + 1)
        for _, own in rows.groupby("name", sort=False):
            z[own.index] = _deleted(z[own.index], len(own) * share)
    rows["z"] = -z  # how far the reading is above the model
    data = fit.data
    kinds = {} if data is None else {str(n): k for n, k in zip(data.names, data.kinds, strict=True) if k}
    return Agreement(rows, kinds, given, int(is_beyond.sum()))


def _deleted(gaps: Vector, df: float) -> Vector:
    """Return each deviation in units of the spread of the others, so that an outlier among few is not hidden."""
    squares = float(gaps @ gaps)
    rest = np.maximum(squares - gaps**2, 1e-12 * squares)
    return gaps * np.sqrt(max(df - 1, 1.0) / rest) if squares > 0 else gaps


def agreement_facts(findings: Findings, agreement: Agreement) -> dict[str, Any]:
    """Return the facts of the section on agreement: variables, suspicious readings, tables and pictures."""
    rows, suspicious = agreement.rows, agreement.suspicious
    variables = [_of_variable(str(name), own, agreement) for name, own in rows.groupby("name", sort=False)]
    compared = " (as compared)" if agreement.kinds else ""
    heads = {
        "name": "variable", "entity": findings.entity_name, "x": findings.x_name, "obs": f"read{compared}",
        "mod": f"model{compared}", "z": "deviation, sd",
    }  # fmt: skip
    if suspicious["entity"].isna().all():
        del heads["entity"]
    return {
        "variables": variables, "given": agreement.given, "n": len(rows), "far": len(suspicious),
        "beyond": agreement.n_beyond, "by_chance": _chance_of(rows["z"].abs().to_numpy(), len(suspicious)),
        "table": pd.DataFrame([v["row"] for v in variables]), "heads": heads,
        "suspicious": findings.with_dates(suspicious[list(heads)], "x"),
        "pictures": partial(residual_pictures, findings, agreement),
    }  # fmt: skip


def _chance_of(sizes: Vector, far: int) -> float:
    """Return the probability of so many normal errors beyond three sds, or of one as far as the farthest."""
    from scipy.stats import binom, norm

    n, farthest = len(sizes), float(np.nanmax(sizes, initial=0.0))
    return float(min(binom.sf(far - 1, n, 2 * norm.sf(SUSPICIOUS)), n * 2 * norm.sf(farthest)))


def _of_variable(name: str, own: pd.DataFrame, agreement: Agreement) -> dict[str, Any]:
    """Return the row of a variable in the table, and the facts of its sentences."""
    n, gap = len(own), (own["obs"] - own["mod"]).to_numpy(dtype=float)
    spread = float(np.sum((own["obs"] - own["obs"].mean()) ** 2))
    explained = 1 - float(np.sum(gap**2)) / spread if spread > 0 else np.nan
    typical, kind = float(np.sqrt(np.mean(gap**2))), agreement.kinds.get(name)
    neighbours, limit = _neighbours(own)
    runs = runs_of_signs([part["z"].to_numpy(dtype=float) for part in _series(own)])
    row = {
        "variable": name, "readings": n, "explained, %": 100 * explained, "typical deviation": typical,
        "mean deviation": float(gap.mean()) if abs(gap.mean()) > 1e-6 * typical else 0.0,  # what a fit makes zero
        "correlation of neighbours": neighbours,
        "runs of one sign": runs.count, "p, runs": runs.p_few,
        "beyond 3 sd": int((own["z"].abs() > SUSPICIOUS).sum()),
    }  # fmt: skip
    on_log = typical * {"log": 1.0, "log10": np.log(10.0)}.get(kind or "", np.inf)  # as one of natural logarithms
    return {
        "row": row, "name": name, "is_told": n >= 3 and bool(np.isfinite(explained)), "explained": explained,
        "follows": explained >= _FOLLOWS, "neighbours": neighbours,
        "typical": typical, "relative": float(np.expm1(on_log)) if on_log < 3 else None, "kind": kind,
        "has_pattern": n >= _FEWEST and limit > 0 and neighbours > limit,
        "runs": runs, "is_run": n >= _FEWEST and runs.p < _RARE,
        "is_noted": n >= _FEWEST and (runs.p < _NOTED or runs.at_end >= _AT_END), "at_end": runs.at_end >= _AT_END,
    }  # fmt: skip


def _neighbours(own: pd.DataFrame) -> tuple[float, float]:
    """Return the correlation of successive deviations, and the limit beyond which it is more than chance."""
    pairs, squares, n = 0.0, 0.0, 0
    for series in _series(own):
        z = series["z"].to_numpy(dtype=float)
        pairs, squares, n = pairs + float(z[1:] @ z[:-1]), squares + float(z @ z), n + max(len(z) - 1, 0)
    return (pairs / squares if squares > 0 else np.nan), (_PATTERN / np.sqrt(n) if n else np.nan)


def _series(own: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the readings of a variable entity by entity, in the order of x."""
    return [part.sort_values("x", kind="stable") for _, part in own.groupby(own["entity"].fillna(""), sort=False)]


@dataclass(frozen=True)
class RunsOfSigns:
    """Runs of successive deviations of one sign, and their probability under independent signs.

    Attributes
    ----------
    count : int
        Runs; `expected` of independent signs.
    expected : float
    p_few : float
        Of so few runs or fewer: the test of Wald and Wolfowitz, normal approximation with continuity correction.
    longest : int
        Readings in the longest run; `p_long` of one as long or longer, both signs being equally probable.
    p_long : float
    at_end : int
        Readings in the last run, of a single series; 0 of several; its `sign` is "positive" or "negative".
    sign : str
    n : int
    """

    count: int
    expected: float
    p_few: float
    longest: int
    p_long: float
    at_end: int
    sign: str
    n: int

    @property
    def p(self) -> float:
        """The smaller of both probabilities."""
        return min(self.p_few, self.p_long)


def runs_of_signs(series: Sequence[Vector]) -> RunsOfSigns:
    """Return the runs of one sign of the deviations of one or several series; zeros have none."""
    from scipy.special import ndtr

    signs = [np.sign(z[np.isfinite(z) & (z != 0)]) for z in series]
    lengths = [np.diff(np.flatnonzero(np.r_[True, s[1:] != s[:-1], True])) for s in signs if len(s)]
    expected = variance = 0.0
    for s in signs:  # given how many of each sign there are
        n, mixed = len(s), 2.0 * float((s > 0).sum()) * float((s < 0).sum())
        expected += 1 + mixed / n if n else 0.0
        variance += mixed * (mixed - n) / (n * n * (n - 1)) if n > 1 else 0.0
    count, longest = sum(map(len, lengths)), max((int(own.max()) for own in lengths), default=0)
    p_few = float(ndtr((count + 0.5 - expected) / np.sqrt(variance))) if variance > 0 else 1.0
    p_long = 1 - float(np.prod([_all_shorter(len(s), longest) for s in signs if len(s)]))
    one = len(lengths) == 1
    sign = "positive" if one and signs[0][-1] > 0 else "negative"
    return RunsOfSigns(count, expected, p_few, longest, p_long, int(lengths[0][-1]) if one else 0, sign,
                       sum(map(len, signs)))  # fmt: skip


def _all_shorter(n: int, length: int) -> float:
    """Return the probability that all runs of n fair signs are shorter than a length."""
    share = [1.0]  # of the series of so many signs, up to that of the first
    for m in range(1, n + 1):
        share.append(sum(share[m - j] * 0.5**j for j in range(1, min(length - 1, m) + 1)))
    return 2 * share[n] if n else 1.0


def residual_pictures(findings: Findings, agreement: Agreement, **words: Any) -> Pictures:
    """Return the deviations of each variable over x, those beyond three sds ringed."""
    from fmepy.plotting.axes import MOST_NAMED, add_legend, color
    from fmepy.plotting.petab import mark_rest, times_behind

    groups = [(str(n), own) for n, own in agreement.rows.groupby("name", sort=False)]
    entities = list(dict.fromkeys(agreement.rows["entity"].fillna("")))

    def draw(_: Sequence[str], axes: Sequence[Any]) -> None:
        for ax, (name, rows) in zip(axes, groups, strict=False):
            own = rows.assign(x=times_behind(rows["x"]))
            for level in (-SUSPICIOUS, SUSPICIOUS):
                ax.axhline(level, color="0.5", linestyle="--", linewidth=0.8)
            ax.axhline(0.0, color="0.7", linewidth=0.8)
            for label, part in own.groupby(own["entity"].fillna(""), sort=False):
                look = {"markersize": 3.5, "color": color(entities.index(label), len(entities)), "label": label}
                ax.plot(part["x"], part["z"], "o", **look)
            far = own[own["z"].abs() > SUSPICIOUS]
            ax.plot(far["x"], far["z"], "o", markersize=9, markerfacecolor="none", markeredgecolor="C3")
            top = max(SUSPICIOUS + 0.6, 1.1 * float(own["z"].abs().max()))
            ax.set(ylabel="deviation, sd", ylim=(-top, top))
            mark_rest(ax, rows["x"])
            findings.label_x(ax)
            ax.set_title(name, fontsize="medium")
            if ax is axes[0] and 1 < own["entity"].nunique() <= MOST_NAMED:
                add_legend(ax, "above")

    return drawn_each([n for n, _ in groups], draw, **words)
