"""A system of modules computes what a plain loop over its statements computes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fmepy.dmi.compiled_program import ModularProgram, Rules
from fmepy.dmi.modules import Module, module
from fmepy.dmi.variables import system_of
from fmepy.errors import ModelError, SimulationError
from tests.dmi.generated import LENGTH, generated
from tests.dmi.runs import program_of, ran, run, table_of
from tests.plain import plain

# --- generated systems against numpy


@pytest.fixture(scope="module")
def large():
    g = generated(300)
    system = system_of([Module(name, text, step=step) for name, text, step in g.modules])
    return g, ModularProgram(system, Rules(0.25), [e.name for e in g.equations], g.series)


def _rows(g, program, n=30):
    times = 0.25 * np.arange(n + 1)
    return run(program, n, series={name: g.sampled(name, times) for name in g.series}, **g.constants)


def test_three_hundred_equations_with_vectors_loops_and_three_steps_equal_numpy(large):
    g, program = large
    done = _rows(g, program)
    wanted = g.reference(30, 0.25)
    assert sum(e.shape == (LENGTH,) for e in g.equations) > 40
    assert done.convergence.group.nunique() == 5
    wanted = np.hstack([wanted[e.name].reshape(31, -1) for e in g.equations])
    np.testing.assert_allclose(done.rows, wanted, rtol=0, atol=1e-9)


def test_runs_in_threads_and_from_a_pickle_are_the_same(large):
    g, program = large
    wanted = _rows(g, program, 20).rows
    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda _: _rows(g, program, 20), range(8)):
            np.testing.assert_array_equal(done.rows, wanted)
    small = program_of("d(x)/dt = -k * x\nx(0) = 1")
    again = pickle.loads(pickle.dumps(small))
    np.testing.assert_array_equal(run(small, 3, k=0.5).rows, run(again, 3, k=0.5).rows)


# --- Forrester's market growth in three modules

SALES = """
OB = SM * SE
SE = SEM * (1 - 0.0281 * DDRM - 0.0295 * DDRM ** 2 + 0.00228 * DDRM ** 3)
d(SM)/dt = (12 * DRA / 2000 - SM) / SAT
d(DDRM)/dt = (DDRC - DDRM) / 6
SM(0) = 10
DDRM(0) = DDRC
"""
DELIVERY = """
d(BL)/dt = OB - DR
DR = PC * (0.61782 * wait - 0.13244 * wait ** 2 + 0.00973 * wait ** 3)
wait = BL / PC
d(DRA)/dt = (DR - DRA) / 1
d(DDRC)/dt = (BL / DRA - DDRC) / 4
BL(0) = 8000
DRA(0) = DR
DDRC(0) = BL / DRA
"""
CAPACITY = """
q = DDRC / 2 - 0.3
PCO = PC * (-0.0698 + 0.12442 * q - 0.08138 * q ** 2 + 0.027704 * q ** 3)
d(L1)/dt = PCO - L1 / 4
d(L2)/dt = (L1 - L2) / 4
d(L3)/dt = (L2 - L3) / 4
d(PC)/dt = L3 / 4
PC(0) = 12000
L1(0) = 4 * PCO
L2(0) = L1
L3(0) = L1
"""


def _market_growth(n):
    """The equations of the reference data, by the rectangle rule with a step of half a month."""
    SM, BL, PC = 10.0, 8000.0, 12000.0

    def delivered(BL, PC):
        d = BL / PC
        return PC * (0.61782 * d - 0.13244 * d**2 + 0.00973 * d**3)

    def ordered(PC, DDRC):
        q = DDRC / 2 - 0.3
        return PC * (-0.0698 + 0.12442 * q - 0.08138 * q**2 + 0.027704 * q**3)

    DRA = delivered(BL, PC)
    DDRC = DDRM = BL / DRA
    L1 = L2 = L3 = 4 * ordered(PC, DDRC)
    rows = [(SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC)]
    for _ in range(n):
        DR = delivered(BL, PC)
        OB = SM * 400 * (1 - 0.0281 * DDRM - 0.0295 * DDRM**2 + 0.00228 * DDRM**3)
        moves = (
            (12 * DRA / 2000 - SM) / 20, OB - DR, DR - DRA, (BL / DRA - DDRC) / 4, (DDRC - DDRM) / 6,
            ordered(PC, DDRC) - L1 / 4, (L1 - L2) / 4, (L2 - L3) / 4, L3 / 4,
        )  # fmt: skip
        SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC = (x + 0.5 * m for x, m in zip(rows[-1], moves, strict=True))
        rows.append((SM, BL, DRA, DDRC, DDRM, L1, L2, L3, PC))
    return np.array(rows)


def test_market_growth_in_three_modules_in_any_order_is_the_one_piece_model():
    wanted = _market_growth(200)
    assert wanted[0, 2] == pytest.approx(4270.80888888889)  # of the reference data
    names = ("SM", "BL", "DRA", "DDRC", "DDRM", "L1", "L2", "L3", "PC")
    backwards = ["\n".join(reversed(text.strip().split("\n"))) for text in (CAPACITY, SALES, DELIVERY)]
    for texts in ((SALES, DELIVERY, CAPACITY), backwards, (SALES + DELIVERY + CAPACITY,)):
        found = ran(*texts, n=200, dt=0.5, how={"outputs": names}, SEM=400.0, SAT=20.0)
        np.testing.assert_allclose(np.column_stack([found[n] for n in names]), wanted, rtol=1e-11)


# --- steps, rows, series


def test_a_module_with_a_longer_step_keeps_its_values_and_moves_its_levels_at_its_next_active_step():
    found = ran("x = t", "step 3\nd(L)/dt = x + 1\nL(0) = 1\ny = 10 * x", "z = L + y", n=7, dt=0.5)
    y = [0, 0, 0, 15, 15, 15, 30, 30]
    L = [1, 1, 1, 2.5, 2.5, 2.5, 6.25, 6.25]  # 1.5 (0 + 1), then 1.5 (1.5 + 1)
    np.testing.assert_allclose(found["y"], y)
    np.testing.assert_allclose(found["L"], L)
    np.testing.assert_allclose(found["z"], np.add(y, L))


def test_rows_are_the_steps_that_are_kept_and_series_are_those_of_the_step():
    program = program_of("d(x)/dt = u\nx(0) = 0\ny = 2 * u", series=("u",))
    done = run(program, 6, start=100.0, keep=[0, 4, 6], series={"u": [1, 2, 3, 4, 5, 6, 7]})
    np.testing.assert_array_equal(done.rows, [[0, 2], [10, 10], [21, 14]])


def test_rk4_is_of_fourth_order_with_series_hidden_levels_and_a_common_step():
    text = "d(x)/dt = u - x * y\ny = 1 + 0.5 * smooth(x, 2)\nx(0) = 1"

    def end(step, h):
        n = round(4 / h)
        program = program_of(f"step {step}\n{text}", series=("u",), method="rk4", dt=h)
        return run(program, n, series={"u": np.sin(np.arange(2 * n + 1) * h / 2)}).rows[-1, 0]

    exact = end(1, 1 / 256)
    errors = [abs(end(1, h) - exact) for h in (1 / 4, 1 / 8, 1 / 16)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(4, abs=0.3)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(4, abs=0.3)
    assert end(2, 1 / 16) == pytest.approx(end(1, 1 / 8), rel=1e-14)  # two elementary steps at a time


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("x = lag(t, 1, 0)",), "lag"),
        (("x = 1 + rate(t)",), "rate"),
        (("x = pulse(1, 0, 2)",), "pulse"),
        (("x = t", "step 2\ny = x"), "steps of '1', '2'"),
    ],
)
def test_rk4_refuses_what_has_no_place_between_steps(texts, said):
    with pytest.raises(ModelError, match=said):
        program_of(*texts, method="rk4")


# --- arrays


def test_arrays_are_computed_as_numpy_does():
    text = """
    dims D[3], E[3], A[2,3], F[2], G[2,2], V[3]
    E = [t, 2, D[2]]
    F = dot(A, E + 1) - sum(E ** 2) / 3
    G = dot(A, B) * F[1]
    dims B[3,2]
    V = where(E > 1.5 and D < 3, max(E, D), -D) % 2
    s = dot(D, E) + sum(dot(A, D)) + table(E[0], X, D)
    dims X[3]
    w = min(F[0], G[1,0], s)
    """
    A, B = np.arange(6.0).reshape(2, 3), np.arange(6.0)[::-1].reshape(3, 2) / 3
    D, X = np.array([1.0, 2.5, 4.0]), np.array([0.0, 0.5, 3.0])
    found = ran(text, n=2, A=A, B=B, D=D, X=X)
    for t in range(3):
        E = np.array([t, 2, D[2]])
        F = A @ (E + 1) - np.sum(E**2) / 3
        G = A @ B * F[1]
        V = np.where((E > 1.5) & (D < 3), np.maximum(E, D), -D) % 2
        s = D @ E + np.sum(A @ D) + np.interp(E[0], X, D)
        np.testing.assert_allclose([found[f"F[{i}]"][t] for i in range(2)], F)
        np.testing.assert_allclose([found[f"G[{i},{j}]"][t] for i in range(2) for j in range(2)], G.ravel())
        np.testing.assert_allclose([found[f"V[{i}]"][t] for i in range(3)], V)
        np.testing.assert_allclose(found["s"][t], s)
        np.testing.assert_allclose(found["w"][t], min(F[0], G[1, 0], s))


def test_elements_that_need_one_another_in_a_row_are_no_loop():
    program = program_of("dims D[4], E[4]\nD[0] = 2 * D[1]\nD[1] = E[2]\nE = 3 * D + 1\nD[2] = c\nD[3] = E[0]")
    done = run(program, 1, c=5.0)
    assert len(done.convergence) == 0
    np.testing.assert_array_equal(done.rows[0], [32, 16, 5, 97, 97, 49, 16, 292])


def test_a_vector_that_needs_itself_whole_is_evaluated_from_what_was_before():
    A = np.array([[0.0, 0.2], [0.3, 0.1]])
    program = program_of("dims v[2], A[2,2], c[2]\nv = dot(A, v) + c", max_iterations=3, unsettled="keep")
    done = run(program, 0, A=A, c=[1.0, 2.0])
    v = np.zeros(2)
    for _ in range(3):
        v = A @ v + [1.0, 2.0]
    np.testing.assert_allclose(done.rows[0], v, rtol=1e-15)


def test_values_that_are_no_numbers_are_handed_on_and_levels_that_are_none_end_the_run():
    found = ran("x = log(t - 1.5)\ny = where(x > 0, 1, 2)\nz = max(x, 3)\nq = t", n=3)
    assert np.isnan(found["y"][0])
    assert np.isnan(found["z"][1])
    assert found["q"][3] == 3
    program = program_of("d(x)/dt = x ** 2\nx(0) = 1", dt=0.5)
    with pytest.raises(SimulationError, match="the level x became NaN or infinite at time") as caught:
        run(program, 40)
    step = round(caught.value.time / 0.5)
    assert step > 5
    assert np.isfinite(run(program, step - 1).rows).all()


# --- initial values


def test_initial_values_are_evaluated_in_the_order_of_their_needs():
    found = ran("d(x)/dt = 0\nx(0) = y / 2\ny = 3 * z + c\nd(z)/dt = x\nz(0) = 4", n=1, c=2.0)
    assert (found["x"][0], found["y"][0], found["z"][1]) == (7.0, 14.0, 11.0)


def test_a_level_without_initial_value_gets_it_from_outside_and_one_declared_endogenous_begins_with_zero():
    program = program_of("d(x)/dt = 1\nd(y)/dt = 1\nendogenous y")
    variables = system_of([Module("m", "d(x)/dt = 1\nd(y)/dt = 1\nendogenous y")]).variables
    assert (variables["x"].outside, variables["y"].outside) == ((True,), (False,))
    np.testing.assert_array_equal(run(program, 1, x=5.0).rows, [[5, 0], [6, 1]])


# --- modules that are Python functions


def test_python_modules_run_with_the_compiled_ones_in_loops_too():
    @module(reads=("a", "v"), assigns=("b", "w"), dims={"v": 2, "w": 2})
    def halved(a, v):
        return {"w": v * a, "b": plain(0.5 * a)}

    texts = ("dims w[2]\na = 1 + 0.2 * b\nd(L)/dt = b\nL(0) = 0\ns = w[1]", "dims v[2]\nv = [t, 2]")
    program = program_of(*texts, halved, tol=1e-12, max_iterations=30)
    found = table_of(program, run(program, 2))
    np.testing.assert_allclose(found["b"], 0.5 / 0.9)
    np.testing.assert_allclose(found["s"], 2 / 0.9)
    np.testing.assert_allclose(found["L"], 0.5 / 0.9 * np.arange(3))
    assert program.python_modules == ("halved",)
    assert "halved" in program.note


@pytest.mark.parametrize(
    ("returned", "error", "said"),
    [
        ((1.0, 2.0), ModelError, "it returned 2"),
        ({"c": 1.0}, ModelError, "a dict of 'c'"),
        ("text", ModelError, "must be real numbers"),
        (np.zeros(3), ModelError, "shape"),
        (1 + 2j, ModelError, "must be real numbers"),
        (None, SimulationError, "ZeroDivisionError"),
    ],
)
def test_a_python_module_that_returns_what_it_should_not_is_told(returned, error, said):
    @module(reads=("a",), assigns=("b",))
    def wrong(a):
        return 1 / 0 if returned is None else returned

    program = program_of("a = t", wrong)
    with pytest.raises(error, match=said):
        run(program, 1)
