"""A model's functions for the stiff method (Jacobian and more), compiled when a run first needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled import rosenbrock, unrolled_lu
from fmepy.compiled.c_loops import loop_address
from fmepy.compiled.llvm_code import LlvmProgram, NotWritableError, Place
from fmepy.compiled.machine import compiled
from fmepy.compiled.sparse_lu import eliminated, with_block
from fmepy.compiled.stiff_plan import Entries, plan_of
from fmepy.language.derivatives import derivatives_of, entries_of
from fmepy.language.equations import symbol
from fmepy.language.nodes import Node, fresh
from fmepy.models.running.system import System

MOST_STIFF_STATES = 5000
"""Most states of a model whose Jacobian is compiled entry by entry, which then takes 15 s and 700 MB."""


class StiffCode:
    """The plan of the stiff method for a model, compiled at the first call; then `made` holds it.

    Parameters
    ----------
    make : callable
        Returns the plan (`compiled.stiff_plan.plan_of`) and the code that it refers to, or None if there is none.
    only : bool
        Whether all runs use this method only.
    """

    def __init__(self, make: Callable[[], Any], only: bool = False) -> None:
        self._make = make
        self.made: Any = None
        plan_and_code = self() if only else None
        if plan_and_code is not None:
            plan = plan_and_code[0].copy()  # it still points at the tables of the original
            plan[2] = 1  # a run with algebraic states never leaves the stiff method
            self.made = plan, plan_and_code

    def __call__(self) -> Any:
        """Return the plan and its code."""
        if self.made is None:
            self.made = self._make()
        return self.made


@lru_cache(maxsize=64)
def stiff_plan(system: System, prepared: tuple[tuple[Node, Place], ...] = ()) -> Any:
    """Return the plan of the stiff method for a system (`compiled.rosenbrock`) and its code; None if it cannot run it.

    prepared : parts of the rates that are among the inputs, with their places
    """
    if system.n_states > MOST_STIFF_STATES:
        return None
    try:
        program, entries = _stiff_program(system, prepared)
        pattern = eliminated(entries.n, entries.rows, entries.cols)
    except (NotWritableError, MemoryError):
        return None
    if not unrolled_lu.write(program, pattern, entries):
        pattern = with_block(pattern)
    code = compiled(program.text())
    names = "field", "jacobian", "slopes", "bend", "advance", "factor", "solve", "multiply"
    functions = [code.address(name) for name in names]
    return plan_of(entries, pattern, functions, loop_address(rosenbrock.run, "the stiff solver")), code


def _stiff_program(system: System, prepared: Sequence[tuple[Node, Place]]) -> tuple[LlvmProgram, Entries]:
    """Return the program of the functions that `rosenbrock` calls (Jacobian and more), and their entries."""
    n, names = system.n_states, system.names
    y, q = list(system.z[:n]), [symbol(k) for k in names]
    k = [fresh(f"stage of {i}") for i in range(n)]
    a = fresh("weight of the stage")
    where: dict[Any, Place] = {system.time: "t", a: ("z", 2 * n)}
    where |= {s: ("z", i) for i, s in enumerate([*y, *k])}
    where |= {s: ("q", i) for i, s in enumerate(system.inputs)} | dict(prepared)
    rates = _matched(system)
    F = entries_of(rates, y)
    moving = derivatives_of(rates, system.time)
    program = LlvmProgram(["t"], ["z", "q", "out"])

    def write(name: str, expressions: Sequence[Any]) -> None:
        program.function(name, [("out", i, e) for i, e in enumerate(expressions)], where)

    write("field", rates)
    write("jacobian", [*(e for _, _, e in F), *moving])
    rows, columns = [i for i, _, _ in F], [j for _, j, _ in F]
    if not names:
        return program, Entries(n, rows, columns, algebraic=system.algebraic)
    of_q = entries_of(rates, q)
    write("slopes", [e for _, _, e in (*F, *of_q)])
    products = [a * e for e in moving]
    for i, j, e in F:
        products[i] += e * k[j]
    bends = entries_of(products, y), entries_of(products, q)
    write("bend", [e for part in bends for _, _, e in part])
    of_f, of_y, of_p = ([(i, j) for i, j, _ in part] for part in (of_q, *bends))
    at = system.layout.scales.start
    return program, Entries(n, rows, columns, of_f, of_y, of_p, len(names), at, system.algebraic)


def _matched(system: System) -> tuple[Any, ...]:
    """Return the rates, each algebraic equation in the row of a state that occurs in it, to have a pivot."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    rates, places = list(system.model_rates), system.algebraic
    if places:
        has = [[system.z[j] in system.model_rates[i].free_symbols for j in places] for i in places]
        for column, row in enumerate(maximum_bipartite_matching(csr_array(np.array(has)), perm_type="row")):
            if row < 0:  # index above one, which the model's checks report
                raise NotWritableError("equation without an algebraic state of its own")
            rates[places[column]] = system.model_rates[places[row]]
    return tuple(rates)
