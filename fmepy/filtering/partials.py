# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Exact derivatives of the entries that a model's functions write, to states and parameters, in machine code.

A filter whose derivatives go along (`filtering.tangents`) needs those of f, F and A, and of z, H and sd, along (x., p.)
of each parameter of a likelihood. They are sums over few partial derivatives that are not zero, which are computed once
for all of them::

    e. = sum_v (de/dv) v.        v a state or a parameter, e an entry of these arrays

Of f and z those to parameters alone stand here: the others are F and H.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmepy.filtering.arrays import add_multiple, clear
from fmepy.types import IntMatrix, Vector

OF_VALUE, OF_SLOPE, OF_SPREAD = range(3)
"""The array of an entry: f or z; F or H; A or sd."""


class Partials(NamedTuple):
    """The partial derivatives of a function of the model that are not zero everywhere.

    Attributes
    ----------
    function : int
        Address of what writes their values, its arguments those of the model's function, the last one `values`; 0:
        there is none, and differences take their place.
    places : ndarray of int, shape (n_partial, 5)
        Position among the values; what (`OF_VALUE` ...), row and column it is the derivative of; to what, states and
        then parameters.
    values : ndarray
        Working array.
    """

    function: int
    places: IntMatrix
    values: Vector


NO_PARTIALS = Partials(0, np.empty((0, 5), dtype=np.intp), np.empty(0))


def partial(d, k):
    """Return the value of the k-th partial derivative, and what stands beside it in `places`."""
    places = d.places
    return d.values[places[k, 0]], places[k, 1], places[k, 2], places[k, 3], places[k, 4]


def ends_entry(d, k):
    """Tell whether the k-th partial derivative is the last one of its entry."""
    a = d.places
    return k + 1 == a.shape[0] or a[k, 1] != a[k + 1, 1] or a[k, 2] != a[k + 1, 2] or a[k, 3] != a[k + 1, 3]


def add_along(to, f, variable, dx, dp):
    """Add f times the derivatives of a variable, a state or a parameter, to a vector of all directions."""
    if variable < dx.shape[0]:
        add_multiple(to, f, dx[variable])
    else:
        add_multiple(to, f, dp[variable - dx.shape[0]])


def multiply_directions(F, dx, out):
    """Set out to F x., of all parameters."""
    clear(out)
    for i in range(F.shape[0]):
        for j in range(F.shape[1]):
            if F[i, j] != 0.0:
                add_multiple(out[i], F[i, j], dx[j])
