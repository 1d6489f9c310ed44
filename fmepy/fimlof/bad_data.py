"""`screen_bad_data`: find suspected data by what the other data and the equations say of them.

One wrong datum pulls the states beside it and makes its neighbours look wrong too; so of every entity only the worst is
set missing, the data are filtered again, and so on until nothing is beyond the threshold. A datum is set missing only
if no jump of a state explains the misfit as well, in its sample or the ones beside it: data after a jump of the system
are not wrong, and where the two cannot be told apart (all states measured, no later data) nothing is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number
from fmepy.errors import ArgumentError, SimulationError, counted
from fmepy.filtering.smoothing import History
from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.data import EntityRun
from fmepy.fimlof.filtered import flags_of, magnitudes
from fmepy.fimlof.result import FilterResult
from fmepy.journal.encoding import live
from fmepy.parameters.maps import TRANSFORMS
from fmepy.parameters.named import merge_parameters
from fmepy.results.tables import Framed, Part, table
from fmepy.tables.columns import as_table
from fmepy.types import Axes
from fmepy.vocabulary import own_words

_SAME = 1 + 1e-9
_MOST_REFITS = 10

Refit = Callable[[FimlofCost, pd.Series], Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BadData(Framed):
    """Result of `screen_bad_data`.

    Attributes
    ----------
    cost : FimlofCost
        The cost with suspected data set missing; the one that was given is as it was.
    log : DataFrame
        One row a finding: [entity,] time, name, kind ("datum", "state"), row (label in the table of data), value,
        expected (what the remaining data say, smoothed), magnitude (in sds, with sign), round, action ("set missing",
        "reported").
    threshold : float
    parms : Series
        The parameters of the last filter: those given, or of the last refit.
    filtered : FilterResult
        The filter of the cleaned data.
    entity : str or None
        Column of entities.
    message : str
        How it ended.
    """

    cost: FimlofCost = field(repr=False, metadata=live("Set the data of `log` missing, and make it again."))
    log: pd.DataFrame
    threshold: float
    parms: pd.Series
    filtered: FilterResult = field(repr=False)
    entity: str | None
    message: str

    @property
    def frame(self) -> pd.DataFrame:  # another name of the log
        """The log."""
        return self.log

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Axes:
        """Draw the magnitudes of the suspected data; return the Axes."""
        from fmepy.plotting.filtering import plot_screening

        return plot_screening(self, ax=ax, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return how it ended, and the log."""
        return [self.message, table(self.log)] if len(self.log) else [self.message]


@own_words
def screen_bad_data(
    cost: FimlofCost, threshold: Any = 4.0, *, parms: Any = None, smooth: bool = True, refit: Refit | None = None
) -> BadData:
    """Return a cost without suspected data, and the log of the search; the cost itself is not changed.

    Parameters
    ----------
    cost : FimlofCost
    threshold : float
        In standard deviations; 3 to 5 are usual. Parameters may stand in its place, ``screen_bad_data(cost, fit.par)``;
        the threshold is then 4.
    parms : dict, Series, fit, ..., optional
        Parameters of the filter, such as ``fit.par``; default the cost's own.
    smooth : bool
        Judge a datum by all others (AUXM, AUXS); False: by those until its time (NUMR, NUSR), which is weaker and
        cannot tell a typo from a jump where all states are measured.
    refit : callable, optional
        ``refit(cost, parms)`` returns new parameters, or a fit with a field ``par``: it is called after every cleaning,
        and the data are screened again, until nothing more is found.

    Returns
    -------
    BadData
        Jumps of states are reported in its log, never deleted.

    Raises
    ------
    ArgumentError
        A threshold that is not positive; something that is not a FimlofCost.
    SimulationError
        The filter breaks down at these parameters.

    Notes
    -----
    The likelihood of the cleaned data is not comparable with that of all: nobs differs.

    References
    ----------
    Peterson (1976), GPSIE: NUMR and NUSR. de Jong and Penzer (1998), JASA 93: their smoothed versions.

    Examples
    --------
    >>> from fmepy.models.difference import DifferenceModel
    >>> model = DifferenceModel("next(x) = x", state={"x": 1.0}, times=range(9))
    >>> cost = FimlofCost(model, {"time": range(1, 9), "x": [1.1, 0.9, 1.2, 1.0, 9.1, 1.2, 1.0, 0.9]},
    ...                   process_noise={"x": 0.1}, measurement_noise={"x": 0.2})
    >>> screen_bad_data(cost).log[["time", "name", "value", "action"]]
       time name  value       action
    0   5.0    x    9.1  set missing
    """
    if not isinstance(cost, FimlofCost):
        raise ArgumentError(f"`cost` must be a FimlofCost; got {type(cost).__name__}.")
    if parms is None and (isinstance(threshold, Mapping | pd.Series) or hasattr(threshold, "par")):
        threshold, parms = 4.0, threshold
    hint = " of standard deviations, such as 4. Parameters are given by name: screen_bad_data(cost, parms=fit.par)"
    threshold = positive_number(threshold, "threshold", hint)
    if refit is not None and not callable(refit):
        raise ArgumentError(
            f"`refit` must be a function of a cost and parameters, such as lambda cost, p: fme.modFit(cost, p); got "
            f"{type(refit).__name__}."
        )
    threshold, theta = float(threshold), merge_parameters(cost.parms, parms)
    table = as_table(cost.obs).copy()
    rows: list[dict[str, Any]] = []
    cleaned, flt = _clean(cost, table, theta, threshold, smooth, rows)
    for _ in range(_MOST_REFITS if refit is not None and rows else 0):
        assert refit is not None, "it was given"
        before = len(rows)
        fitted = refit(cleaned, theta)
        theta = merge_parameters(cost.parms, getattr(fitted, "par", fitted))
        cleaned, flt = _clean(cleaned, table, theta, threshold, smooth, rows)
        if len(rows) == before:
            break
    rows += _jumps(flt, threshold, 1 + max((f["round"] for f in rows), default=0))
    log = _log(rows, table.index, flt, cost)
    return BadData(cleaned, log, float(threshold), theta, flt, cost.entity, _message(log, threshold, flt))


