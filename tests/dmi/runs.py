"""A system from texts, run with numbers: what tests of runs need."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.dmi.compiled_program import ModularProgram, Rules
from fmepy.dmi.modular_run import ModularRun
from fmepy.dmi.modules import Module
from fmepy.dmi.statements import element_names
from fmepy.dmi.variables import system_of


def program_of(*modules: Any, series: Any = (), outputs: Any = None, dt: float = 1.0, **how: Any) -> ModularProgram:
    """Return the program of texts (and modules); its outputs are all endogenous variables."""
    given = [Module(f"m{i}", m) if isinstance(m, str) else m for i, m in enumerate(modules)]
    system = system_of(given)
    outputs = [v.name for v in system.variables.values() if v.endogenous] if outputs is None else outputs
    return ModularProgram(system, Rules(dt, **how), outputs, series)


def run(
    program: ModularProgram, n: int, start: float = 0.0, keep: Any = None, series: Any = None, **values: Any
) -> ModularRun:
    """Return a run of n steps with these values."""
    z = program.values({})
    for name, value in values.items():
        at = program.layout.of(name)
        z[at] = np.broadcast_to(value, program.layout.shapes[name] or (1,)).ravel()
    n_rows = program.rows_per_step * n + 1
    known = {
        element: column
        for name, of in (series or {}).items()
        for element, column in zip(
            element_names(name, program.layout.shapes[name]), np.reshape(of, (n_rows, -1)).T, strict=True
        )
    }
    given = np.column_stack([np.zeros((n_rows, 0)), *(known[element] for element in program.series)])
    keep = np.arange(n + 1) if keep is None else np.asarray(keep)
    return program.run(z, given, start, keep)


def table_of(program: ModularProgram, done: ModularRun) -> dict[str, np.ndarray]:
    """Return the columns of a run, by name."""
    return dict(zip(program.columns, done.rows.T, strict=True))


def ran(
    *modules: Any, n: int, dt: float = 1.0, how: Any = None, start: float = 0.0, series: Any = None, **values: Any
) -> dict[str, np.ndarray]:
    """Return the columns of a run of texts."""
    program = program_of(*modules, dt=dt, series=tuple(series or ()), **(how or {}))
    return table_of(program, run(program, n, start, series=series, **values))
