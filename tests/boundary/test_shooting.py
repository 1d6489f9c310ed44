"""Multiple shooting: single shooting's answer where that has one, and an answer where it has none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.boundary import shooting
from fmepy.boundary.shooting_linear import Linear, Records
from fmepy.errors import ArgumentError, DataError, InterruptedWarning

TIMES = np.linspace(0, 20, 41)
GUESS = {"a": 1.1, "b": 0.11, "d": 0.019, "N0": 28.0}


def predation(t, N, P, *, a=1.0, b=0.1, c=0.5, d=0.02):
    return a * N - b * N * P, d * N * P - c * P


def prey(**words):
    given = {"state": {"N": "N0", "P": 5}, "parms": {"N0": 30.0}, "times": TIMES, "engine": "explicit"}
    return fme.OdeModel(predation, **{**given, "rtol": 1e-9, "atol": 1e-9, **words})


def readings(model, seed=1, sds=(1.0, 0.3), parms=None):
    rng = np.random.default_rng(seed)
    Y = model(parms)[1:]
    return {"time": Y.time, "N": Y.N + sds[0] * rng.standard_normal(40), "P": Y.P + sds[1] * rng.standard_normal(40)}


def assert_same(fit, reference, rel=1e-6):
    names = list(reference.par.index)
    assert fit.converged, fit.message
    assert fit.par[names].to_numpy() == pytest.approx(reference.par.to_numpy(), rel=rel)
    cov = fit.cov_scaled.loc[names, names].to_numpy()
    assert cov == pytest.approx(reference.cov_scaled.to_numpy(), rel=rel, abs=1e-12)
    assert fit.ssr == pytest.approx(reference.ssr, rel=rel)
    assert fit.defect <= 1e-8


# --- the linear problem


def random_linear(rng, sizes, n, own, n_par, growth=0.7):
    record = np.repeat(np.arange(len(sizes)), sizes)
    q, m = own.shape[1], len(record)
    normal = rng.standard_normal
    B, X0 = normal((m, n, q)), normal((len(sizes), n, n_par))
    return Linear(
        Records(record, own, n_par), normal((m, 9, n + q + 1)), growth * normal((m, n, n)), B, normal((m, n)), X0,
        normal((len(sizes), n)),
    )  # fmt: skip


def dense(linear, sigma, damping):
    """The same problem as one matrix: weighted rows, or Lagrange's equations."""
    r, (m, n, _) = linear.records, linear.B.shape
    size = m * n + r.n_par
    squares, exact = [np.column_stack([np.sqrt(damping) * np.eye(size), np.zeros(size)])], []

    def put(rows, at, part, own, theirs):
        part[:, at * n : (at + 1) * n] = rows
        for j, column in enumerate(own):
            if column >= 0:
                part[:, m * n + column] += theirs[:, j]
        return part

    for s in range(m):
        k, rows = r.record[s], linear.rows[s]
        squares.append(put(rows[:, :n], s, np.zeros((len(rows), size + 1)), r.own[k], rows[:, n:-1]))
        squares[-1][:, -1] = rows[:, -1]
        if not r.is_last[s]:
            exact.append(put(linear.A[s], s, np.zeros((n, size + 1)), r.own[k], linear.B[s]))
            exact[-1][:, (s + 1) * n : (s + 2) * n] = -np.eye(n)
            exact[-1][:, -1] = -linear.gap[s]
        if r.is_first[s]:
            exact.append(put(-np.eye(n), s, np.zeros((n, size + 1)), range(r.n_par), linear.X0[k]))
            exact[-1][:, -1] = -linear.gap0[k]
    V, C = np.concatenate(squares), np.concatenate(exact)
    if sigma is not None:
        V = np.concatenate([V, C / sigma])
        u = np.linalg.lstsq(V[:, :-1], V[:, -1])[0]
    else:
        A, c = V[:, :-1], C[:, :-1]
        K = np.block([[A.T @ A, c.T], [c, np.zeros((len(c), len(c)))]])
        u = np.linalg.solve(K, np.concatenate([A.T @ V[:, -1], C[:, -1]]))[:size]
    return u[m * n :], u[: m * n].reshape(m, n)


