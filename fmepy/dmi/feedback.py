"""Feedback loops of a system of modules, and whether they reinforce or balance.

A variable depends on the variables that its statement reads, a level on those that its rate reads; a function with a
memory (`smooth`, `delay3`) is a chain of hidden levels, which loops pass without naming them. A large system has too
many loops to list, so the shortest ones through each link are found. The sign of a link is that of the derivative of
its statement, with the values of a run; the sign of a loop is the product of those of its links: positive loops amplify
a change (reinforcing), negative ones reverse it (balancing).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.dmi.compiled_program import ModularProgram
from fmepy.dmi.diagnostics import refuse_missing
from fmepy.dmi.evaluation_order import components, graph_of
from fmepy.dmi.stateful_functions import Evaluation, FlatSystem
from fmepy.dmi.statements import TIME, Elements, Shape, reference_of
from fmepy.errors import FmepyError, ModelError
from fmepy.language.derivatives import derivative
from fmepy.language.nodes import Node, values_of
from fmepy.types import Vector

if TYPE_CHECKING:
    from fmepy.dmi.model import ModularModel

_N_ROWS = 9  # rows of the run at which signs of links are computed
_MOST_STARTS = 1_000  # largest number of variables from which loops are searched, levels first
_MOST_ELEMENTS = 100  # largest number of elements of an array whose derivatives are computed
_UNKNOWN = np.full(_N_ROWS, np.nan)

Link = tuple[str, str]


def feedback_loops(model: ModularModel, most: int) -> pd.DataFrame:
    """Return the table of `ModularModel.feedback_loops`."""
    flat = FlatSystem(model.system)
    levels = {v.name for v in model.system.variables.values() if v.level}
    links: dict[Link, Evaluation | None] = {link: e for e in flat.evaluations for link in _links(e)}
    links |= {(level.rate.name, level.target.name): None for level in flat.levels}
    loops = _shortest(links, levels)
    visible = [[n for n in loop if n in model.system.variables] for loop in loops]
    # two paths through hidden levels are one loop to the reader
    first = {tuple(names): loop for names, loop in zip(reversed(visible), reversed(loops), strict=True) if names}
    chosen = sorted(first.items(), key=lambda item: (len(item[0]), item[0]))[:most]
    wanted = {link for _, loop in chosen for link in _pairs(loop)}
    signs = _signs({link: links[link] for link in links if link in wanted}, model, flat)
    rows = [
        (" → ".join([*names, names[0]]), len(names), _kind([signs[link] for link in _pairs(loop)]))
        for names, loop in chosen
    ]
    return pd.DataFrame(rows, columns=["loop", "length", "kind"]).astype({"length": int})


def _links(e: Evaluation) -> Iterable[Link]:
    if e.kind == "initial":
        return []
    if e.value is None:
        targets = e.targets or (e.target,)
        return [(source.name, target.name) for source in e.arguments for target in targets]
    read = {s.name.partition("[")[0] for s in e.value.free_symbols if s is not TIME}
    return [(name, e.target.name) for name in sorted(read)]


def _pairs(loop: list[str]) -> list[Link]:
    return list(zip(loop, loop[1:] + loop[:1], strict=True))


def _shortest(links: Iterable[Link], levels: set[str]) -> list[list[str]]:
    """Return the shortest loop through each link, each once, starting at a level if it has one."""
    from scipy.sparse.csgraph import breadth_first_order

    names = list(dict.fromkeys(n for link in links for n in link))
    number = {n: i for i, n in enumerate(names)}
    out, into = [set[int]() for _ in names], dict[int, list[int]]()
    every = [(number[a], number[b]) for a, b in links]
    for a, b in every:
        out[a].add(b)
    inside = {i: k for k, (group, is_loop) in enumerate(components(out)) if is_loop for i in group}
    for a, b in every:
        if a in inside and inside[a] == inside.get(b):
            into.setdefault(b, []).append(a)
    graph = graph_of([{b for b in some if a in into.get(b, ())} for a, some in enumerate(out)])
    loops: dict[tuple[int, ...], None] = {}
    for v in sorted(into, key=lambda i: names[i] not in levels)[:_MOST_STARTS]:
        before = breadth_first_order(graph, v)[1].tolist()
        for u in into[v]:
            path = [u]
            while path[-1] != v:
                path.append(before[path[-1]])
            loop = path[::-1]
            begin = min(range(len(loop)), key=lambda k: (names[loop[k]] not in levels, names[loop[k]]))
            loops[tuple(loop[begin:] + loop[:begin])] = None
    return [[names[i] for i in loop] for loop in loops]


def _signs(links: Mapping[Link, Evaluation | None], model: ModularModel, flat: FlatSystem) -> dict[Link, Vector]:
    """Return the sign of each link at some rows of a run: 1, 0, -1, or NaN where it is unknown."""
    elements, known = Elements(flat.shapes), {}
    with suppress(FmepyError):
        known = values_along(model, flat.shapes, np.linspace(0, len(model.times) - 1, _N_ROWS).round().astype(int))
    return {
        (source, target): np.ones(_N_ROWS) if e is None else _sign(e, source, flat.shapes, elements, known)
        for (source, target), e in links.items()
    }


def _sign(
    e: Evaluation, source: str, shapes: Mapping[str, Shape], elements: Elements, known: Mapping[Any, Vector]
) -> Vector:
    if e.kind == "lag" and e.arguments[0].name == source:
        return np.ones(_N_ROWS)
    if e.value is None or not known:
        return _UNKNOWN
    slopes = []
    for i in e.target.positions[:_MOST_ELEMENTS]:
        value = elements.at(e.value, i)
        for s in value.free_symbols:
            if s is not TIME and reference_of(s, shapes).name == source:
                try:
                    slope = derivative(value, s)
                    rows: list[dict[Node, float]] = [
                        {k: known[k.name][row] for k in slope.free_symbols} for row in range(_N_ROWS)
                    ]
                    slopes.append([values_of([slope], row)[0] for row in rows])
                except (ModelError, ArithmeticError, ValueError, KeyError):
                    return _UNKNOWN
    signs = np.sign(np.array(slopes).reshape(-1, _N_ROWS))
    low, high = signs.min(axis=0, initial=0), signs.max(axis=0, initial=0)
    return np.where((low < 0) & (high > 0), np.nan, low + high)


def values_along(model: ModularModel, shapes: Iterable[str], rows: Any) -> dict[str, Vector]:
    """Return every element of some variables at some rows of a run, hidden ones too, and the time ``t``.

    Raises
    ------
    ModelError, DataError, SimulationError
        The model does not run.
    """
    watched = copy(model)
    watched.__dict__["program"] = ModularProgram(model.system, model.rules, shapes, model.inputs.series)
    refuse_missing(model._diagnostics)
    bound = watched.bind()
    Z = bound.run(bound.theta0).rows[rows]
    return dict(zip(watched.program.columns, Z.T, strict=True)) | {TIME.name: model.times[rows]}


def _kind(signs: list[Vector]) -> str:
    all_of_them = np.array(signs)
    product = np.where((all_of_them == 0).any(axis=0), 0.0, all_of_them.prod(axis=0))
    if np.isnan(product).any():
        return "unknown"
    if not product.any():
        return "inactive"
    ends = {float(x) for x in product if x}
    return "changing" if len(ends) > 1 else "reinforcing" if ends == {1.0} else "balancing"
