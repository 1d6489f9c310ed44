"""A system from texts, run with numbers: what tests of runs need."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.dmi.compiled_program import ModularProgram
from fmepy.dmi.loop_tables import Rules
from fmepy.dmi.modular_run import ModularRun
from fmepy.dmi.modules import Module
from fmepy.dmi.variables import system_of


def program_of(
    *modules: Any, series: Any = (), outputs: Any = None, dt: float = 1.0, guesses: Any = (), **how: Any
) -> ModularProgram:
    """Return the program of texts (and modules); its outputs are all endogenous variables."""
    given = [Module(f"m{i}", m) if isinstance(m, str) else m for i, m in enumerate(modules)]
    system = system_of(given)
    outputs = [v.name for v in system.variables.values() if v.endogenous] if outputs is None else outputs
    return ModularProgram(system, Rules(dt, **how), outputs, series, guesses)


def run(
    program: ModularProgram, n: int, start: float = 0.0, keep: Any = None, series: Any = None, **values: Any
) -> ModularRun:
    """Return a run of n steps with these values."""
    constants = [np.broadcast_to(values[name], shape or (1,)).ravel() for name, shape in program.constants]
    given = [
        np.asarray(series[name], dtype=float).reshape(program.rows_per_step * n + 1, -1) for name, _ in program.series
    ]
    keep = np.arange(n + 1) if keep is None else np.asarray(keep)
    return program.run(np.concatenate([np.zeros(0), *constants]), given, start, keep)


def table_of(program: ModularProgram, done: ModularRun) -> dict[str, np.ndarray]:
    """Return the columns of a run that came to its end, by name."""
    assert done.failed == "", done.failed
    return dict(zip(program.columns, done.rows.T, strict=True))


def ran(
    *modules: Any, n: int, dt: float = 1.0, how: Any = None, start: float = 0.0, series: Any = None, **values: Any
) -> dict[str, np.ndarray]:
    """Return the columns of a run of texts."""
    program = program_of(*modules, dt=dt, series=tuple(series or ()), **(how or {}))
    return table_of(program, run(program, n, start, series=series, **values))
