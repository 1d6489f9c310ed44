"""`sector`: a part of a model filtered alone, what the rest of the model gives it taken from the data.

A large model is identified sector by sector: the states of one sector stay states, the other states that its equations
use become inputs, and their values are those measured. An estimate of one sector then does not suffer from errors in
the equations of another. What was found is put together, and one filter of the whole is the test of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list
from fmepy.costs.censored import signs
from fmepy.costs.conditions import FROM, read_conditions
from fmepy.costs.noise import names_of_noise
from fmepy.errors import ArgumentError, DataError, listed
from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.data import EntityData
from fmepy.fimlof.filter_model import as_given
from fmepy.language.equations import Equations, names_in
from fmepy.parameters.entities import entity_text, local_name
from fmepy.parameters.named import check_names
from fmepy.types import Vector
from fmepy.vocabulary import own_words


@dataclass(frozen=True, slots=True, eq=False)
class Sector:
    """A part of a model, ready to be filtered alone.

    Attributes
    ----------
    cost : FimlofCost
        Of the sector's states, readings and noise; of the same entities as the whole.
    states : tuple of str
    inputs : tuple of str
        States of the other sectors, taken from the data.
    interpolated : DataFrame
        Input values that were not measured: entity (where there are several), variable, time, value. They are linear
        between their neighbours, constant before the first and after the last.
    """

    cost: FimlofCost
    states: tuple[str, ...]
    inputs: tuple[str, ...]
    interpolated: pd.DataFrame = field(repr=False)

    def __repr__(self) -> str:
        lines = [f"Sector of {', '.join(self.states)}; inputs from data: {', '.join(self.inputs) or 'none'}"]
        counts = self.interpolated["variable"].value_counts(sort=False)
        lines += [f"  {name}: {n} values were not measured and are interpolated" for name, n in counts.items()]
        return "\n".join([*lines, f"  {self.cost!r}"])


@own_words
def sector(cost: FimlofCost, states: Sequence[str]) -> Sector:
    """Return a part of a model, compared with its own data, with the rest of the model taken from the data.

    Parameters
    ----------
    cost : FimlofCost
        Of the whole model.
    states : sequence of str
        The states of the sector.

    Returns
    -------
    Sector
        With ``cost``, to be fitted; parameters keep their names.

    Raises
    ------
    ArgumentError
        Unknown states; nothing of the sector is measured; a state of another sector that it needs is not measured; a
        start from another row's steady state, where inputs are needed.

    Notes
    -----
    Readings kept are those of outputs that depend on no other sector. Measured inputs carry their measurement error
    into the sector; where that is large, fit the whole.

    Examples
    --------
    >>> from fmepy.models.difference import DifferenceModel
    >>> def chain(n, a, b, *, k=0.5, m=0.2):
    ...     return k * a, b + m * a
    >>> model = DifferenceModel(chain, state={"a": 8.0, "b": 0.0}, times=[0, 1, 2, 3])
    >>> data = {"time": [0, 1, 2, 3], "a": [8.1, 3.9, 2.1, 1.0], "b": [0.1, 1.6, 2.3, 2.9]}
    >>> whole = FimlofCost(model, data, process_noise={"b": 0.1}, measurement_noise={"a": 0.1, "b": 0.1})
    >>> sector(whole, ["b"])
    Sector of b; inputs from data: a
      FimlofCost: b (4); 1 parameter
    """
    if not isinstance(cost, FimlofCost):
        raise ArgumentError(f"`cost` must be a FimlofCost of the whole model; got {type(cost).__name__}.")
    spec = cost.specification
    equations = spec.equations
    names = tuple(dict.fromkeys(map(str, as_list(states, "states"))))
    if not names:
        raise ArgumentError(f"`states` names none. Give those of the sector; there are {listed(equations.states)}.")
    names = check_names(names, equations.states, argument="states", what="state")
    mine = [s in names for s in equations.states]
    kept = tuple(s for s, m in zip(equations.states, mine, strict=True) if m)
    others = set(equations.states) - set(kept)
    rates = tuple(e for e, m in zip(equations.rates, mine, strict=True) if m)
    inputs = tuple(s for s in equations.states if s in names_in(rates) & others)
    outputs = tuple((k, e) for k, e in equations.outputs if not names_in([e]) & others)
    variables = tuple(v for v in spec.variables if v in kept or v in dict(outputs))
    if not variables:
        raise ArgumentError(f"Nothing of the sector {listed(kept)} is measured; observed are {listed(spec.variables)}.")
    _check_measured(inputs, spec, kept)
    if inputs and any(start is not None for start in cost.cases.starts):
        raise ArgumentError(
            f"`conditions`: an entity starts from the steady state of another row, and at rest there are no data of "
            f"{listed(inputs)}. Take it into the sector: states={[*kept, *inputs]!r}."
        )
    wanted = [spec.variables.index(v) for v in variables]
    entities = [e for e in cost.entities if np.isin(e.readings.variables, wanted).any()]
    series, rows = [], []
    for entity in entities:
        own, filled = _inputs(cost, entity, inputs)
        series.append(own)
        rows += [(entity.label, *row) for row in filled]
    model = _model(cost, entities, kept, rates, outputs, inputs, series)
    table = pd.DataFrame(rows, columns=["entity", "variable", "time", "value"])
    if cost.entity is None:
        table = table.drop(columns="entity")
    return Sector(_cost(cost, entities, model, variables), kept, inputs, table)


def _check_measured(inputs: Sequence[str], spec: Any, kept: Sequence[str]) -> None:
    direct = {spec.definition.states[state] for _, state in spec.direct}
    missing = [name for name in inputs if name not in direct]
    if missing:
        raise ArgumentError(
            f"The sector {listed(kept)} needs {listed(missing)} of the other sectors, which is not measured directly "
            f"(measured are {listed(spec.variables)}). Take it into the sector: states={[*kept, *missing]!r}."
        )


def _inputs(
    cost: FimlofCost, entity: EntityData, inputs: Sequence[str]
) -> tuple[dict[str, tuple[Vector, Vector]], list[tuple[str, float, float]]]:
    """Return the series of every input at all sample times, and what of it was interpolated."""
    spec = cost.specification
    direct = {spec.definition.states[state]: variable for variable, state in spec.direct}
    times = np.unique(entity.readings.times)
    if cost.initial != "data":  # the sector starts where the model does
        times = np.union1d(float(spec.grid[0]), times)
    series, filled = {}, []
    for name in inputs:
        at = (entity.readings.variables == direct[name]) & (entity.readings.all_marks == 0)  # a limit is no input
        if not at.any():
            raise DataError(f"Entity {entity.label!r} has no datum of {name!r}, which the sector needs as an input.")
        measured = pd.Series(entity.raw[at]).groupby(entity.readings.times[at]).mean()
        values = np.interp(times, measured.index.to_numpy(dtype=float), measured.to_numpy())
        filled += [(name, float(t), float(v)) for t, v in zip(times, values, strict=True) if t not in measured.index]
        # the next state of a difference equation is made of the old states: the input of a step is the datum before it
        shift = spec.dt or 0.0 if spec.definition.kind == "difference" else 0.0
        series[name] = (times + shift, values)
    return series, filled


def _model(
    cost: FimlofCost,
    entities: Sequence[EntityData],
    kept: tuple[str, ...],
    rates: tuple[Any, ...],
    outputs: tuple[tuple[str, Any], ...],
    inputs: tuple[str, ...],
    series: Sequence[dict[str, tuple[Vector, Vector]]],
) -> Any:
    definition = cost.specification.definition
    equations = cost.specification.equations
    initial = {s: v for s, v in zip(definition.states, definition.initial, strict=True) if s in kept}
    labels = [e.label for e in entities]
    events, changes = _events(cost, labels, kept)
    used = names_in([*rates, *(e for _, e in outputs), *initial.values(), *changes])
    parameters = tuple(k for k in definition.parameters if k in used)
    forcings: dict[str, Any] = {f.name: f for f in definition.forcings if f.name in used}
    by_entity = {} if cost.model.entity_inputs is None else cost.model.entity_inputs.forcings
    for name in set(forcings) & set(by_entity):
        own = [by_entity[name][entity_text(label)] for label in labels]
        forcings[name] = _together(cost, labels, own), own[0][2]
    part = Equations(equations.kind, kept, parameters, (*forcings, *inputs), rates, outputs, equations.time)
    for name in inputs:
        own = [one[name] for one in series]
        forcings[name] = own[0] if cost.entity is None else _together(cost, labels, own)
    return cost.specification.model.of_equations(
        part,
        state={k: as_given(v) for k, v in initial.items()},
        parms={k: float(definition.parms[k]) for k in parameters},
        forcings=forcings or None,
        **({"events": events} if events else {}),
    )


def _together(cost: FimlofCost, labels: Sequence[Any], series: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return the series (times, values) of all entities as one table."""
    parts = [
        pd.DataFrame({"time": t, "value": v, str(cost.entity): label})
        for label, (t, v, *_) in zip(labels, series, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def _events(cost: FimlofCost, labels: Sequence[Any], kept: tuple[str, ...]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the events of the sector's states, and their values; those of the others are in their data."""
    inputs, states = cost.model.entity_inputs, cost.specification.definition.states
    by_entity = inputs is not None and inputs.events is not None
    rows: list[dict[str, Any]] = []
    values: list[Any] = []
    for label in labels if by_entity else [None]:
        all_of_it = cost.bind().spec_of(label).events if by_entity else cost.specification.events
        mine = [e for e in all_of_it if states[e.state] in kept]
        own = [e.row(states, as_given(e.value)) for e in mine]
        if by_entity and not mine:  # none of this sector's: one that does nothing, at a time that is a stop anyway
            own = [{"var": kept[0], "time": all_of_it[0].time, "value": 0.0, "method": "add"}]
        rows += [row | {str(cost.entity): label} for row in own] if by_entity else own
        values += [e.value for e in mine]
    return (rows if values else []), values


def _cost(cost: FimlofCost, entities: Sequence[EntityData], model: Any, variables: tuple[str, ...]) -> FimlofCost:
    """Return the cost of the sector's readings, with what of the noise and of the conditions belongs to it."""
    spec = cost.specification
    of_model = set(model.parms.index)
    noisy = {*model.states, *(names_in(model.definition.equations.rates) & of_model)}
    effective = [k for k in spec.noise.keys if k in noisy]
    process = _of_keys(cost.process_noise, effective)
    measurement = _of_keys(cost.measurement_noise, variables)
    start = _of_keys(cost.initial_sd, model.states)
    pairs = zip(spec.correlations.keys, (cost.noise_correlation or {}).values(), strict=True)
    correlation = {pair: v for pair, v in pairs if pair[0] in effective and pair[1] in variables}
    noisy = names_of_noise(process, measurement, start, correlation)
    extra = noisy - {*model.states, *of_model}
    local = tuple(k for k in cost.entity_parms if k in extra | of_model)
    values = {k: spec.parms[k] for k in extra if k in spec.parms}
    values |= {n: cost.parms[n] for n in (local_name(k, e.label) for k in local for e in entities)}
    conditions = None
    if cost.conditions is not None:
        read = read_conditions(cost.conditions, str(cost.entity), cost.cases.column.texts)
        left = [entity_text(e.label) for e in entities]
        left += [read.starts[t] for t in left if t in read.starts and read.starts[t] not in left]
        conditions = pd.DataFrame({k: read.cells[k] for k in read.cells if k in extra | of_model}, index=left)
        if read.starts:
            conditions[FROM] = [read.starts.get(t) for t in left]
        named = {c for c in conditions.to_numpy().ravel() if isinstance(c, str)} - of_model
        values |= {c: cost.parms[c] for c in named if c in cost.parms}
    kinds = dict(zip(spec.variables, spec.transforms, strict=True))
    own = {
        "model": model,
        "obs": pd.concat([_readings(cost, e, variables) for e in entities], ignore_index=True),
        **{"x": "time", "y": "value", "err": None if cost.err is None else "err"},
        "censored": None if cost.censored is None else "mark",
        **{"process_noise": process or {}, "measurement_noise": measurement, "initial_sd": start},
        "noise_correlation": correlation or None,
        "transform": {v: k for v, k in kinds.items() if k and v in variables} or None,
        "parms": {k: float(v) for k, v in values.items()},
        **{"entity_parms": local, "conditions": conditions},
        "accumulate": {k: v for k, v in dict(cost.accumulate or {}).items() if k in variables} or None,
    }
    return FimlofCost(**cost.arguments | own)


def _readings(cost: FimlofCost, entity: EntityData, variables: tuple[str, ...]) -> pd.DataFrame:
    """Return the readings of some variables of an entity as a long table."""
    spec, r = cost.specification, entity.readings
    rows = np.isin(r.variables, [spec.variables.index(v) for v in variables])
    names = [spec.variables[i] for i in r.variables[rows]]
    table = pd.DataFrame({"name": names, "time": r.times[rows], "value": entity.raw[rows]})
    if cost.err is not None:
        table["err"] = r.errors[rows]
    if cost.censored is not None:
        table["mark"] = signs(r.all_marks[rows])
    return table if cost.entity is None else table.assign(**{cost.entity: entity.label})


def _of_keys(given: Any, keys: Sequence[str]) -> Any:
    """Return the part of a noise that belongs to some keys."""
    if given is None:
        return None
    if isinstance(given, pd.DataFrame):
        inside = [k for k in given.columns if str(k) in keys]
        return given.loc[inside, inside] if inside else None
    return {k: v for k, v in dict(given).items() if str(k) in keys}
