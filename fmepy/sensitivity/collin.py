"""collin: which sets of parameters can be identified together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fmepy.checks import as_list, positive_number, whole_number
from fmepy.errors import ArgumentError, listed, warn
from fmepy.parallel.progress import Progress
from fmepy.parameters.selection import chosen
from fmepy.results.printing import two_digits
from fmepy.results.tables import Framed, Part, table
from fmepy.sensitivity.collinearity import Normalised, collinearities, membership, subset_blocks
from fmepy.sensitivity.sensfun import SensFun
from fmepy.types import Axes, BoolVector, Matrix
from fmepy.vocabulary import own_words

_OUT_OF_NOISE = 10.0  # times its noise, at least, for the direction of a column to be known
_SHOWN = 60  # rows of a printed table; more are cut in the middle


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Collin(Framed):
    """Collinearity of sets of parameters; made by `collin`.

    Attributes
    ----------
    frame : DataFrame
        One row per set: a 0/1 column per parameter, N (number of parameters), collinearity; sizes ascending, within a
        size in lexicographic order of positions.
    """

    frame: pd.DataFrame

    @property
    def value(self) -> float:
        """The collinearity, if there is one set."""
        if len(self.frame) != 1:
            raise ArgumentError(
                f"`value` is that of one set, but there are {len(self.frame)}. They are in .frame['collinearity']; one "
                "set is collin(sens, ['a', 'b'])."
            )
        return float(self.frame.iloc[:, -1].to_numpy()[0])

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(map(str, self.frame.columns[:-2]))

    def sets(self) -> list[tuple[str, ...]]:
        """Return the parameters of each row."""
        names = np.array(self.parameters, dtype=object)
        return [tuple(names[row]) for row in self.frame.iloc[:, :-2].to_numpy(dtype=bool)]

    def plot(self, log: bool = True, threshold: float | None = 20.0, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the collinearity of the sets: few one below the other with their names, many by size; return the Axes.

        Parameters
        ----------
        log : bool
            Logarithmic axis of collinearity.
        threshold : float, optional
            A line there; 20 is usual, 5 to 20 in the literature. Sets below it can be identified. None: no line.
        ax : Axes, optional
            Where to draw.
        **kwargs
            Passed to ``Axes.plot``.
        """
        from fmepy.plotting.sensitivity import plot_collinearity

        return plot_collinearity(self, log=log, threshold=threshold, ax=ax, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the table with two digits, of a long one its ends."""
        return [table(_shown(self.frame))]


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows to print, as texts; the collinearity with two significant digits, each on its own."""
    half = _SHOWN // 2
    rows = frame if len(frame) <= _SHOWN else pd.concat([frame.iloc[:half], frame.iloc[-half:]])
    shown = two_digits(rows.iloc[:, :-1])
    shown["collinearity"] = [_two_significant(g) for g in rows.iloc[:, -1]]
    if len(rows) < len(frame):
        dots = pd.DataFrame([["..."] * shown.shape[1]], columns=shown.columns, index=["..."])
        shown = pd.concat([shown.iloc[:half], dots, shown.iloc[half:]])
    return shown


def _two_significant(value: float) -> str:
    if not np.isfinite(value):
        return "Inf"
    return f"{value:.1f}" if value < 10 else f"{value:.0f}" if value < 1e5 else f"{value:.1e}"


@own_words
def collin(
    sensfun: Any,
    parset: Any = None,
    *,
    N: int | Sequence[int] | None = None,
    which: Any = None,
    maxcomb: float = 5000,
    progress: bool | Callable[[int, int], object] = False,
) -> Collin:
    """Return the collinearity of sets of parameters: how well the others compensate for a change of one.

    Parameters
    ----------
    sensfun : SensFun, DataFrame, or array of shape (n_row, n_par)
        Sensitivities. Columns of an array are called 1, 2, ...; a DataFrame may have the columns x and var in front.
    parset : names or positions from 0, optional
        One set.
    N : int or sequence of int, optional
        All sets of these sizes. Default: all sizes from 2 to the number of parameters.
    which : names or positions from 0, optional
        Use the rows of these variables alone.
    maxcomb : float
        Sizes with so many sets or more are left out, with one warning; if they were asked for by `N` it is an error.
        ``numpy.inf``: no limit.
    progress : bool or callable
        True: a bar. A callable gets (sets done, sets in all).

    Returns
    -------
    Collin

    Raises
    ------
    ParameterError
        An unknown or repeated parameter in `parset`, or several sets.
    ArgumentError
        An unknown variable; `N` beyond the number of parameters; too many sets; values that are not finite.

    Warns
    -----
    UserWarning
        Parameters without any influence, or none that stands out of the noise of the differences (``sensfun.noise``):
        every set with one of them has collinearity infinite. Sizes left out.

    See Also
    --------
    identifiability : the largest identifiable sets, and what cannot be told apart.

    Notes
    -----
    With columns of length 1, ``s_j = S_j / |S_j|``::

        gamma_K = 1 / sqrt(lambda_min(s_K' s_K))

    from 1 (orthogonal) to infinity (dependent). A change of one parameter can be undone by the others of K but for a
    fraction 1/gamma. Above 20 (5 to 20 in the literature) a set is held to be unidentifiable. Values above 1000 are
    taken from singular values of s_K and good up to about 1e12; columns dependent within rounding give infinity. Memory
    is bounded but for the result, a byte per parameter and 16 per set.

    Several parameters without influence are no error; eigenvalues that are only rounding are not reported. **Differs
    from FME** in these, and in the rows that `which` takes: see the page "From R to Python" (docs/from_r.md).

    References
    ----------
    Brun, R., Reichert, P. and Künsch, H. R. (2001), Water Resour. Res. 37, 1015-1030, eq. 5. FME: collin.

    Examples
    --------
    >>> S = pd.DataFrame({"a": [1, 2, 3, 4, 5], "b": [1, 1, 2, 2, 4], "c": [5, 3, 8, 1, 0]})
    >>> collin(S)
       a  b  c  N collinearity
    0  1  1  0  2          6.8
    1  1  0  1  2          1.5
    2  0  1  1  2          1.4
    3  1  1  1  3          6.8
    >>> round(collin(S, ["a", "c"]).value, 3)
    1.456
    """
    names, S = sensitivities_of(sensfun, which)
    matrix = Normalised(S)
    n_par = len(names)
    if parset is not None:
        if N is not None:
            raise ArgumentError("Give `parset` (one set) or `N` (all sets of a size), not both.")
        places = sorted(names.index(k) for k in chosen(parset, names, "parset", "parameter", is_set=True))
        one = np.array([places], dtype=np.intp)
        return Collin(table_of_sets(names, [membership(one, n_par)], [collinearities(matrix, one)]))
    sizes = _sizes(N, n_par, maxcomb)
    total = sum(comb(n_par, n) for n in sizes)
    members, gammas, done = [], [], 0
    with Progress(progress, total, "set") as report:
        for n in sizes:
            for block in subset_blocks(n_par, n):
                members.append(membership(block, n_par))
                gammas.append(collinearities(matrix, block))
                done += len(block)
                report(done)
    return Collin(table_of_sets(names, members, gammas))


def table_of_sets(names: Sequence[str], members: Sequence[Any], gammas: Sequence[Any]) -> pd.DataFrame:
    """Return a 0/1 column per parameter, N, and the collinearity of the sets, which are given in blocks."""
    sets = np.concatenate([np.zeros((0, len(names)), dtype=np.int8), *members])
    gamma = np.concatenate([np.zeros(0), *gammas])
    head = pd.DataFrame(sets, columns=list(names))
    tail = pd.DataFrame({"N": sets.sum(axis=1, dtype=np.int64), "collinearity": gamma})
    return pd.concat([head, tail], axis=1)


def _sizes(N: Any, n_par: int, maxcomb: float) -> list[int]:
    """Return the sizes of the sets; a warning names those left out because they are too many."""
    maxcomb = positive_number(maxcomb, "maxcomb", finite=False)
    if N is None:
        wanted = list(range(min(2, n_par), n_par + 1))
        skipped = [n for n in wanted if comb(n_par, n) >= maxcomb]
        if skipped:
            warn(
                f"collin: sets of {_ranges(skipped)} of {n_par} parameters are left out: there are maxcomb={maxcomb:g} "
                f"or more of a size (up to {max(comb(n_par, n) for n in skipped)}). A larger `maxcomb`, or `N`, brings "
                "them back."
            )
        return [n for n in wanted if n not in skipped]
    sizes = as_list(N, "N", of="sizes")
    for n in sizes:
        n = whole_number(n, "N", 1, n_par, ", the number of parameters")
        if comb(n_par, n) >= maxcomb:
            raise ArgumentError(
                f"`N={n}`: there are {comb(n_par, n)} sets of {n} of {n_par} parameters, and maxcomb={maxcomb:g}. "
                f"Pass a larger one, maxcomb={comb(n_par, n) + 1}, or fewer parameters."
            )
    return sorted(set(map(int, sizes)))


def _ranges(sizes: Sequence[int]) -> str:
    """Return numbers in words: "6 to 10", "3, 5".

    Examples
    --------
    >>> _ranges([6, 7, 8]), _ranges([3, 5])
    ('6 to 8', '3, 5')
    """
    if len(sizes) > 2 and sizes[-1] - sizes[0] == len(sizes) - 1:
        return f"{sizes[0]} to {sizes[-1]}"
    return ", ".join(map(str, sizes))


# --- reading of sensitivities, shared with `identifiability`


def sensitivities_of(sensfun: Any, which: Any) -> tuple[list[str], Matrix]:
    """Return names and matrix of sensitivities, the rows of the variables `which` alone.

    Columns that do not exceed their noise are set to zero; a warning names parameters without influence.
    """
    names, S, labels = _parts(sensfun)
    noise = sensfun.noise if isinstance(sensfun, SensFun) and sensfun.noise is not None else np.zeros(S.shape)
    if S.ndim != 2 or S.shape[1] == 0 or S.shape[0] == 0:
        raise ArgumentError(
            f"`sensfun` has shape {S.shape}; sensitivities are a table with one row per output and one column per "
            "parameter."
        )
    if which is not None:
        if labels is None:
            raise ArgumentError("`which` selects variables, but `sensfun` is a plain matrix without a column 'var'.")
        wanted = chosen(which, list(dict.fromkeys(labels)), "which", "variable", is_set=True)
        rows = np.isin(labels, wanted)
        S, noise = S[rows], noise[rows]
    bad = np.flatnonzero(~np.isfinite(S).all(axis=0))
    if bad.size:
        raise ArgumentError(f"`sensfun`: the column {names[bad[0]]!r} holds values that are not finite.")
    is_noise: BoolVector = np.all(np.abs(S) <= _OUT_OF_NOISE * noise, axis=0)
    _warn_of_zeros(names, S, noise, is_noise)
    return names, np.where(is_noise, 0.0, S)


def _parts(sensfun: Any) -> tuple[list[str], Matrix, NDArray[Any] | None]:
    """Return names, numbers, and the variable of every row where the columns x and var stand in front."""
    if isinstance(sensfun, SensFun):
        return list(sensfun.names), _matrix(sensfun.matrix), np.array(sensfun.labels, dtype=object)
    frame = sensfun
    if not isinstance(frame, pd.DataFrame):
        S = _matrix(frame)
        return [str(k + 1) for k in range(S.shape[1] if S.ndim == 2 else 0)], S, None
    n = 2 if list(map(str, frame.columns[:2])) == ["x", "var"] else 0
    labels = frame.iloc[:, 1].astype(str).to_numpy(dtype=object) if n else None
    return [str(c) for c in frame.columns[n:]], _matrix(frame.iloc[:, n:]), labels


def _matrix(table: Any) -> Matrix:
    try:
        return np.array(table, dtype=float)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"`sensfun` must be what sensFun returns, sensFun(cost), or a table of numbers; got {type(table).__name__}."
        ) from None


def _warn_of_zeros(names: Sequence[str], S: Matrix, noise: Matrix, is_noise: BoolVector) -> None:
    """Warn of parameters without any influence, by name."""
    zero = np.all(S == 0, axis=0)
    for these, what in (
        (zero, "are all zero"),
        (is_noise & ~zero, "do not exceed their own noise and count as zero"),
    ):
        if not these.any():
            continue
        one = these.sum() == 1
        least = ""
        if these is not zero:
            j = int(np.flatnonzero(these)[0])
            least = f" (of {names[j]!r} at most {np.abs(S[:, j]).max():.1e}, noise {noise[:, j].max():.1e})"
        warn(
            f"The sensitivities to {listed(n for n, t in zip(names, these.tolist(), strict=True) if t)} {what}{least}: "
            f"{'it' if one else 'they'} cannot be identified, alone or with others."
        )
