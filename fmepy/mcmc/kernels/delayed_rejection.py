r"""The acceptance probability of delayed rejection, of any order.

From x the tries y1, y2, ..., yn are made in turn, each after the one before it was rejected; the k-th is drawn from a
density :math:`q_k(x, y_1, \dots, y_{k-1};\; y_k)` that may depend on all that went before. With
:math:`y_0 = x` the n-th is accepted with probability (Mira 2001)

.. math::

    \alpha_n(x, y_1, \dots, y_n) = \min\Bigl(1,\; \frac{\pi(y_n)}{\pi(x)}
        \prod_{k=1}^{n} \frac{q_k(y_n, y_{n-1}, \dots; y_{n-k})}{q_k(x, y_1, \dots; y_k)}
        \prod_{k=1}^{n-1} \frac{1 - \alpha_k(y_n, y_{n-1}, \dots, y_{n-k})}{1 - \alpha_k(x, y_1, \dots, y_k)} \Bigr)

which makes the flow along every path (x, y1, ..., yn) equal to that along the same path backwards: detailed balance.
A try of zero density (outside the bounds, or a run that failed) takes part as what it is: nothing ends there, so it
has alpha = 0 and the factor 1 - 0.

References
----------
Mira, A. (2001). On Metropolis-Hastings algorithms with delayed rejection. Metron 59, 231-241.
Haario, H., Laine, M., Mira, A. and Saksman, E. (2006). DRAM: efficient adaptive MCMC. Stat. Comput. 16, 339-354.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, inf, isnan

Path = tuple[int, ...]
"""Positions in the list of points: (0,) is the current point, (0, 1) its first try, and so on."""


def acceptance(
    log_pi: Sequence[float],
    log_q: Callable[[Path], float],
    path: Path | None = None,
    known: dict[Path, float] | None = None,
) -> float:
    """Return alpha of the last point of `path`, all points between having been tried and rejected.

    Parameters
    ----------
    log_pi : sequence of float
        Log density of every point, up to a constant; -inf where it is zero. The first is the current point, then the
        tries in order.
    log_q : callable
        ``log_q(path)``: log density of proposing the last point of `path`, given those before it in that order, up to a
        constant that may depend on the length of the path only.
    path : tuple of int, optional
        The points in the order in which they are visited. The default: all of them, forwards.
    known : dict, optional
        Probabilities by path, a cache that is filled here. One dict serves all tries of one move.

    Returns
    -------
    float
        Between 0 and 1.

    Notes
    -----
    The recursion visits paths of neighbours only, of which there are n (n + 1) for n tries, so that with `known` the
    work grows with n squared, not as 3^n.

    Differs from FME: it is given the density of a first try outside the bounds as it is, zero. FME uses that of
    whatever was evaluated before, which biases the chain near bounds.

    Examples
    --------
    A second try, symmetric proposals of equal width; the first one was half as probable as the current point:

    >>> from math import log
    >>> position = [0.0, 2.0, -0.5]
    >>> def log_q(path):
    ...     return -0.5 * (position[path[-1]] - position[path[0]]) ** 2
    >>> round(acceptance([log(1.0), log(0.5), log(0.8)], log_q), 4)
    0.1948
    """
    path = tuple(range(len(log_pi))) if path is None else path
    known = {} if known is None else known
    if path not in known:
        known[path] = _evaluate(log_pi, log_q, path, known)
    return known[path]


def _evaluate(log_pi: Sequence[float], log_q: Callable[[Path], float], path: Path, known: dict[Path, float]) -> float:
    end = log_pi[path[-1]]
    if end == -inf or isnan(end):
        return 0.0
    if log_pi[path[0]] == -inf:
        return 1.0  # from a point of no density anything is better; it is reached in reversed paths only
    back = path[::-1]
    log_ratio = end - log_pi[path[0]] + log_q(back) - log_q(path)
    ratio = 1.0
    for k in range(2, len(path)):
        backwards = 1.0 - acceptance(log_pi, log_q, back[:k], known)
        if backwards <= 0.0:
            return 0.0  # the reversed path would have ended before
        forwards = 1.0 - acceptance(log_pi, log_q, path[:k], known)
        if forwards <= 0.0:
            return 0.0  # no such path: the k-th try would have been accepted
        log_ratio += log_q(back[:k]) - log_q(path[:k])
        ratio *= backwards / forwards
    if isnan(log_ratio) or log_ratio == -inf:
        return 0.0
    return min(1.0, exp(min(log_ratio, 700.0)) * ratio)


def second_acceptance(log_pi: Sequence[float], log_q_ratio: float, first: float) -> float:
    """Return the acceptance probability of a second try in one formula, for symmetric proposals.

    Parameters
    ----------
    log_pi : sequence of float
        Of the current point, the first try, and the second one, whose density is not zero.
    log_q_ratio : float
        log q_1(y_2; y_1) - log q_1(x; y_1).
    first : float
        The probability with which the first try was to be accepted, less than 1.
    """
    backwards = 1.0 - exp(min(0.0, log_pi[1] - log_pi[2]))
    if backwards <= 0.0 or first >= 1.0:
        return 0.0
    return min(1.0, exp(min(log_pi[2] - log_pi[0] + log_q_ratio, 700.0)) * backwards / (1.0 - first))


def n_terms(order: int) -> int:
    """Return how many probabilities the plain recursion evaluates for a try of this order, itself included: 3^(n-1).

    Examples
    --------
    >>> [n_terms(n) for n in (1, 2, 3)]
    [1, 3, 9]
    """
    return int(3 ** (order - 1))
