"""Filters go through the conditions of their models in the compiled loop as the solver in Python does."""

import ctypes

import numpy as np
import pytest

import fmepy as fme
from fmepy.compiled.c_loops import checked_loop
from fmepy.compiled.switching import run_stretch
from fmepy.filtering import continuous_transition
from fmepy.filtering.continuous_transition import CrossingSteps
from fmepy.filtering.paths import draw_paths
from fmepy.filtering.run import has_tangents

T = np.arange(41.0)
RAIN = (np.arange(51.0), np.maximum(3 * np.sin(2.3 * np.arange(51)), 0))
MODELS = {
    "overflow": ("d(S)/dt = rain - k*S - max(S - c, 0)*q", "S"),
    "switched off": ("d(S)/dt = rain - k*S + where(t > 17.3, q, 0)", "S"),
    "a time that is a parameter": ("d(S)/dt = rain - k*S + where(t > 4*c, q, 0)", "S"),
    "a wave": ("d(S)/dt = rain - k*S + where(sin(c*t) > 0, q, 0)", "S"),
    "a jump": ("d(S)/dt = rain - k*S\nd(U)/dt = where(S > c, 0.1, -0.1*U) - max(U - 2, 0)*floor(t/7)\nU(0) = 0.1", "S"),
    "a floor of a state": ("d(S)/dt = rain - k*S - 0.1*floor(S)*S", "S"),
    "a parameter alone": ("d(S)/dt = rain - k*S - where(q > 0.5, q, 0.1)*S", "S"),
    "without a forcing": ("d(S)/dt = 2*q - k*S - max(S - c, 0)", "S"),
}  # fmt: skip
PARMS = {"k": 0.1, "c": 3.0, "q": 0.8}


def cost_of(name, **words):
    text, state = MODELS[name]
    model = fme.OdeModel(
        f"{text}\n{state}(0) = 2",
        times=T,
        parms={p: v for p, v in PARMS.items() if p in text},
        forcings={"rain": RAIN} if "rain" in text else None,
    )
    seen = {"time": T[1:], state: 4 + np.cos(5 * T[1:]) + np.sin(0.3 * T[1:])}
    return fme.FimlofCost(model, seen, process_noise={state: "w"}, measurement_noise={state: "v"},
                          parms={"w": 0.3, "v": 0.2}, **words)  # fmt: skip


def in_python(name, monkeypatch, **words):
    """Return the cost whose steps a solver takes that is called from Python."""
    monkeypatch.setattr(CrossingSteps, "of", lambda stepper: None)
    cost = cost_of(name, **words)
    cost.filter()
    monkeypatch.undo()
    return cost


def is_in_the_loop(cost):
    return cost.filter().bound.filter_of(0).scheme.functions.crossings is not None


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("words", [{}, {"propagation": "moment"}, {"algorithm": "sqrt"}])
def test_the_likelihood_is_that_of_the_solver_in_python(name, words, monkeypatch):
    ours = cost_of(name, **words)
    theirs = in_python(name, monkeypatch, **words)
    assert is_in_the_loop(ours)
    assert not is_in_the_loop(theirs)
    for factor in (1.0, 1.03):
        theta = {k: v * factor for k, v in ours.parms.items()}
        assert ours(theta) == pytest.approx(theirs(theta), abs=2e-6)
    a, b = ours.filter(), theirs.filter()
    np.testing.assert_allclose(a.smoothed.to_numpy(), b.smoothed.to_numpy(), atol=1e-6)
    np.testing.assert_allclose(a.forecast(times=[45.5])["mean"], b.forecast(times=[45.5])["mean"], atol=1e-6)


@pytest.mark.parametrize("update", ["second_order", "unscented"])
def test_other_updates_agree_too(update, monkeypatch):
    ours, theirs = cost_of("overflow", update=update), in_python("overflow", monkeypatch, update=update)
    assert ours() == pytest.approx(theirs(), abs=2e-6)


def test_the_score_is_that_of_differences():
    cost = cost_of("overflow")
    bound = cost.bind()
    theta, h = bound.theta0, 1e-4
    for j, slope in enumerate(bound.score(theta)):
        ends = [bound.minus2loglik(theta + s * h * np.eye(len(theta))[j]) for s in (-1, 1)]
        assert slope == pytest.approx(-(ends[1] - ends[0]) / (4 * h), rel=1e-3, abs=1e-3)


def test_a_pass_depends_on_nothing_before_it():
    bound = cost_of("a wave").bind()
    first = bound.minus2loglik(bound.theta0)
    bound.minus2loglik(bound.theta0 * 1.3)
    assert bound.minus2loglik(bound.theta0) == first
    assert cost_of("a wave").bind().minus2loglik(bound.theta0) == first


def test_steps_with_too_many_crossings_go_to_the_other_solver(monkeypatch):
    expected = cost_of("overflow")()
    monkeypatch.setattr(continuous_transition, "_MOST_FLIPS", 0)
    cost = cost_of("overflow")
    assert is_in_the_loop(cost)
    assert cost() == pytest.approx(expected, abs=2e-6)


