"""Many runs at once in the lanes of vectors: each has, to the last bit, the numbers that it has alone."""

import ctypes

import numpy as np
import pandas as pd
import pytest

from fmepy import OdeModel
from fmepy.compiled import explicit_runs, status
from fmepy.compiled.c_loops import address, checked_loop
from fmepy.compiled.lanes import run_lanes
from fmepy.compiled.llvm_code import LlvmProgram
from fmepy.compiled.llvm_operations import LANES, of_lanes
from fmepy.compiled.machine import compiled
from fmepy.language.functions import Function, add_function
from fmepy.language.nodes import TABLE, Symbol, call, choose_above

TIMES = np.linspace(0.0, 20.0, 33)


def growth(t, x, y, *, a, b, c):
    """Return the rates of prey and predators."""
    return a * x - b * x * y, b * x * y - c * y


def curved(t, x, y, *, a, b, c):
    """Return rates with functions that no processor has."""
    gain = np.exp(-b * t) + a * np.tanh(c) * t / (1.0 + t)
    return gain - c * x**1.3 + np.sqrt(y), np.arctan2(y, 1.0 + x) - b * np.log(1.0 + y) + np.sin(t)


def model(rhs=growth, **more):
    """Return a model of two states and three parameters."""
    given = {"state": {"x": 2.0, "y": "1 + a"}, "times": TIMES, "parms": {"a": 1.0, "b": 0.3, "c": 0.8}}
    return OdeModel(rhs, **(given | more))


DOSES = pd.DataFrame({"time": [0.0, 3.0, 3.0, 11.5], "var": ["x", "y", "x", "x"], "method": "add",
                      "value": ["a", 0.5, "-0.5 * x", 1.0]})  # fmt: skip
CASES = {
    "plain": model(),
    "curved": model(curved),
    "outputs": model(outputs={"sum": "x + y", "log": "log(x)"}),
    "doses": model(events=DOSES),
    "forced": model(lambda t, x, y, *, a, b, c, u: (u - b * x, a * x - c * y),
                    forcings={"u": pd.DataFrame({"time": [0, 4, 8, 30.0], "u": [1, 3, 0, 2.0]})}),
    "short steps": model(max_step=0.3),
    "few rows": model(times=[0.0, 20.0]),
    "one row late": model(times=[0.0, 1e-3, 1e-2, 20.0]),
}  # fmt: skip


def many(given, Theta, monkeypatch, in_lanes=True, slopes=False):
    """Return the runs of a new copy of a model, its sensitivities, and how many of them were in lanes."""
    seen, real = [], explicit_runs.ExplicitRuns._many
    monkeypatch.setattr(explicit_runs, "_WORTH_LANES", 0 if in_lanes else 1e9)

    def counted(self, P, in_lanes):
        seen.append(len(P) if in_lanes else 0)
        return real(self, P, in_lanes)

    monkeypatch.setattr(explicit_runs.ExplicitRuns, "_many", counted)
    bound = given.replace().bind()
    if slopes:
        Y, S, ok = bound.together(Theta, True)
        assert ok.all()
        return Y, S, sum(seen)
    Y, why = bound.simulate_many(Theta)
    return Y, why, sum(seen)


def around(given, n, width=0.2, seed=1):
    """Return parameters beside those of a model."""
    theta = given.bind().theta0
    return theta * np.random.default_rng(seed).uniform(1 - width, 1 + width, (n, len(theta)))


@pytest.mark.parametrize("name", CASES)
def test_runs_in_lanes_are_those_alone_to_the_last_bit(name, monkeypatch):
    given, n = CASES[name], 3 * LANES + 1
    Theta = around(given, n)
    Y, why, in_lanes = many(given, Theta, monkeypatch)
    assert in_lanes == n
    assert not any(why)
    np.testing.assert_array_equal(Y, many(given, Theta, monkeypatch, in_lanes=False)[0])
    bound = given.bind()
    np.testing.assert_array_equal(Y, [bound.simulate(theta) for theta in Theta])


