"""Parts of the rates that depend on parameters alone are computed once a run, whatever the run is made of."""

import numpy as np
import pandas as pd
import pytest

from fmepy import DifferenceModel, FimlofCost, OdeModel, lag
from fmepy.compiled import explicit_runs
from fmepy.compiled.statements import slow_parts
from fmepy.filtering.continuous_transition import _NumericRates
from fmepy.language.nodes import Symbol, call
from fmepy.models.engines import explicit

TIMES = np.linspace(0.0, 10.0, 21)
VALUES = {"a": 1.2, "b": 0.4, "c": 0.7}


def growth(t, x, y, a, b, c):
    return a * x - b * x * y, b * x * y - c * y


def halved(t, x, y, a, b, c):  # a switch that is crossed many times
    return a * x - b * x * np.maximum(y, 2.0), b * x * y - c * y


def many_switches(t, x, y, a, b, c):
    steps = sum(np.where(x > 0.08 * i, 0.01 * a, 0.0) for i in range(1, 70))
    return a * x - b * x * y - steps * x, b * x * y - c * y


def forced(t, x, y, a, b, c, u):
    return a * u - b * x, b * x - c * y


def stiff(t, x, y, a, b, c):
    return -1e5 * a * (x - np.cos(t)) + y, -b * y + c


def delayed(t, x, y, a, b, c):
    return a * x - b * x * lag(y, c), b * x * y - y


def balanced(t, x, y, a, b, c):
    return -a * x + b, a * x - c * y - y**3


DOSE = pd.DataFrame({"time": [4.0], "var": ["x"], "value": ["0.5 * x"], "method": ["replace"]})
ROOT = pd.DataFrame({"root": ["x - 3"], "var": ["x"], "value": ["0.5 * x"], "method": ["replace"]})
CASES = {
    "plain": (growth, {}),
    "dose": (growth, {"events": DOSE}),
    "root": (growth, {"events": ROOT}),
    "switch": (halved, {}),
    "many switches": (many_switches, {}),
    "forced": (forced, {"forcings": {"u": pd.DataFrame({"time": [0, 3, 20.0], "u": [1, 3, 0.5]})}}),
    "stiff": (stiff, {}),
    "delayed": (delayed, {}),
    "algebraic": (balanced, {"algebraic": ["y"]}),
    "held stiff": (growth, {"engine": "stiff"}),
    "held explicit": (growth, {"engine": "explicit"}),
}


def pair(name):
    """Return a model, and the same with the logarithms of its parameters."""
    rates, more = CASES[name]

    def by_logarithms(t, x, y, *, a, b, c):
        return rates(t, x, y, 10**a, np.exp(b), np.sqrt(c))

    def plain(t, x, y, *, a, b, c):
        return rates(t, x, y, a, b, c)

    def forced_plain(t, x, y, *, a, b, c, u):
        return rates(t, x, y, a, b, c, u)

    def forced_by_logarithms(t, x, y, *, a, b, c, u):
        return rates(t, x, y, 10**a, np.exp(b), np.sqrt(c), u)

    if name == "forced":
        plain, by_logarithms = forced_plain, forced_by_logarithms
    given = {"state": {"x": 2.0, "y": 1.0}, "times": TIMES, "rtol": 1e-9, "atol": 1e-10, **more}
    logs = {"a": np.log10(VALUES["a"]), "b": np.log(VALUES["b"]), "c": VALUES["c"] ** 2}
    return OdeModel(plain, parms=VALUES, **given), OdeModel(by_logarithms, parms=logs, **given)


