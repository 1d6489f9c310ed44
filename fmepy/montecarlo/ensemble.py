"""Many runs of one model: the parameter sets and their outputs, shared by sensRange, modCRL and scenarios.

Sets are run through `fmepy.parallel.run_many`, whose batches, order and failures hold here too. A set equal to the one
before (the rejected step of a chain) is not run again. Workers return the requested variables only.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.costs.user_function import as_simulator, is_ours
from fmepy.errors import ArgumentError, DataError, ParameterError, check_choice, listed, repeated, shortened
from fmepy.models.bound_simulator import ChosenOutputs, Simulator
from fmepy.montecarlo.normal import Norm, as_mean_and_covariance
from fmepy.montecarlo.samplers import Grid, Halton, Latinhyper, Sobol, Unif, as_ranges
from fmepy.parallel import Runs, spread
from fmepy.parallel.pools import POOL_START, as_executor
from fmepy.parallel.progress import Progress
from fmepy.parallel.resumable import ResumableTasks
from fmepy.parallel.runs import INTERRUPTED
from fmepy.parameters.entities import check_not_local
from fmepy.parameters.named import generated_names, is_fit
from fmepy.parameters.scales import check_scale, expected_scale, foreign_columns, mark_sampled
from fmepy.tables.columns import as_table, finite_numbers
from fmepy.types import Cube, IntVector, Matrix, Seed, UserParameters, Vector

logger = logging.getLogger(__name__)

DISTRIBUTIONS = ("unif", "norm", "latin", "grid", "sobol", "halton")
_TIMED_RUNS = 8  # of a streamed ensemble, to see whether processes are worth their start


# --- which sets


@dataclass(frozen=True, slots=True, eq=False)
class ParameterSets:
    """The parameter sets of an ensemble.

    Attributes
    ----------
    table : DataFrame, shape (num, n_par)
        One set per row, labelled as the user's table was.
    pset : ndarray of int, shape (num,)
        Rows of the user's table that were chosen; 0, 1, ... for drawn sets.
    start : Series
        The parameters of the first run where the user gave no `parms`.
    """

    table: pd.DataFrame
    pset: IntVector
    start: pd.Series

    def labelled(self) -> pd.DataFrame:
        """Return the table, labelled (chain, iteration) if it comes from a chain, else 0, 1, ..."""
        return self.table if self.table.index.nlevels > 1 else self.table.reset_index(drop=True)


def parameter_sets(
    dist: str, parInput: Any, parRange: Any, parMean: Any, parCovar: Any, num: int, rng: np.random.Generator
) -> ParameterSets:
    """Return the sets that `dist` draws, or those of `parInput`.

    Raises
    ------
    ParameterError, ArgumentError
        What `dist` needs is missing or wrong; `parInput` is no table of finite numbers.
    """
    num = whole_number(num, "num", 1)
    if parInput is not None:
        _refuse_unused("`parInput` holds the sets themselves", parRange=parRange, parMean=parMean, parCovar=parCovar)
        return _choose_rows(_input_table(draws_of(parInput)), num, rng)
    check_choice(dist, DISTRIBUTIONS, "dist")
    if dist == "norm":
        _require(parMean, "parMean", dist)
        _require(parCovar, "parCovar", dist)
        start, _ = as_mean_and_covariance(parMean, parCovar)
        table = Norm(parMean, parCovar, parRange, num=num, seed=rng)
    else:
        _refuse_unused(f"dist={dist!r} draws from `parRange`", parMean=parMean, parCovar=parCovar)
        _require(parRange, "parRange", dist)
        start = as_ranges(parRange).middle
        if dist == "grid":
            table = Grid(parRange, num)
        else:
            sampler = {"unif": Unif, "latin": Latinhyper, "sobol": Sobol, "halton": Halton}[dist]
            table = sampler(parRange, num, seed=rng)
    return ParameterSets(table, np.arange(len(table), dtype=np.intp), start)


def draws_of(parInput: Any, num: int = 0, rng: np.random.Generator | None = None) -> Any:
    """Return the draws of a chain, `num` draws of a fit's normal distribution inside its bounds, or the user's table.

    A parameter without a variance, such as one on a bound, stays at its estimate. Noise parameters of a fit, as of a
    chain, are marked as not of the model.
    """
    if is_fit(parInput):
        if parInput.cov_scaled is None:
            raise ParameterError("`parInput` is a fit without a covariance (hessian=False); fit again, or give draws.")
        par, C = parInput.par, parInput.cov_scaled
        free = [k for k in par.index if np.isfinite(C.loc[k, k])]
        if not free:
            raise ParameterError("`parInput` is a fit whose covariance is not known: no parameter would vary.")
        box = pd.DataFrame(np.column_stack(parInput.bounds), par.index, ["min", "max"]).loc[free]
        draws = Norm(par[free], C.loc[free, free], box, num=whole_number(num, "num", 1), seed=rng)
        return mark_sampled(draws.assign(**{k: par[k] for k in par.index if k not in free})[list(par.index)])
    pars = getattr(parInput, "pars", None)
    return pars if isinstance(pars, pd.DataFrame) else parInput


def for_model(sets: ParameterSets, func: Any, parInput: Any) -> ParameterSets:
    """Return the sets without the columns of parameters of the sampled cost that the model does not have."""
    if not is_ours(func):
        return sets
    columns = list(sets.table.columns)
    check_not_local(columns, func.parms.index, "`parInput`")
    foreign = set(foreign_columns(draws_of(parInput), func.parms.index))
    own = [name for name in columns if name not in foreign]
    return replace(sets, table=sets.table[own], start=sets.start[own]) if own and foreign else sets


def _refuse_unused(why: str, **unused: Any) -> None:
    if names := [k for k, v in unused.items() if v is not None]:
        raise ParameterError(f"{why}: {', '.join(names)} would not count. Leave out one or the other.")


def _require(value: Any, argument: str, dist: str) -> None:
    if value is None:
        others = {"parRange": "dist='norm' takes parMean and parCovar instead", "parMean": "give the means by name"}
        raise ParameterError(
            f"`{argument}` is missing, which dist={dist!r} needs; {others.get(argument, 'give the covariance')}."
        )


def _input_table(parInput: Any) -> pd.DataFrame:
    """Return the user's sets as a table: a DataFrame, mapping of columns or of numbers, Series (one set), or matrix."""
    if not isinstance(parInput, pd.Series | pd.DataFrame | Mapping):
        try:
            values = np.atleast_2d(np.asarray(parInput, dtype=float))
        except (TypeError, ValueError):
            raise ParameterError(
                f"`parInput` must be a table, one set a row and a column a parameter, such as chain.pars; "
                f"got {shortened(parInput)}."
            ) from None
        parInput = pd.DataFrame(values, columns=list(generated_names(values.shape[1])))
    table = as_table(parInput, "parInput", empty=True)
    if 0 in table.shape:
        raise ParameterError(f"`parInput` is an empty table (shape {table.shape}); it needs one set per row.")
    names = [str(k) for k in table.columns]
    if twice := repeated(names):
        raise ParameterError(f"`parInput` has more than one column {listed(twice)}.")
    try:
        return pd.DataFrame(finite_numbers(table, "parInput"), columns=names, index=table.index)
    except DataError as error:
        raise ParameterError(str(error)) from None


