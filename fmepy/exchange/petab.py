"""PEtab problems: `read_petab` and `PetabProblem`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_path
from fmepy.costs.bound_mapped import BoundMapped
from fmepy.costs.mapped import MappedCost
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, listed
from fmepy.exchange.files import read_tsv
from fmepy.exchange.petab_layout import NOISE, ProblemLayout
from fmepy.exchange.petab_priors import TruncatedPrior, read_prior
from fmepy.exchange.petab_runs import ReadingsModel
from fmepy.exchange.petab_tables import MOST_BYTES, Tables, read_tables
from fmepy.exchange.sbml import SbmlModel, model_of, read_draft
from fmepy.parameters.mapped import Transforms
from fmepy.parameters.maps import Elementwise
from fmepy.parameters.named import merge_parameters
from fmepy.parameters.scales import mark, scale_of
from fmepy.types import AxesArray, UserParameters, Vector
from fmepy.vocabulary import own_words

SIMULATIONS = "simulations.tsv"
_PREFIX = {"lin": "", "log": "log-", "log10": "log10-"}
"""Prefix of the name of the likelihood, by the scale of an observable."""


@dataclass(frozen=True, eq=False, repr=False)
class FitCost(MappedCost):
    """The cost of a PEtab problem with the estimated parameters on their scales, and with their bounds.

    Attributes
    ----------
    own_lower, own_upper : Series
        Bounds of the estimated parameters, on the natural scale.
    """

    own_lower: pd.Series
    own_upper: pd.Series

    @cached_property
    def _parms(self) -> pd.Series:
        names = list(self.own_lower.index)
        own = self.inner.parms[names]
        return mark(pd.Series(self.map(names).start(own.to_numpy(dtype=float)), index=names), self.transforms)

    def map(self, names: Sequence[str] | None = None) -> Any:
        """Return the map to the parameters `names` (None: all that are estimated)."""
        return super().map(list(self.own_lower.index) if names is None else names)

    def _bounds(self) -> tuple[pd.Series, pd.Series]:
        low, high = self.map().bounds(self.own_lower.to_numpy(dtype=float), self.own_upper.to_numpy(dtype=float))
        return pd.Series(low, index=self.own_lower.index), pd.Series(high, index=self.own_lower.index)

    def bind(self, names: Sequence[str] | None = None, **words: Any) -> BoundMapped:
        """Return the cost as a function of the parameters `names` (None: all that are estimated), with their bounds."""
        bound = super().bind(self.checked_names(names), **words)
        low, high = self._bounds()
        chosen = list(bound.parameter_names)
        bound.lower, bound.upper = low[chosen].to_numpy(dtype=float), high[chosen].to_numpy(dtype=float)
        return bound

    def replace(self, **arguments: Any) -> Any:
        """Return a copy with some arguments of the problem's cost changed."""
        return type(self)(self.inner.replace(**arguments), self.how, self.own_lower, self.own_upper)


