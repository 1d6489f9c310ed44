"""Branches of steady states: folds in closed form, stability along them, other branches, what is refused."""

from __future__ import annotations

import re
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, NoSteadyStateError
from fmepy.models.continuation import Branch


def budworm(t, x, *, r=0.3, q=10.0):
    """Return growth and predation of spruce budworms (Ludwig, Jones and Holling 1978)."""
    return r * x * (1 - x / q) - x**2 / (1 + x**2)


def reactor(t, x, *, Da=0.05, B=8.0):
    """Return the conversion in a stirred reactor with a reaction that heats it (Uppal, Ray and Poore 1974)."""
    return -x + Da * (1 - x) * np.exp(B * x)


def schloegl(t, x, *, k=0.5):
    """Return Schloegl's second model (1972), scaled."""
    return -(x**3) + 6 * x**2 - 11 * x + 6 * k


def brusselator(t, x, y, *, a=1.0, b=1.5):
    return a - (b + 1) * x + x**2 * y, b * x - x**2 * y


def test_folds_of_the_budworm():
    branch = fme.continuation(fme.SteadyModel(budworm, state={"x": 0.5}), "r", (0.1, 0.7))
    x = np.roots([-2, 10, 0, -10])
    x = np.sort(x[x.real > 1].real)
    np.testing.assert_allclose(branch.folds["x"], x, rtol=1e-7)
    np.testing.assert_allclose(branch.folds["r"], 2 * x**3 / (1 + x**2) ** 2, rtol=1e-9)
    f, p = branch.frame["x"].to_numpy(), branch.frame["r"].to_numpy()
    np.testing.assert_allclose(p, f / (1 + f**2) / (1 - f / 10), rtol=1e-8)  # every point is on the curve
    assert p[0] == pytest.approx(0.1)
    assert p[-1] == pytest.approx(0.7)
    between = (f > x[0] * 1.001) & (f < x[1] * 0.999)
    assert not branch.frame.loc[between, "stable"].any()
    assert branch.frame.loc[(f < x[0] * 0.999) | (f > x[1] * 1.001), "stable"].all()


def test_folds_of_a_stirred_reactor():
    branch = fme.continuation(fme.SteadyModel(reactor, state={"x": 0.1}), "Da", (0.001, 0.2))
    x = (1 + np.array([-1, 1]) * np.sqrt(1 - 4 / 8)) / 2
    np.testing.assert_allclose(branch.folds["Da"], x / (1 - x) * np.exp(-8 * x), rtol=1e-9)


def test_folds_of_schloegl_and_a_function_that_is_no_equation():
    x = 2 + np.array([-1, 1]) / np.sqrt(3)
    wanted = (x**3 - 6 * x**2 + 11 * x) / 6
    branch = fme.continuation(fme.SteadyModel(schloegl, state={"x": 0.1}), "k", (-1, 3))
    np.testing.assert_allclose(branch.folds["k"], wanted, rtol=1e-9)

    def opaque(t, y, p):
        x = float(np.array(y)[0])
        return [-(x**3) + 6 * x**2 - 11 * x + 6 * p["k"]]

    plain = fme.SteadyModel(opaque, state={"x": 0.1}, parms={"k": 0.5})
    np.testing.assert_allclose(fme.continuation(plain, "k", (-1, 3)).folds["k"], wanted, rtol=1e-6)


def test_where_a_pair_crosses_the_axis_there_is_no_fold():
    branch = fme.continuation(fme.SteadyModel(brusselator, state={"x": 1, "y": 1.5}), "b", (1.0, 3.0))
    assert branch.folds.empty
    b = branch.frame["b"].to_numpy()
    assert (branch.frame["stable"].eq(True) == (b < 2)).all()  # Hopf at b = 1 + a^2
    np.testing.assert_allclose(branch.frame["y"], b, rtol=1e-8)


def test_another_branch_begins_at_another_state():
    model = fme.SteadyModel(lambda t, x, *, p=0.0: -x * (x - 2) * (x - 4 - p), state={"x": 0.1})
    assert fme.continuation(model, "p", (-1, 1)).frame["x"].abs().max() < 1e-8
    other = fme.continuation(model, "p", (-1, 1), start={"x": 4.1})
    np.testing.assert_allclose(other.frame["x"], 4 + other.frame["p"], rtol=1e-8)
    again = fme.continuation(model, "p", (-1, 1), start=[3.9])
    np.testing.assert_allclose(again.frame["x"], other.frame["x"], rtol=1e-8)