@pytest.mark.parametrize("sigma", [None, 0.3])
@pytest.mark.parametrize("sizes", [[1], [2], [7], [1, 3, 8]])
def test_the_condensed_step_is_that_of_the_whole_matrix(sizes, sigma):
    rng = np.random.default_rng(3)
    own = np.array([[0, 1, 2], [0, 3, -1], [0, 1, 4]])[: len(sizes)]
    linear = random_linear(rng, sizes, 2, own, 5)
    linear.rows[:, :, 2:-1] *= (own >= 0)[linear.records.record][:, None]
    step = linear.step(sigma, 0.1)
    dp, dx = dense(linear, sigma, 0.1)
    assert step.dp == pytest.approx(dp, abs=1e-10)
    assert step.dx == pytest.approx(dx, abs=1e-10)


def test_solutions_that_grow_beyond_all_numbers_are_condensed_safely():
    rng = np.random.default_rng(4)  # 400 segments, each of which magnifies threefold: 10^190
    linear = random_linear(rng, [400], 2, np.array([[0, 1]]), 2)
    linear.A[:] = [[3.0, 0.1], [0.0, 0.5]]
    step = linear.step(None, 0.0)
    left = linear.gap + np.einsum("sij,sj->si", linear.A, step.dx) + linear.B @ step.dp
    assert left[:-1] == pytest.approx(step.dx[1:], abs=1e-9 * np.abs(step.dx).max())


def test_unknowns_that_are_held_take_their_given_steps():
    linear = random_linear(np.random.default_rng(5), [4], 2, np.array([[0, 1, 2]]), 3)
    free = linear.step(None, 0.0)
    assert linear.step(None, 0.0, {1: free.dp[1]}).dp == pytest.approx(free.dp)
    assert linear.step(None, 0.0, {1: 0.25}).dp[1] == 0.25


# --- where single shooting can be done


@pytest.fixture(scope="module")
def tame():
    model = prey()
    data = readings(model)
    return model, data, fme.modFit(fme.SimulationCost(model, data), GUESS)


@pytest.mark.parametrize("segments", [1, 5, 20])
def test_any_number_of_segments_gives_the_estimate_and_covariance_of_single_shooting(tame, segments):
    model, data, reference = tame
    fit = fme.fit_boundary(model, data, GUESS, segments=segments)
    assert_same(fit, reference)
    assert list(fit.residuals.index) == ["N"] * 40 + ["P"] * 40


@pytest.mark.parametrize("engine", ["scipy", "compiled"])
def test_every_engine_runs_segments(tame, engine):
    _, data, reference = tame
    fit = fme.fit_boundary(prey(engine=engine), data, GUESS, segments=4)
    assert_same(fit, reference, rel=1e-5)
    assert fit.fit.engine == engine


def test_the_path_is_that_of_the_model_and_the_table_tells_the_stages(tame):
    model, data, _ = tame
    fit = fme.fit_boundary(model, data, GUESS, segments=5)
    assert fit.trajectory.to_numpy() == pytest.approx(model(fit.par).to_numpy(), rel=1e-6)
    table = fit.iterations
    assert list(table.columns[1:5]) == list(GUESS)
    assert table.defect_scale.iloc[0] == 3
    assert (table.defect_scale.diff().dropna() <= 0).all()
    assert table.defect_scale.iloc[-1] == 0
    assert table.defect.iloc[-1] < 1e-3 * table.defect.iloc[0]
    assert fit.strategy == "multiple shooting"
    assert "5 segments" in repr(fit)


def test_events_and_forcings_fall_into_their_segments_and_starts_are_expressions():
    def tank(t, A, B, inflow, *, k=0.3, m=0.2):
        return inflow - k * A, k * A - m * B

    events = pd.DataFrame({"var": "A", "time": [4.0, 10.0, 13.3], "value": [5.0, 2.0, 4.0], "method": "add"})
    model = fme.OdeModel(
        tank, state={"A": "A0", "B": "10 - A0"}, parms={"A0": 6.0}, times=TIMES, rtol=1e-9, atol=1e-9,
        forcings={"inflow": ([0, 7, 20], [1.0, 3.0, 0.5], "constant")}, events=events, engine="explicit",
    )  # fmt: skip
    Y, rng = model({"k": 0.35, "A0": 4.0}), np.random.default_rng(2)
    data = {"time": TIMES, "B": Y.B + 0.05 * rng.standard_normal(41)}
    guess = {"k": 0.2, "m": 0.25, "A0": 6.0}
    reference = fme.modFit(fme.SimulationCost(model, data), guess)
    for segments in (4, 9):  # a cut at the time of an event, and none
        assert_same(fme.fit_boundary(model, data, guess, segments=segments), reference)