def _choose_rows(table: pd.DataFrame, num: int, rng: np.random.Generator) -> ParameterSets:
    """Return `num` rows drawn without replacement, in the order of the table; all of them if there are no more."""
    rows = np.arange(len(table), dtype=np.intp)
    if len(table) > num:
        rows = np.sort(rng.choice(len(table), size=num, replace=False)).astype(np.intp)
    return ParameterSets(table.iloc[rows], rows, table.iloc[0])


# --- the runs


class Status(NamedTuple):
    """Status of the runs of an ensemble: the table of failures, whether Ctrl-C ended them, the engine of the model."""

    failures: pd.DataFrame
    interrupted: bool
    engine: str


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """A model, the parameter sets to run it at, and the requested variables.

    Attributes
    ----------
    simulator : Simulator
    places : ndarray of int, shape (n_var,)
        Columns of the simulator's output that are requested.
    sets : ParameterSets
    """

    simulator: Simulator
    places: IntVector
    sets: ParameterSets

    @property
    def var(self) -> tuple[str, ...]:
        """The requested variables."""
        return tuple(self.simulator.var_names[i] for i in self.places)

    @property
    def n_output(self) -> int:
        """Numbers per run: variables times values of x."""
        return len(self.places) * len(self.simulator.x)

    def run(self, executor: Any, progress: Any, tasks: ResumableTasks | None = None) -> tuple[Cube, Status]:
        """Return the values, shape (num, n_var, n_x), NaN where a run failed, and how the runs went."""
        (ran,) = run_together([self], executor, progress, tasks)
        return ran

    def stream(self, write: Callable[[Matrix], None], rows: int, executor: Any, progress: Any) -> Status:
        """Run `rows` sets at a time; hand their values, shape (n, n_output), to `write` and drop them.

        NaN stands where a run failed.
        """
        executor = as_executor(executor)
        thetas, source = self._distinct_sets()
        one = ChosenOutputs(self.simulator, self.places)
        failed: dict[int, tuple[str, str]] = {}
        stopped = False
        with Progress(progress, len(thetas)) as report:
            for begin, end, where, force in _chunks(thetas, rows, executor, timed=one.many is None):
                if stopped:  # after Ctrl-C nothing more is started
                    failed.update(dict.fromkeys(range(begin, end), INTERRUPTED))
                    values = np.full((end - begin, self.n_output), np.nan)
                else:
                    after = report.after(begin)
                    runs = spread(one, list(thetas[begin:end]), executor=where, progress=after, force=force)
                    stopped = runs.interrupted
                    failed.update({begin + k: why for k, why in _reasons(runs).items()})
                    values = self._stack(runs.results).reshape(end - begin, -1)
                if len(thetas) < len(source):
                    values = values[source[np.searchsorted(source, begin) : np.searchsorted(source, end)] - begin]
                write(values)
        return Status(self._failures(failed, source), stopped, self.simulator.engine)

    def _distinct_sets(self) -> tuple[Matrix, IntVector]:
        """Return the sets that differ from the one before, and for every set the number of its run."""
        thetas = self.sets.table.to_numpy(dtype=float)
        new = np.ones(len(thetas), dtype=bool)
        new[1:] = (thetas[1:] != thetas[:-1]).any(axis=1)
        return thetas[new], (np.cumsum(new) - 1).astype(np.intp)

    def _stack(self, results: Sequence[Any]) -> Cube:
        values = np.full((len(results), len(self.places), len(self.simulator.x)), np.nan)
        for i, result in enumerate(results):
            if result is not None:
                values[i] = result
        return values

    def _failures(self, failed: dict[int, tuple[str, str]], source: IntVector) -> pd.DataFrame:
        """Return one row per set whose run failed."""
        names, thetas = self.simulator.names, self.sets.table.to_numpy(dtype=float)
        rows = np.flatnonzero(np.isin(source, list(failed))) if failed else np.empty(0, dtype=int)
        n_failed = sum(failed[int(source[i])] != INTERRUPTED for i in rows)
        if n_failed:
            logger.warning("%d of %d runs failed; `failures` says why.", n_failed, len(source))
        columns = {
            "run": rows.astype(np.intp),
            "parameters": pd.Series([dict(zip(names, thetas[i].tolist(), strict=True)) for i in rows], dtype=object),
            "error": pd.Series([failed[int(source[i])][0] for i in rows], dtype=object),
            "message": pd.Series([failed[int(source[i])][1] for i in rows], dtype=object),
        }
        return pd.DataFrame(columns)


