"""Forecasts by simulation: parameters, the end of the data, the noise of the system and of the readings are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import SimulationError
from fmepy.filtering.run import Start
from fmepy.fimlof.ahead import Future, end_of
from fmepy.fimlof.entity_run import EntityRun
from fmepy.fimlof.outputs import on_own_scale
from fmepy.numerics.covariance import semidefinite_factor
from fmepy.types import Cube, Matrix

if TYPE_CHECKING:
    from fmepy.fimlof.result import FilterResult


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Paths of one entity: states, outputs and readings, shape (n_draw, n_time, k); readings with errors."""

    paths: Cube
    readings: Cube

    def complete(self) -> tuple[Cube, Cube]:
        """Return the draws that came to their end."""
        kept = np.isfinite(self.paths).all(axis=(1, 2))
        if not kept.any():
            raise SimulationError("Every simulated path broke down; look at the model beyond the data.")
        return self.paths[kept], self.readings[kept]

    def table(self, future: Future, label: Any, entity: str | None) -> pd.DataFrame:
        """Return all draws as one table, readings on the data's own scale."""
        spec = future.spec
        n_draw, n_time, _ = self.paths.shape
        k = len(spec.space.states) + len(future.outputs.names)
        columns = [*spec.space.states, *future.outputs.names, *(f"{v} (reading)" for v in spec.variables)]
        values = np.concatenate([self.paths[:, :, :k], on_own_scale(self.readings, spec)], axis=2)
        table = pd.DataFrame(values.reshape(n_draw * n_time, -1), columns=columns)
        table.insert(0, "time", np.tile(future.times, n_draw))
        table.insert(0, "draw", np.repeat(np.arange(n_draw), n_time))
        if entity is not None:
            table.insert(0, entity, label)
        return table


def drawn_paths(
    flt: FilterResult, futures: Sequence[Future], names: list[str], C: Matrix, n: int, rng: np.random.Generator
) -> list[Drawn]:
    """Return paths by simulation: parameters, end of the data, noise of the system and of the readings are drawn."""
    theta = flt.parms.to_numpy(dtype=float)
    at = flt.parms.index.get_indexer(pd.Index(names))
    factor = semidefinite_factor(C) if names else C
    drawn = []
    if not names:
        for future, run in zip(futures, flt.runs, strict=True):
            drawn.append(Drawn(*future.readings_of(_paths(future, run, n, rng), run.p, rng)))
        return drawn
    parts: list[list[tuple[Cube, Cube]]] = [[] for _ in futures]
    for _ in range(n):
        moved = theta.copy()
        moved[at] += factor @ rng.standard_normal(len(at))
        for k, (future, run) in enumerate(zip(futures, flt.bound.records(moved, flt.entities), strict=True)):
            parts[k].append(future.readings_of(_paths(future, run, 1, rng), run.p, rng))
    return [Drawn(*(np.concatenate(own) for own in zip(*part, strict=True))) for part in parts]


def _paths(future: Future, run: EntityRun, n: int, rng: np.random.Generator) -> Cube:
    """Return the states along n paths from the end of the data, shape (n, n_time, n_state); NaN after a breakdown."""
    spec = future.spec
    if run.failure is not None:
        return np.full((n, len(future.times), len(spec.space.states)), np.nan)
    start = Start(*end_of(run, spec), np.empty(0, dtype=np.intp))
    paths = future.bound_filter.paths(future.schedule, start, run.p, n, rng)
    return paths[:, np.searchsorted(future.schedule.times, future.times)]