def test_difference_equations_run_in_segments():
    def growth(n, N, *, r=0.5, K=100.0):
        return N + r * N * (1 - N / K)

    model = fme.DifferenceModel(growth, state={"N": "N0"}, parms={"N0": 5.0}, times=np.arange(31))
    rng = np.random.default_rng(6)
    data = {"time": np.arange(31), "N": model({"N0": 7.0}).N + rng.standard_normal(31)}
    guess = {"r": 0.4, "K": 90.0, "N0": 9.0}
    reference = fme.modFit(fme.SimulationCost(model, data), guess)
    for segments in (3, 31):
        assert_same(fme.fit_boundary(model, data, guess, segments=segments), reference)
    chaotic = {"time": np.arange(31), "N": model({"N0": 7.0, "r": 2.7}).N + rng.standard_normal(31)}
    fit = fme.fit_boundary(model, chaotic, {"r": 2.4, "K": 90.0, "N0": 9.0}, segments=15)
    assert fit.converged
    assert fit.par["r"] == pytest.approx(2.7, abs=0.02)


def test_experiments_share_parameters_and_have_segments_of_their_own():
    model = prey()
    tables = [
        pd.DataFrame({"who": who, **readings(model, k, parms={"N0": start})})[:: 1 + k]
        for k, (who, start) in enumerate([("a", 30.0), ("b", 10.0), ("c", 50.0)])
    ]
    data = pd.concat(tables)
    local = {f"N0[{who}]": 30.0 for who in "abc"}
    guess = {k: v for k, v in GUESS.items() if k != "N0"}
    reference = fme.modFit(fme.SimulationCost(model, data, entity="who", entity_parms=["N0"]), guess | local)
    fit = fme.fit_boundary(model, data, guess | {"N0": 30.0}, segments=30, entity="who")  # c has 14 times
    assert "as each needs observations: 'b' into 20, 'c' into 14" in fit.message
    assert_same(fit, reference)
    assert fit.trajectory.who.tolist() == ["a"] * 41 + ["b"] * 41 + ["c"] * 41


def test_bounds_hold(tame):
    model, data, _ = tame
    fit = fme.fit_boundary(model, data, GUESS, segments=5, upper={"N0": 29.0})
    held = fme.modFit(fme.SimulationCost(model.replace(parms={"N0": 29.0}), data), ["a", "b", "d"])
    assert fit.converged
    assert fit.par["N0"] == 29.0
    assert fit.par[["a", "b", "d"]].to_numpy() == pytest.approx(held.par.to_numpy(), rel=1e-5)


def test_exact_data_give_the_truth():
    model = prey()
    Y = model()
    fit = fme.fit_boundary(model, {"time": TIMES[1:], "P": Y.P[1:]}, {"a": 1.1, "b": 0.11, "N0": 25.0}, segments=8)
    assert fit.converged
    assert fit.par.to_dict() == pytest.approx({"a": 1.0, "b": 0.1, "N0": 30.0}, rel=1e-6)


def test_every_experiment_begins_from_its_own_path(tame):
    model, starts = tame[0], {"a": 30.0, "b": 10.0}
    data = pd.concat([pd.DataFrame({"who": w, **readings(model, 3, parms={"N0": n})}) for w, n in starts.items()])
    path = pd.concat([model({"N0": n}).assign(who=w) for w, n in starts.items()])
    words = {"segments": 4, "entity": "who"}
    truth = {"a": 1.0, "b": 0.1, "d": 0.02, "N0[a]": 30.0, "N0[b]": 10.0}
    fit = fme.fit_boundary(model, data, truth, path=path, **words)
    assert fit.converged
    assert fit.iterations.defect[0] < 1e-3  # the path goes on from segment to segment
    with pytest.raises(DataError, match="`path` of 'b' must have rows"):
        fme.fit_boundary(model, data, GUESS, path=path[path.who == "a"], **words)
    with pytest.raises(DataError, match="needs the column 'who'"):
        fme.fit_boundary(model, data, GUESS, path=path.drop(columns="who"), **words)


