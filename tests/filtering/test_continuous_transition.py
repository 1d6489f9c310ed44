"""An adaptive solver, the moments and the matrix exponential are one propagation, and no forcing is stepped over."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from fmepy.compiled.llvm_code import NotWritableError
from fmepy.filtering import continuous_transition, transition
from fmepy.fimlof.cost import FimlofCost
from fmepy.models.ode import OdeModel
from tests.filtering.problems import (
    driven_oscillator,
    logistic_cost,
    logistic_rate,
    oscillator,
    oscillator_cost,
    outcome,
    read,
    run_of,
)
from tests.plain import plain

SILENT = {"u": ([0.0, 50.0], [0.0, 0.0])}
"""A forcing that does nothing but keep the matrix exponential away."""

ROADS = [
    {"function": oscillator},
    {"function": driven_oscillator, "forcings": SILENT},
    {"function": oscillator, "propagation": "moment"},
    {"function": oscillator, "algorithm": "sqrt"},
    {"function": driven_oscillator, "forcings": SILENT, "algorithm": "sqrt"},
    {"function": oscillator, "propagation": "moment", "algorithm": "sqrt"},
    {"function": oscillator, "update": "second_order"},
    {"function": oscillator, "update": "unscented"},
]


@pytest.mark.parametrize("road", ROADS)
def test_the_oscillator_at_irregular_times(road):
    fixed = read("cd_oscillator_irregular")["fixed"]
    cost = oscillator_cost(**road)
    one, run = outcome(cost), run_of(cost)
    assert one.loglik == pytest.approx(fixed["loglik_gaussian"], abs=1e-6)
    assert one.sumsq == pytest.approx(fixed["sumsq"], abs=1e-5)
    np.testing.assert_allclose(run.record.x_filtered[-1], fixed["x_last"], atol=1e-7)
    np.testing.assert_allclose(run.record.P_filtered[-1], fixed["P_last"], atol=1e-7)


@pytest.mark.parametrize("propagation", ["ode", "moment"])
def test_the_engine_for_stiff_systems_agrees(monkeypatch, propagation):
    monkeypatch.setattr(continuous_transition, "_step_tolerances", lambda *_: None)
    fixed = read("cd_oscillator_irregular")["fixed"]
    for cost in (
        oscillator_cost(driven_oscillator, SILENT, propagation=propagation),
        oscillator_cost(oscillator, propagation="moment"),
    ):
        assert outcome(cost).loglik == pytest.approx(fixed["loglik_gaussian"], abs=1e-6)


def cannot_be_written(*_):
    raise NotWritableError("its functions")


def test_exact_is_exact():
    fixed = read("cd_oscillator_irregular")["fixed"]
    assert outcome(oscillator_cost()).loglik == pytest.approx(fixed["loglik_gaussian"], abs=1e-11)


@pytest.mark.parametrize("road", ROADS[:3])
def test_the_oscillator_is_stationary_where_its_estimate_is_stored(road):
    mle = read("cd_oscillator_irregular")["mle"]
    names = ["om", "ze", "qc", "r"]
    bound = oscillator_cost(**road).bind(names)
    theta = np.array([mle[k] for k in names])
    score, information = bound.score(theta), bound.information(theta)
    step = np.linalg.solve(information, score)
    assert np.abs(step / theta).max() < 1e-4
    se_log = np.sqrt(np.diag(np.linalg.inv(information))) / theta
    np.testing.assert_allclose(se_log, mle["se_log"], rtol=0.15)  # theirs is of the observed information


@pytest.mark.parametrize("options", [{}, {"propagation": "moment"}, {"algorithm": "sqrt"}])
def test_logistic_growth_in_continuous_time(options):
    expected = read("logistic_ekf_limits")["continuous_discrete"]
    one = outcome(logistic_cost(logistic_rate, **options))
    assert one.xi == pytest.approx(expected["loglik_peterson"], abs=1e-6)
    np.testing.assert_allclose(one.nu, expected["innovations"], atol=1e-6)
    np.testing.assert_allclose(one.s, expected["S"], rtol=1e-6)


def test_without_the_compiled_engine_lsoda_gives_the_same(monkeypatch):
    compiled = outcome(logistic_cost(logistic_rate))
    monkeypatch.setattr(continuous_transition, "_step_tolerances", lambda *_: None)
    monkeypatch.setattr(continuous_transition, "CompiledStepper", cannot_be_written)
    np.testing.assert_allclose(outcome(logistic_cost(logistic_rate)).nu, compiled.nu, atol=1e-6)


def test_what_the_compiled_engine_cannot_finish_lsoda_does(monkeypatch):
    from fmepy.errors import SimulationError

    def gives_up(*_):
        raise SimulationError("step size too small")

    monkeypatch.setattr(continuous_transition, "_step_tolerances", lambda *_: None)
    compiled = outcome(logistic_cost(logistic_rate))
    monkeypatch.setattr("fmepy.models.engines.explicit.CompiledStepper.advance", gives_up)
    continuous_transition._augmented.cache_clear()
    assert outcome(logistic_cost(logistic_rate)).loglik == pytest.approx(compiled.loglik, abs=1e-6)


@pytest.mark.parametrize(("propagation", "gain"), [("euler", 10), ("rk4", 1e3)])
def test_fixed_steps_converge_to_the_adaptive_solver(propagation, gain):
    exact = outcome(logistic_cost(logistic_rate)).loglik
    widths = (0.1, 0.01) if propagation == "euler" else (0.5, 0.05)
    gaps = [abs(outcome(logistic_cost(logistic_rate, propagation=propagation, dt=h)).loglik - exact) for h in widths]
    assert gaps[0] / gaps[1] > 0.8 * gain  # of Euler's steps the noise is drawn at the beginning


def leaky(t, x, u, *, k=0.1):
    return u - k * x


def leaky_cost(**options):
    pulse = {"u": ([0.0, 49.9, 50.2, 100.0], [0.0, 10.0, 0.0, 0.0], "constant")}
    model = OdeModel(leaky, state={"x": 0.0}, times=[0.0, 100.0], forcings=pulse)
    data = {"time": [100.0], "x": [0.0]}
    noise = {"process_noise": {"x": 0.1}, "measurement_noise": {"x": 0.1}}
    return FimlofCost(model, data, **noise, **options)


@pytest.mark.parametrize("options", [{"propagation": "ode"}, {"propagation": "moment"}])
def test_a_short_pulse_in_a_long_step_is_not_stepped_over(options):
    exact = 10 / 0.1 * (np.exp(-0.1 * 49.8) - np.exp(-0.1 * 50.1))
    assert outcome(leaky_cost(**options)).nu[0] == pytest.approx(-exact, rel=1e-5)


def switched(t, x, *, k=0.1, on=49.9, off=50.2):
    return np.where(t > on, 1.0, 0.0) * np.where(t < off, 10.0, 0.0) - k * x


@pytest.mark.parametrize("compiled", [True, False])
def test_a_condition_of_time_alone_is_not_stepped_over(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(continuous_transition, "CompiledStepper", cannot_be_written)
    model = OdeModel(switched, state={"x": 0.0}, times=[0.0, 100.0])
    cost = FimlofCost(model, {"time": [100.0], "x": [0.0]}, process_noise={"x": 0.1}, measurement_noise={"x": 0.1})
    exact = 10 / 0.1 * (np.exp(-0.1 * 49.8) - np.exp(-0.1 * 50.1))
    assert outcome(cost).nu[0] == pytest.approx(-exact, rel=1e-5)


def test_a_stiff_system_is_left_to_the_engine_for_it(monkeypatch):
    def chain(t, a, b, u, *, fast=1e4, slow=0.3):
        return u - fast * a, fast * a - slow * b

    def cost():
        level = {"u": ([0.0, 50.0], [0.6, 0.6])}
        model = OdeModel(chain, state={"a": 0.0, "b": 1.0}, times=[0.0, 5.0], forcings=level)
        data = {"time": [1.0, 3.0, 5.0], "b": [1.2, 1.6, 1.5]}
        return FimlofCost(model, data, process_noise={"a": 0.4, "b": 0.3}, measurement_noise={"b": 0.1})

    both = outcome(cost())
    asked = []
    whole = continuous_transition.run_segments
    monkeypatch.setattr(continuous_transition, "run_segments", lambda s, *rest: asked.append(s.name) or whole(s, *rest))
    assert outcome(cost()).loglik == both.loglik
    assert asked[0] == "compiled"
    b, P = 1.0, 0.0  # a is at its level at once, and its noise goes on to b
    for n, (h, z) in enumerate(zip([1.0, 2.0, 2.0], [1.2, 1.6, 1.5], strict=True)):
        Phi = np.exp(-0.3 * h)
        b, P = 2.0 + (b - 2.0) * Phi, Phi**2 * P + (0.4**2 + 0.3**2) * (1 - Phi**2) / 0.6
        assert both.nu[n] == pytest.approx(z - b, abs=2e-4)
        assert both.s[n] == pytest.approx(P + 0.01, rel=1e-3)
        K = P / (P + 0.01)
        b, P = b + K * (z - b), P - K * P


def test_units_do_not_matter_to_the_explicit_method(monkeypatch):
    def turns(t, x, y, u, *, size=1.0):
        return y / size + u, -4 * size * x - 0.4 * y

    def cost(size):
        model = OdeModel(turns, state={"x": 1.0, "y": 0.0}, times=[0.0, 5.0], forcings=SILENT, parms={"size": size})
        data = {"time": [1.0, 2.5, 5.0], "x": [-0.3, 0.2, -0.5]}
        return FimlofCost(model, data, process_noise={"y": 0.5 * size}, measurement_noise={"x": 0.1})

    asked = []
    whole = continuous_transition.run_segments
    monkeypatch.setattr(continuous_transition, "run_segments", lambda s, *rest: asked.append(s.name) or whole(s, *rest))
    plain = outcome(cost(1.0))
    for size in (1e5, 1e-3):
        np.testing.assert_allclose(outcome(cost(size)).nu, plain.nu, atol=1e-6)
        np.testing.assert_allclose(outcome(cost(size)).s, plain.s, rtol=1e-6)
    assert not asked  # no step was given back


def exactly(M, b, V, h):
    """Return Phi, the shift and Qd of x' = M x + b with noise of covariance V in a unit of time."""
    n = len(M)
    E = np.empty((2 * n + 1, n))
    transition.exact_parts(M, b, np.linalg.cholesky(V + 1e-300 * np.eye(n)), h, E, M.copy(), M.copy())
    return E[:n], E[2 * n], E[n : 2 * n]