@pytest.mark.parametrize("name", CASES)
def test_a_model_of_logarithms_runs_as_the_model(name):
    model, by_logarithms = pair(name)
    bound, ours = model.bind(), by_logarithms.bind()
    assert ours.engine == bound.engine != "scipy"
    np.testing.assert_allclose(ours.simulate(ours.theta0), bound.simulate(bound.theta0), rtol=1e-6, atol=1e-7)
    Y, S = bound.sensitivities(bound.theta0)
    Z, T = ours.sensitivities(ours.theta0)
    a, b, c = VALUES.values()
    np.testing.assert_allclose(Z, Y, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(T, S * [np.log(10) * a, b, 0.5 / c], rtol=1e-4, atol=1e-4 * np.abs(S).max())


@pytest.mark.parametrize("name", ["plain", "dose", "forced", "stiff", "delayed"])
def test_so_do_many_runs(name, monkeypatch):
    model, by_logarithms = pair(name)
    monkeypatch.setattr(explicit_runs, "_WORTH_LANES", 0)
    bound, ours = model.bind(), by_logarithms.bind()
    Theta = bound.theta0 * np.random.default_rng(1).uniform(0.9, 1.1, (11, 3))
    logs = np.column_stack([np.log10(Theta[:, 0]), np.log(Theta[:, 1]), Theta[:, 2] ** 2])
    Y, _ = bound.simulate_many(Theta)
    Z, _ = ours.simulate_many(logs)
    np.testing.assert_allclose(Z, Y, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(Z, [by_logarithms.bind().simulate(theta) for theta in logs])


def test_so_do_difference_equations():
    def plain(t, x, y, *, a, b, u):
        return x + a * x * (1 - x / 10) - 0.1 * y + u, b * y + 0.1 * x

    def by_logarithms(t, x, y, *, a, b, u):
        return plain(t, x, y, a=10**a, b=np.exp(b), u=u)

    given = {"state": {"x": 1.0, "y": "1 + a"}, "times": range(31), "outputs": {"z": "x + sqrt(a) * y"},
             "forcings": {"u": pd.DataFrame({"time": [0, 30], "u": [0.0, 1.0]})}}  # fmt: skip
    logs = {"state": {"x": 1.0, "y": "1 + 10**a"}, "outputs": {"z": "x + sqrt(10**a) * y"}}
    model = DifferenceModel(plain, parms={"a": 0.1, "b": 0.5}, **given).bind()
    ours = DifferenceModel(by_logarithms, parms={"a": -1.0, "b": np.log(0.5)}, **{**given, **logs}).bind()
    Y, S = model.sensitivities(model.theta0)
    Z, T = ours.sensitivities(ours.theta0)
    np.testing.assert_allclose(Z, Y, rtol=1e-12)
    np.testing.assert_allclose(T, S * [0.1 * np.log(10), 0.5], rtol=1e-10)


@pytest.mark.parametrize(
    ("propagation", "update"),
    [("moment", "ekf"), ("ode", "ekf"), ("rk4_moment", "ekf"), ("moment", "second_order"), ("rk4", "unscented")],
)
def test_so_do_filters(propagation, update):
    def plain(t, x, y, *, a, b, c):
        return growth(t, x, y, a, b, c)

    def by_logarithms(t, x, y, *, a, b, c):
        return growth(t, x, y, 10**a, np.exp(b), np.sqrt(c))

    noise = {"process_noise": {"x": 0.1, "y": 0.2}, "propagation": propagation, "update": update}
    rng, values = np.random.default_rng(1), {}
    data = pd.DataFrame({"time": TIMES[1:], "x": 2 + rng.standard_normal(20)})
    logs = {"a": np.log10(VALUES["a"]), "b": np.log(VALUES["b"]), "c": VALUES["c"] ** 2}
    for rates, parms, sd in ((plain, VALUES, "s"), (by_logarithms, logs, "exp(s)")):
        model = OdeModel(rates, state={"x": 2.0, "y": 1.0}, times=TIMES, parms=parms)
        start = 0.3 if sd == "s" else np.log(0.3)
        cost = FimlofCost(model, data, measurement_noise={"x": sd}, parms={"s": start}, **noise)
        bound = cost.bind(["a", "c", "s"])
        values[sd] = bound.minus2loglik(bound.theta0), bound.score(bound.theta0)
        assert np.isfinite(cost.filter().smoothed["x"]).all()
        (one,), x, p = bound._filters, np.array([2.0, 1.0]), cost.parms.to_numpy()
        np.testing.assert_allclose(one.observe_at(0.0, x, p, np.empty(0))[2], [0.3])
        f, _F, A = _NumericRates(one.spec.space, False)._at(0.0, x, np.append(p, 1.0), np.empty(0))
        np.testing.assert_allclose(f, growth(0.0, *x, *VALUES.values()))
        np.testing.assert_allclose(A, np.diag([0.1, 0.2]))
    np.testing.assert_allclose(values["exp(s)"][0], values["s"][0], rtol=1e-6)
    by = [np.log(10) * VALUES["a"], 0.5 / VALUES["c"], 0.3]
    np.testing.assert_allclose(values["exp(s)"][1], values["s"][1] * by, rtol=1e-3, atol=1e-3)


def test_they_are_computed_once_a_run():
    _, by_logarithms = pair("plain")
    bound = by_logarithms.bind()
    problem = bound._runner(bound.engines[0], "exact")._problem
    slow = explicit._entries(problem.system).slow
    assert len(slow) >= 3
    rates = explicit._program(problem.system).partition("define void @rates(")[2]
    assert "@llvm.exp" not in rates
    assert "@llvm.pow" not in rates


def test_the_largest_parts_are_taken_and_quotients_stay_quotients():
    x, a, b = map(Symbol, "xab")
    e = call("exp", a + b)
    assert slow_parts([x * e, 3 * call("sin", e) + x], [a, b]) == [e, 3 * call("sin", e)]
    assert slow_parts([x / e], [a, b]) == [e]
    assert slow_parts([x * a**2 / b, a * b + 1, call("exp", x)], [a, b]) == []
    assert slow_parts([a**0.5, 2**b * x], [a, b]) == [a**0.5, 2**b]