class _RunOfOneOf:
    """A task for workers: a run of one of several models, by number, at theta."""

    def __init__(self, runs: Sequence[ChosenOutputs]) -> None:
        self.runs = runs
        self.many = self._many if all(run.many is not None for run in runs) else None

    def __call__(self, item: tuple[int, Vector]) -> Matrix:
        model, theta = item
        return self.runs[model](theta)

    def _many(self, items: Sequence[tuple[int, Vector]]) -> list[tuple[bool, Any]]:
        out: list[Any] = [None] * len(items)
        for model in dict.fromkeys(m for m, _ in items):
            places = [i for i, (m, _) in enumerate(items) if m == model]
            together = self.runs[model].many
            assert together is not None, "checked in __init__"
            for i, outcome in zip(places, together([items[i][1] for i in places]), strict=True):
                out[i] = outcome
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        return _RunOfOneOf, (self.runs,)


def _fingerprint(ensembles: Sequence[Ensemble], run: Any, first: Any) -> dict[str, Any]:
    """Return the fingerprint of an ensemble: the model, the parameter sets, and the result of the first."""
    try:
        result: Any = run(first).sum(axis=1)
    except (Exception, SystemExit) as error:  # of a user's model, whatever it does
        result = type(error).__name__
    e = ensembles[0]
    sets = hashlib.sha256(b"".join(e.sets.table.to_numpy(dtype=float).tobytes() for e in ensembles))
    return {
        "parameters": list(e.simulator.names),
        "variables": list(e.var),
        "number of points": len(e.simulator.x),
        "digest of the parameter sets": sets.hexdigest(),
        "first run": result,
    }