def test_the_noise_integral_of_a_stiff_system_is_the_solution_of_its_equation():
    M, V = np.array([[-1e4, 0.0], [1e4, -0.3]]), np.diag([4.0, 0.0])
    b, h = np.array([1.0, 2.0]), 5.0
    Phi, shift, Qd = exactly(M, b, V, h)
    np.testing.assert_allclose(M @ Qd + Qd @ M.T + V, Phi @ V @ Phi.T, atol=1e-8)  # d/dh of both ends
    np.testing.assert_allclose(M @ shift + b, Phi @ b, atol=1e-8)


def test_the_noise_integral_is_the_one_of_quadrature():
    M, V, h = np.array([[0.0, 1.0], [-4.0, -0.4]]), np.diag([0.0, 0.5]), 0.9

    def rates(t, z):
        Q = z.reshape(2, 2)
        return (M @ Q + Q @ M.T + V).ravel()

    Qd = solve_ivp(rates, (0, h), np.zeros(4), rtol=1e-11, atol=1e-14).y[:, -1].reshape(2, 2)
    np.testing.assert_allclose(exactly(M, np.zeros(2), V, h)[2], Qd, rtol=1e-9)


@pytest.mark.parametrize("h", [1e-3, 0.4, 7.0, 300.0])
def test_the_exact_step_is_that_of_van_loan_s_exponential(h):
    rng = np.random.default_rng(3)
    M, G, b = rng.standard_normal((4, 4)) - 3 * np.eye(4), rng.standard_normal((4, 4)), rng.standard_normal(4)
    block = np.zeros((8, 8))
    step = h / 2 ** max(0, int(np.ceil(np.log2(10 * h))))  # [[-M, V], [0, M']] itself overflows over long steps
    block[:4, :4], block[:4, 4:], block[4:, 4:] = -M, G @ G.T, M.T
    E = expm(block * step)
    Phi, shift = E[4:, 4:].T, np.linalg.solve(M, (E[4:, 4:].T - np.eye(4)) @ b)
    Qd = Phi @ E[:4, 4:]
    while step < h:
        Qd, shift, Phi, step = Qd + Phi @ Qd @ Phi.T, shift + Phi @ shift, Phi @ Phi, 2 * step
    found = exactly(M, b, G @ G.T, h)
    for ours, theirs in zip(found, (Phi, shift, Qd), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)


