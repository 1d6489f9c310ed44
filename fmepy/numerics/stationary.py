"""Stationary gains of a filter: the Riccati equations of a linear system with noise.

Sampled, x[n] = Phi x[n-1] + w, y[n] = H x[n] + v, cov w = S, cov v = R; P the variance before a sample::

    P = Phi (P - P H' (H P H' + R)^-1 H P) Phi' + S           K = P H' (H P H' + R)^-1        x+ = x + K e

Continuous, dx/dt = F x + w, y = H x + v, with densities Q and R::

    0 = F P + P F' - P H' R^-1 H P + Q                        K = P H' R^-1                   dx/dt = F x + K e

References
----------
Anderson, B. D. O. and Moore, J. B. (1979). Optimal Filtering. Prentice-Hall, sections 4.4 and 6.2. Van Loan (1978),
IEEE Trans. Autom. Control 23:395.
"""

from __future__ import annotations

import numpy as np

from fmepy.types import Matrix


def sampled(F: Matrix, Q: Matrix, h: float, order: int | None = None, n_steps: int = 1) -> tuple[Matrix, Matrix]:
    """Return Phi and S of dx/dt = F x + w, the density of w being Q, over an interval h.

    Parameters
    ----------
    order : int, optional
        That of a scheme of fixed steps (1: euler, 4: rk4), whose steps are then `n_steps`; None: exact.
    """
    from scipy.linalg import expm

    n = len(F)
    if order is None:
        block = expm(h * np.block([[-F, Q], [np.zeros((n, n)), F.T]]))
        Phi = block[n:, n:].T
        S = Phi @ block[:n, n:]
        return Phi, 0.5 * (S + S.T)
    step = h / n_steps
    one, S_one = np.eye(n), np.zeros((n, n))
    term, S_term = np.eye(n), step * Q
    for k in range(1, order + 1):
        S_one = S_one + S_term
        term = term @ F * (step / k)
        one = one + term
        S_term = (F @ S_term + S_term @ F.T) * (step / (k + 1))
    return repeated(one, S_one, n_steps)


def repeated(Phi: Matrix, S: Matrix, n: int) -> tuple[Matrix, Matrix]:
    """Return those of `n` steps."""
    one, total, noise = Phi, np.eye(len(Phi)), np.zeros_like(S)
    for _ in range(n):
        total, noise = one @ total, one @ noise @ one.T + S
    return total, noise


def discrete_gain(Phi: Matrix, S: Matrix, H: Matrix, R: Matrix) -> tuple[Matrix, Matrix]:
    """Return K, shape (n_state, n_variable), and P, the variance before a sample.

    Raises
    ------
    LinAlgError
        There is no stationary gain under which errors die away.
    """
    from scipy.linalg import solve_discrete_are

    P = solve_discrete_are(Phi.T, H.T, S, R)
    K = np.linalg.solve(H @ P @ H.T + R, H @ P).T
    if not np.abs(np.linalg.eigvals(Phi @ (np.eye(len(Phi)) - K @ H))).max() < 1:
        raise np.linalg.LinAlgError("errors do not die away")
    return K, P


def continuous_gain(F: Matrix, Q: Matrix, H: Matrix, R: Matrix) -> tuple[Matrix, Matrix]:
    """Return K and P of the continuous equation; raises as `discrete_gain`."""
    from scipy.linalg import solve_continuous_are

    P = solve_continuous_are(F.T, H.T, Q, R)
    K = np.linalg.solve(R, H @ P).T
    if not np.linalg.eigvals(F - K @ H).real.max() < 0:
        raise np.linalg.LinAlgError("errors do not die away")
    return K, P
