"""What the stiff method reads of a grid is what differences of its rates are: the band, df/dt, second derivatives."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import fmepy as fme
from fmepy.compiled import array_loop
from fmepy.compiled.array_code import MOST_LANES, groups_of
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
    *addresses, table = code.addresses(7)  # in groups of four and of three
    kind, names = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5), ("rates", "columns", "moving", "along", "along_3")
    functions = dict(zip((*names, "bend", "bend_3"), map(kind, addresses), strict=True))
    y, k, S, a = rng.uniform(0.3, 1.2, N), rng.normal(size=N), rng.normal(size=(4, N)), 0.8

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
    (w, d), (e, of_three, b, bent_three) = along_step(y, p), np.zeros((4, 4, code.size))
    q = np.arange(4) % len(p)
    e[np.arange(4), code.at("p").start + q] = 1.0
    code.function("prepare_along", w, e)()
    e[:, code.at("y")] = S
    of_three[:] = e
    for name, along, bent in (("", e, b), ("_3", of_three, bent_three)):
        call("along" + name, w, along)
        call("bend" + name, w, d, along, bent)
    for i in range(4):
        h, unit = 1e-5, np.eye(len(p))[q[i]]
        sides = [along_step(y + s * h * S[i], p + s * h * unit) for s in (1, -1)]
        for found, block in ((e, 0), (b, 1)):
            differences = (sides[0][block] - sides[1][block])[code.rates] / (2 * h)
            assert np.abs(differences).max() > 0.1
            np.testing.assert_allclose(found[i, code.rates], differences, atol=1e-6 * np.abs(differences).max())
    for three, four in ((of_three, e), (bent_three, b)):
        np.testing.assert_allclose(three[:3, code.rates], four[:3, code.rates], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("m", range(1, 20))
def test_groups_of_directions_are_of_nearly_one_size_and_cover_all_of_them(m, monkeypatch):
    head, groups = np.zeros(array_loop.PLAN, dtype=int), []
    size, *_ = head[[array_loop.SIZE_OF_GROUP, array_loop.N_FIRST]] = groups_of(m)[:2]

    def note(_, what, w, along, *rest):
        groups.append((int(along[0]), size - (what - array_loop.ALONG)))

    monkeypatch.setattr(array_loop, "_compute", note)
    blocks = array_loop.Blocks(head, *[None] * (len(array_loop.Blocks._fields) - 1))
    array_loop._compute_all(blocks, array_loop.ALONG, None, None, np.arange(m)[:, None])
    firsts, sizes = zip(*groups, strict=True)
    assert firsts == (0, *np.cumsum(sizes)[:-1])
    assert sum(sizes) == m
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= MOST_LANES


@pytest.mark.parametrize("engine", ["explicit", "stiff"])
def test_sensitivities_of_many_parameters_are_those_of_each_by_itself(engine):
    grid, names = fme.Grid1D(np.linspace(0.0, 5.0, 21)), [f"p{i}" for i in range(13)]  # groups of five, four and four

    def rates(t, A, B, *, p0=0.5, p1=0.1, p2=0.3, p3=0.2, p4=1.0, p5=0.4, p6=0.05, p7=2.0, p8=0.1, p9=0.3, p10=0.1,
              p11=0.2, p12=0.7):  # fmt: skip
        flow = [fme.transport_1d(C, grid, D=p0, v=p1, up=up).rate for C, up in ((A, p4), (B, p12))]
        uptake = p3 * A**p7 / (p5**p7 + A**p7)
        return flow[0] - p2 * A * B + p8, flow[1] + uptake - p6 * B**2 - p9 * B / (p10 + B) * np.exp(-p11 * A)

    model = fme.OdeModel(rates, state={"A": 1.0, "B": 0.5}, grid=grid, times=np.arange(0.0, 21.0), engine=engine)
    bound = model.bind(names)
    S = bound.sensitivities(bound.theta0)[1]
    for i, name in enumerate(names):
        one = model.bind([name])
        known = one.sensitivities(one.theta0)[1][..., 0]
        np.testing.assert_allclose(S[..., i], known, atol=1e-4 * np.abs(known).max(), err_msg=name)
