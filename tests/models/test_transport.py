"""Advection and diffusion on a grid: fluxes, boundaries, balances, order, closed-form profiles, bad input."""

import pickle

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError

UNEVEN = fme.Grid1D(np.linspace(0, 1, 31) ** 1.5 * 4, area=lambda x: 1 + 0.3 * x)


@pytest.mark.parametrize("v", [2e-6, 2e-4])  # on both sides of where the exponential loses its digits
def test_a_weak_flow_carries_the_mean_of_two_cells(v):
    flow = fme.transport_1d(np.array([3.0, 1.0]), fme.Grid1D([0.0, 1.0, 2.0]), D=1.0, v=v)
    assert (flow.flux[1] - 2.0) / v == pytest.approx(2.0, rel=1e-4)


def test_a_grid_says_what_it_is():
    grid = fme.Grid1D([0, 1, 2, 4], area=[1, 1, 2, 2])
    np.testing.assert_allclose(grid.width, [1, 1, 2])
    np.testing.assert_allclose(grid.volume, [1, 1.5, 4])
    assert len(grid) == 3
    assert pickle.loads(pickle.dumps(grid)) == grid
    assert grid != fme.Grid1D([0, 1, 2, 4])
    with pytest.raises(ValueError, match="read-only"):
        grid.mid[0] = 3


@pytest.mark.parametrize("v", [0.0, 0.7, -0.7, 1e-9, 40.0, -1e6, "edges"])
@pytest.mark.parametrize("D", [0.0, 0.2, 1e-9, "edges"])
@pytest.mark.parametrize(
    "ends", [{}, {"up": 2.0}, {"up": 2.0, "down": 0.5}, {"flux_up": 0.3, "down": 1.0}, {"flux_up": -1, "flux_down": 2}]
)
def test_the_balance_is_closed(v, D, ends):
    v = np.linspace(-1, 2, 31) if v == "edges" else v
    D = np.linspace(0, 1, 31) if D == "edges" else D
    C = np.random.default_rng(1).uniform(0, 3, 30)
    flow = fme.transport_1d(C, UNEVEN, D=D, v=v, **ends)
    through = UNEVEN.area * flow.flux
    assert abs(flow.balance) <= 1e-8 * max(1.0, np.abs(through).max())
    np.testing.assert_allclose(flow.rate * UNEVEN.volume, -np.diff(through), atol=1e-12 * np.abs(through).max() + 1e-15)
    if "flux_up" in ends:
        assert flow.flux[0] == ends["flux_up"]
    if not {"down", "flux_down"} & set(ends):  # no gradient: what is there is carried out
        assert flow.flux[-1] == pytest.approx(np.broadcast_to(v, 31)[-1] * C[-1])


def test_numbers_and_arrays_of_coefficients_are_the_same():
    C = np.random.default_rng(2).uniform(0, 3, 30)
    for v in (0.0, 1e-7, 0.4, -30.0):
        one = fme.transport_1d(C, UNEVEN, D=0.3, v=v, up=1.0)
        many = fme.transport_1d(C, UNEVEN, D=np.full(31, 0.3), v=np.full(31, v), up=1.0)
        np.testing.assert_allclose(one.flux, many.flux, rtol=1e-12, atol=1e-15)


def test_a_steady_flow_is_exact_on_any_grid():
    # between two concentrations: C = 1 + (e^(v x / D) - 1) / (e^(v L / D) - 1)
    grid, v, D = fme.Grid1D([0, 0.1, 0.3, 0.35, 0.8, 1.0]), 3.0, 0.7

    def profile(x):
        return 1 + np.expm1(v * x / D) / np.expm1(v / D)

    flow = fme.transport_1d(profile(grid.mid), grid, D=D, v=v, up=1.0, down=2.0)
    np.testing.assert_allclose(flow.rate, 0, atol=1e-12)
    np.testing.assert_allclose(flow.flux, v * (1 - 1 / np.expm1(v / D)), rtol=1e-12)


@pytest.mark.parametrize("v", [2.0, -2.0, 200.0])
def test_nothing_becomes_negative_where_advection_rules(v):
    grid = fme.Grid1D(np.linspace(0, 1, 41))

    def rates(t, C, p):
        return fme.transport_1d(C, grid, D=1e-4, v=v, up=1.0 if v > 0 else 0.0, down=0.0).rate - 0.5 * C

    assert fme.steady_1d(np.zeros(40), rates).state.min() >= -1e-12


# --- closed forms: relative to the concentration at the boundary, by Richardson from grids of 100 to 800 cells


