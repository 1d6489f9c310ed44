"""Which data a likelihood is of, in the units in which they were given.

Likelihoods can be compared if they are of the same data: the same variables, times and values, whatever the order of
the rows and the scale on which model and data were compared. With y the data and g(y) what was compared::

    log density of y = log density of g(y) + log_jacobian          log_jacobian = sum_i log |dg/dy_i|
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from fmepy.costs.observation_scale import observation_scale
from fmepy.errors import listed
from fmepy.journal.encoding import Stored
from fmepy.types import IntVector, Vector

_SAME_VALUE = 1e-9  # relative: what a logarithm and back, or a text file, may change
_SAID = {0: "a reading", -1: "a limit above the reading", 1: "a limit below the reading"}
_SAME_TIME = 1e-6  # of the range: filters round times to steps


@dataclass(frozen=True, slots=True, eq=False)
class ObservedData(Stored):
    """The data that count in a likelihood.

    Attributes
    ----------
    names : tuple of str, length n_obs
        Variable of every datum.
    x, values : ndarray, shape (n_obs,)
        Where it was read, and what, as given.
    errors : ndarray, shape (n_obs,)
        Its standard error, on the scale of comparison; NaN where the table gives none, or none is used.
    kinds : tuple of (str or None), length n_obs
        The transform g: "log", "log10", "sqrt" or None.
    log_jacobian : float
        See the module's text; 0 without transforms.
    marks : ndarray of int, shape (n_obs,), or None
        -1, 1 where the value is a limit below, above which the reading lies; None: there are none.
    """

    names: tuple[str, ...]
    x: Vector
    values: Vector
    errors: Vector
    kinds: tuple[str | None, ...]
    log_jacobian: float
    marks: IntVector | None = None

    def __len__(self) -> int:
        return len(self.names)

    def _order(self) -> IntVector:
        """Return the rows by variable, then by x, then by value; what differs by rounding alone is one x."""
        step = _SAME_TIME * max(_extent(self.x), 1e-300)
        at = np.rint((self.x - np.min(self.x, initial=np.inf)) / step)
        return np.lexsort((self.all_marks, self.values, at, np.array(self.names)))

    @property
    def log_slopes(self) -> Vector:
        """Log |dg/dy| of every datum, shape (n_obs,); infinite for the square root of zero."""
        with np.errstate(divide="ignore"):
            return np.log(observation_scale(self.kinds).slope(self.values))

    @property
    def all_marks(self) -> IntVector:
        """The marks, zeros where there are none."""
        return np.zeros(len(self), dtype=np.intp) if self.marks is None else self.marks


def joined(parts: Sequence[ObservedData | None]) -> ObservedData | None:
    """Return the data of several costs as one, in order; None where one of them is not known."""
    known = [p for p in parts if p is not None]
    if len(known) < len(parts) or not known:
        return None
    return ObservedData(
        tuple(chain.from_iterable(p.names for p in known)),
        np.concatenate([p.x for p in known]),
        np.concatenate([p.values for p in known]),
        np.concatenate([p.errors for p in known]),
        tuple(chain.from_iterable(p.kinds for p in known)),
        float(sum(p.log_jacobian for p in known)),
        None if all(p.marks is None for p in known) else np.concatenate([p.all_marks for p in known]),
    )


def difference(a: ObservedData, b: ObservedData, called: tuple[str, str]) -> str:
    """Return in what two data differ, in a sentence; "" if they are the same.

    Parameters
    ----------
    a, b : ObservedData
    called : pair of str
        What they are called in the sentence.

    Examples
    --------
    >>> def one(value):
    ...     x, none = np.array([3.0]), np.array([np.nan])
    ...     return ObservedData(("y",), x, np.array([value]), none, (None,), 0.0)
    >>> difference(one(1.0), one(1.0), ("a", "b"))
    ''
    >>> difference(one(1.0), one(2.0), ("a", "b"))
    "the value of 'y' at 3 is 1 in 'a', and 2 in 'b'"
    """
    in_a, in_b = map(repr, called)
    count_a, count_b = Counter(a.names), Counter(b.names)
    for own, other, who, whom in ((count_a, count_b, in_a, in_b), (count_b, count_a, in_b, in_a)):
        if extra := [n for n in own if n not in other]:
            return f"{who} is of {listed(extra)} too, and {whom} is not"
    for name, n in count_a.items():
        if n != count_b[name]:
            return f"{in_a} has {n} observations of {name!r}, and {in_b} {count_b[name]}"
    i, j = a._order(), b._order()
    near = _SAME_TIME * max(_extent(a.x), 1e-9 * float(np.abs(a.x[np.isfinite(a.x)]).max(initial=0.0)))
    for what, one, two, apart in (
        ("x", a.x[i], b.x[j], ~np.isclose(a.x[i], b.x[j], rtol=0, atol=near)),  # infinite ones are equal
        ("value", a.values[i], b.values[j], ~np.isclose(a.values[i], b.values[j], rtol=_SAME_VALUE, atol=0)),
    ):
        for k in np.flatnonzero(apart)[:1]:
            of = (
                f"the value of {a.names[i[k]]!r} at {a.x[i[k]]:.10g}"
                if what == "value"
                else f"an x of {a.names[i[k]]!r}"
            )
            return f"{of} is {one[k]:.10g} in {in_a}, and {two[k]:.10g} in {in_b}"
    for k in np.flatnonzero(a.all_marks[i] != b.all_marks[j])[:1]:
        said = [_SAID[int(m)] for m in (a.all_marks[i[k]], b.all_marks[j[k]])]
        return f"the value of {a.names[i[k]]!r} at {a.x[i[k]]:.10g} is {said[0]} in {in_a}, and {said[1]} in {in_b}"
    return _difference_of_errors(a, b, i, j, (in_a, in_b))


def _difference_of_errors(a: ObservedData, b: ObservedData, i: IntVector, j: IntVector, called: tuple[str, str]) -> str:
    """Return in what the errors differ; errors on two scales cannot be compared with each other."""
    one, two = a.errors[i], b.errors[j]
    for k in np.flatnonzero(np.isnan(one) != np.isnan(two))[:1]:
        uses, lacks = called if np.isnan(two[k]) else called[::-1]
        return f"{uses} uses the errors given with {a.names[i[k]]!r}, and {lacks} does not"
    same_scale = np.array([a.kinds[m] == b.kinds[n] for m, n in zip(i, j, strict=True)])
    apart = ~np.isclose(one, two, rtol=_SAME_VALUE, atol=0, equal_nan=True) & same_scale
    for k in np.flatnonzero(apart)[:1]:
        where = f"the error of {a.names[i[k]]!r} at {a.x[i[k]]:.10g}"
        return f"{where} is {one[k]:.10g} in {called[0]}, and {two[k]:.10g} in {called[1]}"
    return ""


def _extent(x: Vector) -> float:
    x = x[np.isfinite(x)]
    return float(np.ptp(x)) if x.size else 0.0