def _clean(
    cost: FimlofCost, table: pd.DataFrame, theta: pd.Series, threshold: float, smooth: bool, rows: list[dict[str, Any]]
) -> tuple[FimlofCost, FilterResult]:
    """Set the worst datum of every entity missing, filter, repeat; write what was found, return what is left."""
    for number in count(1 + max((f["round"] for f in rows), default=0)):
        cost = cost.replace(obs=table.copy())
        flt: FilterResult = cost.filter(theta if len(theta) else None, smooth=smooth)
        if flt.failure is not None:
            raise SimulationError(f"Data cannot be screened: {flt.failure}", parameters=flt.values)
        worst = [_worst(run, h, threshold) for run, h in zip(flt.runs, flt.histories, strict=True)]
        if all(w is None for w in worst):
            return cost, flt
        for run, w in zip(flt.runs, worst, strict=True):
            if w is not None:
                row, magnitude = w
                r = run.schedule.readings
                name, place = flt.variables[r.variables[row]], r.places[row]
                value = _set_missing(table, cost, place, name, float(r.values[row]))
                rows.append(_row(run, r.times[row], name, magnitude, number) | {"row": place, "value": value})
    raise AssertionError("every round takes a datum away")


def _worst(run: EntityRun, h: History, threshold: float) -> tuple[int, float] | None:
    """Return the worst datum of an entity that no jump explains as well, and its magnitude; None if there is none."""
    if not len(run.schedule.readings):
        return None
    data, _, around = magnitudes(run, h)
    size = np.where(data > np.maximum(threshold, around * _SAME), data, 0.0)
    row = int(np.argmax(size))
    signed = h.auxm if np.isfinite(h.auxm).any() else h.numr
    return (row, float(signed[row])) if size[row] > 0 else None


def _jumps(flt: FilterResult, threshold: float, number: int) -> list[dict[str, Any]]:
    """Return the jumps of states that the cleaned data still ask for."""
    out = []
    for run, h in zip(flt.runs, flt.histories, strict=True):
        states = h.auxs if np.isfinite(h.auxs).any() else h.nusr
        for node, j in zip(*np.nonzero(flags_of(run, h, threshold)[1]), strict=True):
            name = flt.facts.states[j]
            jump = _row(run, run.schedule.times[node], name, float(states[node, j]), number)
            out.append(jump | {"kind": "state", "action": "reported"})
    return out


def _row(run: EntityRun, time: float, name: str, magnitude: float, number: int) -> dict[str, Any]:
    """Return a row of the log, of a datum that is set missing, as far as it is known."""
    where = {"entity": run.label, "time": float(time), "name": name, "kind": "datum", "row": None, "value": np.nan}
    return where | {"magnitude": magnitude, "round": number, "action": "set missing"}


def _set_missing(table: pd.DataFrame, cost: FimlofCost, row: Any, name: str, compared: float) -> float:
    """Set an entry missing; return what it was."""
    if cost.y is not None:
        places = [list(table.columns).index(cost.y)]
    else:
        places = [j for j, c in enumerate(table.columns) if str(c) == name]
    kind = cost.specification.transforms[cost.specification.variables.index(name)]
    forward = TRANSFORMS[kind].forward if kind is not None else float
    for j in places:
        value = float(table.iloc[:, j].to_numpy(dtype=float)[row])
        if np.isfinite(value) and np.isclose(forward(value), compared, rtol=1e-12):
            if not pd.api.types.is_float_dtype(table.dtypes.iloc[j]):
                table.isetitem(j, table.iloc[:, j].to_numpy(dtype=float))
            table.iat[row, j] = np.nan
            return value
    raise AssertionError(f"the datum of {name!r} in row {row} is not in the table")


_COLUMNS = ["entity", "time", "name", "kind", "row", "value", "expected", "magnitude", "round", "action"]


def _log(rows: list[dict[str, Any]], labels: pd.Index, flt: FilterResult, cost: FimlofCost) -> pd.DataFrame:
    states = flt.smoothed if flt.smooth else flt.filtered
    for f in rows:
        mine = flt.rows_of(states, f["entity"])
        f["expected"] = np.nan
        if f["kind"] == "datum" and f["name"] in mine.columns:
            f["expected"] = float(np.interp(f["time"], mine["time"], mine[f["name"]]))
        f["row"] = None if f["row"] is None else labels[f["row"]]
    log = pd.DataFrame(rows, columns=_COLUMNS)
    log["row"] = pd.Series([f["row"] for f in rows], dtype=object)
    if cost.entity is None:
        return log.drop(columns="entity")
    return log.rename(columns={"entity": cost.entity})


def _message(log: pd.DataFrame, threshold: float, flt: FilterResult) -> str:
    removed = int((log["action"] == "set missing").sum())
    jumps = len(log) - removed
    if not len(log):
        return f"Nothing is beyond {threshold:g} sd in {flt.nobs} data."
    data = counted(removed, "datum", "data") if removed else "no datum"
    states = (
        "" if not jumps else "; 1 jump of a state reported" if jumps == 1 else f"; {jumps} jumps of states reported"
    )
    return f"Beyond {threshold:g} sd: {data} set missing, {flt.nobs} left{states}."
