"""landscape: the cost over one or two parameters, and where its minima lie.

The others stay where they are, or are fitted again at every place (``optimise=True``), along lines of the grid. A local
minimum of the grid, lower than all places around it, is followed down to the minimum itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fmepy.checks import whole_number
from fmepy.costs.objective import Objective
from fmepy.costs.user_function import as_objective, is_cost
from fmepy.errors import ArgumentError, SimulationError
from fmepy.fitting.optimum import check_belongs, how_to_refit, start_of
from fmepy.fitting.refits import Search
from fmepy.fitting.result import ModFit
from fmepy.numerics.differences import replaced
from fmepy.parallel import spread
from fmepy.parallel.interruption import Stopped, interruptible
from fmepy.parameters.named import as_bounds, check_fit, check_names
from fmepy.results.tables import Framed, Part, long_table, table, wrapped
from fmepy.types import Matrix, Vector

_TOGETHER = 64  # places that are evaluated one after the other, whatever the workers
_AT_ONCE = 16  # of them, in one call of the cost: what Ctrl-C may lose
_LINE = 16  # re-fits that follow each other
_SAME = 1e-3  # of a cell of the grid: minima so near each other are one, and so near a side stand on it


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Landscape(Framed):
    """The cost over one or two parameters.

    Attributes
    ----------
    frame : DataFrame
        The parameters, and the cost: what a fit minimises; NaN where it fails. The second parameter changes quickest.
    minima : DataFrame
        Local minima inside the ranges, the lowest first: parameters, cost.
    parameters : tuple of str
    optimised : bool
        True if the others were fitted again.
    measure : str
        What the cost is.
    estimate : Series or None
        The fit's values of the parameters.
    message : str
    interrupted : bool
    """

    frame: pd.DataFrame
    minima: pd.DataFrame
    parameters: tuple[str, ...]
    optimised: bool
    measure: str
    estimate: pd.Series | None = None
    message: str = ""
    interrupted: bool = False

    def shown(self) -> list[str | Part]:
        """Return the minima, and the table."""
        others = ", the others fitted again" if self.optimised else ""
        head = f"Landscape of {' and '.join(self.parameters)}: {self.measure}{others}"
        n = len(self.minima)
        parts: list[str | Part] = [head]
        if n:
            parts += [f"{n} {'minimum' if n == 1 else 'minima'}:", table(self.minima, "{:.6g}")]
        return [*parts, long_table(self.frame), *([wrapped(self.message)] if self.message else [])]

    def plot(self, *, ax: Any = None, **kwargs: Any) -> Any:
        """Draw the cost as a line or as contours, with its minima; return the Axes."""
        from fmepy.plotting.profiles import plot_landscape

        return plot_landscape(self, ax=ax, **kwargs)


@interruptible(lambda found: found.message)
def landscape(
    f: Any,
    ranges: Mapping[str, Any],
    *,
    fit: ModFit | None = None,
    num: Any = 101,
    optimise: bool = False,
    executor: Any = None,
    progress: Any = False,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Landscape:
    """Return the cost on a grid of one or two parameters, and its minima there.

    Parameters
    ----------
    f : fmepy cost, or callable ``f(p)``
    ranges : dict of name to (low, high)
        One parameter or two.
    fit : ModFit, optional
        Where the others are. Without it they stay at the values of a fmepy cost; a function of your own then has no
        others.
    num : int, or pair of int
        Places along each range.
    optimise : bool
        True: the other parameters of `fit` are fitted again at every place, inside the fit's bounds.
    executor, progress
        See `run_many`.
    args, kwargs
        Passed on to `f`.

    Returns
    -------
    Landscape
        ``frame``, ``minima``, ``plot()``. After Ctrl-C what is done, the rest NaN.

    Raises
    ------
    ArgumentError
        Ranges that are none, or of more than two parameters; `optimise` without a fit; a fit of another cost.
    ParameterError
        An unknown parameter, or a range beyond a bound that the cost declares.
    SimulationError
        The cost fails everywhere.

    Examples
    --------
    >>> two_wells = lambda p: (p["a"] ** 2 - 1) ** 2 + 0.1 * p["a"]
    >>> found = landscape(two_wells, {"a": (-2, 2)})
    >>> found.minima.round(4)
            a    cost
    0 -1.0123 -0.1006
    1  0.9873  0.0994
    """
    names, box = _ranges(ranges)
    searches, theta, places = _start(f, names, box, fit, optimise, args, kwargs)
    counts = _counts(num, len(names))
    axes = [np.linspace(low, high, n) for (low, high), n in zip(box, counts, strict=True)]
    grid = np.array(list(product(*axes)))
    one = _Places(searches, theta, places, optimise)
    line = min(_LINE, counts[-1]) if optimise else _TOGETHER
    pieces = [grid[k : k + line] for k in range(0, len(grid), line)]
    runs = spread(one, pieces, executor=executor, progress=progress)
    nothing = [np.full((2, len(p)), np.nan) for p in pieces]
    found = [none if r is None else r for none, r in zip(nothing, runs.results, strict=True)]
    costs, arrived = np.concatenate(found, axis=1)
    message = _message(costs, arrived, runs)
    low = [] if runs.interrupted else one.minima(axes, costs.reshape(counts))
    minima = pd.DataFrame(low, columns=[*names, "cost"], dtype=float).sort_values("cost", ignore_index=True)
    return Landscape(
        frame=pd.DataFrame(np.column_stack([grid, costs]), columns=[*names, "cost"]),
        minima=minima,
        parameters=tuple(names),
        optimised=bool(optimise),
        measure="-2 log L" if searches[0].objective.is_scalar else "sum of squares",
        estimate=None if fit is None else fit.par[list(names)].copy(),
        message=message,
        interrupted=runs.interrupted,
    )


def _ranges(ranges: Any) -> tuple[list[str], list[tuple[float, float]]]:
    if not isinstance(ranges, Mapping) or len(ranges) not in (1, 2):
        raise ArgumentError(
            f"`ranges` must be a dict of one parameter or two, such as {{'L': (0.2, 2)}}; got "
            f"{ranges if isinstance(ranges, Mapping | list | tuple) else type(ranges).__name__}."
        )
    box = []
    for name, given in ranges.items():
        try:
            low, high = (float(v) for v in given)
        except (TypeError, ValueError):
            raise ArgumentError(f"`ranges`: {name!r} has {given!r}; a pair (low, high) is needed.") from None
        if not (np.isfinite([low, high]).all() and low < high):
            raise ArgumentError(f"`ranges`: {name!r} has ({low:g}, {high:g}); finite low < high is needed.")
        box.append((low, high))
    return [str(n) for n in ranges], box


def _counts(num: Any, n: int) -> tuple[int, ...]:
    several = list(num) if isinstance(num, (list, tuple, np.ndarray)) else [num] * n
    if len(several) != n:
        raise ArgumentError(f"`num` has {len(several)} values for {n} parameters; give one number, or one for each.")
    return tuple(whole_number(k, "num", 3) for k in several)


def _start(
    f: Any, names: list[str], box: list[tuple[float, float]], fit: Any, optimise: bool, args: Any, kwargs: Any
) -> tuple[tuple[Search, Search], Vector, list[int]]:
    """Return how the others are fitted from a neighbour, and from anywhere; where they are; places in theta."""
    if fit is None and optimise:
        raise ArgumentError("`optimise=True` fits the other parameters of a fit again: give fit=modFit(f, p).")
    if fit is not None:
        check_fit(fit)
        start = start_of(fit)
        names = list(check_names(names, fit.names, argument="ranges"))
    else:
        if is_cost(f):
            names = list(check_names(names, f.parms.index, argument="ranges"))
        start = {n: 0.5 * (low + high) for n, (low, high) in zip(names, box, strict=True)}
    objective: Objective = as_objective(f, start, args=args, kwargs=kwargs, hold_engine=True)
    lower, upper = objective.lower, objective.upper
    if fit is not None:
        check_belongs(objective, fit)
        if optimise and fit.with_prior:
            raise ArgumentError("`optimise=True` does not know the prior of the fit; leave it out, or fit without one.")
        declared = fit.lower.to_numpy(dtype=float), fit.upper.to_numpy(dtype=float)
        lower, upper = as_bounds(-np.inf, np.inf, objective.parameter_names, declared=declared)
    places = [objective.parameter_names.index(n) for n in names]
    for name, j, (low, high) in zip(names, places, box, strict=True):
        if low < objective.lower[j] or high > objective.upper[j]:
            raise ArgumentError(
                f"`ranges`: ({low:g}, {high:g}) of {name!r} goes beyond its bounds [{objective.lower[j]:g}, "
                f"{objective.upper[j]:g}]."
            )
    theta = objective.theta0.copy() if fit is None else fit.par.to_numpy(dtype=float, copy=True)
    lower, upper = (replaced(end, places, given) for end, given in zip((lower, upper), np.transpose(box), strict=True))
    objective.begin(np.clip(theta, lower, upper), lower, upper)
    near, far = (how_to_refit(objective, lower, upper, None, None, warm=warm) for warm in (True, False))
    return (near, far), theta, places


def _message(costs: Vector, arrived: Vector, runs: Any) -> str:
    failed = int(np.isnan(costs).sum())
    if failed == len(costs) and not runs.interrupted:
        why = runs.failures["message"].iloc[0] if len(runs.failures) else "the cost is not finite"
        raise SimulationError(f"The cost fails everywhere in these ranges: {why}")
    if runs.interrupted:
        return f"{len(costs) - failed} of {len(costs)} places are done, the others are NaN; minima were not looked for."
    sentences = [f"The cost fails at {failed} of {len(costs)} places, which are NaN."] if failed else []
    if short := int((arrived == 0).sum()):
        sentences.append(
            f"At {short} of {len(costs)} places the fit of the others did not converge; the cost there is the lowest "
            "that was found."
        )
    return " ".join(sentences)


@dataclass(slots=True, eq=False)
class _Places:
    """The cost at some places one after the other; it travels to workers."""

    searches: tuple[Search, Search]
    theta: Vector
    places: list[int]
    optimise: bool

    def __call__(self, some: Matrix) -> Matrix:
        """Return the costs, NaN where there is none, and whether the others converged, shape (2, n).

        Raises
        ------
        Stopped
            Ctrl-C; it brings along the places that are done.
        """
        near, far = map(copy, self.searches)
        near.objective = far.objective = near.objective.alone(near.objective.theta0, near.lower, near.upper)
        out = np.full((2, len(some)), np.nan)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                (self._refits if self.optimise else self._plain)(near, far, some, out)
        except KeyboardInterrupt:
            raise Stopped(out) from None
        return out

    def _plain(self, near: Search, _: Search, some: Matrix, out: Matrix) -> None:
        problem = near.problem(near.objective.theta0)
        for k in range(0, len(some), _AT_ONCE):
            piece = some[k : k + _AT_ONCE]
            Theta = np.tile(self.theta, (len(piece), 1))
            Theta[:, self.places] = piece
            costs = problem.costs(Theta)
            out[0, k : k + _AT_ONCE], out[1, k : k + _AT_ONCE] = np.where(np.isfinite(costs), costs, np.nan), 1.0

    def _refits(self, near: Search, far: Search, some: Matrix, out: Matrix) -> None:
        start = self.theta
        for k, place in enumerate(some):
            ends: list[tuple[Vector, float, bool]] = []
            for begin in (start, self.theta):  # the neighbour may stand in a worse valley, or where nothing responds
                found = self._refit(near, begin, place, place)
                ends += [] if found is None else [found]
            if ends and not any(converged for _, _, converged in ends):
                found = self._refit(far, min(ends, key=lambda end: end[1])[0], place, place)
                ends += [] if found is None else [found]
            if ends:
                start, out[0, k], out[1, k] = min(ends, key=lambda end: (not end[2], end[1]))

    def _refit(self, search: Search, start: Vector, low: Vector, high: Vector) -> tuple[Vector, float, bool] | None:
        """Return the end of a search with the parameters inside a box, None if it fails."""
        lower, upper = (search.lower, search.upper) if self.optimise else (self.theta, self.theta)
        box = {"lower": replaced(lower, self.places, low), "upper": replaced(upper, self.places, high)}
        problem = search.problem(start, **box)
        try:
            theta, outcome = search.run(problem)
            return theta, problem.value(theta), outcome.converged
        except SimulationError:
            return None

    def minima(self, axes: list[Vector], costs: NDArray[np.float64]) -> list[tuple[float, ...]]:
        """Return the local minima that lie inside the grid, each followed down to itself."""
        high = np.where(np.isnan(costs), np.inf, costs)
        cell, rim = np.array([a[1] - a[0] for a in axes]), np.array([[a[0], a[-1]] for a in axes]).T
        found: list[tuple[float, ...]] = []
        for at in np.argwhere(_is_lowest(high)):
            here = np.array([axis[i] for axis, i in zip(axes, at, strict=True)])
            at_end = self._followed(here, float(high[tuple(at)]), cell, rim)
            if at_end is None:
                continue
            here, value = at_end
            if all((np.abs(here - other[:-1]) > _SAME * cell).any() for other in found):
                found.append((*here.tolist(), value))
        return found

    def _followed(self, here: Vector, value: float, cell: Vector, rim: Matrix) -> tuple[Vector, float] | None:
        """Return the minimum that a descent reaches; None if it reaches the edge of the grid.

        A place that is lower than all around it may lie in a valley that runs across the grid: where the lowest of the
        cells around it is on their side, the way leads on from there.
        """
        start = replaced(self.theta, self.places, here)
        for low, up in ((np.maximum(here - cell, rim[0]), np.minimum(here + cell, rim[1])), rim):
            with np.errstate(over="ignore", invalid="ignore"):
                better = self._refit(self.searches[0], start, low, up)
            if better is None or not better[2] or better[1] > value:
                return here, value
            start, value, _ = better
            start[self.places] = np.where(np.abs(start[self.places]) < _SAME**2 * cell, 0.0, start[self.places])
            here = start[self.places]  # a search takes the size of an unknown from where it begins: no rounding of zero
            if (np.minimum(here - low, up - here) > _SAME * cell).all():
                return here, value
        return None


def _is_lowest(costs: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell which places inside the grid are lower than all around them; of equal ones side by side the first."""
    padded = np.pad(costs, 1, constant_values=-np.inf)  # nothing on the rim is a minimum
    middle = tuple(slice(1, -1) for _ in costs.shape)
    lowest = np.isfinite(costs)
    for step in product((-1, 0, 1), repeat=costs.ndim):
        if any(step):
            other = padded[tuple(slice(1 + s, padded.shape[d] - 1 + s) for d, s in enumerate(step))]
            compare: Callable[..., Any] = np.less if step < (0,) * costs.ndim else np.less_equal
            lowest &= compare(padded[middle], other)
    return lowest