def test_so_do_stiff_steps():
    text = "d(x)/dt = -2000*(x - y)\nd(y)/dt = -k*y - max(y - c, 0)\nx(0) = 2\ny(0) = 2"
    model = fme.OdeModel(text, times=T, parms={"k": 0.1, "c": 1.0})
    seen = {"time": T[1:], "y": np.exp(-0.1 * T[1:])}
    words = {"process_noise": {"y": 0.1}, "measurement_noise": {"y": 0.1}}
    assert fme.FimlofCost(model, seen, **words)() == pytest.approx(
        fme.FimlofCost(model, seen, propagation="rk4", dt=5e-4, **words)(), abs=1e-3
    )


def test_no_index_is_out_of_range(monkeypatch):
    checked = checked_loop(run_stretch)
    callback = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(lambda *addresses: checked(*addresses))
    expected = cost_of("a jump")()
    monkeypatch.setattr(continuous_transition, "loop_address", lambda *_: ctypes.cast(callback, ctypes.c_void_p).value)
    assert cost_of("a jump")() == pytest.approx(expected, rel=1e-9)


def test_paths_are_drawn_through_conditions(monkeypatch):
    ours, theirs = cost_of("overflow"), in_python("overflow", monkeypatch)
    for cost in (ours, theirs):
        cost.simulate(seed=1)
    np.testing.assert_allclose(ours.simulate(seed=1)["S"], theirs.simulate(seed=1)["S"], atol=1e-6)
    one, two = (ours.filter().forecast(steps=4, draws=n, seed=3).draws for n in (2, 3))
    assert one["S"].notna().all()
    assert two["S"].notna().all()


@pytest.mark.parametrize(
    "rate",
    [
        "where(x > c, 0.6, 2.0) - k*x",
        "1 - k*x + 0.5*sign(x - c)",
        "0.1*floor(x) + 1 - k*x",
        "k*where(t > 9.5, c, 1.0) - k*x",
    ],
)
@pytest.mark.parametrize("words", [{}, {"update": "iterated"}, {"initial": "diffuse"}])
def test_a_relay_between_constants_is_no_linear_model(rate, words):
    """Its slopes are constant, but not its rates."""
    model = fme.OdeModel(
        f"d(x)/dt = {rate}\nx(0) = 0.5",
        times=np.arange(21.0),
        parms={n: v for n, v in (("c", 3.0), ("k", 0.2)) if n in rate},
    )
    seen = {"time": np.arange(1.0, 21.0), "x": 3 + np.sin(np.arange(1.0, 21.0))}
    cost = fme.FimlofCost(model, seen, process_noise={"x": 0.1}, measurement_noise={"x": 0.2}, **words)
    assert cost() == pytest.approx(cost.replace(propagation="rk4", dt=1e-3)(), rel=1e-4, abs=0.05)


def test_a_state_that_slides_along_a_condition_is_told_to_step_over_it():
    model = fme.OdeModel("d(x)/dt = 1 - 0.2*x - 0.5*sign(x - 3)\nx(0) = 0.5", times=np.arange(21.0))
    seen = {"time": np.arange(1.0, 21.0), "x": 3 + 0.1 * np.sin(np.arange(1.0, 21.0))}
    cost = fme.FimlofCost(model, seen, process_noise={"x": 0.1}, measurement_noise={"x": 0.2})
    assert "slides along it, which a run cannot follow by stops: propagation='rk4'" in cost.filter().failure
    assert np.isfinite(cost.replace(propagation="rk4", dt=1e-3)())


@pytest.mark.parametrize(("name", "is_smooth"), [("overflow", False), ("a jump", False), (None, True)])
def test_derivatives_along_a_pass_are_of_smooth_models(name, is_smooth, monkeypatch):
    """Those of others are differences of passes: the derivatives of a run jump where its conditions cross."""
    monkeypatch.setitem(MODELS, None, ("d(S)/dt = rain - k*S*S", "S"))
    assert has_tangents(cost_of(name).filter().bound.filter_of(0).scheme) is is_smooth


def test_a_relay_is_not_linear_where_its_start_is_unknown():
    for rate, is_linear in (("where(x > 3, 0.6, 2.0) - 0.2*x", False), ("1 - 0.2*x", True)):
        model = fme.OdeModel(f"d(x)/dt = {rate}", state={"x": 0.5}, times=T)
        seen = {"time": T[1:], "x": 3 + np.sin(T[1:])}
        cost = fme.FimlofCost(model, seen, process_noise={"x": 0.1}, measurement_noise={"x": 0.2}, initial="diffuse")
        assert cost.specification.space.is_linear is is_linear


class Silence:
    """Random numbers that are all zero."""

    def standard_normal(self, shape):
        return np.zeros(shape)


def test_no_path_depends_on_those_before_it():
    bound_filter, run = (flt := cost_of("overflow").filter()).bound.filter_of(0), flt.runs[0]
    start = bound_filter.start(run.p, None, run.schedule)
    paths = draw_paths(bound_filter.scheme, run.schedule, start, bound_filter.inputs(run.p), 3, Silence())
    assert np.isfinite(paths).all()
    assert (paths[0] == paths[1]).all()
    assert (paths[0] == paths[2]).all()