@pytest.mark.parametrize("name", ["plain", "curved", "doses", "forced"])
def test_so_are_their_sensitivities(name, monkeypatch):
    given = CASES[name]
    Theta = around(given, LANES + 3)
    Y, S, in_lanes = many(given, Theta, monkeypatch, slopes=True)
    assert in_lanes == len(Theta)
    alone = many(given, Theta, monkeypatch, in_lanes=False, slopes=True)
    np.testing.assert_array_equal(Y, alone[0])
    np.testing.assert_array_equal(S, alone[1])
    assert np.abs(S).max() > 0


@pytest.mark.parametrize("n", [2, LANES - 1, LANES, 2 * LANES])
def test_numbers_do_not_depend_on_the_runs_beside(n, monkeypatch):
    Theta = around(CASES["plain"], n, width=0.7)
    Y = many(CASES["plain"], Theta, monkeypatch)[0]
    order = np.random.default_rng(2).permutation(n)
    np.testing.assert_array_equal(many(CASES["plain"], Theta[order], monkeypatch)[0], Y[order])


def test_what_ends_early_is_run_alone_and_says_why(monkeypatch):
    parms = {"a": 0.1, "b": 1.0}
    given = OdeModel(lambda t, x, *, a, b: (a * x**2 - b,), state={"x": "1 / b"}, times=[0, 1, 2], parms=parms)
    Theta = np.array([[0.1, 1.0], [3.0, 1.0], [0.1, 0.0], [0.2, 1.0], [np.nan, 1.0], [0.1, 2.0]])
    Y, why, in_lanes = many(given, Theta, monkeypatch)
    assert in_lanes == 6
    told = many(given, Theta, monkeypatch, in_lanes=False)
    np.testing.assert_array_equal(Y, told[0])
    assert [str(w) for w in why] == [str(w) for w in told[1]]
    assert [bool(w) for w in why] == [False, True, True, False, True, False]


def test_stiff_runs_among_others_change_their_method(monkeypatch):
    def drawn(t, x, y, *, k, a):
        return -k * (x - np.cos(t)) + y, -a * y

    given = OdeModel(drawn, state={"x": 0.0, "y": 1.0}, times=TIMES, parms={"k": 3.0, "a": 0.5})
    Theta = np.array([[3.0, 0.5], [5e3, 0.5], [4.0, 0.2], [1e5, 0.5]])
    Y, why, in_lanes = many(given, Theta, monkeypatch)
    assert in_lanes == 4
    assert not any(why)
    np.testing.assert_array_equal(Y, many(given, Theta, monkeypatch, in_lanes=False)[0])
    alone = [given.replace().bind().simulate(theta) for theta in Theta]
    np.testing.assert_array_equal(Y, alone)


def test_no_index_is_out_of_range_and_a_run_can_be_stopped():
    bound = CASES["doses"].bind()
    runs = bound._whole("plain")._runs
    inputs = np.zeros((LANES + 1, runs.n_inputs))
    inputs[:, :3] = around(CASES["doses"], LANES + 1)
    arrays, at, _words = runs.arrays(inputs)
    code = runs._functions.lanes()
    checked_loop(run_lanes)(runs.at_course, at, code.address("rates"))
    assert (arrays.ended[:, 0] == status.DONE).all()
    arrays.ended[:] = arrays.work[:] = -1.0
    checked_loop(run_lanes)(runs.at_course, at, code.address("rates"))
    assert (arrays.ended == -1.0).all()


@pytest.mark.parametrize("base", [0.5, 2.0, 4.0, 8.0, 10.0, np.e, 3.0, 1e-3])
def test_powers_of_a_number_are_the_same_in_lanes(base, monkeypatch):
    given = OdeModel(f"dx/dt = a * {base}**(b * t / 9) - x**0.7 + {base}**sin(x) + 1.1**x\nx(0) = 1",
                     times=TIMES[:9], parms={"a": 0.1, "b": 1.0})  # fmt: skip
    Theta = around(given, 3 * LANES)
    Y, why, in_lanes = many(given, Theta, monkeypatch)
    assert in_lanes == len(Theta)
    assert not any(why)
    np.testing.assert_array_equal(Y, many(given, Theta, monkeypatch, in_lanes=False)[0])


