"""Branches of steady states over a parameter, through their folds.

A branch is the curve of (y, p) with f(y; p) = 0. It is followed by its length (Keller 1977): along the tangent, then
back to the curve by Newton's method with the equation that the step has its length, so that nothing ends where the
branch turns round in p::

    [ J   f_p ] [dy]     [ -f                 ]
    [ t_y t_p ] [dp]  =  [ ds - t . (u - u_0) ]

In a fold t_p is zero. Between two points of the branch where it changes sign the fold is where it vanishes, a root in
the length of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy  # its rooms are loaded where they are asked for

from fmepy.checks import as_numbers, positive_number
from fmepy.errors import ArgumentError, SimulationError, did_you_mean
from fmepy.journal.saving import Saved
from fmepy.models.on_grid import in_cells
from fmepy.models.steady import SteadyModel
from fmepy.numerics.rightmost import rightmost
from fmepy.results.tables import Part, as_html, bullets, heading, long_table
from fmepy.types import Vector
from fmepy.vocabulary import own_words

_FIRST, _LEAST = 0.01, 1e-8  # length of a step, in sizes of the states and of the range
_MOST_POINTS = 2_000
_NEWTON, _CLOSE = 12, 1e-10
_DIFFERENCE = 1e-7
_NEUTRAL = 1e-9  # of the largest entry of a Jacobian: eigenvalues below are zero
_NEXT = 1e-9  # of the range: so near to its end a branch is there, which may never come to it
_ENDLESS = 1e6  # sizes of the first states: beyond, a branch that has left the parameter where it is runs to infinity


@dataclass(frozen=True, eq=False, repr=False)
class Branch(Saved):
    """A branch of steady states; made by `continuation`.

    Attributes
    ----------
    frame : DataFrame
        A row a point, along the branch: the parameter, the states (of a grid the cells, ``u[1]``), ``stable`` (whether
        small disturbances die away), ``eigenvalue`` (the real part of the rightmost eigenvalue).
    folds : DataFrame
        The points at which it turns round: the parameter and the states.
    parameter : str
    message : str
        Why it ends, at both ends.
    """

    frame: pd.DataFrame
    folds: pd.DataFrame
    parameter: str
    message: str

    def plot(self, which: Any = None, *, axes: Any = None, **words: Any) -> Any:
        """Draw states over the parameter, what is unstable dashed, folds as marks; return the Axes."""
        from fmepy.plotting.continuation import plot_branch

        return plot_branch(self, which, axes=axes, **words)

    def told(self) -> list[str]:
        """Return what was found in sentences."""
        at = [f"{v:.8g}" for v in self.folds[self.parameter]]
        folds = f"folds at {self.parameter} = {', '.join(at)}" if at else "no fold"
        n = int(self.frame["stable"].eq(True).sum())
        return [f"{len(self.frame)} points, {n} of them stable; {folds}.", self.message]

    def __repr__(self) -> str:
        return "\n".join([f"Branch of steady states over {self.parameter}", *self.told()])

    def _repr_html_(self) -> str:
        parts: list[Part] = [heading(f"Branch of steady states over {self.parameter}"), *bullets(self.told())]
        return as_html([*parts, long_table(self.frame)])


@own_words
def continuation(
    model: SteadyModel, parameter: str, range_: Any, *, start: Any = None, max_step: float = 0.05
) -> Branch:
    """Follow the steady states of a model over a parameter, through folds, and say which are stable.

    Parameters
    ----------
    model : SteadyModel
        Its steady state at its own parameters is where the branch is entered, in both directions.
    parameter : str
    range_ : (float, float)
        Where to follow it; the model's own value lies within.
    start : mapping, sequence or SteadyState, optional
        A guess of another steady state at the model's own parameters, of another branch.
    max_step : float
        The longest step along the branch, in sizes of the states and of the range.

    Returns
    -------
    Branch

    Raises
    ------
    ArgumentError
        Not a SteadyModel, an unknown parameter, an empty range, one that the model's value is not in.
    NoSteadyStateError
        There is no steady state to begin with.

    Notes
    -----
    Pseudo-arclength continuation (Keller 1977) with exact Jacobians where the model has equations. A fold is where the
    branch turns round in the parameter, found to about 1e-10 of its value; where a pair of complex eigenvalues crosses
    the axis (Hopf) the stability changes, and that is no fold. A branch that crosses itself, or another one, is
    followed straight on; of a model with ``positive=True`` it ends where a state falls below zero. It ends, too, where
    states run to infinity at a value of the parameter.

    References
    ----------
    Keller, H. B. (1977), Numerical solution of bifurcation and nonlinear eigenvalue problems, in: Applications of
    Bifurcation Theory, Academic Press. Seydel, R. (2010), Practical Bifurcation and Stability Analysis.

    Examples
    --------
    >>> import fmepy as fme
    >>> def budworm(t, x, *, r=0.3, q=10.0):
    ...     return r * x * (1 - x / q) - x**2 / (1 + x**2)
    >>> model = fme.SteadyModel(budworm, state={"x": 0.5})
    >>> branch = fme.continuation(model, "r", (0.1, 0.7))
    >>> branch.folds["r"].round(6).tolist()
    [0.559525, 0.383971]
    """
    if not isinstance(model, SteadyModel):
        raise ArgumentError(f"`model` must be a SteadyModel; got {type(model).__name__}.")
    if not isinstance(parameter, str) or parameter not in list(model.parms.index):
        near = did_you_mean(parameter, model.parms.index)
        raise ArgumentError(f"`parameter`: {parameter!r} is none of the model.{near}")
    try:
        low, high = (float(v) for v in range_)
    except (TypeError, ValueError):
        raise ArgumentError(f"`range_={range_!r}` must be two numbers, such as (0, 10).") from None
    own = float(model.parms[parameter])
    if not low < high:
        raise ArgumentError(f"`range_=({low:g}, {high:g})` is empty.")
    if not low <= own <= high:
        raise ArgumentError(
            f"`range_=({low:g}, {high:g})` does not hold the model's own {parameter} = {own:g}, where it has to begin. "
            f"Change it: model.replace(parms={{{parameter!r}: ...}})."
        )
    path = _Path(model, parameter, low, high, positive_number(max_step, "max_step"))
    y = path.state_at(start)
    with np.errstate(all="ignore"):  # trial points beyond what has a value are led back from
        up, why_up, folds_up = path.followed(y, own, 1.0)
        down, why_down, folds_down = path.followed(y, own, -1.0)
        points = [*reversed(down[1:]), *up]
        signs = [path.stability(y, p) for y, p in points]

    def table(rows: list[Any]) -> pd.DataFrame:
        return pd.DataFrame([[p, *y] for y, p in rows], columns=[parameter, *path.names])

    frame = table(points).assign(
        stable=pd.Series([s for s, _ in signs], dtype=object), eigenvalue=[value for _, value in signs]
    )
    message = f"It ends {why_up} both ways." if why_up == why_down else f"It ends {why_down}, and {why_up}."
    return Branch(frame, table([*reversed(folds_down), *folds_up]), parameter, message)


class _Path:
    """The rates of a model over one parameter, and how to walk along their zeros."""

    def __init__(self, model: SteadyModel, parameter: str, low: float, high: float, longest: float) -> None:
        self.low, self.high, self.longest = low, high, longest
        self._bound = model.bind([parameter])
        self._model, self._source = model, model.source()
        self._place = list(model.parms.index).index(parameter)
        self._base = model.parms.to_numpy(dtype=float)
        grid = model.grid
        self.names = model.states if grid is None else [c for s in model.states for c in in_cells(s, len(grid))]

    def state_at(self, start: Any) -> Vector:
        """Return the steady state to begin with."""
        theta = np.array([self._base[self._place]])
        if start is None:
            return np.asarray(self._bound._search(theta)[1].y)
        guess = getattr(start, "state", start)
        guess = pd.Series(guess) if isinstance(guess, dict) else guess
        model = self._model
        if isinstance(guess, pd.Series):
            wrong = [str(k) for k in guess.index if k not in model.states]
            if wrong or model.grid is not None:
                raise ArgumentError(f"`start`: {wrong or list(guess.index)} are not the states of the model, in order.")
            guess = {str(k): float(v) for k, v in guess.items()}
        else:
            values = as_numbers(guess, "start")
            if values.shape != (self._source.n,):
                raise ArgumentError(f"`start` must hold {self._source.n} states; got an array of shape {values.shape}.")
            cells = np.split(values, len(model.states))
            guess = {s: v if model.grid is not None else float(v[0]) for s, v in zip(model.states, cells, strict=True)}
        other = model.replace(state=guess, start="given")
        return np.asarray(other.bind([model.parms.index[self._place]])._search(theta)[1].y)

    def system(self, p: float) -> Any:
        values = self._base.copy()
        values[self._place] = p
        return self._source.at(values)

    def slopes(self, y: Vector, p: float) -> tuple[Vector, Any, Vector]:
        """Return f, the entries of df/dy, and df/dp."""
        system = self.system(p)
        f = system.rates(y)
        J = system.jacobian(y, f)
        to_p = system.to_parameters(y, [self._place])
        if to_p is not None:
            return f, J, np.asarray(to_p)[:, 0]
        h = _DIFFERENCE * max(abs(p), 1e-3 * (self.high - self.low))
        return f, J, (self.system(p + h).rates(y) - self.system(p - h).rates(y)) / (2 * h)

    def stability(self, y: Vector, p: float) -> tuple[bool | None, float]:
        """Return whether it is stable, None where that has no sign, and the real part of the rightmost eigenvalue."""
        system = self.system(p)
        entries = system.jacobian(y, system.rates(y))
        value = float(rightmost(system.structure, entries).real)
        known = abs(value) > _NEUTRAL * float(np.abs(entries).max(initial=0.0))
        return (value < 0 if known else None), value

    def tangent(self, J: Any, to_p: Vector, size: Vector, before: Vector) -> Vector:
        """Return the direction of the branch, of length 1 in sizes, onwards from `before`."""
        n = len(to_p)
        t = self._solved(J, to_p, before / size, np.append(np.zeros(n), 1.0)) / size
        return np.asarray(t / np.linalg.norm(t))

    def _solved(self, J: Vector, to_p: Vector, row: Vector, right: Vector) -> Vector:
        """Return the solution of the equations of the module's text; RuntimeError where they are singular."""
        s, n = self._source.structure, len(to_p)
        i, last = np.arange(n + 1), np.full(n + 1, n)
        entries = np.concatenate([J, to_p, row])
        places = np.concatenate([s.rows, i[:n], last]), np.concatenate([s.columns, last[:n], i])
        whole = scipy.sparse.csc_array((entries, places), shape=(n + 1, n + 1))
        return np.asarray(scipy.sparse.linalg.splu(whole).solve(right))

    def step(self, u: Vector, t: Vector, size: Vector, length: float) -> tuple[Vector, Vector, int] | None:
        """Return the point so far along the branch, its tangent, and Newton's steps; None where it is not reached."""
        v = u + length * t * size
        for k in range(_NEWTON):
            f, J, to_p = self.slopes(v[:-1], float(v[-1]))
            if not (np.isfinite(f).all() and np.isfinite(to_p).all() and np.isfinite(J).all()):
                return None
            off = length - t @ ((v - u) / size)
            try:
                change = self._solved(J, to_p, t / size, np.append(-f, off))
            except RuntimeError:
                return None
            v = v + change
            if np.linalg.norm(change / size) < _CLOSE * max(1.0, float(np.linalg.norm(v / size))):
                _, J, to_p = self.slopes(v[:-1], float(v[-1]))
                try:
                    return v, self.tangent(J, to_p, size, t), k + 1
                except RuntimeError:
                    return None
        return None

    def followed(self, y: Vector, p: float, direction: float) -> tuple[list[Any], str, list[Any]]:
        """Return the points of the branch from here on, why it ends, and its folds."""
        typical = first_typical = float(np.abs(y).max(initial=0.0)) or 1.0
        span, cells = self.high - self.low, np.sqrt(self._source.n_rows)  # as many cells, as long a step
        size = np.append(cells * np.maximum(np.abs(y), 0.1 * typical), span)
        folds: list[Any] = []
        u, points, length = np.append(y, p), [(y, p)], _FIRST
        _, J, to_p = self.slopes(y, p)
        try:
            t = self.tangent(J, to_p, size, np.append(np.zeros(len(y)), direction))
        except RuntimeError:
            return points, f"at {p:.6g}, where the Jacobian is singular", folds
        first = u.copy()
        while len(points) < _MOST_POINTS:
            found = self.step(u, t, size, length)
            if found is None or found[1] @ t < 0.9:  # too far round a bend
                length /= 2
                if length < _LEAST:
                    return points, f"at {u[-1]:.6g}, where no step leads on", folds
                continue
            v, onwards, n_steps = found
            if onwards[-1] * t[-1] < 0:
                fold = self._fold(u, t, size, length)
                folds.append((fold[:-1], float(fold[-1])))
                points.append(folds[-1])
            i = int(np.argmin(v[:-1]))
            if self._model.tolerances.positive and v[i] < -_NEXT * typical:
                w = self._where(u, t, size, length, i, 0.0)
                w[i] = 0.0  # to the last digit: where branches cross, it is found to half of them
                if self.low <= w[-1] <= self.high:
                    why = f"at {w[-1]:.6g}, where {self.names[i]!r} falls below zero"
                    return [*points, (w[:-1], float(w[-1]))], why, folds
            if not self.low <= v[-1] <= self.high:
                end = self.high if v[-1] > self.high else self.low
                last = self._where(u, t, size, length, -1, end)[:-1]
                which = "upper" if end == self.high else "lower"
                return [*points, (last, end)], f"at the {which} end of the range", folds
            points.append((v[:-1], float(v[-1])))
            most = int(np.argmax(np.abs(v[:-1])))
            if abs(v[most]) > _ENDLESS * first_typical and max(abs(t[-1]), abs(onwards[-1])) < _NEXT:
                return points, f"at {v[-1]:.6g}, where {self.names[most]!r} runs to infinity", folds
            if min(v[-1] - self.low, self.high - v[-1]) < _NEXT * span and len(points) > 2:
                return points, f"at {v[-1]:.6g}, next to the end of the range", folds
            if len(points) > 10 and np.linalg.norm((v - first) / size) < length:
                return points, "where it began: it is closed", folds
            u, t = v, onwards
            before, typical = size, max(typical, float(np.abs(u[:-1]).max()))
            size = np.append(cells * np.maximum(np.abs(u[:-1]), 0.1 * typical), span)
            t = t * before / size
            t = t / np.linalg.norm(t)
            length = min(length * (1.5 if n_steps <= 4 else 1.0), self.longest)
        return points, f"after {_MOST_POINTS:,} points", folds

    def _fold(self, u: Vector, t: Vector, size: Vector, length: float) -> Vector:
        """Return the point within a step at which the branch turns round."""
        from scipy.optimize import brentq

        def turns(s: float) -> float:
            found = self.step(u, t, size, s) if s else (u, t, 0)
            if found is None:
                raise SimulationError("a fold that was seen was not reached")
            return float(found[1][-1])

        s = brentq(turns, 0.0, length, xtol=1e-14, rtol=1e-12)
        found = self.step(u, t, size, s)
        return u if found is None else found[0]

    def _where(self, u: Vector, t: Vector, size: Vector, length: float, i: int, value: float) -> Vector:
        """Return the point within a step at which its number i has a value; its beginning if there is none."""
        from scipy.optimize import brentq

        def at(s: float) -> Vector:
            found = self.step(u, t, size, s) if s else None
            return u if found is None else found[0]

        if (u[i] - value) * (at(length)[i] - value) >= 0:
            return u.copy()
        return at(brentq(lambda s: at(s)[i] - value, 0.0, length, xtol=1e-14))
