"""A smooth line through scattered points, for the eye.

At a point t a straight line is fitted to the nearest `span` of the points, weighted with the tricube of their distance
(Cleveland's lowess without its robustness iterations)::

    w_i = (1 - (|x_i - t| / d)^3)^3,    d = distance of the farthest point that is used,    line(t) = a + b t

References
----------
Cleveland, W. S. (1979). Robust locally weighted regression and smoothing scatterplots. J. Am. Stat. Assoc. 74, 829-836.
"""

from __future__ import annotations

import numpy as np

from fmepy.types import Vector


def local_lines(x: Vector, y: Vector, at: Vector, span: float = 2 / 3) -> Vector:
    """Return the smooth line through (x, y) at the points `at`.

    Parameters
    ----------
    x, y : ndarray, shape (n,)
    at : ndarray, shape (m,)
    span : float
        Share of the points that each local line is fitted to; at least three are.

    Examples
    --------
    >>> x = np.linspace(0, 1, 20)
    >>> local_lines(x, 3 * x + 1, np.array([0.0, 0.5])).round(6).tolist()
    [1.0, 2.5]
    """
    n = min(len(x), max(3, int(np.ceil(span * len(x)))))
    out = np.empty(len(at))
    for i, t in enumerate(at):
        distance = np.abs(x - t)
        reach = np.partition(distance, n - 1)[n - 1]
        # a little beyond the farthest point, so that ties at the edge keep some weight
        w = np.clip(1 - (distance / (1.001 * reach)) ** 3, 0, None) ** 3 if reach > 0 else 1.0 * (distance == 0)
        mean_x, mean_y = np.average(x, weights=w), np.average(y, weights=w)
        spread = np.sum(w * (x - mean_x) ** 2)
        slope = np.sum(w * (x - mean_x) * (y - mean_y)) / spread if spread > 0 else 0.0
        out[i] = mean_y + slope * (t - mean_x)
    return out