def test_profiles_are_followed_like_numbers():
    grid = fme.Grid1D(np.linspace(0, 1, 21))

    def bratu(t, u, *, lam=1.0):
        return fme.transport_1d(u, grid, D=1.0, up=0.0, down=0.0).rate + lam * np.exp(u)

    branch = fme.continuation(fme.SteadyModel(bratu, state={"u": 0.1}, grid=grid), "lam", (0.1, 4.0))
    assert len(branch.folds) == 1
    assert branch.folds["lam"].iloc[0] == pytest.approx(3.5138, rel=5e-3)  # of the continuous equation


def test_it_prints_shows_draws_and_is_saved(tmp_path):
    branch = fme.continuation(fme.SteadyModel(budworm, state={"x": 0.5}), "r", (0.1, 0.7))
    assert "folds at r = 0.559525" in repr(branch)
    assert "<table" in branch._repr_html_()
    (ax,) = branch.plot()
    assert ax.get_xlabel() == "r"
    assert [line.get_label() for line in ax.get_lines() if not line.get_label().startswith("_")] == [
        "stable", "unstable", "fold",
    ]  # fmt: skip
    plt.close("all")
    assert fme.load(branch.save(tmp_path / "branch.json")).frame.equals(branch.frame)


def test_points_that_are_neither_stable_nor_unstable_are_drawn_as_such():
    frame = pd.DataFrame({"p": [0.0, 1.0, 2.0, 3.0], "x": 1.0, "stable": [True, None, None, False], "eigenvalue": 0.0})
    (ax,) = Branch(frame, frame.iloc[:0, :2], "p", "").plot()
    assert [(line.get_label(), line.get_xdata().tolist()) for line in ax.get_lines()] == [
        ("stable", [0, 1]), ("neutral", [1, 2, 3]), ("unstable", [3]),
    ]  # fmt: skip
    plt.close("all")


def test_a_steady_state_says_its_eigenvalue():
    found = fme.steady([1.0], lambda t, y, p: [-2 * y[0]])
    assert found.eigenvalue == found.rightmost == pytest.approx(-2)
    assert found.stable


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ({"parameter": "rr"}, ArgumentError, "Did you mean 'r'"),
        ({"range_": (0.7, 0.1)}, ArgumentError, "is empty"),
        ({"range_": (0.4, 0.7)}, ArgumentError, "does not hold the model's own r = 0.3"),
        ({"range_": 3}, ArgumentError, "two numbers"),
        ({"start": {"y": 1.0}}, ArgumentError, "not the states"),
        ({"start": [1.0, 2.0]}, ArgumentError, "must hold 1 states"),
        ({"max_step": 0}, ArgumentError, "max_step"),
    ],
)
def test_what_cannot_be_is_said(words, error, message):
    model = fme.SteadyModel(budworm, state={"x": 0.5})
    asked = {"parameter": "r", "range_": (0.1, 0.7), **words}
    with pytest.raises(error, match=message):
        fme.continuation(model, asked.pop("parameter"), asked.pop("range_"), **asked)


def test_other_models_and_no_root_at_the_start_are_errors():
    with pytest.raises(ArgumentError, match="must be a SteadyModel"):
        fme.continuation(lambda p: p, "a", (0, 1))
    never = fme.SteadyModel(lambda t, x, *, p=1.0: x**2 + p, state={"x": 0.5})
    with pytest.raises(NoSteadyStateError):
        fme.continuation(never, "p", (0.5, 2))


def test_a_branch_passes_zero_without_small_steps():
    cubic = fme.SteadyModel(lambda t, x, *, b=-3.0: b - x**3 + 3 * x, state={"x": -2.0})
    branch = fme.continuation(cubic, "b", (-4, 4))
    assert len(branch.frame) < 400
    np.testing.assert_allclose(np.sort(branch.folds["b"]), [-2, 2], rtol=1e-9)