def decay_of_first_order(x, *, D, k, v, C0, L):
    """D C'' - v C' - k C = 0, C(0) = C0, C'(L) = 0."""
    a, b = (v + np.array([1, -1]) * np.sqrt(v**2 + 4 * D * k)) / (2 * D)
    A = np.linalg.solve([[1, 1], [a * np.exp(a * L), b * np.exp(b * L)]], [C0, 0])
    return A[0] * np.exp(a * x) + A[1] * np.exp(b * x)


def decay_of_zero_order(x, *, D, k, C0, L):
    """D C'' = k, C(0) = C0, C'(L) = 0."""
    return C0 - k / D * (L * x - x**2 / 2)


CASES = {
    "first order": (dict(D=0.8, k=0.5, v=0.0, C0=3.0, L=4.0), decay_of_first_order),
    "first order, advected": (dict(D=0.8, k=0.5, v=0.6, C0=3.0, L=4.0), decay_of_first_order),
    "zero order": (dict(D=0.8, k=0.3, C0=4.0, L=3.0), decay_of_zero_order),
}
AT = np.array([0.1, 0.25, 0.5])  # of the length: edges of every grid; both cells beside them give a value there


def profiles(case, stretch):
    """Return grids of 100 to 800 cells and the profiles on them."""
    p = CASES[case][0]
    for n in (100, 200, 400, 800):
        x = np.linspace(0, 1, n + 1)
        grid = fme.Grid1D(p["L"] * (x + stretch * x * (1 - x)))

        def rates(t, C, q, grid=grid):
            decay = p["k"] * C if "first" in case else p["k"]
            return fme.transport_1d(C, grid, D=p["D"], v=p.get("v", 0.0), up=p["C0"]).rate - decay

        yield grid, fme.steady_1d(np.full(n, p["C0"]), rates).state


def orders(errors):
    errors = np.array(errors)
    return np.log2(errors[:-1] / errors[1:])


@pytest.mark.parametrize("case", CASES)
def test_profiles_reach_the_closed_form_by_richardson(case):
    p, exact = CASES[case]
    at = p["L"] * AT
    values = []
    for grid, C in profiles(case, 0.0):
        near = np.searchsorted(grid.edges, at - 1e-9)
        values.append((C[near - 1] + C[near]) / 2)
    errors = [np.abs(v - exact(at, **p)).max() for v in values]
    if errors[0] > 1e-12:  # a parabola's are zero: those of both cells cancel
        np.testing.assert_allclose(orders(errors), 2, atol=0.05)
    values = np.array(values)
    for level in (1, 2, 3):  # h^2, h^4, h^6
        values = (4**level * values[1:] - values[:-1]) / (4**level - 1)
    np.testing.assert_allclose(values[-1] / p["C0"], exact(at, **p) / p["C0"], atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_profiles_on_uneven_grids_are_of_second_order(case):
    p, exact = CASES[case]
    errors = [np.abs(C - exact(grid.mid, **p)).max() for grid, C in profiles(case, 0.4)]
    np.testing.assert_allclose(orders(errors), 2, atol=0.1)


# --- bad input


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: fme.Grid1D([0, 1]), "grid of 1 cells; at least two"),
        (lambda: fme.Grid1D(5.0), "at least two"),
        (lambda: fme.Grid1D([0, 2, 1]), r"must increase: 1 \(position 2\) comes after 2"),
        (lambda: fme.Grid1D([0, np.nan, 1]), "NaN"),
        (lambda: fme.Grid1D(["a", "b", "c"]), "must be numbers"),
        (lambda: fme.Grid1D([0, 1, 2], area=[1, 2]), r"`area` has the shape \(2,\).*3 edges"),
        (lambda: fme.Grid1D([0, 1, 2], area=0.0), "above zero"),
        (lambda: fme.transport_1d(np.ones(29), UNEVEN), r"shape \(29,\); the grid has 30 cells"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, up=1, flux_up=0), "two conditions at the upper end"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, down=1, flux_down=0), "two conditions at the lower end"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, D=-1), "`D` must not be negative"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, up="a"), "`up='a'`: transport needs finite numbers"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, down=np.nan), "`down=nan`"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, flux_up=np.inf), "`flux_up=inf`"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, flux_down={"a": 1}), "`flux_down={'a': 1}`"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, up=[1, 2]), "`up` holds 2 values"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, D=np.nan), "`D=nan`: transport needs finite numbers"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, D=None), "`D=None`"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, D=["a"] * 31), "`D=.*finite numbers"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, v="1"), "`v='1'`"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, v=np.inf), "`v=inf`"),
        (lambda: fme.transport_1d(["a"] * 30, UNEVEN), "`C=.*finite numbers"),
        (lambda: fme.transport_1d(np.ones(30), 30), "`grid` must be a Grid1D"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, v=np.ones(30)), r"`v` has the shape \(30,\).*31 edges"),
    ],
)
def test_bad_input_is_told(make, told):
    with pytest.raises(ArgumentError, match=told):
        make()


