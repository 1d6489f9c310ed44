"""Advection and diffusion on a grid: fluxes, boundaries, balances, order, closed-form profiles, bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import erfc

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
        (
            lambda: fme.transport_1d(np.ones(30), UNEVEN, up=1, flux_up=0),
            "two conditions at one end, `up` and `flux_up`",
        ),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, down=1, flux_down=0), "two conditions at one end, `down` and"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, transfer_up=1), "`transfer_up=1` is of a boundary layer.*up="),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, transfer_down=1, flux_down=1), "boundary layer.*down="),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, transfer_up=-1, up=1), "transfer coefficient.*is -1"),
        (lambda: fme.transport_1d(np.ones(30), UNEVEN, scheme="centre"), "`scheme='centre'`.*central"),
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


# --- schemes, boundary layers, ends that go with time


def test_schemes_are_what_they_say_at_every_edge():
    C, v = np.random.default_rng(3).uniform(0, 3, 30), np.linspace(-1, 2, 31)
    fluxes = {
        k: fme.transport_1d(C, UNEVEN, D=0.8, v=v, up=1.0, down=2.0, scheme=k).flux for k in ("upwind", "central")
    }
    known, at = np.r_[1.0, C, 2.0], np.r_[UNEVEN.edges[0], UNEVEN.mid, UNEVEN.edges[-1]]
    diffusion = -0.8 * np.diff(known) / np.diff(at)
    upstream = np.where(v > 0, known[:-1], known[1:])
    np.testing.assert_allclose(fluxes["upwind"], diffusion + v * upstream, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(fluxes["central"], diffusion + v * np.interp(UNEVEN.edges, at, known), rtol=1e-12)


def test_central_differences_that_swing_are_told_once_with_the_scheme_to_take():
    grid, C = fme.Grid1D(np.linspace(0, 1, 21)), np.ones(20)
    fme.transport_1d(C, grid, D=0.1, v=3.9, scheme="central")  # Pe 1.95
    with pytest.warns(
        UserWarning, match=r"Peclet number \|v\| h / D is 2.05 at x = 0\.\d+;.*scheme='exponential'"
    ) as told:
        [fme.transport_1d(C, grid, D=0.1, v=v, scheme="central") for v in (4.1, 5.0)]
    assert len(told) == 1
    assert told[0].filename == __file__
    swung = fme.SteadyModel(
        lambda t, A, *, v=40.0: fme.transport_1d(A, grid, D=0.1, v=v, up=1.0, down=0.0, scheme="central").rate,
        state={"A": 0.5}, grid=grid,
    )()["A"]  # fmt: skip
    assert (np.diff(np.sign(np.diff(swung[-6:]))) != 0).all()


def test_a_boundary_layer_is_one_more_resistance():
    # steady: J = v (C_a - C_b e^(-Pe)) / (1 - e^(-Pe)) over the grid; a film of k = D / d makes the way longer by d
    grid, D = fme.Grid1D([0, 0.1, 0.3, 0.35, 0.8, 1.0]), 0.7
    film = {"transfer_up": D / 0.2, "transfer_down": D / 0.3}
    for v in (0.0, 3.0, -3.0):
        Pe = v * 1.5 / D
        known = D / 1.5 if v == 0 else v * (2.0 - 1.0 * np.exp(-Pe)) / (1 - np.exp(-Pe))

        def rate(t, A, *, v=v):
            flow = fme.transport_1d(A, grid, D=D, v=v, up=2.0, down=1.0, **film)
            return flow.rate, {"J": flow.flux[0]}

        J = fme.SteadyModel(rate, state={"A": 1.0}, grid=grid, rtol=1e-12)()["J"]
        np.testing.assert_allclose(J, known, rtol=1e-9)
    C = np.arange(1.0, 6.0)
    into = fme.transport_1d(C, grid, D=D, v=3.0, up=2.0, transfer_up=0.0).flux[0]
    assert into == pytest.approx(6.0)  # what flows alone
    wide_open = fme.transport_1d(C, grid, D=D, v=3.0, up=2.0, transfer_up=1e12).flux
    np.testing.assert_allclose(wide_open, fme.transport_1d(C, grid, D=D, v=3.0, up=2.0).flux, rtol=1e-9)


def test_uptake_through_a_boundary_layer_in_time_with_its_slopes():
    """C = erfc(z) - exp(h x + h^2 D t) erfc(z + h sqrt(D t)), z = x / 2 sqrt(D t), h = k / D (Carslaw and Jaeger)."""
    grid = fme.Grid1D.growing(0, 25, 250, first=0.02)

    def film(t, C, *, D=1.0, k=0.6):
        return fme.transport_1d(C, grid, D=D, up=1.0, transfer_up=k).rate

    def known(D, k):
        z, h = grid.mid / (2 * np.sqrt(D * 4)), k / D
        return erfc(z) - np.exp(h * grid.mid + h**2 * D * 4) * erfc(z + h * np.sqrt(D * 4))

    tight = dict(rtol=1e-8, atol=1e-10)
    bound = fme.OdeModel(film, state={"C": 0.0}, grid=grid, times=[0, 4], **tight).bind(["D", "k"])
    assert bound.exact
    Y, S = bound.sensitivities(bound.theta0)
    near = grid.mid < 12
    np.testing.assert_allclose(Y[1][near], known(1.0, 0.6)[near], atol=3e-5)
    h = 1e-5
    np.testing.assert_allclose(S[1][near, 0], (known(1 + h, 0.6) - known(1 - h, 0.6))[near] / (2 * h), atol=2e-4)
    np.testing.assert_allclose(S[1][near, 1], (known(1, 0.6 + h) - known(1, 0.6 - h))[near] / (2 * h), atol=2e-4)


def test_a_surface_that_goes_with_time_sends_damped_waves():
    """Of C(0, t) = sin(w t): exp(-q x) sin(w t - q x), q = sqrt(w / 2 D), w = 2 pi."""
    grid, w = fme.Grid1D.growing(0, 12, 150, first=0.03), 2 * np.pi
    times = np.linspace(0, 2, 401)

    def soil(t, T, surface, *, D=1.0, size=1.0):
        return fme.transport_1d(T, grid, D=D, up=size * surface).rate

    def known(D, t):
        q = np.sqrt(w / (2 * D))
        return np.exp(-q * grid.mid) * np.sin(w * t - q * grid.mid)

    table = pd.Series(np.sin(w * times), times)
    model = fme.OdeModel(
        soil,
        state={"T": "-size * exp(-sqrt(3.141592653589793 / D) * x) * sin(sqrt(3.141592653589793 / D) * x)"},
        grid=grid,
        times=[0, 1.75, 2],
        forcings={"surface": table},
        rtol=1e-8,
        atol=1e-10,
    )
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    h, near = 1e-5, grid.mid < 4
    for i, t in ((1, 1.75), (2, 2.0)):
        np.testing.assert_allclose(Y[i][near], known(1.0, t)[near], atol=4e-3)
        np.testing.assert_allclose(S[i][near, 0], (known(1 + h, t) - known(1 - h, t))[near] / (2 * h), atol=1e-2)
        np.testing.assert_allclose(S[i][:, 1], Y[i], atol=1e-6)


@pytest.mark.parametrize(("scheme", "order"), [("upwind", 1), ("central", 2), ("exponential", 2)])
def test_schemes_have_their_orders(scheme, order):
    def error(n):
        grid = fme.Grid1D(np.linspace(0, 1, n + 1))

        def rates(t, C, p):
            return fme.transport_1d(C, grid, D=0.2, v=1.0, up=1.0, scheme=scheme).rate - 2 * C

        a, b = np.sort(np.roots([0.2, -1.0, -2.0]))  # of D C'' - v C' = k C
        M = [[1, 1], [a * np.exp(a), b * np.exp(b)]]
        A, B = np.linalg.solve(M, [1, 0])
        exact = A * np.exp(a * grid.mid) + B * np.exp(b * grid.mid)
        return np.abs(fme.steady_1d(np.ones(n), rates, rtol=1e-10).state - exact).max()

    assert np.log2(error(50) / error(100)) == pytest.approx(order, abs=0.15)


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