def test_a_fit_that_runs_across_a_fold_is_told_once_and_where():
    model = fme.SteadyModel(budworm, state={"x": 8.0}, parms={"r": 0.6})
    fold = fme.continuation(model, "r", (0.2, 0.7)).folds["r"].min()
    low = fme.SimulationCost(model, pd.DataFrame({"x": [float(model({"r": 0.25})["x"].iloc[0])]}), x=None)
    with pytest.warns(
        UserWarning, match=r"jumps where 'r' goes from .*'x' goes from .*continuation\(model, 'r'"
    ) as told:
        fme.modFit(low, ["r"], lower=0.01, upper=2)
    assert len(told) == 1
    before, after = map(float, re.search(r"'r' goes from ([\d.]+) to ([\d.]+),", str(told[0].message)).groups())
    assert after <= fold + 1e-4
    assert before >= fold - 1e-4
    assert before - after < 1e-3
    high = fme.SimulationCost(model.replace(parms={"r": 0.6}), pd.DataFrame({"x": [6.5]}), x=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fme.modFit(high, ["r"], lower=0.01, upper=2)


def test_a_state_that_changes_much_but_smoothly_does_not_jump():
    steep = fme.SteadyModel(lambda t, x, *, a=1.0: a**8 - x, state={"x": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = steep.bind()
        for a in (1.0, 2.0, 0.1, 5.0):
            bound.sensitivities(np.array([a]))


@pytest.mark.parametrize("n", [20, 80])
def test_a_branch_of_profiles_has_as_many_points_however_many_cells_and_ends_where_its_parameter_fades(n):
    """Bratu's problem, u'' + lam exp(u) = 0: a fold at 3.513830719; above, u grows without end as lam goes to zero."""
    grid = fme.Grid1D(np.linspace(0, 1, n + 1))

    def bratu(t, u, *, lam=1.0):
        return fme.transport_1d(u, grid, D=1.0, up=0.0, down=0.0).rate + lam * np.exp(u)

    branch = fme.continuation(fme.SteadyModel(bratu, state={"u": 0.1}, grid=grid), "lam", (0, 4))
    assert branch.folds["lam"].tolist() == pytest.approx([3.513830719], rel=1.0 / n**2)
    assert 100 < len(branch.frame) < 250
    assert "next to the end of the range" in branch.message
    assert list(branch.frame.columns[1:3]) == list(branch.folds.columns[1:3]) == ["u[1]", "u[2]"]
    labels = [ax.get_ylabel() for ax in branch.plot()]
    assert labels == [f"u[{1 + int(i)}]" for i in np.linspace(0, n - 1, 6)]
    plt.close("all")
    top = branch.frame["stable"].to_numpy() == np.False_
    assert top.any()
    assert (branch.frame["eigenvalue"][top] > 0).all()


def test_a_branch_that_leaves_on_both_sides_by_one_end_says_so_once():
    model = fme.SteadyModel("d(x)/dt = p - x^2", state={"x": 1.0}, parms={"p": 1.0})
    branch = fme.continuation(model, "p", (-1, 2))
    assert branch.message == "It ends at the upper end of the range both ways."


def chemostat(t, S, B, *, D=0.3, Sin=10.0, mu=1.0, K=1.0, Y=0.5):
    growth = mu * S / (K + S)
    return D * (Sin - S) - growth * B / Y, (growth - D) * B


def test_a_branch_ends_where_a_state_that_must_not_be_negative_falls_below_zero():
    model = fme.SteadyModel(chemostat, state={"S": 1, "B": 3}, positive=True)
    branch = fme.continuation(model, "D", (0.1, 1.2))
    assert "at 0.909091, where 'B' falls below zero" in branch.message
    assert branch.frame["D"].iloc[-1] == pytest.approx(10 / 11, rel=1e-7)  # the washout: mu Sin / (K + Sin)
    assert branch.frame["B"].min() > -1e-9
    washed_out = fme.continuation(model, "D", (0.1, 1.2), start={"S": 10, "B": 0})  # there B is zero all along
    assert washed_out.message == "It ends at the lower end of the range, and at the upper end of the range."


def test_a_branch_that_runs_to_infinity_ends_there_and_has_no_folds():
    branch = fme.continuation(fme.SteadyModel(chemostat, state={"S": 1, "B": 3}), "D", (0.1, 1.2))
    assert "at 1, where 'S' runs to infinity" in branch.message
    assert branch.folds.empty
    S, D = branch.frame["S"].to_numpy(), branch.frame["D"].to_numpy()
    np.testing.assert_allclose(D, S / (1 + S), rtol=1e-9)