def test_a_covariance_without_full_rank_has_a_factor():
    Q = np.outer([1.0, 0.0, 2e3], [1.0, 0.0, 2e3])
    C = continuous_transition.covariance_factor(Q)
    np.testing.assert_allclose(C @ C.T, Q, rtol=1e-12)
    assert np.isnan(continuous_transition.covariance_factor(np.full((2, 2), np.nan))).all()


def test_a_state_that_grows_without_bound_is_infinite_cost():
    def explodes(t, x, *, k=1.0):
        return k * x * x

    model = OdeModel(explodes, state={"x": 1.0}, times=[0.0, 3.0])
    cost = FimlofCost(model, {"time": [3.0], "x": [1.0]}, process_noise={"x": 0.1}, measurement_noise={"x": 0.1})
    assert cost() == np.inf


def relaxes(t, x, *, k=0.5, mean=2.0):
    return k * (mean - x)


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("propagation", ["ode", "moment"])
def test_an_integral_over_the_time_before_a_reading_has_the_moments_of_the_joint_density(kind, propagation):
    k, q, length, sd_0 = 0.5, 0.6, 1.5, 0.7
    model = OdeModel(relaxes, state={"x": 1.0}, times=[0.0, 2.0], outputs={"total": "x"})
    cost = FimlofCost(
        model,
        {"time": [2.0], "total": [3.0]},
        process_noise={"x": q},
        measurement_noise={"total": 0.1},
        initial_sd={"x": sd_0},
        accumulate={"total": (length, kind)},
        propagation=propagation,
    )
    one = outcome(cost)
    # x(t) = 2 + (x(0.5) - 2) e^(-k (t - 0.5)) + noise, and its integral over 0.5..2
    begin = 2.0 - length
    m, P = 2 - np.exp(-k * begin), sd_0**2 * np.exp(-2 * k * begin) + q**2 * (1 - np.exp(-2 * k * begin)) / (2 * k)
    g = (1 - np.exp(-k * length)) / k
    noise = q**2 / k**2 * (length - 2 * g + (1 - np.exp(-2 * k * length)) / (2 * k))
    per = length if kind == "mean" else 1.0
    assert one.nu[0] == pytest.approx(3.0 - (2 * length + (m - 2) * g) / per, abs=1e-7)
    assert one.s[0] == pytest.approx((g**2 * P + noise) / per**2 + 0.01, rel=1e-7)


