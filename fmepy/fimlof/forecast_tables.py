"""Tables of forecasts: bands of states and outputs, and of readings, on the data's own scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fmepy.fimlof.ahead import Ahead, Future
from fmepy.fimlof.bands import band, positive_names
from fmepy.fimlof.drawn import Drawn
from fmepy.fimlof.entity_run import EntityRun
from fmepy.fimlof.outputs import names_of_sums, on_own_scale
from fmepy.fimlof.specification import Specification
from fmepy.types import Cube, Matrix


def rows_of_entity(
    future: Future, ahead: Ahead, P: Cube, level: float, drawn: Drawn | None, run: EntityRun, entity: str | None
) -> pd.DataFrame:
    """Return the rows of one entity."""
    from scipy.special import ndtri

    spec = future.spec
    shown = _shown(spec, future.outputs.names)
    at, of = [column for _, column, _ in shown], [variable for _, _, variable in shown]
    n, m = len(spec.space.states), len(spec.variables)
    q = float(ndtri((1 + level) / 2))
    mean, sd = ahead.mean, np.sqrt(np.maximum(np.einsum("tii->ti", P), 0.0))
    errors = future.error_sds(mean[:, :n], run.p)
    lower, upper, z_sd = mean - q * sd, mean + q * sd, np.sqrt(sd[:, -m:] ** 2 + errors**2)
    z_lower, z_upper = mean[:, -m:] - q * z_sd, mean[:, -m:] + q * z_sd
    positive = positive_names(spec)
    for j, name in enumerate((*spec.space.states, *future.outputs.names)):
        if name in positive:
            lower[:, j], upper[:, j] = band(mean[:, j], sd[:, j], q, True)
            for v in (v for v, read in enumerate(spec.variables) if read == name and spec.transforms[v] is None):
                z, e = mean[:, j], q * errors[:, v]  # a reading errs by so much more, to either side
                z_lower[:, v] = z - np.hypot(z - lower[:, j], e)
                z_upper[:, v] = z + np.hypot(upper[:, j] - z, e)
    if drawn is not None:
        tails = [(1 - level) / 2, (1 + level) / 2]
        paths, readings = drawn.complete()
        lower, upper = np.quantile(paths, tails, axis=0)
        mean, sd, z_sd = paths.mean(axis=0), paths.std(axis=0), readings.std(axis=0)
        z_lower, z_upper = np.quantile(readings, tails, axis=0)
    bands = {"mean": mean, "sd": sd, "lower": lower, "upper": upper}
    of_readings = {"reading_sd": z_sd, "reading_lower": z_lower, "reading_upper": z_upper}
    nothing = np.full((len(mean), 1), np.nan)
    columns = {key: _own_scale(key, values, spec)[:, at] for key, values in bands.items()}
    columns |= {key: np.hstack([_own_scale(key, values, spec), nothing])[:, of] for key, values in of_readings.items()}
    for i, (_, column, variable) in enumerate(shown):
        if column >= mean.shape[1] - m:  # a sum has a value only where it is complete
            for values in columns.values():
                values[~future.complete[:, variable], i] = np.nan
    table = pd.DataFrame(
        {
            "time": np.tile(future.times, len(shown)),
            "name": np.repeat(np.array([name for name, _, _ in shown], dtype=object), len(mean)),
            **{key: values.T.ravel() for key, values in columns.items()},
        }
    )
    if entity is not None:
        table.insert(0, entity, run.label)
    return table


def _shown(spec: Specification, outputs: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return name, column among states, outputs and readings, and the variable read (-1: none) of every row.

    A sum is shown as it is read, under a name of its own.
    """
    states, variables = spec.space.states, list(spec.variables)
    summed = {a.variable: a.state for a in spec.accumulators}
    names = [*states, *outputs]
    shown = []
    for column, name in enumerate(names):
        if column not in summed.values() or column >= len(states):
            read = variables.index(name) if name in variables else -1
            shown.append((name, column, -1 if read in summed else read))
    of_sums = names_of_sums(spec)
    shown += [(of_sums[variables[v]], len(names) + v, v) for v in summed]
    return shown


def _own_scale(key: str, values: Matrix, spec: Specification) -> Matrix:
    """Return a table whose last columns are readings with those on the data's own scale; sds stay as they are."""
    out = np.array(values, dtype=float)
    if not key.endswith("sd"):
        m = len(spec.variables)
        out[:, -m:] = on_own_scale(out[:, -m:], spec)
    return out