def test_a_step_that_rounds_to_the_end_of_its_stretch_is_not_the_last(monkeypatch):
    t = 0.1 * 15 + 0.05  # a fast burst follows, in which it counts how many steps there were before
    kicks = pd.DataFrame({"time": 0.1 * np.arange(1, 16), "var": "y", "value": 1.0, "method": "add"})
    speed = {"lam": ([0, t, t + 1], [0, 90.0, 0], "constant")}
    given = OdeModel("dx/dt = -a * lam * (x - 0.5)\ndy/dt = 1e-4 * a * y", state={"x": 0.5001, "y": 1.0},
                     times=[0, t + 0.5, t + 1, t + 2, t + 45], parms={"a": 1e-3}, events=kicks, forcings=speed,
                     max_step=0.1, rtol=1e-3, atol=1e-2)  # fmt: skip
    Theta = np.array([[1.0], [1.1], [1.2], [1.3], [1.5]])
    Y, _, in_lanes = many(given, Theta, monkeypatch)
    assert in_lanes == 5
    np.testing.assert_array_equal(Y, many(given, Theta, monkeypatch, in_lanes=False)[0])


def test_rows_at_denormal_times_do_not_hang(monkeypatch):
    given = OdeModel("dx/dt = -2e-4 * a * x\nx(0) = 1", times=[0, 5e-324, 1e3], parms={"a": 1.0}, rtol=1e-3, atol=10)
    Theta = around(given, LANES)
    np.testing.assert_array_equal(
        many(given, Theta, monkeypatch)[0], many(given, Theta, monkeypatch, in_lanes=False)[0]
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda part, x: part.binary("fmul", x, "1.5e-01"),
        lambda part, x: part.binary("fadd", x, "0x3fe0000000000000"),
        lambda part, x: part.emit(f"uitofp i1 {part.compare('ogt', x, '0.5')} to double"),
    ],
)
def test_functions_of_a_users_own_words_run_in_lanes_or_alone(write, monkeypatch):
    add_function(Function("own", lambda x: x, lambda x: x, lambda out, x: [1.0], write))
    try:
        given = OdeModel("dx/dt = a * own(x) - b * x\nx(0) = 1", times=TIMES[:5], parms={"a": 1.0, "b": 2.0})
        Theta = around(given, LANES)
        Y, why, _ = many(given, Theta, monkeypatch)
        assert not any(why)
        np.testing.assert_array_equal(Y, many(given, Theta, monkeypatch, in_lanes=False)[0])
    finally:
        del TABLE["own"]


@pytest.mark.parametrize("word", sorted(TABLE.keys() - {"lag"}))  # which stands for an input in compiled code
def test_every_function_of_the_language_has_lanes(word):
    x = [Symbol(f"x{i}") for i in range(4 if word == "where" else max(TABLE[word].least, 1))]
    e = choose_above(*x) if word == "where" else call(word, *x)
    texts = [program_of(e, x, branches) for branches in (True, False)]
    values = np.random.default_rng(3).uniform(-2.0, 2.0, (len(x), LANES))
    values[0, 0], values[-1, 1] = np.nan, np.inf
    values[:, 2:5] = np.abs(values[:, 2:5])
    out, each = np.zeros(LANES), np.zeros((LANES, 1))
    evaluate(of_lanes(texts[1]), values, out)
    for i in range(LANES):
        evaluate(texts[0], np.ascontiguousarray(values[:, i]), each[i])
    np.testing.assert_array_equal(out, each[:, 0])


def program_of(e, x, branches):
    program = LlvmProgram([], ["z", "out"], branches)
    program.function("f", [("out", 0, 3.5 * e + e**2)], {s: ("z", i) for i, s in enumerate(x)})
    return program.text()


def evaluate(text, values, out):
    code = compiled(text)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("f"))(address(values), address(out))
