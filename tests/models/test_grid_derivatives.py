"""What the stiff method reads of a grid is what differences of its rates are: the band, df/dt, second derivatives."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from fmepy.compiled import array_loop
from fmepy.compiled.c_loops import address, c_loop
from fmepy.models.engines.grids import GridStepper
from fmepy.models.running.problem import InitialValueProblem
from tests.models.test_grids import CASES, N, model_of

T, NAMES = 0.7, ("r", "D")


def stepper_of(case):
    model = model_of(case)
    problem = InitialValueProblem(model.definition, None, NAMES)
    inputs = np.zeros(problem.layout.size)
    inputs[: problem.layout.n_parameters] = model.parms
    inputs[problem.layout.scales] = 1.0
    return GridStepper(problem, 1e-6, 1e-8), inputs, model


@pytest.mark.parametrize("case", CASES)
def test_the_band_and_the_slope_in_time_are_those_of_differences(case):
    stepper, inputs, _ = stepper_of(case)
    rates, start, p, (lower, upper) = CASES[case]
    order, own, y = stepper._code.structure.band[0], stepper._inputs(inputs), 0.3 + 0.5 * start
    width = lower + upper + 1
    out = np.zeros(N * (width + 1))
    c_loop(array_loop.jacobian, "the solver of grids")(T, address(y), address(own), address(out))

    def at(t, x):
        return np.asarray(rates(t, x, p))

    J, steps = np.zeros((N, N)), 1e-6 * np.eye(N)
    for i, row in enumerate(out[:-N].reshape(N, width)):
        for j in range(max(0, i - lower), min(N, i + upper + 1)):
            J[order[i], order[j]] = row[j - i + lower]
    differences = np.column_stack([(at(T, y + h) - at(T, y - h)) / 2e-6 for h in steps])
    np.testing.assert_allclose(J, differences, atol=1e-7 * np.abs(differences).max())
    np.testing.assert_allclose(out[-N:], (at(T + 1e-6, y) - at(T - 1e-6, y)) / 2e-6, rtol=1e-7, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_those_of_differences(case):
    stepper, _, model = stepper_of(case)
    code, rng = stepper._code, np.random.default_rng(0)
    y, k, S, a = rng.uniform(0.3, 1.2, N), rng.normal(size=N), rng.normal(size=N), 0.8
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5)
    found = dict(zip(("rates", "along", "columns", "moving", "bend"), map(kind, code.addresses[:-1]), strict=True))

    def call(name, *blocks):
        found[name](*(b.ctypes.data for b in (*blocks, *[blocks[0]] * (4 - len(blocks)))), code.addresses[-1])

    def block(x, p):
        w = code.block()
        w[code.at("t")], w[code.at("y")], w[code.at("p")] = T, x, p
        code.function("prepare", w)()
        call("rates", w)
        return w

    def along_step(x, p):
        d, w = np.zeros(code.size), block(x, p)
        d[code.at("y")], d[code.at("t")] = k, a
        call("moving", w, d)
        return w, d

    p = model.parms.to_numpy(dtype=float)
    for q in range(len(p)):
        (w, d), e, b = along_step(y, p), np.zeros(code.size), np.zeros(code.size)
        e[code.at("p").start + q] = 1.0
        code.function("prepare_along", w, e[None])()
        e[code.at("y")] = S
        call("along", w, e)
        call("bend", w, d, e, b)
        h, one = 1e-5, np.eye(len(p))[q]
        sides = [along_step(y + s * h * S, p + s * h * one)[1][code.rates] for s in (1, -1)]
        differences = (sides[0] - sides[1]) / (2 * h)
        assert np.abs(differences).max() > 0.1
        np.testing.assert_allclose(b[code.rates], differences, atol=1e-6 * np.abs(differences).max())