def test_what_was_read_twice_counts_twice_and_begins_where_it_was_read(tame):
    model, data, reference = tame
    table = pd.DataFrame(data)
    twice = pd.concat([table, table.assign(N=table["N"] + 1e-9, P=table["P"] - 1e-9)])
    once, fit = (fme.fit_boundary(model, obs, GUESS, segments=8) for obs in (table, twice))
    assert fit.par.to_numpy() == pytest.approx(reference.par.to_numpy(), rel=1e-6)
    assert fit.ssr == pytest.approx(2 * reference.ssr, rel=1e-6)
    assert fit.iterations.defect[0] == pytest.approx(once.iterations.defect[0], rel=1e-6)  # from the same starts


def test_what_no_continuous_path_can_tell_apart_is_named_at_the_end():
    model = prey()
    data = {"time": TIMES[1:], "P": model().P[1:]}  # twice the prey, half as nourishing
    fit = fme.fit_boundary(model, data, GUESS, segments=8)
    assert not fit.converged
    assert "'d', 'N0' are collinear" in fit.message


# --- where it cannot


def lorenz(t, x, y, z, *, s=10.0, r=28.0, b=8 / 3):
    return s * (y - x), x * (r - z) - y, x * y - b * z


TRUE = {"s": 10.0, "r": 28.0, "b": 8 / 3, "x0": -8.0, "y0": 7.0, "z0": 27.0}


def chaotic():
    starts = {"x0": -8.0, "y0": 7.0, "z0": 27.0}
    state = {"x": "x0", "y": "y0", "z": "z0"}
    times = np.linspace(0, 20, 401)
    return fme.OdeModel(lorenz, state=state, parms=starts, times=times, engine="explicit", rtol=1e-10, atol=1e-10)


def found(model, path, seed, seen, factor, shoot=True, segments=40):
    """Whether a fit of a chaotic record succeeds: converged, continuous, near the truth, better than the truth."""
    rng = np.random.default_rng(seed)
    noise = dict(zip("xyz", (0.1 * rng.standard_normal((401, 3))).T, strict=True))
    data = {"time": path.time, "err": np.full(401, 0.1)} | {v: path[v] + noise[v] for v in seen}
    guess = {name: factor * value for name, value in TRUE.items()}
    if shoot:
        fit = fme.fit_boundary(model, data, guess, segments=segments, err="err")
    else:
        # tenfold is far: beyond, where b < 0 say, solutions run to infinity, and a single run takes for ever
        sides = np.sort([[0.1 * TRUE[name], 10 * TRUE[name]] for name in guess], axis=1).T
        fit = fme.modFit(fme.SimulationCost(model, data, err="err"), guess, lower=sides[0], upper=sides[1])
    away = [abs(fit.par[k] - TRUE[k]) / fit.std_error[k] for k in ("s", "r", "b")]
    clean = sum(float(((noise[v] / 0.1) ** 2).sum()) for v in seen)
    good = fit.converged and max(away) < 3 and fit.ssr <= clean
    return bool(good and (not shoot or fit.defect <= 1e-8))


@pytest.mark.parametrize(("seen", "factor", "segments"), [("xz", 1.2, 40), ("x", 0.8, 40), ("xz", 0.8, 20)])
def test_a_chaotic_record_from_parameters_far_away(seen, factor, segments):
    model = chaotic()
    assert found(model, model(), 3, seen, factor, segments=segments)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.2, 0.8])
@pytest.mark.parametrize("seen", ["xz", "x"])
def test_of_ten_chaotic_records_eight_are_found_and_two_at_most_by_simulation(seen, factor):
    model = chaotic()
    path = model()
    assert sum(found(model, path, seed, seen, factor) for seed in range(10)) >= 8
    assert sum(found(model, path, seed, seen, factor, shoot=False) for seed in range(10)) <= 2


