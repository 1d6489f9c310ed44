"""The task of a calibration file: its data read, its model and cost built."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import Cost
from fmepy.costs.mapped import transformed
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.fimlof.cost import FimlofCost
from fmepy.journal.files import file_digest
from fmepy.models.on_grid import cells_of_model
from fmepy.models.steady import SteadyModel
from fmepy.parameters.densities import kink_of, log_density
from fmepy.parameters.maps import TRANSFORMS, Elementwise
from fmepy.tables.cells import profiles_among
from fmepy.tables.sheet import Sheet
from fmepy.workflow.file.case import Case, Parameter
from fmepy.workflow.file.observations import match_observations, read_data, replicates
from fmepy.workflow.file.python_file import FunctionModel, WithFixed, table_cost
from fmepy.workflow.file.sources import ModelSource, names_in, read_rows, read_source
from fmepy.workflow.file.toml import TomlTable, located
from fmepy.workflow.steps.base import CalibrationTask


def read_task(case: Case, *, python: bool = True) -> CalibrationTask:
    """Read the data of a file and build its model and cost; nothing is run.

    Parameters
    ----------
    case : Case
    python : bool
        Whether a Python file may be imported.

    Raises
    ------
    ArgumentError
        A mistake in the file, or in one that it names, with its line.
    """
    conditions = _conditions(case)
    source = read_source(case, python=python, conditions=conditions)
    file = read_data(case)
    tables = [table for table in (file, *source.tables, conditions) if table is not None]
    notes = list(dict.fromkeys(line for table in tables for line in table.notes))  # a file may be several of them
    python = case.content["model"].get("python")
    python_objects = {} if python is None else {"model" if source.cost is None else "cost": str(python)}
    if python is not None and "inputs" not in case.content["model"]:
        notes.append(f"What {str(python).rpartition(':')[0]} reads is an input where `inputs` in [model] names it.")
    x_unit, cost, frame = "", None, pd.DataFrame() if file is None else file.frame
    read = {"data": file, "cost": conditions}
    files = {"model": source.files, **{part: [table.path] for part, table in read.items() if table is not None}}
    if source.cost is not None:
        cost = _python_cost(case, source)
        source = replace(source, model=getattr(cost, "model", None))
    else:
        if file is None and (case.steps or case.fitted):
            raise case.section.error(
                (), 'the table [data] is missing: data = { file = "observations.csv", x = "time" }.'
            )
        model = source.model
        known = () if isinstance(model, FunctionModel) else profiles_among(model.var_names, cells_of_model(model))
        at = float(model.times[0]) if isinstance(model, SteadyModel) else None
        if file is not None:  # else it is a model by itself
            frame, arguments = match_observations(case, file, known, steady_time=at)
            x_unit = str(arguments.pop("x_unit", ""))
            notes += [*arguments.pop("notes", []), *replicates(frame, arguments, file)]
            if isinstance(model, FunctionModel):
                cost = table_cost(case, model, frame, arguments)
            else:
                cost = _cost(case, model, file, frame, arguments, conditions)
    free = _fitted(case, source, cost, notes)
    scale = {name: p.scale for name, p in free.items() if p.scale}
    section = case.section.table("parameters")
    natural = {n: read_prior(section.table((case.parameter(n) or p).name), p) for n, p in free.items() if p.prior}
    start, *ends = (np.array([getattr(p, k) for p in free.values()], dtype=float) for k in ("start", "lower", "upper"))
    on_scale = Elementwise(tuple(free), scale)
    lower, upper = on_scale.bounds(*ends)
    flat = [n for n in scale if n not in natural]
    if flat and "sample" in case.steps:
        notes.append(f"Parameters sampled on another scale, with a flat prior there: {', '.join(flat)}.")
    if not free and case.steps:
        raise case.section.error(
            "parameters", "nothing is fitted: a parameter that is a table, name = { start = 1.0 }, is."
        )
    return CalibrationTask(
        case=case, data=frame.reset_index(drop=True), notes=tuple(notes), model=source.model, cost=cost, scale=scale,
        scaled_cost=transformed(cost, scale) if scale else cost,
        start=pd.Series(on_scale.start(start), list(free)), lower=pd.Series(lower, list(free)),
        upper=pd.Series(upper, list(free)),
        fit_prior=priors_on(scale, natural, jacobian=False), chain_prior=priors_on(scale, natural, jacobian=True),
        inputs=_hashes(case, files), written=python_objects, x_unit=x_unit,
    )  # fmt: skip


def _conditions(case: Case) -> Sheet | None:
    """Return the conditions, a row an entity, numbers as such; None where there are none."""
    if "conditions" not in case.content:
        return None
    section = case.section
    if "entity" not in case.content.get("data", {}):
        raise section.error(
            "conditions", "`conditions` need `entity` in [data]: the column that names the entity of a row."
        )
    table = read_rows(section, "conditions")
    frame = table.frame.dropna(axis=1, how="all")
    if frame.empty:
        raise section.error("conditions", "`conditions` hold no row.")
    first = str(table.frame.columns[0])
    for line in frame.index[table.frame[first].isna()]:
        raise table.error(f"the entity {first!r} is missing.", line)
    cells = frame.drop(columns=first).map(_number_or_name, na_action="ignore")
    cells.insert(0, case.content["data"]["entity"], frame[first], allow_duplicates=True)
    return replace(table, frame=cells.infer_objects())


def _number_or_name(cell: Any) -> Any:
    """Return a cell of a column that holds numbers and names, a number as such."""
    try:
        return float(cell)
    except ValueError:
        return cell


def _cost(
    case: Case, model: Any, file: Sheet, frame: pd.DataFrame, arguments: dict[str, Any], conditions: Sheet | None
) -> Any:
    """Return the cost of a model and observations."""
    settings = {k: v for k, v in case.content.get("cost", {}).items() if k != "kind"}
    kind = case.content.get("cost", {}).get("kind", "simulation")
    if "entity_parms" in settings and isinstance(settings["entity_parms"], str):
        settings["entity_parms"] = [settings["entity_parms"]]
    make: Any = {"simulation": SimulationCost, "prediction_error": PredictionErrorCost, "fimlof": FimlofCost}[kind]
    if "depth" in arguments:
        arguments = {**arguments, "x": [arguments["x"], arguments["depth"]]}
        del arguments["depth"]
    of_model = set(model.parms.index)
    own = {p.name: p.start for p in case.parameters.values() if p.name not in of_model}
    rows = None if conditions is None else conditions.frame.reset_index(drop=True)
    keywords = {**settings, **arguments, "parms": own or None, "conditions": rows}
    try:
        with located(case.section, "cost", "data", data=file, conditions=conditions):
            return make(model, frame, **keywords)
    except ArgumentError as error:
        unused = re.search(r"\[parameters\]: '([^']+)' is used nowhere in the (cost|noise)\.", str(error))
        if unused and unused[1] in own:
            raise _unused(case, unused[1], [*model.parms.index, *sorted(names_in(settings))]) from error
        raise


def _unused(case: Case, name: str, known: Iterable[str]) -> ArgumentError:
    text = f"{name!r} is used nowhere, neither in the model nor in the cost.{did_you_mean(name, known)}"
    return case.section.error(("parameters", name), text)


def _python_cost(case: Case, source: ModelSource) -> Any:
    """Return a cost or function of a Python file, its fixed parameters at the file's values."""
    cost, section = source.cost, case.section
    fixed = {p.name: p.start for p in case.parameters.values() if not p.fitted}
    if not isinstance(cost, Cost):
        return WithFixed(cost, fixed, section.path_of(str(case.content["model"]["python"])).parent)
    known = [str(n) for n in cost.parms.index]
    changed = {k: v for k, v in fixed.items() if k in known and v != cost.parms[k]}
    if not changed:
        return cost
    with located(section, "model", "parameters"):
        return cost.replace(model=source.model.replace(parms=changed))


