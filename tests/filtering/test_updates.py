"""Better updates come closer to the likelihood that a grid of states gives, and are one filter for linear models."""

import numpy as np
import pytest

from fmepy.errors import ArgumentError
from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from tests.filtering.problems import labelled, logistic_cost, logistic_rate, outcome, read, table


def grid_filter(f, h, sd_w, sd_v, x0, sd_0, z, grid):
    """Return log L of a scalar model by carrying the density of the state on a grid (the prior lies one step back)."""
    width = grid[1] - grid[0]

    def normal(u, sd):
        return np.exp(-0.5 * (u / sd) ** 2) / (sd * np.sqrt(2 * np.pi))

    step = normal(grid[:, None] - f(grid)[None, :], sd_w) * width
    density, total = normal(grid - x0, sd_0), 0.0
    for value in z:
        density = step @ density
        joint = density * normal(value - h(grid), sd_v)
        evidence = joint.sum() * width
        total += np.log(evidence)
        density = joint / evidence
    return total


def bent(n, x, *, a=0.9, b=0.25):
    return a * x - b * x**2 + 0.3


GRID = np.linspace(-6, 5, 1501)


def bent_data(seed, sd_w, sd_v, h):
    rng = np.random.default_rng(seed)
    x, z = 0.5 + 0.5 * rng.normal(), []
    for _ in range(25):
        x = bent(0, x) + sd_w * rng.normal()
        z.append(h(x) + sd_v * rng.normal())
    return z


def bent_cost(z, update, sd_w, sd_v, reading):
    model = DifferenceModel(bent, state={"x": 0.5}, times=np.arange(len(z) + 1.0), outputs={"z": reading})
    noise = {"process_noise": {"x": sd_w}, "measurement_noise": {"z": sd_v}, "initial_sd": {"x": 0.5}}
    return FimlofCost(model, table(z, ["z"]), **noise, update=update)


def mean_gap(update, sd_w, sd_v, reading, h):
    """Return the mean distance to the exact log L over eight records."""
    gaps = []
    for seed in range(8):
        z = bent_data(seed, sd_w, sd_v, h)
        exact = grid_filter(lambda x: bent(0, x), h, sd_w, sd_v, 0.5, 0.5, z, GRID)
        gaps.append(abs(outcome(bent_cost(z, update, sd_w, sd_v, reading)).loglik - exact))
    return np.mean(gaps)


@pytest.mark.parametrize("update", ["second_order", "unscented"])
def test_second_order_and_sigma_points_come_closer_to_the_exact_likelihood(update):
    blurred = (0.4, 1.0, "exp(0.5 * x)", lambda x: np.exp(0.5 * x))
    assert mean_gap(update, *blurred) < 0.25 * mean_gap("ekf", *blurred)


def test_iterations_come_closer_where_readings_are_sharp_and_curved():
    sharp = (0.3, 0.3, "exp(x)", np.exp)
    assert mean_gap("iterated", *sharp) < 0.1 * mean_gap("ekf", *sharp)


def test_the_grid_filter_is_right_where_the_answer_is_known():
    z = bent_data(0, 0.4, 0.3, lambda x: x)
    model = DifferenceModel(lambda n, x: 0.8 * x, state={"x": 0.5}, times=np.arange(len(z) + 1.0))
    noise = {"process_noise": {"x": 0.4}, "measurement_noise": {"x": 0.3}, "initial_sd": {"x": 0.5}}
    cost = FimlofCost(model, table(z, ["x"]), **noise)
    exact = grid_filter(lambda x: 0.8 * x, lambda x: x, 0.4, 0.3, 0.5, 0.5, z, GRID)
    assert outcome(cost).loglik == pytest.approx(exact, abs=1e-8)


def quadratic_moments(P, m, f, slope, curvature):
    """Return mean and variance of f(x) for normal x and a quadratic f, exactly."""
    return f(m) + 0.5 * curvature * P, slope(m) ** 2 * P + 0.5 * (curvature * P) ** 2


def test_one_step_of_a_quadratic_map_has_the_exact_moments():
    a, b, P0 = 0.9, 0.25, 0.25
    x, P = quadratic_moments(P0, 0.5, lambda x: bent(0, x), lambda x: a - 2 * b * x, -2 * b)
    P += 0.4**2
    z, S = quadratic_moments(P, x, lambda x: x + 0.4 * x**2, lambda x: 1 + 0.8 * x, 0.8)
    S += 0.3**2
    for update in ("second_order", "unscented"):
        one = outcome(bent_cost([1.7], update, 0.4, 0.3, "x + 0.4 * x**2"))
        assert one.nu[0] == pytest.approx(1.7 - z, rel=1e-12)
        assert one.s[0] == pytest.approx(S, rel=1e-12)