def pendulum(t, theta, omega, *, L=0.7, g=9.82):
    return omega, -g / L * np.sin(theta)


@pytest.fixture(scope="module")
def swinging():
    times = np.linspace(0.1, 20, 200)
    swing = fme.OdeModel(
        pendulum, state={"theta": 0, "omega": 3}, times=times, outputs={"y": "theta"}, engine="explicit"
    )
    noise = 0.1 * np.random.default_rng(0).standard_normal(200)
    return swing, {"time": times, "y": swing({"L": 1.0}).y + noise}


def test_the_pendulum_from_a_third_of_its_length(swinging):
    fit = fme.fit_boundary(*swinging, {"L": 0.3}, segments=20)
    assert fit.converged
    assert abs(fit.par["L"] - 1) < 3 * fit.std_error["L"] < 0.003


# --- where the search has to find its way


def epidemic(t, S, I, *, beta=0.002, g=0.5):  # noqa: E741    # the letter of the field
    return -beta * S * I, beta * S * I - g * I


def test_segments_that_do_not_determine_their_starts_are_held_by_continuity_from_the_first():
    times, rng = np.linspace(0, 14, 57), np.random.default_rng([0, 7])
    state, starts = {"S": "S0", "I": "I0"}, {"S0": 762.0, "I0": 1.0}
    model = fme.OdeModel(epidemic, state=state, parms=starts, times=times, engine="explicit", rtol=1e-8, atol=1e-8)
    path = model()
    sd = 0.1 * path.I.std()
    data = {"time": times, "I": path.I + sd * rng.standard_normal(57), "err": np.full(57, sd)}
    guess = {"beta": 0.0016, "g": 0.6, "S0": 635.0, "I0": 1.2}
    reference = fme.modFit(fme.SimulationCost(model, data, err="err"), guess | {"S0": 762.0})
    fit = fme.fit_boundary(model, data, guess, segments=28, err="err")  # two data each, two states
    assert fit.converged
    assert fit.ssr == pytest.approx(reference.ssr, rel=1e-6)
    assert fit.par.to_numpy() == pytest.approx(reference.par.to_numpy(), rel=1e-3)


@pytest.mark.parametrize(("last", "rate"), [(-1.0, 0.0447440), (-4.0, -0.3719287), (-8.0, -0.7914864)])
def test_residuals_so_large_that_plain_steps_lead_away(last, rate):
    times = [0, 1, 2, 3]  # Dennis and Schnabel (1983), example 10.2.4: exp(r t) and data (2, 4, last)
    model = fme.OdeModel("d(x)/dt = r*x", state={"x": 1.0}, parms={"r": 1.0}, times=times, rtol=1e-9, atol=1e-12)
    data = {"time": times[1:], "x": [2.0, 4.0, last]}
    fit = fme.fit_boundary(model, data, ["r"], segments=3)
    assert fit.converged
    assert fit.defect <= 1e-8
    assert fit.par["r"] == pytest.approx(rate, abs=1e-3 * fit.std_error["r"])


# --- segments that are corrected by their data


@pytest.mark.parametrize("segments", [1, 8])
def test_with_a_gain_the_answer_is_that_of_prediction_errors(swinging, segments):
    gain = {"theta": {"y": 0.3}}
    reference = fme.modFit(fme.PredictionErrorCost(*swinging, gain=gain), {"L": 0.95})
    assert_same(fme.fit_boundary(*swinging, {"L": 0.6}, segments=segments, gain=gain), reference)


def test_a_gain_that_makes_the_predictor_unstable_or_corrects_by_nothing(swinging):
    with pytest.raises(ArgumentError, match=r"segment that begins at 0\.1.*unstable"):
        fme.fit_boundary(*swinging, {"L": 0.6}, segments=5, gain={"theta": {"y": 4.0}})
    with pytest.raises(ArgumentError, match="'omega' is not observed"):
        fme.fit_boundary(*swinging, {"L": 0.6}, segments=5, gain={"theta": {"omega": 0.3}})


# --- first starts, and what cannot be