def _fitted(case: Case, source: ModelSource, cost: Any, notes: list[str]) -> dict[str, Parameter]:
    """Return the fitted parameters by their names in the cost, with start and bounds on the natural scale."""
    if not isinstance(cost, Cost):
        if cost is not None and not case.fitted:
            raise case.section.error("parameters", "[parameters] must say what the function is given, and where the "
                                     "search begins: name = { start = 1.0 }.")  # fmt: skip
        return {p.name: p for p in case.parameters.values() if p.fitted}
    parameters = {n: case.parameter(n) for n in map(str, cost.parms.index)}
    used = {p.name for p in parameters.values() if p is not None}
    for p in case.parameters.values():
        by_conditions = "conditions" in case.content and p.name in source.model.parms.index
        if p.name not in used and not by_conditions:
            raise _unused(case, p.name, parameters)
        if p.name not in used and p.fitted:
            raise case.section.error(("parameters", p.name), f"{p.name!r} is set by the conditions in every entity, so "
                                     "that nothing of it is left to fit.")  # fmt: skip
    of_model = set(source.model.parms.index) if case.parameters else set()
    free = [n for n, p in parameters.items() if p is None and n not in of_model]
    values, lowest, highest = cost.parms, cost.lower, cost.upper
    if free and not case.parameters:
        notes.append(f"There are no [parameters]: all {len(free)} are fitted, from the values that they have.")
    elif free:
        notes.append(f"Fitted, too: {', '.join(f'{n} from {values[n]:g}' for n in free)}.")
    fitted, order = {}, list(case.parameters)
    for n in sorted(parameters, key=lambda n: order.index(p.name) if (p := parameters[n]) else len(order)):
        own = parameters[n] or Parameter(n, float(values[n]), fitted=n in free)
        if own.fitted:
            start = float(values[n]) if n != own.name else own.start
            lower, upper = max(own.lower, lowest[n]), min(own.upper, highest[n])
            fitted[n] = replace(own, name=n, start=start, lower=float(lower), upper=float(upper))
    return fitted


