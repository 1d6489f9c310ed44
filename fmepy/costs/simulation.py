"""`SimulationCost`: simulate, then compare; prepared once, evaluated exactly at the observations.

For observation i of variable j, T the variable's transform (identity if none)::

    r_i = (T(mod_i) - T(obs_i)) / e_i                           mod_i: the model at the time of the observation
    dr_i/dp = T'(mod_i) / e_i dmod_i/dp                         from the model's sensitivities
    -2 log L = sum_i r_i^2 + log(2 pi) + 2 log e_i

What is fixed when the cost is built - matched names, used observations, weights - is a `Comparison`; what is fixed
when it is bound - the model, and where the observations stand in its run - are `Predictions`. An evaluation is numpy
alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from fmepy.checks import as_rng
from fmepy.costs.by_entity import predictions_of_parts
from fmepy.costs.depths import read_depths
from fmepy.costs.entities import Experiments, check_given, check_needed, given_values, read_entity_column
from fmepy.costs.error_kinds import transforms_of, with_errors_of, words_by_variable
from fmepy.costs.experiment_runs import RunsOfCost
from fmepy.costs.interpolation import Places
from fmepy.costs.modcost import ModCost
from fmepy.costs.noise import names_of_noise
from fmepy.costs.observable_parameters import names_by_row, read_row_parameters
from fmepy.costs.observations import OUTSIDE, Comparison, Observations, check_observed, prepare, read_observations
from fmepy.costs.predictions import BoundSimulation
from fmepy.costs.sum import AddableCost
from fmepy.errors import ArgumentError, check_choice, counted
from fmepy.models.base import Model
from fmepy.models.on_grid import profiles_of
from fmepy.parameters.named import check_names, merge_parameters
from fmepy.parameters.names import normal_name
from fmepy.tables.columns import as_table
from fmepy.tables.sheet import with_times
from fmepy.types import IntVector, Seed, UserParameters
from fmepy.vocabulary import by_name, with_own_words

if TYPE_CHECKING:
    from fmepy.costs.noise_model import MeasurementNoise

_COLUMNS = ("x", "y", "err", "entity")


@with_own_words
@dataclass(frozen=True, eq=False, repr=False)
class SimulationCost(RunsOfCost, AddableCost):
    """A dynamic model compared with data: simulate, then compare. Call it with parameters for a `ModCost`.

    Parameters
    ----------
    model : Model
        A fmepy model (`OdeModel`, `DifferenceModel`, ...).
    obs : DataFrame, or mapping of names to columns
        The data, wide or long, as `modCost` takes them.
    x : str, pair of str, or None
        The column of the observation times (a fmepy model knows its own time). Time inf is the steady state, which a
        run comes to after its events (found by simulating on until nothing changes; an error where it never does).
        Of a model on a grid the columns of times and depths, such as ``["day", "depth"]``: exact in time, linear in
        depth between the middles of cells (between an edge and the middle beside it: the value of that cell), and
        `outside` is about both.
        None: the mean of a variable's observations is compared with its mean over the model's times.
    y, err : str, optional
        Columns of the values of a long table, and of standard errors. With a `transform`, errors are on the
        transformed scale: with ``transform="log"`` an error of 0.1 is about ten per cent.
    unit, origin : str, date, optional
        Of dates as times, as `modCost` takes them; `obs` then holds numbers. Without `origin` 0 is the first date of
        the whole table, for all entities.
    weight : {"none", "std", "mean"}
        Without `err`, the error of a variable: 1, the standard deviation, or the mean absolute value of its
        observations that are used, on the transformed scale.
    scaleVar : bool
        As in `modCost`: the cost of a variable is divided by n_j^3.
    transform : {"log", "log10", "sqrt"} or dict by variable, optional
        Compare transformed values, on both sides. "Unweighted" then means on the transformed scale, and the tables of
        the `ModCost` hold transformed values.
    interpolate : {"exact", "grid"}
        "exact" runs the model to the observation times; "grid" interpolates linearly between the model's own times,
        as `modCost` does. They agree if every observation lies on the grid.
    outside : {"error", "drop"}
        Observations outside ``[model.times[0], model.times[-1]]``: an error, or left out and counted.
    measurement_noise : mapping of observed variable to sd, optional
        How large the errors of the readings are: a number, a parameter's name, ``"estimate"`` (then it is a parameter
        ``sd_v_<variable>``; of P[0] ``sd_v_P_0``), or an expression, such as ``"sqrt(a**2 + (b*y)**2)"``. In it a name
        is a parameter or a variable of the model, whose prediction in its own unit it is; ``err`` is the datum's own
        error where `err` names the column, and may stand beside noise in its expression only. Variables left out have
        their errors in that column. With a `transform` it is the noise of the transformed reading.
    censored : str, or mapping of observed variable to str, optional
        Column of marks: ``<`` or ``>`` where the column of values holds a limit below or above which the reading lies;
        empty, missing or ``=`` of a plain reading. By variable where a row of a wide table holds several readings.
    parms : mapping, optional
        Values of the parameters that the model does not have: those of noise, those that `conditions` name, and starts
        of local ones (``{"ka[3]": 1.2}``; otherwise the model's value).
    entity : str, optional
        Column that names the experiment of a row (subject, batch, rat): each runs by itself.
    entity_parms : sequence of str
        Parameters that every entity has for itself, as ``name[entity]``; all others are shared. In a start, a bound or
        a prior the plain name stands for those of all entities that are not named themselves.
    conditions : DataFrame or mapping of columns, optional
        One row an entity, named by the index or by a column called as `entity`. Columns are parameters (initial values
        that are parameters among them): a number holds the parameter there, a name is the parameter of the cost that
        it takes its value from, and an expression such as ``"2*k1"`` is of parameters of the cost. A column may also be
        a state, whose initial value it is; where a cell of a start value is empty, the model's own holds. What
        conditions set in every entity is no parameter of the cost. With a column
        ``start_from`` an entity starts from the steady state of the row that it names, which needs no data, found by
        simulating on without events until nothing changes; a column ``steady_before`` (True, False) may switch it off.
        A start value in such a row (of a parameter that is a state's initial value, or that only initial values have)
        sets its states anew after the steady state; an empty cell leaves them there.
    noise_parms : str, sequence of str, or mapping of parameter to column, optional
        Parameters that readings name by row (PEtab's overrides): a column of `obs` holds, for the parameter, a number
        or the name of the parameter that stands for it in this row; a text names a column called as the parameter. The
        parameter is a name in an expression of `measurement_noise` (``noise_parms={"sd": "noiseParameters"}`` with
        ``measurement_noise={"y": "sd"}``), or one of the model, such as the scale of an output ``"scale*x + offset"``.
        The name of a column alone, with nothing else said of the noise, is the noise: it holds the sds. Cells may be
        empty in rows whose variable does not depend on the parameter. New names take their values from `parms`.
    likelihood : str, mapping of observed variable to str, or subclass of `fmepy.costs.BoundLikelihood`, optional
        How likely readings are. A word: "normal" or "laplace", of the reading; "log-normal", "log-laplace",
        "log10-normal" or "log10-laplace", of its logarithm, on which it is compared then (no `transform`), while the
        likelihood is of the reading itself. Noise is on that scale: an sd, or the scale of Laplace errors (their sd is
        sqrt(2) times it). Laplace's likelihood has kinks, where predictions meet readings: from where its score leads
        `modFit` goes on with a simplex (up to 20 parameters). Counts: "poisson", or "negative-binomial", whose
        variance is mean + mean^2 / size; the size is what `measurement_noise` says, such as ``{"cases": "size"}`` with
        ``parms={"size": 10.0}``. A class of your own: `measurement_noise` then says what else it depends on; without it
        the column `err` does, or nothing.

    Attributes
    ----------
    parms, lower, upper : Series
        All parameters: the model's, then those of the noise, local ones in their place; sds are not below zero.
    predictor : Model
        Whose runs are compared with the data: the model.
    comparison : Comparison
        What is fixed: the observations in use, their weights and groups.
    cases : Experiments
        Which parameters every reading has.
    experiments : Experiments or None
        The same where there are entities.
    noise : MeasurementNoise or None
        What `measurement_noise` and `censored` say.

    Raises
    ------
    DataError
        As `modCost`; also observations that cannot be transformed. Variable and row are named.
    SimulationError
        When evaluated: the run fails, or a compared value is not finite or cannot be transformed. It carries the
        parameters. Values that nobody compares do not matter. A noise that is zero, negative or not finite.
    ArgumentError
        `measurement_noise` of a variable that is not observed or that has errors already, with a name that has no
        value, or with none at all; `censored` without any noise; `weight` or `scaleVar` beside them.
    ParameterError
        When evaluated: an unknown parameter, with the nearest.

    See Also
    --------
    modCost : the same for any table of output.
    transformed : a cost as a function of transformed parameters.

    Notes
    -----
    ``a + b`` is a `SumCost`; parts that share a model object are solved together. A cost is immutable and pickles;
    which observations are used never changes, so that residual vectors keep their length.

    With `measurement_noise` or `censored` the cost is a likelihood: a call gives a `ModCost` still, whose weights are
    1 / sd and whose `minus2loglik` counts; bound, it is one number, -2 log L, with an exact ``score`` and the expected
    ``information`` from the model's sensitivities (`fmepy.costs.base`). Of a reading beyond a limit the information is
    the observed one of its residual (`fmepy.costs.likelihood_cost`). `modFit` then scores, intervals are of chi-square,
    and `sensFun` gives two rows a reading. Without these words it is a sum of squares, and its errors are as large as
    the residuals say. In a sum, parts of one variable share ``sd_v_<variable>``, unless a part names a parameter of its
    own; parts without noise count with the errors of their tables.

    Readings that name different values of a parameter of the model (`noise_parms`) are read off runs of their own,
    with exact sensitivities whatever the parameter does; two readings share a run if no parameter of theirs differs.
    Where PEtab writes several overrides into one cell, ``obs["cell"].str.split(";", expand=True)`` makes columns.

    **Differs from FME**: there is no such object in FME, where every objective function calls `modCost`; see there for
    the quirks that are mended. `interpolate="exact"` has no interpolation error.

    Examples
    --------
    >>> from fmepy.models.ode import OdeModel
    >>> def decay(t, A, *, k=0.5):
    ...     return -k * A
    >>> model = OdeModel(decay, state={"A": 10.0}, times=[0, 1, 2, 3], rtol=1e-10, atol=1e-10)
    >>> cost = SimulationCost(model, {"time": [0.5, 2.5], "A": [7.8, 2.9]})
    >>> round(cost({"k": 0.5}).model, 6)
    0.001365
    >>> bound = cost.bind(["k"])
    >>> bound.jacobian(bound.theta0).round(3)
    array([[-3.894],
           [-7.163]])

    The same with an error that is estimated, and a last reading of which only an upper limit is known:

    >>> data = {"time": [0.5, 1.5, 2.5, 3], "A": [7.8, 4.6, 2.9, 2.5], "mark": ["", "", "", "<"]}
    >>> noisy = SimulationCost(model, data, measurement_noise={"A": "estimate"}, censored="mark")
    >>> noisy.parms.index.tolist()
    ['k', 'sd_v_A']
    >>> noisy({"sd_v_A": 0.1}).residuals[["obs", "mod", "censored"]].round(3)
       obs    mod censored
    0  7.8  7.788
    1  4.6  4.724
    2  2.9  2.865
    3  2.5  2.231        <

    Errors with heavy tails, and errors in proportion, in log L of the readings themselves:

    >>> heavy = SimulationCost(model, {"time": [0.5, 2.5], "A": [7.8, 2.9]}, measurement_noise={"A": 0.1},
    ...                        likelihood="laplace")
    >>> round(heavy().minus2loglik, 3)
    -5.499
    >>> round(heavy.replace(likelihood="log-normal")().minus2loglik, 3)
    0.718

    Readings of two gels, each in its own unit, which is a parameter that the row names:

    >>> gels = {"name": ["y"] * 4, "time": [1, 2, 1, 2], "y": [12.2, 7.3, 3.1, 1.8], "unit": ["u1", "u1", "u2", "u2"]}
    >>> blots = model.replace(outputs={"y": "unit*A"}, parms={"unit": 1.0})
    >>> cost = SimulationCost(blots, gels, y="y", noise_parms="unit", parms={"u1": 2.0, "u2": 0.5})
    >>> cost.parms.index.tolist()
    ['k', 'u1', 'u2']
    >>> cost().residuals["mod"].round(2).tolist()
    [12.13, 7.36, 3.03, 1.84]

    Two vessels with different starts and a rate each:

    >>> vessels = {"vessel": ["a", "a", "b"], "time": [1, 2, 1], "A": [6.0, 4.0, 1.6]}
    >>> cost = SimulationCost(model.replace(state={"A": "A0"}, parms={"A0": 10.0}), vessels, entity="vessel",
    ...                       entity_parms=["k"], conditions={"vessel": ["a", "b"], "A0": [10, 2]})
    >>> cost.parms.to_dict()
    {'k[a]': 0.5, 'k[b]': 0.5}

    Rates that stand in a ratio, a start of one vessel's own, and a reading at rest:

    >>> rows = {"vessel": ["a", "a", "b", "b"], "time": [1, float("inf"), 1, float("inf")], "A": [6.0, 0.1, 0.8, 0.0]}
    >>> cost = SimulationCost(model, rows, entity="vessel",
    ...                       conditions={"vessel": ["a", "b"], "k": ["k", "2*k"], "A": [None, 2.0]})
    >>> cost({"k": 0.4}).residuals["mod"].abs().round(3).tolist()
    [6.703, 0.0, 0.899, 0.0]
    """

    model: Any
    obs: Any
    _: KW_ONLY
    x: Any = "time"  # given as one column or two, kept as that of times
    y: str | None = None
    err: str | None = None
    unit: str | None = None
    origin: Any = None
    weight: str = "none"
    scaleVar: bool = False
    transform: Any = None
    interpolate: str = "exact"
    outside: str = "error"
    measurement_noise: Any = None
    censored: Any = None
    parms: Any = None  # given as a mapping, kept as the Series of all parameters
    entity: str | None = None
    entity_parms: Sequence[str] = ()
    conditions: Any = None
    noise_parms: Any = None
    likelihood: Any = None
    predictor: Any = field(init=False)
    comparison: Comparison = field(init=False)
    cases: Experiments = field(init=False)
    noise: MeasurementNoise | None = field(init=False)
    given_x: Any = field(init=False)
    _given: dict[str, float] = field(init=False)
    _own: pd.Series = field(init=False)
    elsewhere: ClassVar = by_name({"filter smooth forecast": "of a FimlofCost", "fit": "modFit(cost, {'k': 0.5})"})
    merged: ClassVar = ("transform", "parms", "measurement_noise", "censored", "noise_parms", "likelihood")

    def __post_init__(self) -> None:
        self._copy_arguments()
        _check_model(self.model)
        check_choice(self.interpolate, ("exact", "grid"), "interpolate")
        x, depths = read_depths(as_table(self.obs), self.x, self.model)
        vars(self).update(given_x=self.x, x=x)
        table = as_table(with_times(self.obs, self.x, self.unit, self.origin))
        check_needed(self)
        column = read_entity_column(table, self.entity)
        by_row = read_row_parameters(table, self.noise_parms, {k: getattr(self, k) for k in _COLUMNS})
        gone: list[Any] = [] if self.entity is None else [normal_name(self.entity)]
        gone += () if by_row is None else {c.name for c in by_row.columns.values()}
        gone += () if depths is None else [depths.column]
        used = table.drop(columns=gone) if gone else table
        sds = self.measurement_noise if isinstance(self.measurement_noise, Mapping | pd.Series) else {}
        noisy, of_row = tuple(map(normal_name, dict(sds))), column.of_row
        observations = read_observations(
            used,
            x=self.x,
            y=self.y,
            err=self.err,
            censored=self.censored,
            noisy=noisy,
            experiments=of_row if depths is None else depths.apart(of_row),
            at_rest=self.is_plain_simulation and self.interpolate == "exact",
        )
        known = self.model.var_names
        if depths is not None:
            observations, beyond = depths.inside(observations, check_choice(self.outside, OUTSIDE, "outside"))
            known = (*depths.on_grid.profiles(known), *known)
        check_observed(observations.names, known)
        first, last = float(self.model.times[0]), float(self.model.times[-1])
        words = words_by_variable(self.likelihood, observations.names)
        comparison = prepare(
            self._compared(observations, of_row),
            None if self.x is None else dict.fromkeys(observations.names, (first, last)),
            weight=self.weight,
            scaleVar=self.scaleVar,
            outside=self.outside,
            transforms=transforms_of(self.transform, words, observations.names),
            experiments=of_row,
        )
        if depths is not None:
            z = depths.of_row[comparison.places]
            comparison = replace(comparison, depths=z, n_outside=comparison.n_outside + beyond)
        comparison = with_errors_of(column.of(comparison), words)
        vars(self).update(obs=table, _given=given_values(self.parms), comparison=comparison)
        parms = self._read_cases(observations, column, by_row)
        check_given(self._given, self.model.parms, [*parms.index, *map(normal_name, self.entity_parms)])
        vars(self).update(parms=parms.copy(), _own=parms)  # whoever writes to `parms` changes no value of the cost
        self._check_scales()

    def _compared(self, observations: Observations, experiments: IntVector) -> Observations:
        """Return the observations that are compared: all."""
        return observations

    def __call__(self, parms: UserParameters = None) -> ModCost:
        """Return the `ModCost`.

        Parameters
        ----------
        parms : dict, Series, ...
            Some or all of the parameters; the others stay at the cost's values.
        """
        cost: ModCost = self._bound.modcost(merge_parameters(self._own, parms).to_numpy(dtype=float))
        return cost

    def simulate(self, parms: UserParameters = None, seed: Seed = None) -> pd.DataFrame:
        """Return data drawn from the model and the cost's own noise: the table of data with other readings.

        Parameters
        ----------
        parms : dict, Series, ...
            As in a call: the truth.
        seed : int, Generator or None

        Returns
        -------
        DataFrame
            To be put in the place of the data: ``cost.replace(obs=...)``.

        Raises
        ------
        ArgumentError
            Nothing is said of the size of the errors (`measurement_noise`, `err`), or a `likelihood` of your own does
            not say how readings are drawn.

        Examples
        --------
        >>> from fmepy import OdeModel
        >>> model = OdeModel("dA/dt = -k * A", state={"A": 10.0}, times=[0, 1, 2], parms={"k": 0.5})
        >>> cost = SimulationCost(model, {"time": [1, 2], "A": [6.2, 3.6]}, measurement_noise={"A": 0.1})
        >>> cost.simulate({"k": 0.4}, seed=1).round(2)
           time     A
        0     1  6.74
        1     2  4.58
        """
        from fmepy.costs.drawn_data import drawn_data

        return drawn_data(self, parms, as_rng(seed))

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False) -> Any:
        """Return the cost as a function of the parameters `names` (None: all); -2 log L where noise is in words."""
        known = self.parms.index
        wanted = tuple(known) if names is None else check_names(names, known, argument="names")
        return self.bind_together([self], wanted, hold_engine=hold_engine)

    def repeats(self, other: object) -> bool:
        """Tell whether another cost compares the same model with the same data."""
        if not isinstance(other, SimulationCost):
            return False
        return self.model is other.model and self.comparison.repeats(other.comparison)

    def shared_run(self) -> object | None:
        """Return the model: costs of the same model object share its runs; those of several experiments do not."""
        is_normal = self.own_likelihood is None and self.comparison.laplace is None
        return self.predictor if self.plain_run and is_normal else None

    @classmethod
    def bind_together(cls, parts: Sequence[SimulationCost], names: Sequence[str], *, hold_engine: bool = False) -> Any:
        """Return costs of the same model as one function; the model is run once for all of them."""
        if any(part.noise is not None or part.likelihood is not None for part in parts):
            from fmepy.costs.likelihood_cost import bound_with_noise

            return bound_with_noise(parts, names, hold_engine=hold_engine)
        predictions = predictions_of_parts(parts, [part.places for part in parts], names, hold_engine=hold_engine)
        return BoundSimulation(predictions, [part.comparison for part in parts])

    @classmethod
    def _names_used(cls, arguments: Mapping[str, Any]) -> set[str]:
        """Return the names that some arguments hold: in the noise, in rows of the data, and in conditions."""
        by_row = names_by_row(arguments["obs"], arguments.get("noise_parms"))
        return names_of_noise(None, arguments["measurement_noise"]) | by_row | super()._names_used(arguments)

    def __repr__(self) -> str:
        c = self.comparison
        counts = np.bincount(c.groups, minlength=len(c.group_names))
        compared = ", ".join(f"{name} ({n})" for name, n in zip(c.group_names, counts, strict=True))
        lost = int(c.n_missing.sum() + c.n_outside.sum())
        of = "" if self.experiments is None else f" of {len(self.experiments.column.labels)} entities ({self.entity!r})"
        dropped = f"; {lost} dropped" if lost else ""
        return f"{type(self).__name__}: {compared}{of}; {counted(len(self.parms), 'parameter')}{dropped}"

    @cached_property
    def _bound(self) -> Any:
        return self.bind()

    def with_guesses(self, values: Mapping[str, float]) -> Self:
        """Return a copy with other guesses of the parameters without a value from the user."""
        out, own = copy(self), self._own.copy()
        own[list(values)] = list(values.values())
        for made in ("_bound", "models"):
            out.__dict__.pop(made, None)
        parameters = replace(self.cases.parameters, parms=own)
        vars(out).update(parms=own.copy(), _own=own, cases=replace(self.cases, parameters=parameters))
        return out

    @property
    def places(self) -> Places:
        """Values looked up during a run."""
        c = self.comparison
        runs = None if self.plain_run else self.cases.apart[1][self.cases.case_of]
        own = profiles_of(self.model) if c.depths is not None else None
        at = (None, None) if own is None else (c.depths, own.grid.mid)
        return Places(c.names, None if self.x is None else c.x, self.interpolate == "grid", c.x_name, runs, *at)


def _check_model(model: Any) -> None:
    if isinstance(model, Model):
        _ = model.engine_note  # what cannot be run says so here
        return
    advice = "In a function of your own, return modCost(output, obs) instead." if callable(model) else ""
    raise ArgumentError(
        f"`model` must be a fmepy model, such as an OdeModel; got {type(model).__name__}. {advice}".rstrip()
    )