def run_together(
    ensembles: Sequence[Ensemble], executor: Any, progress: Any, tasks: ResumableTasks | None = None
) -> list[tuple[Cube, Status]]:
    """Return the values and the status of several ensembles, run as one; see `Ensemble.run`."""
    # shared models are sent to workers once
    ones = {id(e.simulator): ChosenOutputs(e.simulator, e.places) for e in ensembles}
    places = {key: k for k, key in enumerate(ones)}
    parts = [e._distinct_sets() for e in ensembles]
    if len(ones) == 1:
        run: Any = next(iter(ones.values()))
        items: list[Any] = [theta for thetas, _ in parts for theta in thetas]
    else:
        pairs = zip(ensembles, parts, strict=True)
        items = [(places[id(e.simulator)], theta) for e, (thetas, _) in pairs for theta in thetas]
        run = _RunOfOneOf(list(ones.values()))
    if tasks is None or tasks.folder is None:
        runs = spread(run, items, executor=executor, progress=progress)
    else:
        question = _fingerprint(ensembles, run, items[0])
        runs = tasks.spread(run, items, question=question, executor=executor, progress=progress)
    failed, begin, out = _reasons(runs), 0, []
    for e, (thetas, source) in zip(ensembles, parts, strict=True):
        end = begin + len(thetas)
        own = {i - begin: why for i, why in failed.items() if begin <= i < end}
        values = e._stack(runs.results[begin:end])
        if len(thetas) < len(source):
            values = values[source]
        out.append((values, Status(e._failures(own, source), runs.interrupted, e.simulator.engine)))
        begin = end
    return out


def _reasons(runs: Runs) -> dict[int, tuple[str, str]]:
    """Return the error and the message of failed runs, by number of the run."""
    table = runs.failures
    return {int(i): (e, m) for i, e, m in zip(table["run"], table["error"], table["message"], strict=True)}


def _chunks(thetas: Matrix, rows: int, executor: Any, timed: bool) -> Iterator[tuple[int, int, Any, bool]]:
    """Yield (first, last + 1, executor, force) of every chunk.

    With a number of processes the first few runs are timed here, and it is decided once for all that follow: each chunk
    by itself may be too short to pay for processes that the whole does pay for.
    """
    begin, force = 0, False
    if timed and isinstance(executor, int) and len(thetas) > _TIMED_RUNS:
        began = time.perf_counter()
        yield 0, _TIMED_RUNS, None, False
        seconds = (time.perf_counter() - began) / _TIMED_RUNS
        begin = _TIMED_RUNS
        force = seconds * (len(thetas) - begin) * (1 - 1 / executor) > POOL_START
        if not force:
            executor = None
    while begin < len(thetas):
        end = min(begin + rows, len(thetas))
        yield begin, end, executor, force
        begin = end


# --- from the user's arguments


def prepare(
    func: Any, parms: UserParameters, *, sensvar: Any, dist: str, parInput: Any, parRange: Any, parMean: Any,
    parCovar: Any, map: int | str | None, num: int, args: Any, kwargs: Any, seed: Seed,
) -> Ensemble:  # fmt: skip
    """Return the ensemble that the arguments of sensRange and modCRL describe.

    Raises
    ------
    ParameterError, ArgumentError
        See `sensRange`.
    """
    rng = as_rng(seed)
    parInput = draws_of(parInput, num, rng)
    sets = for_model(parameter_sets(dist, parInput, parRange, parMean, parCovar, num, rng), func, parInput)
    expected = expected_scale(func, sets.table.columns)
    check_scale(sets.table if parInput is None else parInput, expected, "parMean" if parInput is None else "parInput")
    start = sets.start if parms is None and not is_ours(func) else parms
    argument = "parInput" if parInput is not None else "parMean" if dist == "norm" else "parRange"
    varied = list(sets.table.columns)
    simulator = as_simulator(func, start, varied=varied, argument=argument, map=map, args=args, kwargs=kwargs)
    if len(set(simulator.names)) < len(simulator.names):
        raise ArgumentError(f"The varied parameters repeat a name: {listed(simulator.names)}.")
    return Ensemble(simulator, simulator.places(sensvar), sets)


def output_names(var: tuple[str, ...], x: Vector) -> list[str]:
    """Return the names of the outputs, variables outermost: variable and x pasted, the variable alone for one x.

    Examples
    --------
    >>> output_names(("N",), np.array([0.0, 0.5]))
    ['N0', 'N0.5']
    """
    if len(x) == 1:
        return list(var)
    return [f"{v}{value:.15g}" for v in var for value in x]
