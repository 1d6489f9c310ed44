"""The inputs that a system takes from a data base: parameters, initial values, series on the grid of a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmepy.dmi.data_items import Item
from fmepy.dmi.database import Database
from fmepy.dmi.evaluation_order import components
from fmepy.dmi.ranges import places_of
from fmepy.dmi.statements import element_name, indices_of
from fmepy.dmi.variables import ModuleSystem, Variable
from fmepy.errors import ModelError
from fmepy.models.running.forcings import Forcing
from fmepy.types import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """The items of a data base that a system uses.

    Attributes
    ----------
    system : ModuleSystem
    data : dict of str to Item
        The used items of the data base, with elements by number.
    by_element : dict of str to Item
        Items by the name of the variable, or by elements where an item has some of them only; for diagnostics.
    series : tuple of str
        Variables of the data base that change along a run.
    guesses : tuple of str
        Variables of loops with a first guess in the data base.
    parameters : dict of str to float
        The used constants, elements of vectors as ``D[0]``.
    has_loops : bool
        Whether variables need one another in a circle.
    """

    system: ModuleSystem
    data: dict[str, Item]
    by_element: dict[str, Item]
    series: tuple[str, ...]
    guesses: tuple[str, ...]
    parameters: dict[str, float]
    has_loops: bool

    def starts(self, start: float) -> dict[str, float]:
        """Return initial values and guesses of the data base by element; those of series are taken at the start."""
        starts: dict[str, float] = {}
        for name, variable in self.system.variables.items():
            if name in self.data and (any(variable.outside) or name in self.guesses):
                indices = list(self.data[name].elements)
                (values,) = self.data[name].sampled(np.array([start]), indices).tolist()
                starts |= {variable.element(k): v for k, v in zip(indices, values, strict=True)}
        return starts

    def grids(self, times: Vector) -> dict[str, Forcing]:
        """Return every element of the series.

        Raises
        ------
        DataError
            They do not cover the interval of `times`, and must not be extrapolated.
        """
        series: dict[str, Any] = {}
        for name in self.series:
            item, variable = self.data[name], self.system.variables[name]
            item.sampled(times[[0, -1]], list(item.elements))
            of = zip(variable.elements, indices_of(variable.shape), variable.assigned, strict=True)
            series |= {element: item.elements[index] for element, index, is_set in of if not is_set}
        return series

    def sampled(self, times: Vector, per_step: int) -> Matrix:
        """Return the series, a column an element that no module computes; NaN at steps where no module reads it.

        Parameters
        ----------
        times : ndarray
            `per_step` of them an elementary step.
        """
        steps, step = {m.name: m.step for m in self.system.modules}, np.arange(len(times)) // per_step
        columns = [np.zeros((len(times), 0))]
        for name in self.series:
            variable = self.system.variables[name]
            indices = [k for k, is_set in zip(indices_of(variable.shape), variable.assigned, strict=True) if not is_set]
            is_read = np.logical_or.reduce([step % steps[m] == 0 for m in variable.read_in or steps])
            columns.append(np.full((len(times), len(indices)), np.nan))
            columns[-1][is_read] = self.data[name].sampled(times[is_read], indices)
        return np.hstack(columns)


def inputs_of(system: ModuleSystem, data: Database, *, written: bool = False) -> Inputs:
    """Return the inputs of a system from a data base.

    Parameters
    ----------
    written : bool
        Whether all statements make one loop.

    Raises
    ------
    ModelError
        An item has other dimensions than the variable of its name.
    """
    by_element: dict[str, Item] = {}
    series, guesses, parameters = [], [], dict[str, float]()
    loops = _loops(system, written)
    used_items: dict[str, Item] = {}
    for item in data:
        variable = system.variables.get(item.name)
        if variable is None:
            by_element[item.name] = item
            continue
        item = used_items[item.name] = _by_number(item, variable)
        _check_shape(item, variable, system)
        indices = indices_of(variable.shape)
        if all(index in item.elements for index in indices):
            by_element[item.name] = item
        else:
            by_element |= {variable.element(index): item for index in item.elements}
        if item.name in loops and not all(variable.initial) and not any(variable.outside):
            guesses.append(item.name)
        if item.is_series and variable.exogenous:
            series.append(item.name)
            continue
        for index, is_set, outside in zip(indices, variable.assigned, variable.outside, strict=True):
            used = not is_set or outside or item.name in guesses
            if used and index in item.elements and not item.is_series:
                parameters[variable.element(index)] = float(item.elements[index])  # type: ignore[arg-type]  # no series is here
    return Inputs(system, used_items, by_element, tuple(series), tuple(guesses), parameters, bool(loops))


def _by_number(item: Item, variable: Variable) -> Item:
    """Return an item with elements by number, if the data base has them by the names of a range."""
    if not any(isinstance(i, str) for index in item.elements for i in index):
        return item
    try:
        places: list[Any] = [tuple(places_of(item.name, variable.shape, i, {}, {})) for i in item.elements]
    except ValueError as error:
        raise ModelError(f"{item.source}: {error}.") from None
    return replace(item, elements=dict(zip(places, item.elements.values(), strict=True)))


def _check_shape(item: Item, variable: Variable, system: ModuleSystem) -> None:
    """Refuse an item with other dimensions than its variable; an item of single elements may lack some."""
    fits = item.shape == variable.shape if item.whole else set(item.elements) <= set(indices_of(variable.shape))
    if fits:
        return
    module = next(iter(variable.uses))
    line = variable.uses[module].line
    in_data, declared = element_name(item.name, item.shape), element_name(variable.name, variable.shape)
    hint = f"Declare `dims {in_data}` there" if item.shape else f"Take {item.name} out of `dims` there"
    raise ModelError(
        f"The dimensions of {item.name!r} differ: {in_data} in the data base ({item.source}), {declared} in module "
        f"{module!r} (line {line}). {hint}, or mend the data."
    )


def _loops(system: ModuleSystem, written: bool) -> frozenset[str]:
    """Return the assigned variables that need one another in a circle."""
    names = [n for n, v in system.variables.items() if v.endogenous and not v.level]
    if written:
        return frozenset(names)
    number = {n: i for i, n in enumerate(names)}
    needs = [set[int]() for _ in names]
    for s in system.statements:
        for target in s.targets if s.kind == "assign" else ():
            needs[number[target.name]] |= {number[read.name] for read in s.reads if read.name in number}
    return frozenset(names[i] for group, is_loop in components(needs) if is_loop for i in group)
