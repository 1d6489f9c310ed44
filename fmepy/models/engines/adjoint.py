"""Gradients by the discrete adjoint: one run and one sweep back for any number of parameters (`compiled.adjoint`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled import adjoint, status
from fmepy.compiled.adjoint import OF_STEP, AdjointTables, Sweep
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.explicit_runs import ExplicitRuns
from fmepy.compiled.kernels import packed
from fmepy.compiled.llvm_code import LlvmProgram, Place
from fmepy.compiled.machine import Code, compiled
from fmepy.errors import SimulationError
from fmepy.language.derivatives import derivatives_of, entries_of, gradients
from fmepy.language.equations import symbol
from fmepy.language.nodes import ZERO, Node, add, as_node, fresh
from fmepy.models.definition.definition import Definition
from fmepy.models.running.events import EVENT_VALUE, kinds_of
from fmepy.models.running.system import System
from fmepy.types import Matrix, Vector

_WORTH_IT, _MOST_STATES = 300, 100
"""Sensitivities above which a sweep back is faster; most states, since its W is a full matrix."""
_ROOM = 200
"""Steps for which there is room at first."""


def is_swept(system: System, definition: Definition) -> bool:
    """Tell whether a model allows a sweep back: the only discontinuities of its runs are events at known times."""
    return not (system.delays or system.algebraic or system.switches or system.roots or definition.at_rest)


def is_worth_a_sweep(n_states: int, n_params: int) -> bool:
    """Tell whether a sweep back is faster than forward sensitivities."""
    return n_states * n_params >= _WORTH_IT and n_states <= min(2 * n_params, _MOST_STATES)


class SweptRuns:
    """Runs that record their steps, with sweeps back along them.

    Parameters
    ----------
    runs : ExplicitRuns
        Along one course, without sensitivities.
    changes : sequence of int
        For each change of the course its kind of event (`models.running.events.kinds_of`).
    n_inputs : int
        Number of inputs before those of changes.
    system, definition
        The model.
    names : tuple of str
        The parameters of the gradient.
    """

    def __init__(
        self,
        runs: ExplicitRuns,
        changes: Sequence[int],
        n_inputs: int,
        system: System,
        definition: Definition,
        names: tuple[str, ...],
    ) -> None:
        d, kinds = definition, kinds_of(definition.events)[0]
        expressions = tuple(d.initial), tuple(e for _, e in d.outputs), kinds
        tables, self._code = _tables(system, d.groups, expressions, names, n_inputs)
        of_changes = [self._code.address(f"change{kind}") for kind in changes]
        self._tables = tables._replace(changes=np.array(of_changes, dtype=np.int64))
        self._runs, self._words, self._n_step = runs, packed(self._tables), _ROOM
        self._record = c_loop(adjoint.run_recorded, "the solver that records its steps")
        self._sweep = c_loop(adjoint.sweep_back, "the sweep back along a run")

    def run(self, p: Vector) -> tuple[Matrix, list[float], Callable[[Matrix], Vector]]:
        """Return the rows of a run, how it ended (`ExplicitRuns.one`), and ``pull(dL/dY)``, which returns dL/dp."""
        runs, tables = self._runs, self._tables
        inputs = np.zeros((1, runs.n_inputs))
        inputs[0, : len(p)] = p
        while True:
            room, steps = runs.arrays(inputs), np.empty((self._n_step + 1, OF_STEP + tables.n))
            packed_sweep = packed(Sweep(steps, np.zeros((0, 0)), np.zeros(0)))
            runs.called(self._record, room, runs.at_course, room[1], address(packed_sweep))
            ended = room[0].ended[0].tolist()
            if ended[0] == status.NO_ROOM:
                self._n_step *= 4
            elif ended[0] != status.STIFF or not runs.learns_stiff():
                break

        def pull(weights: Matrix) -> Vector:
            sweep = Sweep(steps, np.array(weights, dtype=float, order="C"), np.zeros(tables.n_params))
            words = packed(sweep)
            runs.called(self._sweep, room, runs.at_course, room[1], address(self._words), address(words))
            if not np.isfinite(sweep.gradient).all():
                raise SimulationError("the gradient became NaN or infinite on the sweep back to the start of the run")
            return sweep.gradient

        return room[0].out[0], ended, pull


@lru_cache(maxsize=64)
def _tables(
    system: System, groups: Any, expressions: tuple[tuple[Any, ...], ...], names: tuple[str, ...], change_inputs_at: int
) -> tuple[AdjointTables, Code]:
    """Return the tables of a model's sweep, without `changes`, and its code, with ``change0``, ... for kinds of events.

    `expressions` are the initial values, the outputs, and the values of the kinds of events.
    """
    initial, outputs, kinds = expressions
    n, m, rates = system.n_states, len(outputs), system.model_rates
    (time,), _, parameters, forcings, _ = groups
    y, q = list(system.z[:n]), [symbol(k) for k in names]
    v, k, a = [fresh(f"weight {i}") for i in range(max(n, m))], [fresh(f"stage {i}") for i in range(n)], fresh("a")
    F, moving = entries_of(rates, y), derivatives_of(rates, system.time)
    program = LlvmProgram(["t"], ["z", "q", "out"])

    def write(name: str, out: Sequence[Node], where: Mapping[Any, Place], *of_z: Any) -> None:
        places: dict[Any, Place] = {s: ("z", i) for i, s in enumerate(of_z)}
        program.function(name, [("out", i, e) for i, e in enumerate(out)], {**where, **places})

    def slopes(terms: Sequence[Node], to: Sequence[Any]) -> list[Node]:
        (gradient,) = gradients([add(ZERO, *terms)], to)
        return [gradient.get(x, ZERO) for x in to]

    def weighted(of: Sequence[Any]) -> list[Node]:
        return [s * as_node(e) for s, e in zip(v, of, strict=False)]

    along: dict[Any, Place] = {system.time: "t", **{s: ("q", i) for i, s in enumerate(system.inputs)}}
    write("jacobian", [*(e for _, _, e in F), *moving], along, *y)
    write("pull", slopes(weighted(rates), [*y, *q]), along, *y, *v[:n])
    bends = [v[i] * e * k[j] for i, j, e in F] + [a * e for e in weighted(moving)]
    write("bend", slopes(bends, [*y, *q]), along, *y, *k, *v[:n], a)
    of_row: dict[Any, Place] = {symbol(name): ("q", i) for i, name in enumerate((*parameters, *forcings))}
    write("values", slopes(weighted(initial), q), of_row, *v[:n])
    of_row[symbol(time)] = "t"
    write("outputs", slopes(weighted(outputs), [*y, *q]), of_row, *y, *v[:m])
    of_row |= {symbol(name): ("q", change_inputs_at + i) for i, name in enumerate((*forcings, EVENT_VALUE))}
    for i, e in enumerate(kinds):
        write(f"change{i}", slopes([e], [*y, *q]), of_row, *y)
    code = compiled(program.text())
    rows, cols = (np.array([f[i] for f in F], dtype=np.int64) for i in (0, 1))
    at = code.address
    return AdjointTables(
        at("pull"), at("bend"), at("outputs"), at("values"), at("jacobian"), n, len(names), m, rows, cols,
        np.zeros(0, dtype=np.int64), adjoint.EXPLICIT, adjoint.STIFF.ravel(), adjoint.POLYNOMIAL, adjoint.TIMES,
    ), code  # fmt: skip
