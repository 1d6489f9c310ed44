"""What the stiff method reads of a grid is what differences of its rates are: the band, df/dt, second derivatives."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from fmepy.compiled import array_loop
from fmepy.compiled.array_code import LANES
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
    *addresses, table = code.addresses(with_slopes=True)
    kind, names = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5), ("rates", "columns", "moving", "along", "along_lanes")
    functions = dict(zip((*names, "bend", "bend_lanes"), map(kind, addresses), strict=True))
    y, k, S, a = rng.uniform(0.3, 1.2, N), rng.normal(size=N), rng.normal(size=(LANES, N)), 0.8

    def call(name, *blocks):
        functions[name](*(b.ctypes.data for b in (*blocks, *[blocks[0]] * (4 - len(blocks)))), table)

    def along_step(x, p):
        w, d = code.block(), np.zeros(code.size)
        w[code.at("t")], w[code.at("y")], w[code.at("p")] = T, x, p
        code.function("prepare", w)()
        call("rates", w)
        d[code.at("y")], d[code.at("t")] = k, a
        call("moving", w, d)
        return w, d

    p = model.parms.to_numpy(dtype=float)
    (w, d), (e, one, b, bent) = along_step(y, p), np.zeros((4, LANES, code.size))
    q = np.arange(LANES) % len(p)
    e[np.arange(LANES), code.at("p").start + q] = 1.0
    code.function("prepare_along", w, e)()
    e[:, code.at("y")] = S
    one[:] = e
    call("along_lanes", w, e)
    call("bend_lanes", w, d, e, b)
    for i in range(LANES):
        call("along", w, one[i])
        call("bend", w, d, one[i], bent[i])
        h, unit = 1e-5, np.eye(len(p))[q[i]]
        sides = [along_step(y + s * h * S[i], p + s * h * unit) for s in (1, -1)]
        for found, block in ((e, 0), (b, 1)):
            differences = (sides[0][block] - sides[1][block])[code.rates] / (2 * h)
            assert np.abs(differences).max() > 0.1
            np.testing.assert_allclose(found[i, code.rates], differences, atol=1e-6 * np.abs(differences).max())
    np.testing.assert_allclose(one[:, code.rates], e[:, code.rates], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(bent[:, code.rates], b[:, code.rates], rtol=1e-12, atol=1e-14)