def test_one_number_at_an_end_may_come_in_an_array():
    one = fme.transport_1d(np.ones(30), UNEVEN, D=1.0, up=2.0).rate
    for up in (np.array(2.0), np.array([2.0]), np.float64(2.0), 2):
        np.testing.assert_array_equal(fme.transport_1d(np.ones(30), UNEVEN, D=1.0, up=up).rate, one)


# --- geometry


def test_spheres_and_cylinders_have_their_volumes_also_at_the_centre():
    r = np.array([0, 0.1, 0.35, 1.0])
    ball, pipe = fme.Grid1D.sphere(r), fme.Grid1D.cylinder(r, length=3.0)
    assert np.allclose(ball.volume, 4 / 3 * np.pi * np.diff(r**3), rtol=1e-13)
    assert np.allclose(pipe.volume, 3 * np.pi * np.diff(r**2), rtol=1e-13)
    assert (ball.area[0], pipe.area[0]) == (0, 0)
    cone = fme.Grid1D(r, area=lambda x: (1 - x / 2) ** 2)
    assert np.allclose(cone.volume, np.diff(-2 / 3 * (1 - r / 2) ** 3), rtol=1e-13)


def test_diffusion_into_a_sphere():
    """C/C0 = 1 + 2a/(pi r) sum_n (-1)^n / n sin(n pi r / a) exp(-D n^2 pi^2 t / a^2) (Crank 1975, eq. 6.18)."""
    grid, D, a, t = fme.Grid1D.sphere(np.linspace(0, 2, 101)), 0.5, 2.0, 0.8

    def ball(t, C, *, D=0.5):
        return fme.transport_1d(C, grid, D=D, down=1.0).rate

    table = fme.OdeModel(ball, state={"C": 0.0}, grid=grid, times=[0, t])()
    r, n = grid.mid[:, None], np.arange(1, 60)
    terms = (-1.0) ** n / n * np.sin(n * np.pi * r / a) * np.exp(-D * (n * np.pi / a) ** 2 * t)
    known = 1 + 2 * a / (np.pi * grid.mid) * terms.sum(axis=1)
    assert np.abs(table["C"].to_numpy()[100:] - known).max() < 1e-3


def test_cells_that_grow():
    grid = fme.Grid1D.growing(1, 11, 40, first=0.02)
    assert grid.width[0] == pytest.approx(0.02)
    assert np.ptp(grid.width[1:] / grid.width[:-1]) < 1e-9
    assert (grid.edges[0], grid.edges[-1], len(grid)) == (1, 11, 40)
    assert np.allclose(fme.Grid1D.growing(0, 1, 4, first=0.25).width, 0.25)
    with pytest.raises(ArgumentError, match=r"width of 4 even cells, 0\.25"):
        fme.Grid1D.growing(0, 1, 4, first=0.3)


def test_phases_share_the_volume_and_keep_their_amounts():
    edges = np.linspace(0, 2, 21)
    grid = fme.Grid1D(edges, area=2.0)
    water, solids = grid.phase(lambda x: 0.6 + 0.3 * np.exp(-x)), grid.phase(lambda x: 0.4 - 0.3 * np.exp(-x))
    assert np.allclose(water.volume + solids.volume, grid.volume, rtol=1e-13)
    assert np.allclose(water.volume, 2 * np.diff(0.6 * edges - 0.3 * np.exp(-edges)), rtol=1e-13)
    flow = fme.transport_1d(np.linspace(3, 1, 20), water, D=0.7, v=0.1, up=4.0)
    assert abs(flow.balance) < 1e-12
    assert water != solids
    half = fme.transport_1d(np.linspace(3, 1, 20), grid.phase(0.5), D=0.7, v=0.1, up=4.0)
    whole = fme.transport_1d(np.linspace(3, 1, 20), grid, D=0.7, v=0.1, up=4.0)
    assert np.allclose(half.rate, whole.rate)
    for fraction, told in ((0.0, "above 0 and at most 1"), ([0.5, 0.5], r"shape \(2,\)"), (1.5, "goes from 1.5")):
        with pytest.raises(ArgumentError, match=told):
            grid.phase(fraction)


@pytest.mark.parametrize("area", [[1, -1, 1, 1], [1, 0, 1, 1], lambda x: 1 - x, -2.0])
def test_areas_below_zero_are_refused(area):
    with pytest.raises(ArgumentError, match="`area` must be above zero"):
        fme.Grid1D([0, 1, 2, 3], area=area)
