"""A model at one point as a linear one: ``dx/dt = F x + G w`` (or the next x), with readings ``H x``.

F = df/dx, H = dh/dx; G = df/dw for noise w that is added to a state's rate, or enters where a parameter does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.language.derivatives import gradients
from fmepy.language.equations import symbol, symbols
from fmepy.language.functions import holds_choices
from fmepy.language.nodes import ZERO, as_node
from fmepy.models.definition.definition import Definition
from fmepy.models.running.forcings import forcing_values
from fmepy.numerics.differences import central_differences, steps_beside
from fmepy.types import Matrix, Vector

_STEP = float(np.finfo(float).eps ** (1 / 3))


@dataclass(frozen=True, slots=True, eq=False)
class Linearised:
    """A model near a point.

    Attributes
    ----------
    F : ndarray, shape (n_state, n_state)
    G : ndarray, shape (n_state, n_noise)
    H : ndarray, shape (n_variable, n_state)
    rest : ndarray, shape (n_state,)
        The rates there, or by how much the next state differs: zero where the model is at rest.
    is_linear : bool
        F, G and H are the same everywhere, at all times.
    """

    F: Matrix
    G: Matrix
    H: Matrix
    rest: Vector
    is_linear: bool


def linearised(
    d: Definition, x: Vector, p: Vector, t: float, variables: Sequence[str], keys: Sequence[str] = ()
) -> Linearised:
    """Return a model near a point.

    Parameters
    ----------
    d : Definition
    x, p : ndarray
        States and parameters.
    t : float
        For forcings, and what depends on time.
    variables : sequence of str
        States or outputs, what is read.
    keys : sequence of str
        States and parameters that noise enters at.
    """
    u = forcing_values(d.forcings, np.array([t]))[:, 0]
    F, of_parameters, H, f, is_linear = (_of_equations if d.equations is not None else _of_function)(
        d, x, p, t, u, variables, keys
    )
    G = np.zeros((len(x), len(keys)))
    for j, key in enumerate(keys):
        if key in d.states:
            G[d.states.index(key), j] = 1.0
        else:
            G[:, j] = of_parameters(d.parameters.index(key))
    return Linearised(F, G, H, f - x if d.kind == "difference" else f, is_linear)


def _of_equations(
    d: Definition, x: Vector, p: Vector, t: float, u: Vector, variables: Sequence[str], keys: Sequence[str]
) -> Any:
    assert d.equations is not None, "asked of equations"
    shown: dict[str, Any] = {**{k: symbol(k) for k in d.states}, **dict(d.outputs)}
    rates, n, own = d.equations.rates, len(d.states), [symbol(k) for k in (*d.states, *d.parameters)]
    slopes = gradients([*rates, *(shown[v] for v in variables)], own)
    read = [(g, {*own[:n], *(symbol(k) for k in keys)}) for g in slopes[:n]] + [(g, set(own[:n])) for g in slopes[n:]]
    moving = {*own[:n], symbol(d.time), *(symbol(k) for k in d.forcing_names)}
    bends = holds_choices(as_node(e) for e in (*rates, *(shown[v] for v in variables)))
    is_linear = not bends and not any(e.free_symbols & moving for g, of in read for s, e in g.items() if s in of)
    function = scalar_function(symbols(*d.groups[:4]), [*rates, *(g.get(s, ZERO) for g in slopes for s in own)])
    found = np.array(function((t,), x.tolist(), p.tolist(), u.tolist()), dtype=float)
    table = found[n:].reshape(len(slopes), len(own))
    return table[:n, :n], lambda j: table[:n, n + j], table[n:, :n], found[:n], is_linear


def _of_function(
    d: Definition, x: Vector, p: Vector, t: float, u: Vector, variables: Sequence[str], keys: Sequence[str]
) -> Any:
    function = d.function
    assert function is not None, "a definition has equations or a function"
    shown = {**{k: symbol(k) for k in (*d.states, *d.extra_names)}, **dict(d.outputs)}
    read = scalar_function(symbols(*d.groups), [shown[v] for v in variables])

    def readings(y: Vector) -> Vector:
        extras = list(function.extras(t, y, p, u).values()) if d.extra_names else []
        return np.array(read((t,), y.tolist(), p.tolist(), u.tolist(), extras), dtype=float)

    def rates(y: Vector) -> Vector:
        return function(t, y, p, u)

    def of_parameter(j: int) -> Vector:
        def at(value: Vector) -> Vector:
            return function(t, x, np.concatenate([p[:j], value, p[j + 1 :]]), u)

        return np.asarray(central_differences(at, p[j : j + 1], steps_beside(p[j : j + 1], _STEP))[:, 0])

    steps = steps_beside(x, _STEP)
    return central_differences(rates, x, steps), of_parameter, central_differences(readings, x, steps), rates(x), False
