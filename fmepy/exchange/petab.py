"""PEtab problems: `read_petab`, and what is asked of one, `PetabProblem`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.mapped import MappedCost
from fmepy.costs.simulation import SimulationCost
from fmepy.exchange.petab_noise import likelihood_of
from fmepy.exchange.petab_priors import read_prior
from fmepy.exchange.petab_runs import NOISE, Layout, ReadingsModel
from fmepy.exchange.petab_tables import Tables, read_tables
from fmepy.exchange.sbml import SbmlModel, model_of, read_draft
from fmepy.parameters.mapped import Transforms
from fmepy.parameters.maps import Map, Selected
from fmepy.parameters.named import merge_parameters
from fmepy.types import UserParameters


class PetabProblem:
    """A PEtab problem: a model, its experiments and readings, and the parameters to be estimated.

    Made by `read_petab`.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        draft = read_draft(tables.model)
        self._layout = Layout(tables, draft)
        self._estimated = [str(k) for k, on in tables.parameters["estimated"].items() if on]

    @cached_property
    def model(self) -> SbmlModel:
        """The SBML model by itself, as `read_sbml` gives it."""
        ends = [r.time for r in self.tables.readings if math.isfinite(r.time)]
        return model_of(read_draft(self.tables.model), np.linspace(0, max([*ends, 1.0]), 101))

    @cached_property
    def cost(self) -> SimulationCost:
        """-2 log L of the readings on the scale of the data, with an exact score, of all parameters of the table.

        Its model gives a row a reading, numbered from 0 in the order of the measurement table.
        """
        layout = self._layout
        variables = {f.variable: o for f, o in zip(layout.formulas, layout.observed, strict=True)}
        name_of = {o.id: v for v, o in variables.items()}
        readings = self.tables.readings
        data = pd.DataFrame(
            {
                "observable": [name_of[r.observable] for r in readings],
                "reading": np.arange(len(readings), dtype=float),
                "measurement": [r.value for r in readings],
            }
        )
        return SimulationCost(
            ReadingsModel(layout),
            data,
            x="reading",
            y="measurement",
            measurement_noise={v: NOISE.format(v) for v in variables},
            likelihood=likelihood_of(tuple((v, o.scale, o.distribution) for v, o in variables.items())),
        )

    def loglik(self, par: UserParameters = None) -> float:
        """Return log L."""
        return -0.5 * float(self.cost.bind().minus2loglik(self._values(par)))

    def _values(self, par: UserParameters) -> Any:
        return merge_parameters(self.cost.parms, par).to_numpy(dtype=float)

    def chi2(self, par: UserParameters = None) -> float:
        """Return chi-square."""
        bound = self.cost.bind()
        values = self._values(par)
        mod, spread = bound._of_predictions(bound.predictions.values(values), values)
        r = bound.standard(bound._compared.obs, mod, spread)
        return float(r @ r)


def read_petab(path: Any) -> PetabProblem:
    """Return problem."""
    return PetabProblem(read_tables(path))
