r"""identifiability: which parameters sensitivities determine together, without trying all subsets.

With columns of length 1, s_j = S_j / |S_j|, and s = U diag(sigma) V'::

    collinearity of all parameters   1 / sigma_min
    undetermined combination k       right singular vector v_k with 1 / sigma_k above the threshold:
                                     changing parameter j by v_kj parscale_j / |S_j| moves the outputs by sigma_k only
    variance inflation               vif_j = inverse(s's)_jj = sum_k v_kj^2 / sigma_k^2
    expected standard error          sd sqrt(inverse(S'S)_jj) parscale_j = sd sqrt(vif_j) / |S_j| parscale_j

S'S is the Fisher information of the scaled parameters if the rows of S are in units of the errors of the data, as
``sensFun(cost, weighted=True)`` gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number
from fmepy.errors import ArgumentError
from fmepy.results.printing import two_digits
from fmepy.results.tables import Framed, Part, table
from fmepy.sensitivity.collin import sensitivities_of, table_of_sets
from fmepy.sensitivity.collinearity import Normalised, collinearities, inflation, membership, subset_blocks
from fmepy.sensitivity.sensfun import SensFun
from fmepy.types import AxesArray, Matrix, Vector
from fmepy.vocabulary import own_words

_NAMED = 0.1  # a parameter belongs to a combination if its component exceeds this (components have length 1)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Identifiability(Framed):
    """Result of `identifiability`: which parameters are determined together, and which combinations are not.

    Attributes
    ----------
    frame : DataFrame
        One row per parameter: value, scale, L2 (importance), vif (variance inflation: 1 alone, infinite if others
        compensate it wholly), std_error (expected; in the parameter's unit), relative (std_error / abs(value)).
    collinearity : float
        Of all parameters together.
    threshold : float
        Sets below it count as identifiable.
    sets : DataFrame
        The largest identifiable sets, the most important first: a 0/1 column per parameter, N, collinearity,
        importance (rho, see Notes).
    is_exhaustive : bool
        False if there are so many sets of this size, or of a larger one that may do, that not all were tried: then
        `sets` may hold only what leaving out the most inflated parameter, one after the other, ended with.
    combinations : DataFrame
        One row per undetermined combination, the worst first: its collinearity, and the component of each parameter
        (a unit vector for columns of length 1).
    weighted : bool
        True if rows were in units of the errors of the data, so that standard errors are in absolute terms.
    """

    frame: pd.DataFrame
    collinearity: float
    threshold: float
    sets: pd.DataFrame
    is_exhaustive: bool
    combinations: pd.DataFrame
    weighted: bool

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(map(str, self.frame.index))

    @property
    def largest(self) -> list[tuple[str, ...]]:
        """The parameters of the largest identifiable sets, the most important set first."""
        names = np.array(self.parameters, dtype=object)
        return [tuple(names[row]) for row in self.sets.iloc[:, : len(names)].to_numpy(dtype=bool)]

    def told(self) -> list[str]:
        """Return the undetermined combinations in words, such as "+0.71 bet -0.70 n"."""
        return [_in_words(row.index[1:], row.to_numpy()[1:]) for _, row in self.combinations.iterrows()]

    def plot(self, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw variance inflation per parameter, and the undetermined combinations; return the Axes."""
        from fmepy.plotting.sensitivity import plot_identifiability

        return plot_identifiability(self, axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the table, whether all parameters together are identifiable, and the undetermined combinations."""
        verdict = "identifiable" if self.collinearity < self.threshold else "NOT identifiable"
        together = f"All {len(self.frame)} together: collinearity {_number(self.collinearity)}, {verdict}"
        parts: list[str | Part] = [table(two_digits(self.frame)), "", f"{together} (threshold {self.threshold:g})."]
        if self.collinearity >= self.threshold:
            for gamma, text in zip(self.combinations.iloc[:, 0], self.told(), strict=True):
                parts.append(f"Undetermined: {text} (collinearity {_number(gamma)})")
            size = len(self.largest[0]) if self.largest else 0
            how = "" if self.is_exhaustive else " found (not all were tried)"
            parts.append(f"Largest identifiable sets{how}: {len(self.sets)} of {size} parameters")
            parts += [f"  {', '.join(s)}" for s in self.largest[:5]]
            if len(self.sets) > 5:
                parts.append("  ... all are in .sets")
        if not self.weighted:
            parts.append(
                "Standard errors are for errors of the size of varscale; weighted=True in sensFun uses the data's."
            )
        return parts


def _number(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "infinite"


def _in_words(names: Any, components: Any) -> str:
    size = np.round(np.abs(np.asarray(components, dtype=float)), 8)  # so that rounding does not change the order
    order = [i for i in np.argsort(-size, kind="stable") if size[i] >= _NAMED]
    return " ".join(f"{components[i]:+.2f} {names[i]}" for i in order)


@own_words
def identifiability(
    sens: Any, *, threshold: float = 20.0, which: Any = None, sd: float = 1.0, maxcomb: float = 100_000
) -> Identifiability:
    """Return which parameters can be identified together, which combination cannot, and the errors to expect.

    Parameters
    ----------
    sens : SensFun, DataFrame, or array of shape (n_row, n_par)
        Sensitivities, best ``sensFun(cost, weighted=True)``.
    threshold : float
        Sets of parameters with a collinearity below it count as identifiable; 5 to 20 in the literature.
    which : names or positions from 0, optional
        Use the rows of these variables alone.
    sd : float
        Standard deviation of the errors, in units of the rows; 1 for weighted rows with the right errors.
    maxcomb : float
        Sizes with so many sets or more are not tried one by one.

    Returns
    -------
    Identifiability

    Raises
    ------
    ArgumentError
        `threshold` not above 1, `sd` not positive, an unknown variable, values that are not finite.

    Warns
    -----
    UserWarning
        Parameters without any influence, or none that stands out of the noise of the differences, by name.

    See Also
    --------
    collin : collinearity of every set.
    identifiable_fit : select, fit, select until the set is stable.

    Notes
    -----
    Sets of one size are ranked by ``rho_K = det(S_K'S_K)^(1/(2 n))``, which is large where parameters are important and
    not collinear (Brun et al. 2001, eq. 6). A set with a column of zeros is never identifiable. A combination is
    reported if its collinearity reaches the threshold.

    FME has no such function: there the user reads it from `collin` and `summary`.

    References
    ----------
    Brun, R., Reichert, P. and Künsch, H. R. (2001), Water Resour. Res. 37, 1015-1030. Belsley, D. A. (1991),
    Conditioning Diagnostics (variance inflation, singular vectors).

    Examples
    --------
    >>> t = np.arange(1.0, 6.0)
    >>> S = pd.DataFrame({"a": np.exp(-t), "b": t, "c": 2 * t})        # b and c cannot be told apart
    >>> found = identifiability(S)
    >>> found.told()
    ['+0.71 b -0.71 c']
    >>> found.largest
    [('a', 'c'), ('a', 'b')]
    """
    if not positive_number(threshold, "threshold", finite=False) > 1:
        raise ArgumentError(f"`threshold={threshold!r}` must be above 1, the collinearity of orthogonal parameters.")
    sd = positive_number(sd, "sd")
    names, S = sensitivities_of(sens, which)
    matrix = Normalised(S)
    sigma, V, vif = inflation(matrix)
    V = V * _signs(V)
    with np.errstate(divide="ignore"):
        gamma = 1 / sigma
    value, scale = _values(sens, len(names))
    undetermined = np.flatnonzero(gamma >= threshold)[::-1]
    sets, is_exhaustive = _largest_sets(S, matrix, float(threshold), maxcomb)
    length = np.linalg.norm(S, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(length > 0, float(sd) * np.sqrt(vif) / length, np.inf) * np.abs(scale)
        relative = error / np.abs(value)
    columns = {
        "value": value, "scale": scale, "L2": length / np.sqrt(len(S)), "vif": np.where(matrix.is_zero, np.inf, vif),
        "std_error": error, "relative": relative,
    }  # fmt: skip
    combinations = pd.concat(
        [pd.DataFrame({"collinearity": gamma[undetermined]}), pd.DataFrame(V[undetermined], columns=names)], axis=1
    )
    return Identifiability(
        pd.DataFrame(columns, index=names), max(float(gamma.max()), 1.0), float(threshold), _set_table(names, sets),
        is_exhaustive, combinations, isinstance(sens, SensFun) and sens.weighted,
    )  # fmt: skip


def _values(sens: Any, n_par: int) -> tuple[Vector, Vector]:
    """Return values and scales of the parameters; of a plain matrix NaN and 1."""
    if isinstance(sens, SensFun):
        return sens.pars.to_numpy(dtype=float), sens.parscale.to_numpy(dtype=float)
    return np.full(n_par, np.nan), np.ones(n_par)


def _signs(V: Matrix) -> Vector:
    """Return the signs that make the largest component of each row positive, shape (n_par, 1)."""
    largest = np.argmax(np.round(np.abs(V), 8), axis=1)
    return np.where(V[np.arange(len(V)), largest] < 0, -1.0, 1.0)[:, None]


_Sets = list[tuple[tuple[int, ...], float, float]]  # positions, collinearity, rho


def _largest_sets(S: Matrix, matrix: Normalised, threshold: float, maxcomb: float) -> tuple[_Sets, bool]:
    """Return the largest sets below the threshold, the most important first, and whether all sets were tried."""
    active, maxcomb = np.flatnonzero(~matrix.is_zero), positive_number(maxcomb, "maxcomb", " of sets", finite=False)
    greedy = _greedy_set(matrix, list(map(int, active)), threshold)
    is_exhaustive = True
    # singular values interlace: a set of n columns has none of its n above sigma_n of all columns
    sigma = np.linalg.svd(matrix.R, compute_uv=False)
    for n in range(min(len(active), int(np.sum(sigma * threshold > 1))), 0, -1):
        if comb(len(active), n) >= maxcomb:
            if n == len(greedy):  # larger sets could not be tried, and this one is identifiable
                break
            is_exhaustive = False
            continue
        sets: list[tuple[tuple[int, ...], float]] = []
        for block in subset_blocks(len(active), n):
            gamma = collinearities(matrix, active[block])
            sets += [(tuple(map(int, active[block[i]])), float(gamma[i])) for i in np.flatnonzero(gamma < threshold)]
        if sets:
            return _ranked(S, sets), is_exhaustive
        is_exhaustive = True  # if no set of this size is identifiable, no larger one is
    if not greedy:
        return [], is_exhaustive
    return _ranked(S, [(tuple(greedy), float(collinearities(matrix, np.array([greedy]))[0]))]), False


def _greedy_set(matrix: Normalised, members: list[int], threshold: float) -> list[int]:
    """Return the parameters that remain when the most inflated ones are left out until the rest is identifiable."""
    while members and collinearities(matrix, np.array([members]))[0] >= threshold:
        _, _, vif = inflation(Normalised(matrix.s[:, members]))
        del members[int(np.argmax(vif))]
    return members


def _ranked(S: Matrix, sets: Sequence[tuple[tuple[int, ...], float]]) -> _Sets:
    out = [(members, gamma, _rho(S[:, list(members)])) for members, gamma in sets]
    # six digits, then the order of the parameters, so that rounding does not order equal sets
    return sorted(out, key=lambda item: (-float(f"{item[2]:.5e}"), item[0]))


def _rho(S: Matrix) -> float:
    """Return det(S'S)^(1/(2n)), the geometric mean of the singular values."""
    values = np.linalg.svd(S, compute_uv=False)
    return float(np.exp(np.mean(np.log(values)))) if values[-1] > 0 else 0.0


def _set_table(names: Sequence[str], sets: _Sets) -> pd.DataFrame:
    members = [membership(np.array([positions]), len(names)) for positions, _, _ in sets]
    table = table_of_sets(names, members, [[gamma] for _, gamma, _ in sets])
    return pd.concat([table, pd.Series([rho for _, _, rho in sets], name="importance", dtype=float)], axis=1)
