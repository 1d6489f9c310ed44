"""Optimal designs: the possible readings that inform most about the parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.designs.criteria import CRITERIA, Criterion
from fmepy.designs.information import SD, VARIABLE, Readings, errors_of
from fmepy.designs.joint import JointReadings
from fmepy.designs.spaces import ControlledExperiments, DesignSpace, ListedReadings, ReadingsInTime
from fmepy.errors import ArgumentError, check_choice, listed
from fmepy.fimlof.cost import FimlofCost
from fmepy.fitting.bends import bends_of
from fmepy.fitting.profile_result import Profile
from fmepy.fitting.result import ModFit
from fmepy.mcmc.result import ModMCMC
from fmepy.parameters.named import as_parameters
from fmepy.parameters.priors import as_prior
from fmepy.parameters.selection import chosen as select
from fmepy.results.tables import Part, Shown, bullets, heading, table
from fmepy.tables.columns import as_table, finite_numbers
from fmepy.types import AxesArray, Cube, Matrix, Vector
from fmepy.vocabulary import own_words

_STARTS = 6  # designs from which exchanges begin
_MOST_DRAWS = 20  # of a prior or chain
_ROUNDS = 50


@dataclass(frozen=True, eq=False, repr=False)
class OptimalDesign(Shown):
    """A design; made by `design`.

    Attributes
    ----------
    chosen : DataFrame
        The readings to take: rows of the candidates' table (all rows of an experiment), in the order of time.
    before, after : Series
        Standard errors of the parameters now and with these readings, by the expected information; infinite of what is
        not identifiable.
    criterion : str
    value : float
        Of the criterion; larger is better.
    efficiency : float
        At least how good the design is beside the best with as many readings, replicates and fractions of readings
        allowed (by the equivalence theorem: Kiefer and Wolfowitz 1960); NaN where the criterion has no slope, under a
        `budget`, of several draws but for D, and of a FimlofCost, whose readings do not simply add.
    sensitivity : DataFrame
        The candidates, and in ``sensitivity`` by how much the criterion would grow with a reading there.
    notes : tuple of str
    calendar : tuple or None
        The dates of the cost's data, see `fmepy.tables.sheet.with_times`.
    """

    chosen: pd.DataFrame
    before: pd.Series
    after: pd.Series
    criterion: str
    value: float
    efficiency: float
    sensitivity: pd.DataFrame
    notes: tuple[str, ...] = field(default=())
    calendar: Any = None

    def told(self) -> list[str]:
        """Return the results in sentences."""
        sentences = [f"Standard error of {name}: {_short(before)} now, {_short(after)} with these readings."
                for name, before, after in zip(self.before.index, self.before, self.after, strict=True)]  # fmt: skip
        if np.isfinite(self.efficiency):
            sentences.append(
                f"By the criterion {self.criterion} at least {self.efficiency:.1%} as good as the best there is."
            )
        return [*sentences, *self.notes]

    def plot(self, which: Any = None, *, axes: Any = None, **words: Any) -> AxesArray:
        """Draw what a reading would add over its place, and the readings that were chosen; return the Axes."""
        from fmepy.plotting.design import plot_design

        return plot_design(self, which, axes=axes, **words)

    def shown(self) -> list[Part]:
        """Return the readings, and the results in sentences."""
        head = heading(f"Design of {len(self.chosen)} readings")
        return [head, table(self.chosen, index=False), *bullets(self.told(), "")]


def _short(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "infinite"


@own_words
def design(
    model: Any, p: Any, *, n: int | None = None, candidates: Any = None, times: Any = None, controls: Any = None,
    criterion: str = "D", for_: Any = None, sd: Any = None, variables: Any = None, min_gap: float = 0.0,
    by: str | None = None, budget: float | None = None, prior: Any = None, seed: Any = None,
) -> OptimalDesign:  # fmt: skip
    """Return the readings that inform most about the parameters.

    Parameters
    ----------
    model : Cost or Model
        Present readings of a cost count; a model has none.
    p : dict, Series, ModFit, Profile, ModMCMC or DataFrame
        The parameters that are to be known, and where: designs are best where the parameters are. Of draws (a chain, a
        table of a prior) the expected criterion over 20 of them is meant.
    n : int
        How many readings, or experiments (`by`, `controls`). May be left out where a `budget` limits it.
    candidates : DataFrame, or callable of dict
        A row a possible reading: the column of the times, ``variable``, ``sd``, the entity's column, ``cost`` (of a
        `budget`), and columns called as parameters, which the reading sets. A row is taken at most once; repeat it for
        replicates. Or a function of controls that returns such a table for one experiment.
    times : (float, float), optional
        Readings at any times between two bounds, equal ones too, in place of `candidates`.
    controls : mapping of parameter to (lower, upper), optional
        What `candidates(dict)` is a function of; of a dose the parameter that is the value of its event.
    criterion : {"D", "A", "E", "ME", "G", "c"}
        See `fmepy.designs.criteria`: the volume of the confidence ellipsoid, the sum of variances, the longest axis,
        the ratio of axes, the largest variance of a prediction among the candidates, that of one prediction.
    for_ : str, sequence of str, or mapping
        The parameters in question (the others are nuisances; D is Ds then); of "c" the prediction, such as
        ``{"time": 10, "variable": "y"}``.
    sd : number or mapping by variable, optional
        Of a reading; without it the cost's noise, else the fit's, else 1.
    variables : sequence of str, optional
        Which may be read, where `candidates` has no column ``variable``; by default those of the cost, or the model's
        outputs.
    min_gap : float
        Least distance of two times, with `times`.
    by : str, optional
        Column of `candidates` whose groups are taken as wholes.
    budget : float, optional
        What all readings may cost together, by the column ``cost``.
    prior : mapping of parameter to frozen scipy.stats distribution, optional
        What is known besides the readings, as in `modFit`: half the bend of -2 log density counts as information.
    seed : int, Generator or None
        Of the designs that exchanges start from: the same seed, the same design.

    Returns
    -------
    OptimalDesign

    Raises
    ------
    ArgumentError
        No candidates; fewer readings than it takes, with the parameters that stay open; what no candidate tells; bounds
        that are crossed; a budget that buys nothing; unknown names.

    Notes
    -----
    Readings are exchanged one by one while the criterion grows (Fedorov 1972), from several starts; times and controls
    between bounds then move continuously. The information is the expected one of -2 log L, with exact sensitivities
    where the model has them. Readings of a `FimlofCost` hang together: their information is that of all present and
    chosen ones, by the covariance that the path's noise gives them (`fmepy.designs.joint`; exact where the model is
    linear, else about the path of the mean). Its candidates set no parameters and no `sd`, and times between bounds are
    chosen among 201; difference equations are read at their steps.

    References
    ----------
    Atkinson, A. C., Donev, A. N. and Tobias, R. D. (2007), Optimum Experimental Designs, with SAS. Fedorov, V. V.
    (1972), Theory of Optimal Experiments. Kiefer, J. and Wolfowitz, J. (1960), Canad. J. Math. 12, 363-366.

    Examples
    --------
    >>> import fmepy as fme
    >>> model = fme.OdeModel("d(A)/dt = -k * A", state={"A": 1.0}, times=[0, 10], parms={"k": 0.5})
    >>> best = fme.design(model, {"k": 0.5}, times=(0, 10), n=1, sd=0.1, seed=1)      # at 1/k
    >>> best.chosen["time"].round(4).tolist()
    [2.0]
    """
    check_choice(criterion, CRITERIA, "criterion")
    task = _DesignProblem(model, p, sd, criterion, for_, prior, as_rng(seed))
    if controls is not None:
        space: DesignSpace = ControlledExperiments(task, candidates, controls)
    elif times is not None:
        if candidates is not None:
            raise ArgumentError("`times` and `candidates` are two ways to say what may be read; leave one out.")
        space = ReadingsInTime(task, times, variables, min_gap)
    else:
        space = ListedReadings(task, candidates, variables, by, budget)
    if n is None and budget is None:
        raise ArgumentError("`n`, the number of readings, is needed (or a `budget`).")
    count = len(space) if n is None else whole_number(n, "n", 1)
    if task.lacks_sd and SD not in space.table.columns:
        task.notes.append("Nothing is known of the errors: a reading has the standard deviation 1 (`sd` sets it).")
    task.set_candidates(space)
    _check_possible(task, space, count)
    return _result(task, space, _exchange(task, space, count))


class _DesignProblem:
    """The parameters, their values, and the criterion."""

    def __init__(
        self, source: Any, p: Any, sd: Any, criterion: str, for_: Any, prior: Any, rng: np.random.Generator
    ) -> None:
        draws = p if isinstance(p, pd.DataFrame) else p.pars if isinstance(p, ModMCMC) else None
        if draws is not None:
            table = as_table(draws, "p")
            rows = rng.choice(len(table), size=min(_MOST_DRAWS, len(table)), replace=False)
            self.points = [pd.Series(row, list(table.columns)) for row in finite_numbers(table, "p")[rows]]
        else:
            own = getattr(source, "parms", None)
            read = as_parameters(p.par if isinstance(p, Profile) else p, own, argument="p")
            self.points = [pd.Series(read.values, index=list(read.names), dtype=float)]
        self.names = [str(n) for n in self.points[0].index]
        self.is_joint = isinstance(source, FimlofCost)
        self.readings = [(JointReadings if self.is_joint else Readings)(source, point, sd) for point in self.points]
        self.kind, self.rng, self.notes = criterion, rng, list[str]()
        self._for = for_
        self.criteria: list[Criterion] = []
        self.lacks_sd = sd is None and not self.readings[0].has_errors
        if self.lacks_sd and (variance := _variance(p, self.readings[0].is_cost)):
            for r in self.readings:
                r.variance = variance
            self.lacks_sd = False
            self.notes.append(f"A reading has the fit's standard deviation of {variance**0.5:.3g}.")
        if isinstance(p, ModFit) and p.with_prior and prior is None:
            self.notes.append(
                "The fit's prior takes no part (`prior=` counts one): standard errors are of the data alone."
            )
        self.of_prior = np.array([_of_prior(prior, point) for point in self.points])
        self.present = np.array([r.present for r in self.readings]) + self.of_prior

    def set_candidates(self, space: DesignSpace) -> None:
        """Set the criterion, once the candidates are known."""
        chosen, gradient = np.arange(len(self.names)), None
        if self.kind == "c":
            if not isinstance(self._for, Mapping):
                raise ArgumentError('`for_` of criterion="c" is a prediction, such as {"time": 10, "variable": "y"}.')
        elif self._for is not None:
            if not (names := select(self._for, self.names, "for_", "parameter", is_set=True)):
                raise ArgumentError("`for_` is empty; name the parameters in question.")
            chosen = np.array([self.names.index(name) for name in names])
        for k, readings in enumerate(self.readings):
            gradient = readings.gradient({VARIABLE: readings.variables[0], **self._for}) if self.kind == "c" else None
            everywhere = space.information[k] if self.kind == "G" else None
            self.criteria.append(Criterion(self.kind, chosen, gradient, everywhere))

    def information(self, table: pd.DataFrame) -> Cube:
        """Return the information of rows at every point, shape (n_point, n_row, n_par, n_par)."""
        return np.array([r.of(table) for r in self.readings])

    def value(self, M: Any) -> Vector:
        """Return the expected criterion of many designs, M of shape (n_point, n_design, n_par, n_par)."""
        return np.asarray(np.mean([c.of(m) for c, m in zip(self.criteria, M, strict=True)], axis=0))


def _of_prior(prior: Any, point: pd.Series) -> Matrix:
    """Return the information of a prior, none where -2 log density is bent downwards."""
    parameters = as_parameters(point)
    read = as_prior(prior, parameters)
    if read is not None and read.parts is None:
        raise ArgumentError("`prior` of a design is a dict of distributions: prior={'k': scipy.stats.norm(1, 0.2)}.")
    bends = bends_of(() if read is None else read.parts or (), parameters.values, np.abs(parameters.values))
    return np.diag(0.5 * np.maximum(np.nan_to_num(bends), 0.0))


def _check_possible(task: _DesignProblem, space: DesignSpace, n: int) -> None:
    everything = space.together(range(len(space)))
    open_names = [name for name, e in zip(task.names, errors_of(everything[0]), strict=True) if np.isinf(e)]
    wanted = {task.names[i] for i in task.criteria[0].chosen}
    if open_names and (task.kind == "D" or wanted & set(open_names)):
        raise ArgumentError(
            f"All candidates together leave {listed(open_names)} open: offer other readings, or take what is known out "
            "of `p`."
        )
    if n > len(space) and not space.repeats:
        raise ArgumentError(f"`n={n}`: there are {len(space)} candidates, each of which is taken at most once.")


def _exchange(task: _DesignProblem, space: DesignSpace, n: int) -> list[int]:
    """Return the best of several designs, each improved by exchanges of one unit while that helps."""
    best: tuple[float, list[int]] = (-np.inf, [])
    ridge = 1e-9 * np.array([np.diag(np.diag(m)) for m in task.present + space.information.mean(axis=1)])
    for k in range(_STARTS):
        taken = _greedy(task, space, n, ridge, random=k > 0)
        now = float(task.value(space.together(taken)[:, None])[0])
        for _ in range(_ROUNDS):
            before = now
            for place in range(len(taken)):
                others = taken[:place] + taken[place + 1 :]
                open_units = np.flatnonzero(space.allowed(others))
                values = task.value(space.with_each(others, open_units))
                j = int(np.argmax(values))
                if values[j] > now + 1e-12 * (1 + abs(now)) or (not np.isfinite(now) and np.isfinite(values[j])):
                    taken[place], now = int(open_units[j]), float(values[j])
            if not now > before + 1e-10 * (1 + abs(before)):
                break
        if len(taken) < n and space.budget is None:
            raise ArgumentError(f"`n={n}` times do not fit between the bounds, `min_gap={space.min_gap:g}` apart.")
        if now > best[0]:
            best = (now, sorted(taken))
    if not best[1] or not np.isfinite(best[0]):
        M = space.together(_greedy(task, space, n, ridge, False))[0]
        names = [name for name, e in zip(task.names, errors_of(M), strict=True) if np.isinf(e)]
        raise ArgumentError(
            f"So few readings leave {listed(names or task.names)} open, and the criterion is not defined: take more "
            f"than {n}, name the parameters in question by `for_`, or give what is known its value in the model."
        )
    return best[1]


def _greedy(task: _DesignProblem, space: DesignSpace, n: int, ridge: Cube, random: bool) -> list[int]:
    """Return units chosen one after the other, each the best; with `random` the first half at random."""
    taken: list[int] = []
    while len(taken) < n:
        units = np.flatnonzero(space.allowed(taken))
        if not len(units):
            break
        if random and len(taken) < (n + 1) // 2:
            taken.append(int(task.rng.choice(units)))
            continue
        values = task.value(space.with_each(taken, units) + ridge[:, None])
        if space.prices is not None:
            now = task.value((space.together(taken) + ridge)[:, None])[0]
            values = (values - now) / np.maximum(space.prices[units], 1e-300)
        taken.append(int(units[int(np.argmax(values))]))
    return taken


def _result(task: _DesignProblem, space: DesignSpace, taken: list[int]) -> OptimalDesign:
    x, parts = task.readings[0].x, space.refined(taken)
    chosen = pd.concat(parts, ignore_index=True)
    of_units, own = space.information, None
    if task.is_joint:
        M = space.together(taken)
        of_units = np.full_like(of_units, np.nan)  # chosen readings add nothing more
        rest = np.setdiff1d(np.arange(len(space)), taken)
        of_units[:, rest] = space.with_each(taken, rest) - M[:, None]
    else:
        own = np.stack([task.information(part).sum(axis=1) for part in parts], axis=1)
        M = task.present + own.sum(axis=1)
    slopes: list[Any] = [c.slope(m) for c, m in zip(task.criteria, M, strict=True)]
    gains, efficiency = np.full(len(space), np.nan), np.nan
    if all(s is not None for s in slopes):
        gains = np.mean([np.einsum("ij,kij->k", s, F) for s, F in zip(slopes, of_units, strict=True)], axis=0)
    if own is not None and np.isfinite(gains).all() and space.budget is None and (len(M) == 1 or task.kind == "D"):
        now = np.mean([np.einsum("ij,kij->", s, F) for s, F in zip(slopes, own, strict=True)])
        efficiency = task.criteria[0].efficiency(M[0], float(len(parts) * gains.max() - now))
    of_rows = np.empty(len(space.table))
    for k, unit in enumerate(space.units):
        of_rows[unit] = gains[k]
    order = [c for c in (task.readings[0].entity, x) if c is not None]
    index = pd.Index(task.names, name="parameter")
    before, after = (pd.Series(np.mean([errors_of(m) for m in Ms], axis=0), index=index) for Ms in (task.present, M))
    return OptimalDesign(
        chosen.sort_values(order, kind="stable", ignore_index=True), before, after, task.kind,
        float(task.value(M[:, None])[0]), float(efficiency), space.table.assign(sensitivity=of_rows), tuple(task.notes),
        task.readings[0].calendar,
    )  # fmt: skip


def _variance(fit: Any, of_cost: bool) -> float:
    """Return the residual variance of a fit; 0 where there is none, or for a model one of weighted residuals alone."""
    residuals: Any = fit.residuals if isinstance(fit, ModFit) else None
    if residuals is None or len(residuals) <= len(fit.par):
        return 0.0
    if not of_cost and (fit.cost is None or not (fit.cost.residuals["weight"] == 1).all()):
        return 0.0
    return float(np.sum(np.square(np.asarray(residuals, dtype=float)))) / (len(residuals) - len(fit.par))
