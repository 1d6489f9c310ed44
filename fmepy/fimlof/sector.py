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

from fmepy.costs.noise import names_of_estimates, names_of_noise
from fmepy.costs.sum import SumCost
from fmepy.errors import ArgumentError, DataError, listed
from fmepy.expressions.equations import Equations, names_in
from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.data import EntityData
from fmepy.fimlof.on_scale import as_given
from fmepy.parameters.named import check_names
from fmepy.types import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Sector:
    """A part of a model, ready to be filtered alone.

    Attributes
    ----------
    cost : FimlofCost, or SumCost of one for each entity
        Of the sector's states, readings and noise.
    states : tuple of str
    inputs : tuple of str
        States of the other sectors, taken from the data.
    interpolated : DataFrame
        Input values that were not measured: entity (where there are several), variable, time, value. They are linear
        between their neighbours, constant before the first and after the last.
    """

    cost: FimlofCost | SumCost
    states: tuple[str, ...]
    inputs: tuple[str, ...]
    interpolated: pd.DataFrame = field(repr=False)

    def __repr__(self) -> str:
        lines = [f"Sector of {', '.join(self.states)}; inputs from data: {', '.join(self.inputs) or 'none'}"]
        counts = self.interpolated["variable"].value_counts(sort=False)
        lines += [f"  {name}: {n} values were not measured and are interpolated" for name, n in counts.items()]
        if isinstance(self.cost, SumCost):
            parts = self.cost.parts
            lines.append(f"  Sum of {len(parts)} costs, one for each entity; the first: {parts[0]!r}")
        else:
            lines.append(f"  {self.cost!r}")
        return "\n".join(lines)


def sector(cost: FimlofCost, states: Sequence[str]) -> Sector:
    """Return a part of a model, held against its own data, with the rest of the model taken from the data.

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
        cost with `conditions`.

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
      FimlofCost: b (4); 1 parameters
    """
    spec = cost.specification
    equations = spec.equations
    names = tuple(dict.fromkeys(map(str, [states] if isinstance(states, str) else states)))
    if cost.conditions is not None:
        raise ArgumentError(
            "A sector of a cost with `conditions` is not offered: give every entity a cost of its own, with the "
            "numbers in its model, and take the sector of each."
        )
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
    parts, rows = [], []
    for entity in cost.entities:
        series, filled = _inputs(cost, entity, inputs)
        model = _model(cost, kept, rates, outputs, inputs, series)
        parts.append(_cost(cost, entity, model, variables))
        rows += [(entity.label, *row) for row in filled]
    table = pd.DataFrame(rows, columns=["entity", "variable", "time", "value"])
    if cost.entity is None:
        table = table.drop(columns="entity")
    return Sector(parts[0] if len(parts) == 1 else SumCost(tuple(parts)), kept, inputs, table)


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
        at = entity.readings.variables == direct[name]
        if not at.any():
            raise DataError(f"Entity {entity.label!r} has no datum of {name!r}, which the sector needs as an input.")
        measured = pd.Series(entity.raw[at]).groupby(entity.readings.times[at]).mean()
        values = np.interp(times, measured.index.to_numpy(dtype=float), measured.to_numpy())
        filled += [(name, float(t), float(v)) for t, v in zip(times, values, strict=True) if t not in measured.index]
        # the next state of a difference equation is made of the old states: the input of a step is the datum before it
        shift = 1.0 if spec.definition.kind == "difference" else 0.0
        series[name] = (times + shift, values)
    return series, filled


def _model(
    cost: FimlofCost,
    kept: tuple[str, ...],
    rates: tuple[Any, ...],
    outputs: tuple[tuple[str, Any], ...],
    inputs: tuple[str, ...],
    series: dict[str, tuple[Vector, Vector]],
) -> Any:
    definition = cost.specification.definition
    equations = cost.specification.equations
    initial = {s: v for s, v in zip(definition.states, definition.initial, strict=True) if s in kept}
    changes = [e.value for e in cost.specification.events if definition.states[e.state] in kept]
    used = names_in([*rates, *(e for _, e in outputs), *initial.values(), *changes])
    parameters = tuple(k for k in definition.parameters if k in used)
    forcings = {f.name: f for f in definition.forcings if f.name in used}
    part = Equations(equations.kind, kept, parameters, (*forcings, *inputs), rates, outputs, equations.time)
    events = _events(cost, kept)
    return cost.specification.model.of_equations(
        part,
        state={k: as_given(v) for k, v in initial.items()},
        parms={k: float(definition.parms[k]) for k in parameters},
        forcings={**forcings, **series} or None,
        **({"events": events} if events else {}),
    )


def _events(cost: FimlofCost, kept: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the events of the sector's states; those of the others are in their data."""
    spec = cost.specification
    return [
        {"var": spec.definition.states[e.state], "time": e.time, "value": as_given(e.value), "method": e.method}
        for e in spec.events
        if spec.definition.states[e.state] in kept
    ]


def _cost(cost: FimlofCost, entity: EntityData, model: Any, variables: tuple[str, ...]) -> FimlofCost:
    """Return the cost of the sector's readings of one entity, with what of the noise belongs to it."""
    spec = cost.specification
    known = {*model.states, *model.parms.index}
    felt = {*model.states, *(names_in(model.definition.equations.rates) & set(model.parms.index))}
    effective = [k for k in spec.noise.keys if k in felt]
    process = _of_keys(cost.process_noise, effective)
    measurement = _of_keys(cost.measurement_noise, variables)
    start = _of_keys(cost.initial_sd, model.states)
    extra = (names_of_noise(process, measurement, start) | names_of_estimates(process, measurement)) - known
    per_entity = tuple(k for k in cost.entity_parms if k in extra | set(model.parms.index))
    rows = np.isin(entity.readings.variables, [spec.variables.index(v) for v in variables])
    obs = pd.DataFrame(
        {
            "name": [spec.variables[i] for i in entity.readings.variables[rows]],
            "time": entity.readings.times[rows],
            "value": entity.raw[rows],
        }
    )
    if cost.err is not None:
        obs["err"] = entity.readings.errors[rows]
    values = {k: cost.parms.get(f"{k}[{entity.label}]", cost.parms.get(k)) for k in extra}
    if per_entity:
        obs[cost.entity] = entity.label
        values |= {name: cost.parms[name] for name in (f"{k}[{entity.label}]" for k in per_entity)}
    return FimlofCost(
        model,
        obs,
        y="value",
        err=None if cost.err is None else "err",
        process_noise=process or {},
        measurement_noise=measurement,
        transform={v: k for v, k in zip(spec.variables, spec.transforms, strict=True) if k and v in variables} or None,
        parms={k: float(v) for k, v in values.items() if v is not None},
        initial=cost.initial,
        initial_sd=start,
        entity=cost.entity if per_entity else None,
        entity_parms=per_entity,
        accumulate={k: v for k, v in dict(cost.accumulate or {}).items() if k in variables} or None,
        noise_kind=cost.noise_kind,
        propagation=cost.propagation,
        dt=cost.dt,
        update=cost.update,
        algorithm=cost.algorithm,
        threshold=cost.threshold,
    )


def _of_keys(given: Any, keys: Sequence[str]) -> Any:
    """Return the part of a noise that belongs to some keys."""
    if given is None:
        return None
    if isinstance(given, pd.DataFrame):
        inside = [k for k in given.columns if str(k) in keys]
        return given.loc[inside, inside] if inside else None
    return {k: v for k, v in dict(given).items() if str(k) in keys}