def crossed(n, x, y):
    return 0.9 * x + 0.1 * x * y, 0.8 * y - 0.2 * x * y + 0.05 * x**2


def test_curvature_that_crosses_states_has_the_exact_moments():
    model = DifferenceModel(crossed, state={"x": 1.0, "y": 2.0}, times=[0, 1], outputs={"p": "x * y"})
    P0 = np.array([[0.3, 0.1], [0.1, 0.2]])
    cost = FimlofCost(
        model,
        {"time": [0], "p": [3.0]},
        process_noise={"x": 0.1},
        measurement_noise={"p": 0.5},
        initial_sd=labelled(P0, ["x", "y"]),
        update="second_order",
    )
    one = outcome(cost)
    (a, c), (_, b), mx, my = P0[0], P0[1], 1.0, 2.0
    assert one.nu[0] == pytest.approx(3.0 - (mx * my + c), rel=1e-12)
    variance = my**2 * a + mx**2 * b + 2 * mx * my * c + a * b + c**2  # of a product of two normal variables
    assert one.s[0] == pytest.approx(variance + 0.25, rel=1e-12)


def test_second_order_through_runge_and_kutta_is_the_curvature_of_the_whole_step():
    h, P = 1.0, 4.0

    def step(x):
        k1 = logistic_rate(0, x)
        k2 = logistic_rate(0, x + h / 2 * k1)
        k3 = logistic_rate(0, x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + logistic_rate(0, x + h * k3))

    d = 1e-2
    slope = (step(5 + d) - step(5 - d)) / (2 * d)
    curvature = (step(5 + d) - 2 * step(5) + step(5 - d)) / d**2
    cost = logistic_cost(
        logistic_rate, propagation="rk4", dt=1.0, update="second_order", sd_w=0.0, initial_sd={"x": np.sqrt(P)}
    )
    one = outcome(cost)
    first = read("logistic_ekf_limits")["data"][0]
    assert one.nu[0] == pytest.approx(first - step(5.0) - 0.5 * curvature * P, rel=1e-7)
    assert one.s[0] == pytest.approx(slope**2 * P + 0.5 * (curvature * P) ** 2 + 9, rel=1e-7)


@pytest.mark.parametrize("update", ["second_order", "unscented"])
def test_fixed_steps_of_both_kinds_approach_the_moments_of_second_order(update):
    moments = outcome(logistic_cost(logistic_rate, update="second_order")).loglik
    plain = outcome(logistic_cost(logistic_rate)).loglik
    fine = outcome(logistic_cost(logistic_rate, update=update, propagation="rk4", dt=0.005)).loglik
    assert abs(fine - moments) < 0.02 * abs(plain - moments)


def test_iterations_find_the_mode_of_one_strongly_curved_reading():
    model = DifferenceModel(lambda n, x: x, state={"x": 0.0}, times=[0, 1], outputs={"z": "exp(x)"})
    options = {"process_noise": {"x": 0.3}, "measurement_noise": {"z": 0.1}, "initial_sd": {"x": 0.8}}
    P = 0.3**2 + 0.8**2
    one = FimlofCost(model, {"time": [1], "z": [2.5]}, **options, update="iterated")
    bound = one.bind()
    ((run, _),) = bound.passes(bound.theta0, record=True)
    at = 0.0
    for _ in range(3):  # Gauss-Newton on the two squares
        H = np.exp(at)
        at = P * H / (H * P * H + 0.01) * (2.5 - np.exp(at) - H * (0.0 - at))
    assert run.record.x_filtered[1, 0] == pytest.approx(at, rel=1e-10)
    grid = np.linspace(-3, 3, 200_001)
    mode = grid[np.argmin((grid**2) / P + (2.5 - np.exp(grid)) ** 2 / 0.01)]
    one_pass = P / (P + 0.01) * (2.5 - 1.0)
    assert abs(at - mode) < 0.1 * abs(one_pass - mode)


def test_sigma_points_do_not_go_along_integrated_moments():
    with pytest.raises(ArgumentError, match=r"propagation='ode', 'rk4' or 'euler'"):
        logistic_cost(logistic_rate, update="unscented", propagation="moment")


def test_a_score_of_every_update_is_the_slope_of_its_likelihood():
    model = OdeModel(logistic_rate, state={"x": 5.0}, times=np.arange(31.0), method="rk4")
    data = table(read("logistic_ekf_limits")["data"], ["x"])
    for update in ("iterated", "second_order", "unscented"):
        cost = FimlofCost(
            model, data, process_noise={"x": 2.0}, measurement_noise={"x": 3.0}, update=update, transform=None
        )
        bound = cost.bind(["r"])
        slope = (bound.minus2loglik(np.array([0.301])) - bound.minus2loglik(np.array([0.299]))) / 0.002
        assert bound.score(np.array([0.3]))[0] == pytest.approx(-0.5 * slope, rel=1e-4)