class PetabProblem:
    """A PEtab problem: a model, its experiments and readings, and the parameters to be estimated.

    Made by `read_petab`.

    Attributes
    ----------
    parameters : DataFrame
        Columns name, estimated, scale, lower, upper, nominal, prior; a row a parameter, found by its name, too.
    start, lower, upper : Series
        Of the estimated ones, on the natural scale: the nominal value (or the middle between the bounds), the bounds.
    prior : dict of str to TruncatedPrior
        Of the estimated ones, on the natural scale, truncated at the bounds; each has a ``logpdf``.
    model : SbmlModel
        The model by itself, as `read_sbml` gives it.
    cost : SimulationCost
        -2 log L of the readings on the scale of the data, with an exact score, as a function of all parameters. Its
        model (`ReadingsModel`) gives a row a reading, numbered from 0 in the order of the measurement table.
    fit_cost : FitCost
        The same of the estimated parameters alone, on their PEtab scales, with their bounds and start: for `modFit`,
        `profile` and `modMCMC`.
    """

    def __init__(self, tables: Tables) -> None:
        self._tables, self._layout = tables, ProblemLayout(tables, read_draft(tables.model))
        frame = tables.parameters.drop(columns=["prior_parameters", "where"])
        frame.insert(0, "name", frame.index)
        self.parameters = frame
        chosen = frame[frame["estimated"]]
        values = pd.Series(self._layout.nominal(), index=frame.index, dtype=float)
        self.start = values[chosen.index].rename("start")
        self.lower, self.upper = chosen["lower"].astype(float), chosen["upper"].astype(float)
        priors = {n: read_prior(tables.parameters.loc[n].to_dict(), tables.version) for n in chosen.index}
        self.prior: dict[str, TruncatedPrior] = {str(n): p for n, p in priors.items() if p is not None}

    @cached_property
    def model(self) -> SbmlModel:
        """The model alone, as `read_sbml` returns it."""
        ends = [r.time for r in self._tables.readings if math.isfinite(r.time)]
        return model_of(read_draft(self._tables.model), np.linspace(0, max([*ends, 1.0]), 101))

    @cached_property
    def cost(self) -> SimulationCost:
        """-2 log L of the readings on the scale of the data, as a function of all parameters."""
        readings, observed = self._tables.readings, {f.variable: f.observable for f in self._layout.formulas}
        variable_of = {o.id: v for v, o in observed.items()}
        data = {
            "observable": [variable_of[r.observable] for r in readings],
            "reading": np.arange(len(readings), dtype=float),
            "measurement": [r.value for r in readings],
        }
        return SimulationCost(
            ReadingsModel(self._layout),
            pd.DataFrame(data),
            x="reading",
            y="measurement",
            measurement_noise={v: NOISE.format(v) for v in observed},
            likelihood={v: _PREFIX[o.scale] + o.distribution for v, o in observed.items()},
        )

    @cached_property
    def fit_cost(self) -> FitCost:
        """The cost of the estimated parameters on their scales, with their bounds."""
        scales = self.parameters["scale"][self.start.index]
        kinds = Transforms({str(n): s for n, s in scales.items() if s != "lin"})
        return FitCost(self.cost, kinds, self.lower, self.upper)

    @cached_property
    def _bound(self) -> Any:
        return self.cost.bind()

    def _values(self, par: UserParameters) -> Vector:
        return np.asarray(merge_parameters(self.cost.parms, par).to_numpy(dtype=float))

    def loglik(self, par: UserParameters = None) -> float:
        """Return log L of the data on their own scale, without priors.

        Parameters
        ----------
        par : dict, Series, ..., optional
            Some or all of the parameters on the natural scale; the others have their nominal values.
        """
        return -0.5 * float(self._bound.minus2loglik(self._values(par)))

    def chi2(self, par: UserParameters = None) -> float:
        """Return the sum of squared residuals in units of their noise, on the scale of comparison."""
        return float(self.cost(par).model)

    def simulations(self, par: UserParameters = None) -> pd.DataFrame:
        """Return PEtab's simulation table: the rows of the measurement table, with what the model predicts."""
        table = self._tables.measurements.drop(columns="measurement")
        found = self.cost.model.predictions(par)
        table.insert(list(self._tables.measurements.columns).index("measurement"), "simulation", found)
        table["time"] = table["time"].astype(float)
        return table

    def plot(self, fit: Any = None, which: Any = None, *, axes: Any = None, **words: Any) -> AxesArray:
        """Draw readings and predictions over time, a panel an observable, a colour an experiment.

        Parameters
        ----------
        fit : ModFit, dict or Series, optional
            A fit of `cost` or `fit_cost`, or values on the natural scale. Default: the nominal values.
        which : names or positions, optional
            Observables; by default all.
        axes : Axes or array of them, optional
        **words
            Keywords of every picture, and of matplotlib's lines.

        Returns
        -------
        ndarray of Axes
            Logarithmic where readings are compared so. Readings at rest stand behind the others. A line joins the
            predictions of readings that share their observable's and noise's parameters.
        """
        panels: AxesArray = self.cost.model.plot_readings(self._natural(fit), which, axes=axes, **words)
        return panels

    def write(self, folder: Any, fit: Any = None) -> Path:
        """Write the problem into a folder, with the values of a fit as nominal ones, and its simulations.

        Parameters
        ----------
        folder : str or Path
            Created if it does not exist. Existing files are not overwritten.
        fit : ModFit, dict or Series, optional
            A fit of `cost` or `fit_cost`, or values on the natural scale. Default: the nominal values.

        Returns
        -------
        Path
            The new problem file, which `read_petab` reads to the same likelihood.
        """
        import yaml

        folder, tables = as_path(folder, "folder"), self._tables
        values = self._natural(fit)
        there = [f for f in (*self.files, SIMULATIONS) if (folder / f).exists()]
        if there:
            raise ArgumentError(f"{folder} holds {listed(there)} already; name another folder, or empty this one.")
        for name in self.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            source = tables.path.parent / name
            if name == tables.path.name:
                (folder / name).write_text(yaml.safe_dump(tables.config, sort_keys=False), encoding="utf-8")
            elif name in tables.files["parameters"]:
                _with_nominal(source, values).to_csv(folder / name, sep="\t", index=False)
            else:
                (folder / name).write_bytes(source.read_bytes())
        self.simulations(values).to_csv(folder / SIMULATIONS, sep="\t", index=False)
        return Path(folder) / tables.path.name

    @property
    def files(self) -> list[str]:
        """The names of the problem's files, relative to its folder."""
        tables = self._tables
        model = tables.model.relative_to(tables.path.parent).as_posix()
        return [tables.path.name, *dict.fromkeys(f for names in tables.files.values() for f in names), model]

    @property
    def measurements(self) -> pd.DataFrame:
        """The measurement table of the file."""
        return self._tables.measurements.copy()

    def _natural(self, fit: Any) -> dict[str, float]:
        """Return values on the natural scale, from a fit or from values by name."""
        par = getattr(fit, "par", fit)
        if par is not None:
            par = par if isinstance(par, pd.Series) else pd.Series(par, dtype=float)
            map = Elementwise(tuple(par.index), {n: k for n, k in scale_of(par).items() if k is not None})
            par = pd.Series(map.full(par.to_numpy(dtype=float)), par.index)
        return {str(n): float(v) for n, v in merge_parameters(self.cost.parms, par).items()}

    def __repr__(self) -> str:
        t = self._tables
        free, fixed = len(self.start), len(self.parameters) - len(self.start)
        used = {r.experiment for r in t.readings}
        return (
            f"PEtab problem (version {t.version}) {t.path.name}: {len(t.readings)} readings of "
            f"{len(self._layout.formulas)} observables in {len(used)} experiments; {len(self._layout.states)} states; "
            f"{free} parameters estimated, {fixed} fixed"
        )