def _hashes(case: Case, files: Mapping[str, Sequence[Path]]) -> dict[str, str]:
    """Return the sha256 of each part of the file, including the files that it names."""
    content = case.content
    parts = {
        "model": {k: content.get(k) for k in ("model", "events", "forcings")},
        "data": content.get("data"),
        "cost": {k: content.get(k) for k in ("cost", "conditions")},
        "parameters": [
            [p.name, p.start, p.fitted, p.lower, p.upper, p.scale, p.prior] for p in case.parameters.values()
        ],
    }
    hashes = {}
    for part, part_content in parts.items():
        digest = hashlib.sha256(json.dumps(part_content, sort_keys=True, default=str).encode())
        for path in [path for path in files.get(part, ()) if path != case.file]:  # tables that stand in it
            digest.update(file_digest(path).encode())
        hashes[part] = digest.hexdigest()
    return hashes


# --- priors: distributions of scipy.stats by their arguments, of the natural value of a parameter

# On another scale theta the density of the value p is taken at p(theta). For a mode (`modFit`) that is all: the mode is
# that of p. A chain samples theta, whose density is that of p times dp / dtheta.


@dataclass(frozen=True, eq=False)
class ScaledPrior:
    """A prior of a natural value p, of theta = log p or logit p.

    Attributes
    ----------
    natural : frozen distribution
        Of p.
    scale : {"log", "logit"}
    jacobian : bool
        Whether the density is of theta (dp/dtheta is in it), or of p.
    """

    natural: Any
    scale: str
    jacobian: bool

    @cached_property
    def _density(self) -> Callable[[float], float]:
        return log_density(self.natural)

    @property
    def kink(self) -> float:
        """Where the density has a kink, NaN where it has none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(TRANSFORMS[self.scale].forward(kink_of(self.natural)))

    def support(self) -> tuple[float, float]:
        """Return the lowest and the highest theta that have a density."""
        low, high = Elementwise(("p",), {"p": self.scale}).bounds(*np.atleast_2d(self.natural.support()).T)
        return float(low[0]), float(high[0])

    def logpdf(self, theta: float) -> float:
        """Return the logarithm of the density."""
        theta = float(theta)
        log_p = log_slope = theta
        if self.scale == "logit":
            log_p = -float(np.logaddexp(0.0, -theta))
            log_slope = log_p - float(np.logaddexp(0.0, theta))
        if log_p > 700:  # beyond the largest number
            return -math.inf
        return self._density(math.exp(log_p)) + (log_slope if self.jacobian else 0.0)


def read_prior(section: TomlTable, parameter: Parameter) -> Any:
    """Return the frozen distribution of a parameter's key ``prior``.

    Parameters
    ----------
    section : TomlTable
        The parameter's table.
    parameter : Parameter
        With a prior.

    Raises
    ------
    ArgumentError
        An unknown distribution or argument (the nearest is named), one that is missing or cannot be, a start without
        density; with the line.
    """
    from scipy import stats

    arguments_of_file = dict(parameter.prior or {})
    table = section.table("prior")
    known = sorted(n for n, d in vars(stats).items() if isinstance(d, stats.rv_continuous))
    name = arguments_of_file.pop("dist", None)
    if name not in known:
        if name is None:
            raise section.error("prior", "`prior` needs `dist`, a distribution of scipy.stats such as 'norm'.")
        whole = isinstance(getattr(stats, str(name), None), stats.rv_discrete)
        hint = " It is one of whole numbers." if whole else did_you_mean(name, known)
        some = "norm, lognorm, uniform, gamma, beta, halfnorm, truncnorm"
        raise table.error(
            "dist", f"`dist={name!r}` is not a distribution of numbers of scipy.stats.{hint} Some are {some}."
        )
    dist = getattr(stats, name)
    shapes = [s.strip() for s in (dist.shapes or "").split(",") if s.strip()]
    arguments = [*shapes, "loc", "scale"]
    table.check(["dist", *arguments])
    for key, value in arguments_of_file.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise table.error(key, f"`{key}` of a prior must be a number; got {value!r}.")
    missing = [s for s in shapes if s not in arguments_of_file]
    if missing:
        raise table.error(
            (), f"the distribution {name!r} needs {listed(missing)}; its arguments are {listed(arguments)}."
        )
    frozen = dist(**arguments_of_file)
    if arguments_of_file.get("scale", 1) <= 0 or np.isnan(frozen.support()).any():
        values = ", ".join(f"{k} = {v:g}" for k, v in arguments_of_file.items()) or "no arguments"
        raise table.error((), f"there is no distribution {name!r} of {values}. (A scale is above 0.)")
    if not np.isfinite(log_density(frozen)(parameter.start)):  # scipy's of Laplace underflows
        low, high = frozen.support()
        where = f"that of {name!r} lies between {low:g} and {high:g}."
        raise section.error(
            "start", f"`start` of {parameter.name!r} is {parameter.start:g}, where its prior has no density; {where}"
        )
    return frozen


def priors_on(scales: Mapping[str, str], natural: Mapping[str, Any], *, jacobian: bool) -> dict[str, Any] | None:
    """Return priors by name on the scales on which parameters are fitted; None where there are none."""
    priors = {n: ScaledPrior(d, scales[n], jacobian) if n in scales else d for n, d in natural.items()}
    return priors or None