@pytest.mark.parametrize("engine", ["explicit", "stiff", "lsoda"])
def test_the_unit_of_a_state_does_not_matter(monkeypatch, engine):
    if engine != "explicit":
        monkeypatch.setattr(continuous_transition, "_step_tolerances", lambda *_: None)
    if engine == "lsoda":
        monkeypatch.setattr(continuous_transition, "CompiledStepper", cannot_be_written)

    def loglik(unit):
        times = np.array([0.0, 6.0, 12.0, 18.0])
        model = OdeModel("d(N)/dt = a*sin(7.3*t)**2", state={"N": 0}, times=times, parms={"a": unit})
        noise = {"process_noise": {"N": 0.01 * unit}, "measurement_noise": {"N": 0.01 * unit}}
        cost = FimlofCost(model, {"time": times[1:], "N": unit * np.array([3.01, 5.98, 9.02])}, **noise)
        bound = cost.bind()
        return bound.minus2loglik(bound.theta0) - 6 * np.log(unit)

    assert loglik(1e-12) == pytest.approx(loglik(1.0), abs=2e-3)  # 40 periods, at 1e-8 a step


def test_the_model_s_longest_step_holds_between_two_data_too():
    def pulse(t, y, p):
        return [p["a"] if 5.0 < t < 5.1 and plain(y[0]) < 1e9 else 0.0]

    def state(**arguments):
        model = OdeModel(pulse, state={"x": 0.0}, times=[0, 10], parms={"a": 10.0}, **arguments)
        cost = FimlofCost(model, {"time": [10.0], "x": [1.0]}, process_noise={}, measurement_noise={"x": 1.0})
        return outcome(cost).nu[0]

    assert state(max_step=0.05) == pytest.approx(0.0, abs=1e-3)