def _with_nominal(path: Path, values: dict[str, float]) -> pd.DataFrame:
    frame, _ = read_tsv(path, MOST_BYTES)
    frame["nominalValue"] = [repr(values[id.strip()]) for id in frame["parameterId"]]
    return frame


@own_words
def read_petab(path: Any) -> PetabProblem:
    r"""Return the calibration problem that a PEtab file (version 1 or 2, with an SBML model) describes.

    Parameters
    ----------
    path : str or Path
        The YAML file. Its tables and its model lie beside it or below.

    Returns
    -------
    PetabProblem
        ``problem.loglik()``, ``problem.cost``, ``fme.modFit(problem.fit_cost, starts=20, seed=1)``.

    Raises
    ------
    DataError
        A table is wrong; with file, line and column.
    ModelError
        The SBML model cannot be read; see `read_sbml`.

    Notes
    -----
    Formulas are read by a white list, and no file is executed. A reading at the time of an event or of a new period is
    of the state after it; events at that time come after the changes of the period's condition. Preequilibration runs
    ten times as long each time until nothing changes, events included; so do readings at time inf. Runs have the
    tolerances rtol = 1e-8 and atol = 1e-12.

    Examples
    --------
    A decays at the rate k, and is measured twice:

    >>> import fmepy as fme
    >>> files = {
    ...     "model.xml": '''<sbml xmlns="http://www.sbml.org/sbml/level2/version4" level="2" version="4"><model>
    ...         <listOfParameters><parameter id="A" value="2" constant="false"/><parameter id="k" value="0.5"/>
    ...         </listOfParameters><listOfRules><rateRule variable="A">
    ...         <math xmlns="http://www.w3.org/1998/Math/MathML"><apply><minus/><apply><times/><ci>k</ci><ci>A</ci></apply>
    ...         </apply></math></rateRule></listOfRules></model></sbml>''',
    ...     "problem.yaml": "format_version: 2.0.0\nparameter_files: [p.tsv]\nobservable_files: [o.tsv]\n"
    ...         "measurement_files: [m.tsv]\nmodel_files: {decay: {language: sbml, location: model.xml}}",
    ...     "p.tsv": "parameterId,lowerBound,upperBound,nominalValue,estimate\nk,0,10,0.5,true",
    ...     "o.tsv": "observableId,observableFormula,noiseFormula,noiseDistribution\ny,A,0.1,log-normal",
    ...     "m.tsv": "observableId,experimentId,time,measurement\ny,,1,1.1\ny,,2,0.7",
    ... }
    >>> folder = getfixture("tmp_path")
    >>> for name, text in files.items():
    ...     _ = (folder / name).write_text(text if ".tsv" not in name else text.replace(",", "\t"))
    >>> problem = fme.read_petab(folder / "problem.yaml")
    >>> problem
    PEtab problem (version 2) problem.yaml: 2 readings of 1 observables in 1 experiments; 1 states; 1 parameters ...
    >>> round(problem.loglik(), 4)
    2.4259
    >>> fme.modFit(problem.fit_cost).par.round(2).to_dict()
    {'k': 0.54}
    """
    return PetabProblem(read_tables(path))
