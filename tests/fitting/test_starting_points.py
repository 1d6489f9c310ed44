"""Starts lie in the box, each parameter on a scale that suits it, and where the cost can be evaluated."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError, ConvergenceError, ParameterError
from fmepy.fitting.problem import Problem
from fmepy.fitting.starting_points import Scales, as_starts, starting_points

INF = np.inf


def problem_of(f, p, lower, upper):
    objective = as_objective(f, p)
    return Problem(objective, objective.theta0, np.array(lower, float), np.array(upper, float), None, None)


def drawn(starts, f, p, lower, upper, taken=None, seed=1):
    problem = problem_of(f, p, lower, upper)
    return starting_points(starts, problem, Scales(problem, taken), np.random.default_rng(seed))


def square(p):
    return float(sum((v - 1) ** 2 for v in p.values()))


def test_every_parameter_has_one_start_in_each_stratum_of_its_scale():
    p = {"log": 1.0, "linear": 1.0, "narrow": 5.0, "mixed": 0.0}
    design = drawn(101, square, p, [1e-3, 0, 1, -1], [1e3, 50, 99, 1])
    assert design.scales == {"log": "log", "linear": "linear", "narrow": "linear", "mixed": "linear"}
    assert design.points[0].tolist() == [1, 1, 5, 0]
    log, *rest = design.points[1:].T
    unit = np.column_stack([(np.log10(log) + 3) / 6, rest[0] / 50, (rest[1] - 1) / 98, (rest[2] + 1) / 2])
    for column in unit.T:
        assert sorted(np.floor(column * 100)) == list(range(100))
    assert design.replaced == 0


def test_a_parameter_that_is_transformed_already_is_drawn_evenly():
    assert drawn(5, square, {"a": 2.0}, [1], [200]).scales == {"a": "log"}
    assert drawn(5, square, {"a": 2.0}, [1], [200], taken={"a": "log10"}).scales == {"a": "linear"}


def test_a_transformed_cost_is_searched_on_its_own_scale():
    cost = fme.SimulationCost(
        fme.OdeModel("d(x)/dt = -k*x", state={"x": 1.0}, times=[0.0, 1, 2], parms={"k": 1.0}),
        {"time": [1.0, 2], "x": [0.5, 0.2]},
    )
    logs = fme.transformed(cost, {"k": "log10"})
    fit = fme.modFit(logs, {"k": 0.0}, lower=-2, upper=2, starts=5, seed=1)
    plain = fme.modFit(cost, {"k": 1.0}, lower=1e-2, upper=1e2, starts=5, seed=1)
    assert fit.multistart.scales == {"k": "linear"}
    assert plain.multistart.scales == {"k": "log"}
    assert 10 ** fit.par["k"] == pytest.approx(plain.par["k"], rel=1e-4)


def test_without_a_box_starts_lie_around_the_given_one_inside_what_bounds_there_are():
    design = drawn(400, square, {"a": 4.0, "b": -3.0, "zero": 0.0, "half": 1.0}, [-INF, -INF, -INF, 0.9], [INF] * 4)
    assert set(design.scales.values()) == {"around p"}
    a, b, zero, half = design.points[1:].T
    assert np.log(a / 4).std() == pytest.approx(0.5, rel=0.02)
    assert np.log(b / -3).std() == pytest.approx(0.5, rel=0.02)
    assert zero.std() == pytest.approx(1, rel=0.02)
    assert half.min() == 0.9


@pytest.mark.parametrize("width", [0.0, 1e-14])
def test_a_box_without_width_is_its_one_place(width):
    design = drawn(4, square, {"a": 2.0, "b": 1.0}, [2, 0], [2 + width, 3])
    np.testing.assert_allclose(design.points[:, 0], 2.0)


def test_starts_where_the_cost_fails_are_drawn_anew_and_counted():
    calls = []

    def f(p):
        calls.append(p["a"])
        if p["a"] > 3:
            raise ValueError("too large")
        return (p["a"] - 1) ** 2

    design = drawn(40, f, {"a": 1.0}, [0], [6])
    assert (design.points <= 3).all()
    first = np.array(calls[1:40])
    assert design.replaced == (first > 3).sum() > 10
    assert len(np.unique(design.points)) == 40


def test_a_cost_that_fails_everywhere_else_leaves_the_start_that_does_not():
    def f(p):
        if p["a"] != 1.0:
            raise ValueError("only one works")
        return 3.0

    design = drawn(5, f, {"a": 1.0}, [0], [6])
    assert design.points[0, 0] == 1.0
    assert design.replaced == 4


def test_a_cost_that_fails_at_all_starts_is_told():
    model = fme.OdeModel(
        "d(x)/dt = -k*x", state={"x": 1.0}, times=[0.0, 1, 2], parms={"k": 1.0}, outputs={"y": "log(k - 5)"}
    )
    cost = fme.SimulationCost(model, {"time": [1.0, 2], "y": [0.5, 0.2]})
    with pytest.raises(ConvergenceError, match=r"None of 126 starts can be used.*The last failure: .*'y'.*Give bounds"):
        fme.modFit(cost, {"k": 1.0}, lower=0, upper=4, starts=6, seed=1)


def test_a_start_of_a_prior_that_excludes_it_is_no_start():
    fit = fme.modFit(lambda p: (p["a"] - 1) ** 2, {"a": 0.5}, lower=0, upper=10, starts=20, seed=1,
                     prior=lambda p: 0.0 if 0 <= p["a"] <= 2 else np.inf, method="Nelder-Mead")  # fmt: skip
    assert fit.multistart.replaced > 10
    assert fit.starts["value"].notna().all()


# --- tables


def test_a_table_is_taken_row_by_row_what_it_leaves_out_stays_at_the_start():
    design = drawn(pd.DataFrame({"b": [1.0, 2.0]}), square, {"a": 5.0, "b": 1.0}, [0, 0], [9, 9])
    assert design.points.tolist() == [[5, 1], [5, 2]]
    assert set(design.scales.values()) == {"given"}


def test_an_array_holds_all_parameters_in_order():
    design = drawn(as_starts(np.array([[1.0, 2.0], [3.0, 4.0]])), square, {"a": 5.0, "b": 1.0}, [0, 0], [9, 9])
    assert design.points.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("starts", "error", "told"),
    [
        (0, ArgumentError, "starts=0.*at least 1, or a table of starts"),
        (-1, ArgumentError, "starts=-1"),
        (2.5, ArgumentError, "starts=2.5"),
        (True, ArgumentError, "starts=True"),
        (None, ArgumentError, "starts=None"),
        ("many", ArgumentError, "starts='many'"),
        ([], ArgumentError, "empty table"),
        (pd.DataFrame({"a": []}), ArgumentError, "empty table"),
        ({"a": [1.0, 2.0], "b": [1.0]}, ArgumentError, "not a table of starts"),
        ({"x": [1.0]}, ParameterError, "there is no parameter 'x'"),
        ({"a": [1.0, np.nan]}, ArgumentError, "'a' is nan in row 1"),
        ({"a": [np.inf]}, ArgumentError, "'a' is inf in row 0"),
        ({"a": ["one"]}, ArgumentError, "'a' holds 'one' in row 0"),
        ({"a": [10.0]}, ParameterError, r"the start of 'a' is 10, outside its bounds \[0, 9\]"),
        (np.ones((3, 3)), ParameterError, "3 columns without names; there are 2 parameters: a, b"),
        (pd.DataFrame([[1.0, 2.0]], columns=["a", "a"]), ParameterError, "'a' more than once"),
    ],
)
def test_what_is_no_set_of_starts_is_told(starts, error, told):
    with pytest.raises(error, match=told):
        fme.modFit(square, {"a": 5.0, "b": 1.0}, lower=0, upper=9, starts=starts)


def test_a_float_without_fraction_is_a_number_of_starts():
    assert len(fme.modFit(square, {"a": 5.0}, lower=0, upper=9, starts=3.0, seed=1).starts) == 3