def test_a_path_to_begin_with(tame):
    model, data, reference = tame
    path = model({"a": 1.05})
    assert_same(fme.fit_boundary(model, data, GUESS, segments=5, path=path), reference)
    with pytest.raises(DataError, match="'P' is not there"):
        fme.fit_boundary(model, data, GUESS, segments=5, path=path[["time", "N"]])
    with pytest.raises(DataError, match="increase"):
        fme.fit_boundary(model, data, GUESS, segments=5, path=path[::-1])
    with pytest.raises(DataError, match="finite numbers"):
        fme.fit_boundary(model, data, GUESS, segments=5, path=path.assign(P="many"))
    with pytest.raises(DataError, match=r"`path` must be a table.*got int"):
        fme.fit_boundary(model, data, GUESS, segments=5, path=5)


def test_more_segments_than_times_with_observations(tame):
    model, data, _ = tame
    with pytest.raises(DataError, match=r"segments=41.*at 40 times.*At most segments=40"):
        fme.fit_boundary(model, data, GUESS, segments=41)


def test_a_record_that_the_model_cannot_follow_comes_to_the_best_path():
    def spring(t, x, v, *, damping=0.1, stiffness=1.0):
        return v, -damping * v - stiffness * x**3

    def shaken(events=None):
        state = {"x": 3.0, "v": 0.0}
        return fme.OdeModel(spring, state=state, times=times, engine="explicit", rtol=1e-8, atol=1e-8, events=events)

    times, rng = np.arange(0, 30.1, 0.5), np.random.default_rng(3)
    shocks = {"var": "v", "time": times[1:-1], "value": 0.35 * rng.standard_normal(59), "method": "add"}
    model, data = shaken(), shaken(pd.DataFrame(shocks))()[1:][["time", "x"]]
    fit = fme.fit_boundary(model, data, {"damping": 0.12, "stiffness": 0.8}, segments=15)
    assert_same(fit, fme.modFit(fme.SimulationCost(model, data), fit.par.to_dict()), rel=1e-5)
    assert len(fit.iterations) < 35


def test_unknowns_that_cannot_be_told_apart_are_named():
    def two_rates(t, A, *, k1=0.2, k2=0.1, unused=1.0):
        return -k1 * k2 * A

    times = np.arange(11.0)
    model = fme.OdeModel(two_rates, state={"A": 10}, times=times, engine="explicit")
    data = {"time": times[1:], "A": 10 * np.exp(-0.03 * times[1:]) + 0.01 * np.cos(times[1:])}
    with pytest.raises(ArgumentError, match=r"'k1', 'k2' are collinear.*collin"):
        fme.fit_boundary(model, data, ["k1", "k2"], segments=3)
    with pytest.raises(ArgumentError, match="no observation depends on 'unused'"):
        fme.fit_boundary(model, data, ["k1", "unused"], segments=3)


def test_a_model_that_fails_at_the_first_guess_says_so():
    text = "d(N)/dt = a * N**2\nN(0) = 1"
    model = fme.OdeModel(text, times=np.arange(0, 10.5, 0.5), parms={"a": 500.0}, engine="explicit")
    data = {"time": [1.0, 2.0, 3.0], "N": [1.1, 1.2, 1.3]}
    with pytest.raises(ArgumentError, match="fails at the first guess"):
        fme.fit_boundary(model, data, ["a"], segments=2)


def test_an_end_without_convergence_is_told(tame):
    model, data, _ = tame
    fit = fme.fit_boundary(model, data, GUESS, segments=5, max_iter=2)
    assert not fit.converged
    assert "max_iter=2 steps are used up" in fit.message
    assert fit.defect > 1e-8


def test_ctrl_c_returns_the_last_iterate(tame, monkeypatch):
    model, data, _ = tame
    own, calls = shooting.Segments.at, []

    def at(segments, theta, X):
        calls.append(theta)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return own(segments, theta, X)

    monkeypatch.setattr(shooting.Segments, "at", at)
    with pytest.warns(InterruptedWarning, match="last iterate"):
        fit = fme.fit_boundary(model, data, GUESS, segments=5)
    assert fit.interrupted
    assert not fit.converged
    assert len(fit.iterations) > 0
