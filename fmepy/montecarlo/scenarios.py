"""scenarios: runs of one model under the scenarios of a table, with or without uncertain parameters.

Of scenario s and parameter set k the run is ``y_sk(x)``. The sets are the same in every scenario, so the difference to
a base, ``y_sk(x) - y_bk(x)``, is taken set by set, and what both have in common (a parameter that nobody knows well)
does not blur it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.costs.user_function import as_simulator, is_cost, is_model
from fmepy.errors import ArgumentError, ParameterError, check_known, listed
from fmepy.montecarlo.ensemble import Ensemble, ParameterSets, Status, draws_of, for_model, parameter_sets, run_together
from fmepy.montecarlo.ranges import summarise
from fmepy.montecarlo.scenario_table import TABLES, Scenario, apply_scenario, check_scenario, read_scenarios
from fmepy.montecarlo.summaries import STATISTICS, completed, statistics
from fmepy.parallel.interruption import interruptible
from fmepy.parallel.resumable import resumable_tasks
from fmepy.parallel.runs import counted_failures
from fmepy.parameters.named import as_parameters
from fmepy.parameters.scales import check_scale, expected_scale
from fmepy.results.tables import Framed, Part, long_table
from fmepy.tables.cells import Cells, profiles_among
from fmepy.types import AxesArray, Cube, Seed, UserParameters, Which


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ScenarioSummary(Framed):
    """Statistics of every variable at every x, by scenario.

    Attributes
    ----------
    frame : DataFrame
        One row per scenario, variable and x: ``scenario``, ``x``, ``var``, ``Mean``, ``Sd`` (divisor N - 1), ``Min``,
        ``Max``, ``q05``, ``q25``, ``q50``, ``q75``, ``q95`` (R's type 7), ``N``: parameter sets whose runs came to
        their end; of a difference in both scenarios.
    x_name : str
        What x is called.
    base : str or None
        Of differences: the scenario that is subtracted.
    order : tuple
        All scenarios of the table, the base among them, by which lines have their colours.
    profiles : tuple of str
        Of a steady state on a grid, the variables that are profiles over x.
    """

    frame: pd.DataFrame
    x_name: str
    base: str | None = None
    order: tuple[Any, ...] = ()
    profiles: tuple[str, ...] = ()

    def plot(self, which: Which = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw one panel a variable, a line a scenario with the band of its 5 to 95 % quantiles; return the Axes.

        Parameters
        ----------
        which : names or positions from 0, optional
            The variables; all by default.
        axes : Axes or array of Axes, optional
        **kwargs
            ``xlabel ylabel xlim ylim xscale yscale title`` for the axes (a list: one a panel), so units as in
            ``ylabel="N, mg/l"``; ``legpos``; the rest for the lines.
        """
        from fmepy.plotting.ranges import plot_scenarios

        return plot_scenarios(self, which=which, axes=axes, **kwargs)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scenarios(Framed):
    """Runs of a model by scenario; made by `scenarios`.

    Attributes
    ----------
    frame : DataFrame
        One row per scenario, parameter set and x: ``scenario``, ``set`` (from 0), ``x`` (called as the model calls it,
        "time", where a variable is named x), and a column per variable; NaN where a run failed. Of a model on a grid
        ``time`` and ``x``, the place, and a column per profile, times before places; what is one number of a run stands
        in every place.
    pars : DataFrame, shape (n_set, n_par)
        The parameter sets, the same in every scenario, labelled (chain, iteration) if they come from a chain; without
        columns where nothing was uncertain. Row k is the set k.
    names : tuple
        The scenarios, in the order of the table.
    var : tuple of str
    x_name : str
        What x is called.
    failures : DataFrame
        One row per failed run: ``scenario``, ``set``, ``parameters`` (that were varied), ``error``, ``message``.
    base : str or None
        Of differences: the scenario that is subtracted.
    interrupted : bool
        True if Ctrl-C ended it; the runs that were not done are failures named "Interrupted".
    engine : str
        What ran the model; "" of a function of yours.
    order : tuple
        All scenarios of the table, the base among them.
    cells : dict or None
        Of a model on a grid, of every cell the profile and its place.
    profiles : tuple of str
        Of a steady state on a grid, the variables that are profiles over x.
    """

    frame: pd.DataFrame
    pars: pd.DataFrame
    names: tuple[Any, ...]
    var: tuple[str, ...]
    x_name: str
    failures: pd.DataFrame
    base: str | None = None
    interrupted: bool = False
    engine: str = ""
    order: tuple[Any, ...] = ()
    cells: dict[str, tuple[str, float]] | None = None
    profiles: tuple[str, ...] = ()

    def shown(self) -> list[str | Part]:
        """Return how many runs there are, and the table."""
        what = "Differences" if self.base is not None else "Runs"
        of = f"{listed(self.names, 6)}{'' if self.base is None else f' to {self.base!r}'}"
        failed = "".join(f"; {how}" for how in counted_failures(self.failures, "runs "))
        n = len(self.pars)
        return [f"{what} of {of}, {n} parameter {'set' if n == 1 else 'sets'}{failed}", long_table(self.frame)]

    def values(self) -> Cube:
        """Return the numbers as an array, shape (n_scenario, n_set, n_x, n_var)."""
        numbers = self.frame[list(self.var)].to_numpy(dtype=float)
        return numbers.reshape(len(self.names), len(self.pars), -1, len(self.var))

    def summary(self) -> ScenarioSummary:
        """Return mean, standard deviation, extremes and quantiles over the parameter sets, failed runs left out."""
        parts = []
        for name, runs in zip(self.names, self.values(), strict=True):
            runs = runs[~np.isnan(runs).all(axis=(1, 2))]  # a failed run is NaN everywhere
            table = self._summary_by_place(runs) if self.cells else self._summary_by_x(runs)
            table.insert(0, "scenario", [name] * len(table))
            parts.append(table)
        frame = pd.concat(parts, ignore_index=True)
        return ScenarioSummary(frame, self.x_name, self.base, self.order, self.profiles)

    def _summary_by_x(self, runs: Cube) -> pd.DataFrame:
        n_x = runs.shape[1]
        columns = runs.transpose(2, 1, 0).reshape(len(self.var) * n_x, -1)
        x = self.frame.iloc[:n_x, 2].to_numpy()
        return summarise(statistics(np.ascontiguousarray(columns)), self.var, x, self.x_name).frame

    def _summary_by_place(self, runs: Cube) -> pd.DataFrame:
        rows, parts = self.frame.iloc[: runs.shape[1], 2:4], []
        profiles = {profile for profile, _ in (self.cells or {}).values()}
        for j, variable in enumerate(self.var):
            own = pd.DataFrame(statistics(np.ascontiguousarray(runs[:, :, j].T)), columns=list(STATISTICS))
            table = pd.concat([rows.assign(var=variable), own.astype({"N": int})], axis=1)
            if variable not in profiles:  # one number, which stands in every place
                table = table.drop_duplicates(rows.columns[0]).assign(x=np.nan)
            parts.append(table)
        return pd.concat(parts)

    def difference(self, base: Hashable) -> Scenarios:
        """Return the difference of every other scenario to `base`, parameter set by parameter set.

        Parameters
        ----------
        base : label of a scenario

        Returns
        -------
        Scenarios
            Of all scenarios but `base`; NaN where a run of one of the two failed. Its summary and picture are those of
            the differences: their quantiles are not differences of quantiles.

        Raises
        ------
        ArgumentError
            There is no such scenario, or no other one; these are differences already.

        Examples
        --------
        >>> table = {"as it is": {}, "twice": {"b": 2.0}}
        >>> runs = scenarios(lambda p: p["a"] + p["b"], table, parms={"a": 1.0, "b": 1.0},
        ...                  parInput={"a": [1.0, 5.0, 9.0]})
        >>> runs.difference("as it is").summary()[["scenario", "Mean", "Sd", "N"]]
          scenario  Mean   Sd  N
        0    twice   1.0  0.0  3
        """
        if self.base is not None:
            raise ArgumentError(f"These are differences already, to {self.base!r}. Take others of the runs themselves.")
        check_known(base, self.names, f"`base={base!r}` is none of the scenarios.")
        if len(self.names) == 1:
            raise ArgumentError(f"{base!r} is the only scenario; a difference needs another one.")
        place = self.names.index(base)
        values = self.values()
        others = np.arange(len(self.names)) != place
        differences = (values - values[place])[others]
        frame = self.frame[np.repeat(others, values.shape[1] * values.shape[2])].reset_index(drop=True)
        frame[list(self.var)] = differences.reshape(-1, len(self.var))
        names = tuple(name for name in self.names if name != base)
        return replace(self, frame=frame, names=names, base=str(base))

    def plot(self, which: Which = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw all scenarios together, see `ScenarioSummary.plot`; return the Axes."""
        return self.summary().plot(which, axes=axes, **kwargs)


@interruptible(completed)
def scenarios(
    model: Any,
    table: Any,
    *,
    parms: UserParameters = None,
    parInput: Any = None,
    num: int = 100,
    sensvar: Which = None,
    args: Any = (),
    kwargs: Any = None,
    seed: Seed = None,
    executor: Any = None,
    progress: bool | Callable[[int, int], object] = False,
    checkpoint: Any = None,
) -> Scenarios:
    """Return the runs of a model under several scenarios, the same parameter sets in each.

    Parameters
    ----------
    model : fmepy model, or callable
        ``func(p)`` as `sensRange` takes it: its scenarios set parameters only.
    table : DataFrame, or mapping of scenario to mapping
        A row a scenario, its label the name (of a table with a column ``scenario``, that column). Columns are
        parameters; states, whose initial values they set (where the model starts a state at a parameter that does
        nothing else, that parameter; of a profile on a grid, all that `OdeModel` takes as its start); ``forcings`` and
        ``events``, whose cells are what a model takes as such (forcings are merged with the model's by name, events
        take the place of the model's; an empty list: none). A cell without a value (None, NaN) leaves what is there.
        As mappings:
        ``{"as it is": {}, "more": {"dose": 2.0, "events": infusions}}``.
    parms : dict, Series or None
        Parameters of all scenarios where the table says nothing; None: the model's own.
    parInput : table, chain, or None
        What is uncertain: draws, as `sensRange` takes them (a chain, or its ``pars``), of which `num` are chosen if
        there are more; or a table of ranges, with columns ``min`` and ``max`` and the parameters as its
        index, from which `num` sets are drawn uniformly. None: nothing, one run a scenario. What a scenario sets wins
        over the draws.
    num : int
        Number of parameter sets.
    sensvar : names, positions, or None
        The variables that are wanted; None: all.
    args, kwargs
        Passed on to a user's function.
    seed : int, Generator or None
    executor, progress
        As for `run_many`; the runs of all scenarios are spread together, and do not depend on it.
    checkpoint : path, optional
        A folder, new or of this very call, in which every run is kept as it ends, see `sensRange`.

    Returns
    -------
    Scenarios

    Raises
    ------
    ParameterError, ArgumentError
        A column that is no parameter, state, forcings or events; a cell that is no finite number; the same label
        twice; no rows; `parInput` that cannot be draws or ranges, or is on another scale than the model's parameters.
    ModelError
        Forcings or events that the model cannot take; the scenario is named.

    Notes
    -----
    What is compiled of a model is compiled once: parameters, initial values, forcings and events are numbers to it. A
    run that fails is NaN and a row of `failures`; the others go on.

    Examples
    --------
    >>> from fmepy import OdeModel
    >>> model = OdeModel("d(N)/dt = r*N - catch", state={"N": 10.0}, times=[0, 1, 2], parms={"r": 0.1, "catch": 0.0})
    >>> table = pd.DataFrame({"catch": [0.0, 1.0, 2.0], "N": [None, None, 20.0]}, index=["none", "some", "twice"])
    >>> what_if = scenarios(model, table, parInput=pd.DataFrame({"r": [0.1, 0.2]}))
    >>> what_if.frame[what_if.frame["x"] == 2].round(3).head(2)
      scenario  set    x       N
    2     none    0  2.0  12.214
    5     none    1  2.0  14.918
    >>> what_if.difference("none").summary().frame.query("x == 2")[["scenario", "Mean", "N"]].round(3)
      scenario   Mean  N
    2     some -2.337  2
    5    twice  8.893  2
    """
    if is_cost(model):
        raise ArgumentError("`model` is a cost; scenarios are runs of a model. Give the model that it was made with.")
    base = model.parms if is_model(model) else as_parameters(parms, argument="parms").series()
    rows = [check_scenario(model, row) for row in read_scenarios(table, [str(k) for k in base.index], model)]
    with resumable_tasks(checkpoint, "scenarios", seed=None if checkpoint is None else seed) as tasks:
        sets = _sets(model, parInput, num, seed if checkpoint is None else tasks.rng)
        varied = list(dict.fromkeys([*sets.table.columns, *(k for row in rows for k in row.parms)]))
        if not len(base):
            raise ArgumentError(
                "The model has no parameters, so there is nothing to run it at. Give it one, such as an initial value: "
                "state={'y': 'y0'}, parms={'y0': 1.0}."
            )
        varied = varied or [str(base.index[0])]  # at its own value
        ensembles = _ensembles(model, parms, rows, sets, varied, sensvar, args=args, kwargs=kwargs)
        ran = run_together(ensembles, executor, progress, tasks)
    return _collect(rows, sets, ensembles, ran)


# --- the parameter sets


def _sets(model: Any, parInput: Any, num: Any, seed: Seed) -> ParameterSets:
    """Return the uncertain parameters; a table of one row and no columns where there are none."""
    rng = as_rng(seed)
    if parInput is None:
        whole_number(num, "num", 1)
        return ParameterSets(pd.DataFrame(index=[0]), np.zeros(1, dtype=np.intp), pd.Series(dtype=float))
    parInput = draws_of(parInput, num, rng)
    if isinstance(parInput, pd.DataFrame) and {"min", "max"} <= set(parInput.columns):
        return parameter_sets("unif", None, parInput, None, None, num, rng)
    if isinstance(parInput, Mapping) and parInput and all(np.shape(v) == (2,) for v in parInput.values()):
        raise ParameterError(
            "`parInput` gives two numbers by parameter: two draws, or a range? Of draws give a table, "
            "pd.DataFrame(draws); of ranges one too, pd.DataFrame(ranges, index=['min', 'max']).T."
        )
    sets = for_model(parameter_sets("unif", parInput, None, None, None, num, rng), model, parInput)
    check_scale(parInput, expected_scale(model, sets.table.columns), "parInput")
    return sets


# --- the runs


def _ensembles(
    model: Any, parms: UserParameters, rows: Sequence[Scenario], sets: ParameterSets, varied: list[str], sensvar: Any,
    **further: Any,
) -> list[Ensemble]:  # fmt: skip
    """Return one ensemble a scenario; those with equal states, forcings and events share the model."""
    models: dict[Any, tuple[Any, Any]] = {}
    out = []
    for row in rows:
        key = (
            tuple(sorted((k, v if isinstance(v, float) else id(v)) for k, v in row.changes.get("state", {}).items())),
            *(id(row.changes[k]) if k in row.changes else None for k in TABLES),
        )
        if key not in models:
            own = apply_scenario(model, row)
            simulator = as_simulator(own, parms, varied=varied, argument="parInput", **further)
            models[key] = simulator, simulator.places(sensvar)
        simulator, places = models[key]
        start = dict(zip(simulator.names, simulator.theta0.tolist(), strict=True))
        values = np.tile(simulator.theta0, (len(sets.table), 1))
        table = pd.DataFrame(values, columns=list(simulator.names), index=sets.table.index)
        for name in simulator.names:
            if name in row.parms:
                table[name] = row.parms[name]
            elif name in sets.table.columns:
                table[name] = sets.table[name].to_numpy()
        out.append(Ensemble(simulator, places, ParameterSets(table, sets.pset, pd.Series(start))))
    return out


def _collect(
    rows: Sequence[Scenario], sets: ParameterSets, ensembles: Sequence[Ensemble], ran: Sequence[tuple[Cube, Status]]
) -> Scenarios:
    first = ensembles[0]
    var, x, n_set = first.var, first.simulator.x, len(sets.table)
    clash = sorted({"scenario", "set"} & set(var))
    if clash:
        raise ArgumentError(
            f"A variable is called {listed(clash)}, as a column here is. Call it otherwise, or leave it out (sensvar=)."
        )
    names = tuple(row.name for row in rows)
    labels = {
        "scenario": pd.Index(list(names), tupleize_cols=False).repeat(n_set * len(x)),
        "set": np.tile(np.repeat(np.arange(n_set), len(x)), len(rows)),
        (first.simulator.x_name if "x" in var else "x"): np.tile(x, len(rows) * n_set),
    }
    numbers = np.concatenate([values.transpose(0, 2, 1).reshape(-1, len(var)) for values, _ in ran])
    frame = pd.concat([pd.DataFrame(labels), pd.DataFrame(numbers, columns=list(var))], axis=1)
    cells = first.simulator.cells
    cells = None if cells is None or cells.keys().isdisjoint(var) else cells
    if cells is not None:
        frame = _with_places(frame.rename(columns={"x": first.simulator.x_name}), var, cells)
        var = profiles_among(var, cells)
    failures = []
    for name, (_, status) in zip(names, ran, strict=True):
        own = status.failures.rename(columns={"run": "set"})
        own.insert(0, "scenario", pd.Series([name] * len(own), dtype=object))
        failures.append(own)
    return Scenarios(
        frame, sets.labelled(), names, var, first.simulator.x_name, pd.concat(failures, ignore_index=True),
        interrupted=any(status.interrupted for _, status in ran), engine=ran[0][1].engine, order=names,
        cells=cells, profiles=first.simulator.profiles,
    )  # fmt: skip


def _with_places(frame: pd.DataFrame, var: Sequence[str], cells: Cells) -> pd.DataFrame:
    """Return a table with a column a cell as one with a row a place and a column a profile."""
    places = np.unique([place for _, place in cells.values()])
    out = frame.iloc[np.repeat(np.arange(len(frame)), len(places)), :3].reset_index(drop=True)
    out["x"] = np.tile(places, len(frame))
    for name in profiles_among(var, cells):
        own = [v for v in var if cells.get(v, (v,))[0] == name]
        values = frame[own].to_numpy() if name not in own else np.repeat(frame[own].to_numpy(), len(places), axis=1)
        if values.shape[1] != len(places):
            raise ArgumentError(f"`sensvar` chooses some cells of {name!r}; name the profile, which has {len(places)}.")
        out[name] = values.ravel()
    return out
