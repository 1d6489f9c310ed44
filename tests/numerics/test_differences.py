"""Differences: inside the bounds, with steps that fit the noise of the function and the length over which it bends."""

import numpy as np
import pytest

from fmepy.costs.user_function import as_objective
from fmepy.fitting import modFit
from fmepy.numerics.differences import NOISE_FREE, derivatives, measured_noise, roomy_steps

FREE = np.array([-np.inf]), np.array([np.inf])


def measured(f, at, box=FREE, scalar=False):
    def evaluate(theta):
        try:
            return f(theta)
        except ValueError:
            return None

    return measured_noise(evaluate, np.array([at]), *box, scalar)


# --- derivatives


@pytest.mark.parametrize("central", [False, True])
@pytest.mark.parametrize("at", [0.0, 1e-9, 0.3, 1 - 1e-9, 1.0])
def test_derivatives_are_right_and_inside_wherever_the_point_lies_in_its_box(at, central):
    seen = []

    def evaluate(points):
        seen.extend(float(p[0]) for p in points)
        return [np.exp(2 * p) for p in points]

    box = np.zeros(1), np.ones(1)
    steps = roomy_steps(np.array([1e-5]), *box)
    (slope,) = derivatives(evaluate, np.array([at]), steps, *box, central=central)
    assert slope[0] == pytest.approx(2 * np.exp(2 * at), rel=1e-8 if central else 1e-4)
    assert min(seen) >= 0
    assert max(seen) <= 1


def test_a_probe_that_fails_is_replaced_and_where_all_fail_there_is_none():
    def evaluate(points):
        return [None if p[0] > 1 else np.exp(p[:1]) * p[1] for p in points]

    wide = np.full(2, -np.inf), np.full(2, np.inf)
    first, second = derivatives(evaluate, np.array([1.0, 2.0]), np.array([1e-4, 1e-4]), *wide, central=True)
    assert first[0] == pytest.approx(2 * np.e, rel=1e-7)
    assert second[0] == pytest.approx(np.e, rel=1e-7)
    nothing, _ = derivatives(lambda p: [None] * len(p), np.array([1.0, 2.0]), np.full(2, 1e-4), *wide, central=True)
    assert nothing is None


def test_a_parameter_without_room_has_no_slope_and_is_not_moved():
    box = np.array([2.0]), np.array([2.0])
    (slope,) = derivatives(lambda points: [p**2 for p in points], np.array([2.0]), roomy_steps(np.ones(1), *box), *box,
                           central=True)  # fmt: skip
    assert slope.tolist() == [0.0]


# --- noise


@pytest.mark.parametrize("noise", [1e-10, 1e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("scalar", [False, True])
def test_noise_that_is_there_is_found_within_a_factor(noise, scalar):
    rng = np.random.default_rng(0)
    n = 1 if scalar else 50
    x = np.linspace(1, 2, n)
    found = measured(lambda p: np.exp(p[0] * x) + noise * rng.standard_normal(n), 1.0, scalar=scalar)
    assert noise / 5 < found.absolute < 5 * noise
    assert found.central


@pytest.mark.parametrize("width", [1e5, 4.0, 0.5])
@pytest.mark.parametrize("at", [451.0, 2e4, 2.4e6])
def test_the_shape_of_a_function_is_not_taken_for_noise(at, width):
    x = at + np.linspace(-4, 4, 60) * width

    def peak(p):
        return np.exp(-0.5 * ((x - p[0]) / width) ** 2)

    found = measured(peak, at + 0.3 * width)
    assert found.absolute < 1e-6, "the table settles where it no longer sees the peak from too far"
    assert found.step * at < 0.01 * width, "a step does not pass the peak"


def test_waves_much_shorter_than_the_table_are_not_taken_for_noise():
    t = np.linspace(0, 100, 400)
    found = measured(lambda p: np.sin(p[0] * t), 1000.0)
    assert found.absolute < 1e-6
    assert found.step * 1000 < 1e-4


@pytest.mark.parametrize("scalar", [False, True])
def test_a_noisy_function_that_is_flat_takes_few_tables(scalar):
    rng, calls = np.random.default_rng(0), []

    def f(p):
        calls.append(1)
        flat = 100 + 1e-2 * (p[0] - 1) ** 2 + 1e-5 * rng.standard_normal(1)
        return flat if scalar else flat * np.ones(3) + 1e-5 * rng.standard_normal(3)

    assert 1e-6 < measured(f, 1.0, scalar=scalar).absolute < 1e-4
    assert len(calls) <= 14


def test_a_smooth_function_is_free_of_noise_after_one_table():
    calls = []

    def f(p):
        calls.append(1)
        return np.array([p[0] / (p[0] + 1), np.exp(-p[0])])

    assert measured(f, 2.0).noise < NOISE_FREE
    assert len(calls) == 7


def test_a_function_that_fails_on_one_side_is_measured_on_the_other():
    def f(p):
        if p[0] > 1:
            raise ValueError
        return np.array([p[0] ** 2, 1 - p[0]])

    assert measured(f, 1.0).noise < NOISE_FREE
    hopeless = measured_noise(lambda p: None, np.ones(1), *FREE, scalar=False)
    assert hopeless.central


@pytest.mark.parametrize("at", [451.0, 2000.0, 2e4, 2e5, 2.4e6])
def test_standard_errors_of_a_parameter_of_location_are_those_of_exact_derivatives(at):
    x = at + np.linspace(-20, 20, 60)
    y = 2 * np.exp(-0.5 * ((x - at) / 4) ** 2) + 0.02 * np.random.default_rng(1).standard_normal(60)

    def residuals(p):
        return p[0] * np.exp(-0.5 * ((x - p[1]) / p[2]) ** 2) - y

    def jacobian(p):
        u = (x - p[1]) / p[2]
        e = np.exp(-0.5 * u**2)
        return np.column_stack([e, p[0] * e * u / p[2], p[0] * e * u**2 / p[2]])

    start = [1.5, at + 3, 5.0]
    plain, exact = modFit(residuals, start), modFit(residuals, start, jac=jacobian)
    assert plain.converged, plain.message
    np.testing.assert_allclose(plain.par - exact.par, 0, atol=1e-3 * exact.std_error.min())
    np.testing.assert_allclose(plain.std_error, exact.std_error, rtol=1e-4)


def test_an_objective_measures_its_noise_at_the_start_of_its_fit():
    objective = as_objective(lambda p: np.array([np.sqrt(p[0]), p[0]]), [4.0])
    objective.begin(np.array([0.0]), np.zeros(1), np.ones(1))
    assert objective.theta0.tolist() == [0.0]
    assert np.isfinite(objective.jacobian(objective.theta0)).all()
