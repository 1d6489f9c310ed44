"""global_indices: shares of the variance of an output that parameters cause, over their whole ranges.

Designs are SALib's, and so are the estimators of two methods; the runs go through `run_many`. Each method is one
`_Method`: a design in blocks of rows, and an analysis of one output::

    sobol    first-order index S1 = Var(E[y|p_j]) / Var(y), total index ST = E[Var(y|all but p_j)] / Var(y);
             blocks of n_par + 2 runs (one point of A, its n_par mixtures AB_j with B, one point of B), estimated by
             S1 = mean(B (AB_j - A)) / Var, ST = mean((A - AB_j)^2) / (2 Var), Var of A and B together (Saltelli et
             al. 2010), for all resamples of the bootstrap at once: SALib's loop takes longer than most models
    morris   elementary effects along trajectories: mean, mean of the absolute value, standard deviation;
             blocks (trajectories) of n_par + 1 runs
    fast     S1 and ST from the spectrum along a search curve; one block (curve) per parameter

**Failed runs.** An estimator needs whole blocks. A block with a failed run is left out, for all outputs; the result
has their number. On a search curve nothing can be left out: the indices of that parameter are NaN.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.costs.user_function import as_simulator, is_ours
from fmepy.errors import ArgumentError, FmepyError, SimulationError, check_choice
from fmepy.models.bound_simulator import ChosenOutputs, Simulator
from fmepy.montecarlo.samplers import Ranges, as_ranges
from fmepy.parallel import spread
from fmepy.parallel.interruption import interruptible
from fmepy.parallel.runs import counted_failures
from fmepy.parameters.selection import chosen
from fmepy.results.printing import two_digits
from fmepy.results.tables import Framed, Part, table
from fmepy.types import AxesArray, BoolVector, Matrix, Seed, UserParameters, Vector

logger = logging.getLogger(__name__)

_LEVELS = 4  # of a trajectory's grid, as Morris and SALib have it
_HARMONICS = 4  # of a search curve, as in SALib

_RESAMPLES, _HALF_OF_95 = 100, 1.959963984540054  # of the bootstrap; standard deviations
_NO_VARIANCE = np.finfo(float).eps  # of what is normalised

_MOST_ROWS = 60  # that are printed


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalIndices(Framed):
    """Global sensitivity indices; made by `global_indices`.

    Attributes
    ----------
    frame : DataFrame
        One row per output and parameter: var, x (if the output is a course over x), parameter, and the indices: S1,
        S1_conf, ST, ST_conf ("sobol"; half the width of 95 % intervals), S1, ST ("fast"), mu, mu_star, mu_star_conf,
        sigma ("morris"; in the unit of the output for a parameter moving through its whole range). NaN where an
        output does not vary.
    method : str
    parameters : tuple of str
    var : tuple of str
    xname : str or None
        Name of x; None if there is none.
    blocks : int
        Blocks of runs that were used, see the module's text.
    dropped : int
        Blocks that were left out because a run of them failed.
    runs : int
        Runs in all.
    failures : DataFrame
        One row per failed run: run, parameters, error, message.
    interrupted : bool
        True if Ctrl-C ended the runs: the indices are those of the blocks that were complete.
    engine : str
        What ran the model; "" of a function of yours.
    """

    frame: pd.DataFrame
    method: str
    parameters: tuple[str, ...]
    var: tuple[str, ...]
    xname: str | None
    blocks: int
    dropped: int
    runs: int
    failures: pd.DataFrame
    interrupted: bool = False
    engine: str = ""

    def plot(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the indices, one panel a variable: bars, or lines over x; return the Axes."""
        from fmepy.plotting.sensitivity import plot_global_indices

        return plot_global_indices(self, which, axes=axes, **kwargs)

    def told(self) -> str:
        """Return the number of runs and the failures, as text."""
        text = f"{self.method}: {self.runs} runs"
        if len(self.failures):
            what = "curves of" if self.method == "fast" else "blocks of"
            text += (
                f", {', '.join(counted_failures(self.failures))}; {self.dropped} of {self.blocks + self.dropped} "
                f"{what} runs that are not complete {'give NaN' if self.method == 'fast' else 'are left out'}"
            )
        return text

    def shown(self) -> list[str | Part]:
        """Return the indices with two digits, the number of runs, and the failures."""
        if len(self.frame) <= _MOST_ROWS:
            return [table(two_digits(self.frame)), f"({self.told()})"]
        ends = pd.concat([self.frame.head(_MOST_ROWS // 2), self.frame.tail(_MOST_ROWS // 2)])
        note = f"({len(self.frame)} rows; the first and last {_MOST_ROWS // 2} are shown)"
        return [table(two_digits(ends)), note, f"({self.told()})"]


@interruptible(lambda result: f"{result.told()}.")
def global_indices(
    func: Any,
    parRange: Any,
    *,
    parms: UserParameters = None,
    sensvar: Any = None,
    method: str = "sobol",
    num: int = 1024,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: Seed = None,
    executor: Any = None,
    progress: Any = False,
) -> GlobalIndices:
    """Return how much of the spread of each output is due to which parameter, over their ranges.

    Parameters
    ----------
    func : fmepy model, or callable ``func(p, *args, **kwargs)``
        A callable returns a table (x first), or one row: a Series, a dict, a number.
    parRange : dict of name to (min, max), or table with columns min, max
        The ranges; parameters are uniform and independent in them.
    parms : dict, Series, optional
        Values of the other parameters; a fmepy model has its own.
    sensvar : names or positions from 0, optional
        The variables; default all.
    method : {"sobol", "morris", "fast"}
        First-order and total indices by Sobol's design, elementary effects, or first-order and total indices by the
        extended Fourier amplitude test.
    num : int
        "sobol": a power of 2; ``num * (n_par + 2)`` runs. "morris": trajectories; ``num * (n_par + 1)`` runs; 10 to 50
        screen. "fast": above 64; ``num * n_par`` runs.
    args, kwargs
        Passed on to a function of your own.
    seed : int, Generator or None
        Of the design and of the intervals' resamples.
    executor, progress
        Where the runs go, see `run_many`.

    Returns
    -------
    GlobalIndices
        Its ``.failures`` and ``.dropped`` tell of failed runs.

    Raises
    ------
    FmepyError
        SALib is not installed.
    ParameterError
        An unknown parameter, an empty range.
    ArgumentError
        An unknown method or variable, a `num` that does not fit.
    SimulationError
        So many runs failed that fewer than two blocks are left.

    Notes
    -----
    A run counts as failed if it raises an error, or if one of the chosen outputs is not finite. The result, and the
    logger ``fmepy.sensitivity`` at WARNING level, report the blocks left out. Leaving out blocks is leaving out a part
    of the ranges: the indices are those of the part where the model runs.

    For "fast" there are no intervals: SALib's bootstrap along a curve is known to be unreliable.

    References
    ----------
    Saltelli et al. (2010), Comput. Phys. Commun. 181, 259-270. Campolongo et al. (2007), Environ. Model. Softw. 22,
    1509-1518. Saltelli, Tarantola and Chan (1999), Technometrics 41, 39-56. Herman and Usher (2017), SALib, J. Open
    Source Softw. 2(9).

    Examples
    --------
    For a sum of independent parameters both indices are the shares of the variance, here 1/5 and 4/5:

    >>> found = global_indices(lambda p: p["a"] + 2 * p["b"], {"a": (0, 1), "b": (0, 1)}, num=512, seed=1)
    >>> found.frame[["parameter", "S1", "ST"]].round(2)
      parameter   S1   ST
    0         a  0.2  0.2
    1         b  0.8  0.8
    """
    check_choice(method, _METHODS, "method")
    ranges = as_ranges(parRange, varying=True)
    names = list(ranges.names)
    _check_num(num, method)
    try:
        import SALib.analyze  # noqa: F401
    except ImportError as error:
        raise FmepyError("global_indices needs the package SALib: pip install fmepy[global]") from error
    start = ranges.middle.to_dict() if parms is None and not is_ours(func) else parms
    rng = as_rng(seed)
    kind = _METHODS[method](ranges, int(num), rng)
    simulator = as_simulator(func, start, varied=names, argument="parRange", args=args, kwargs=kwargs)
    variables = chosen(sensvar, simulator.var_names, "sensvar", "variable", is_set=True)
    columns = np.array([simulator.var_names.index(v) for v in variables])
    runs = spread(ChosenOutputs(simulator, columns), list(kind.design), executor=executor, progress=progress)
    usable = np.asarray(runs.ok.reshape(-1, kind.n_rows).all(axis=1))  # blocks without a failed run
    dropped = int((~usable).sum())
    if dropped and ((method != "fast" and usable.sum() < 2) or not usable.any()):
        if runs.interrupted:
            raise KeyboardInterrupt
        raise SimulationError(
            f"{len(runs.failures)} of {len(runs)} runs failed, which leaves {int(usable.sum())} of {usable.size} "
            f"blocks of runs. The first: {runs.failures['message'].iloc[0]} Narrow the ranges."
        )
    n_out = len(variables) * len(simulator.x)
    Y = np.array([np.full(n_out, np.nan) if r is None else r.ravel() for r in runs.results])
    job = _Analysis(kind, usable)
    analysed = spread(job, list(Y.T), executor=executor, seed=int(rng.integers(1, 2**31)))
    if analysed.interrupted:
        raise KeyboardInterrupt
    if len(analysed.failures):
        raise FmepyError(f"SALib's analysis failed: {analysed.failures['message'].iloc[0]}")
    of_runs = [dict(zip(names, map(float, theta), strict=True)) for theta in runs.failures["parameters"]]
    result = GlobalIndices(
        frame=_frame(analysed.results, variables, simulator, names),
        method=method,
        parameters=tuple(names),
        var=tuple(variables),
        xname=None if simulator.is_single_row else simulator.x_name,
        blocks=int(usable.sum()),
        dropped=dropped,
        runs=len(runs),
        failures=runs.failures.assign(parameters=pd.Series(of_runs, index=runs.failures.index, dtype=object)),
        interrupted=runs.interrupted,
        engine=simulator.engine,
    )
    if dropped and not runs.interrupted:
        logger.warning("global_indices, %s.", result.told())
    return result


class _Analysis:
    """SALib's analysis of one output; NaN if it does not vary."""

    def __init__(self, kind: _Method, usable: BoolVector) -> None:
        self.kind, self.usable = kind, usable

    def __call__(self, y: Vector, rng: np.random.Generator) -> dict[str, Vector]:
        finite = y[np.isfinite(y)]
        if np.ptp(finite) <= 1e-12 * np.abs(finite).max():
            return dict.fromkeys(self.kind.columns, np.full(self.kind.n_par, np.nan))
        return self.kind.analyse(y, self.usable, int(rng.integers(1, 2**31)))


class _Method:
    """A design in blocks of rows, and the analysis of one output.

    Attributes
    ----------
    design : ndarray, shape (n_run, n_par)
    n_rows : int
        Rows of a block; blocks follow each other.
    columns : tuple of str
        Names of the indices.
    """

    columns: tuple[str, ...]

    def __init__(self, ranges: Ranges, num: int, rng: np.random.Generator) -> None:
        self.n_par = len(ranges.names)
        bounds = np.column_stack((ranges.low, ranges.high)).tolist()
        self.problem = {"num_vars": self.n_par, "names": list(ranges.names), "bounds": bounds}
        self.design, self.n_rows = self.sample(num, rng)

    def sample(self, num: int, rng: np.random.Generator) -> tuple[Matrix, int]:
        """Return the design and the number of rows of a block."""
        raise NotImplementedError

    def analyse(self, y: Vector, usable: BoolVector, seed: int) -> dict[str, Vector]:
        """Return the indices of one output, one value per parameter; `usable` says which blocks count."""
        raise NotImplementedError


class _Sobol(_Method):
    columns = ("S1", "S1_conf", "ST", "ST_conf")

    def sample(self, num: int, rng: np.random.Generator) -> tuple[Matrix, int]:
        from SALib.sample import sobol

        return sobol.sample(self.problem, num, calc_second_order=False, seed=rng), self.n_par + 2

    def analyse(self, y: Vector, usable: BoolVector, seed: int) -> dict[str, Vector]:
        blocks = y.reshape(-1, self.n_rows)[usable]
        blocks = (blocks - blocks.mean()) / blocks.std()
        A, AB, B = blocks[:, :1], blocks[:, 1:-1], blocks[:, -1:]
        parts = np.hstack([B * (AB - A), 0.5 * (A - AB) ** 2, 0.5 * (A + B), 0.5 * (A**2 + B**2)])
        means = np.einsum("ij,jk->ik", _resampled(len(blocks), seed), parts)  # the same bits in all processes
        variance = means[:, -1:] - means[:, -2:-1] ** 2
        shares = np.divide(means[:, :-2], variance, out=np.zeros_like(means[:, :-2]), where=variance > _NO_VARIANCE)
        S1, ST = np.hsplit(shares, 2)
        spread_1, spread_t = (_HALF_OF_95 * s[1:].std(axis=0, ddof=1) for s in (S1, ST))
        return dict(zip(self.columns, (S1[0], spread_1, ST[0], spread_t), strict=True))


def _resampled(n: int, seed: int) -> Matrix:
    """Return the weights of n blocks in their mean, then in the means of SALib's resamples (bootstrap), one a row."""
    drawn = np.random.default_rng(seed).integers(n, size=(n, _RESAMPLES)) + n * np.arange(_RESAMPLES)
    counts = np.bincount(drawn.ravel(), minlength=n * _RESAMPLES).reshape(_RESAMPLES, n)
    return np.vstack([np.ones(n), counts]).astype(float) / n


class _Morris(_Method):
    columns = ("mu", "mu_star", "mu_star_conf", "sigma")

    def sample(self, num: int, rng: np.random.Generator) -> tuple[Matrix, int]:
        from SALib.sample import morris

        return morris.sample(self.problem, num, num_levels=_LEVELS, seed=rng), self.n_par + 1

    def analyse(self, y: Vector, usable: BoolVector, seed: int) -> dict[str, Vector]:
        from SALib.analyze import morris

        rows = np.repeat(usable, self.n_rows)
        found = morris.analyze(self.problem, self.design[rows], y[rows], num_levels=_LEVELS, seed=seed)
        return {c: np.ma.filled(np.ma.asarray(found[c], dtype=float), np.nan) for c in self.columns}


class _Fast(_Method):
    columns = ("S1", "ST")

    def sample(self, num: int, rng: np.random.Generator) -> tuple[Matrix, int]:
        from SALib.sample import fast_sampler

        return fast_sampler.sample(self.problem, num, M=_HARMONICS, seed=rng), num

    def analyse(self, y: Vector, usable: BoolVector, seed: int) -> dict[str, Vector]:
        # `analyze` bootstraps too, unreliably, and seeds numpy's global state
        from SALib.analyze.fast import compute_orders

        n = self.n_rows
        omega = (n - 1) // (2 * _HARMONICS)
        S1, ST = np.full(self.n_par, np.nan), np.full(self.n_par, np.nan)
        for j in np.flatnonzero(usable):
            S1[j], ST[j] = compute_orders(y[j * n : (j + 1) * n], n, _HARMONICS, omega)
        return {"S1": S1, "ST": ST}


_METHODS: dict[str, type[_Method]] = {"sobol": _Sobol, "morris": _Morris, "fast": _Fast}


def _check_num(num: Any, method: str) -> None:
    num = whole_number(num, "num", 2)
    if method == "sobol" and num & (num - 1):
        below = 1 << (int(num).bit_length() - 1)
        raise ArgumentError(f"`num={num}`: Sobol's design needs a power of 2, such as {below} or {2 * below}.")
    if method == "fast" and num <= 4 * _HARMONICS**2:
        raise ArgumentError(f"`num={num}`: a search curve needs more than {4 * _HARMONICS**2} runs.")


def _frame(
    found: Sequence[Mapping[str, Vector]], variables: Sequence[str], simulator: Simulator, names: Sequence[str]
) -> pd.DataFrame:
    n_x, n_par = len(simulator.x), len(names)
    head: dict[str, Any] = {"var": np.repeat(list(variables), n_x * n_par)}
    if not simulator.is_single_row:
        head["x"] = np.tile(np.repeat(simulator.x, n_par), len(variables))
    head["parameter"] = np.tile(list(names), n_x * len(variables))
    return pd.DataFrame(head | {c: np.concatenate([one[c] for one in found]) for c in found[0]})
