"""Algebraic states: closed forms, consistent starts, sensitivities, jumps, higher index, bad input."""

import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.compiled import unrolled_lu
from fmepy.errors import ModelError, ModelTextError, ParameterError, SimulationError
from fmepy.models.engines import explicit
from fmepy.models.engines import stiff as stiff_code
from fmepy.models.running.algebraic import Settled
from tests.plain import plain

TIMES = np.linspace(0, 2, 5)
DECAY = "d(A)/dt = -k*A\n0 = B - K*A**2"
START, PARMS = {"A": 1, "B": 0.1}, {"k": 0.5, "K": 2.0}


def named(t, A, B, *, k=0.5, K=2.0):
    return -k * A, B - K * A**2


def untraced(t, A, B, *, k=0.5, K=2.0):
    if plain(t) > 1e9:
        return 0, 0
    return -k * A, B - K * A**2


def vector(t, y, p):
    return [-p["k"] * y[0], y[1] - p["K"] * y[0] ** 2]


def decay(**words):
    return fme.OdeModel(DECAY, **{"state": START, "times": TIMES, "parms": PARMS, **words})


@pytest.fixture(scope="module")
def model():
    return decay()


def closed_form(t, k=0.5, K=2.0):
    A = np.exp(-k * t)
    return np.stack([A, K * A**2], 1), np.stack(
        [np.stack([-t * A, 0 * t], 1), np.stack([-2 * K * t * A**2, A**2], 1)], 1
    )


def differences(model, names, h=1e-4):
    """Central differences of runs at small tolerances, beside the sensitivities."""
    b, tight = model.bind(names), model.replace(rtol=1e-10, atol=1e-13).bind(names)
    D = []
    for j, step in enumerate(h * np.abs(b.theta0)):
        moved = step * np.eye(len(b.theta0))[j]
        D.append((tight.simulate(b.theta0 + moved) - tight.simulate(b.theta0 - moved)) / (2 * step))
    return b.sensitivities(b.theta0)[1], np.stack(D, -1)


def assert_agree(S, D, part=1e-4):
    assert np.abs(S - D).max() < np.inf
    assert (np.abs(S - D).max(axis=0) <= part * np.abs(D).max(axis=0) + 1e-9).all()


def test_rows_of_a_solver_are_brought_nearer_to_the_equations_and_lost_ones_are_told():
    """What an engine that solves the equations itself hands over, an old dg/dw or not."""
    settled = Settled(decay().definition, ())
    inputs = settled.layout.inputs_at(np.array([0.5, 2.0]), None, [])
    t, atol = np.array([0.0, 1.0]), np.full(2, 1e-6)
    off = np.array([[1.0, 2.0 + 1e-5], [0.5, 0.5 - 2e-5]])
    nearer = settled.constraints.checked(t, off.copy(), inputs, 1e-6, atol)
    np.testing.assert_allclose(nearer, [[1.0, 2.0], [0.5, 0.5]], rtol=1e-14)
    off[1, 1] = 0.51
    with pytest.raises(SimulationError, match="has lost the algebraic equation of 'B'") as failed:
        settled.constraints.checked(t, off, inputs, 1e-6, atol)
    assert failed.value.time == 1.0


# --- runs


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ({}, 1e-5), ({"engine": "scipy"}, 1e-5), ({"method": "Radau"}, 1e-5), ({"method": "RK45"}, 1e-4),
        ({"method": "rk4", "dt": 0.1}, 1e-4), ({"method": "euler", "dt": 0.02}, 2e-2),
    ],
)  # fmt: skip
def test_a_decay_with_an_equilibrium_on_every_engine(words, near):
    model = decay(**words)
    Y, S = closed_form(TIMES)
    table = model()
    np.testing.assert_allclose(table[["A", "B"]], Y, atol=near)
    assert table["B"][0] == pytest.approx(2.0, rel=1e-12)  # the start is consistent, whatever the guess
    bound = model.bind()
    assert bound.exact
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1], S, atol=5 * near)


@pytest.mark.parametrize("function", [named, untraced, vector])
@pytest.mark.parametrize("words", [{}, {"method": "rk4", "dt": 0.1}])
def test_functions_say_by_a_mask_which_states_are_algebraic(function, words):
    parms = PARMS if function is vector else None
    model = fme.OdeModel(function, state=START, times=TIMES, parms=parms, algebraic=["B"], **words)
    Y, S = closed_form(TIMES)
    np.testing.assert_allclose(model()[["A", "B"]], Y, atol=1e-5)
    bound = model.bind()
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1], S, atol=5e-5)
    assert (model.equations is None) == (function is untraced)
    if function is not untraced:
        assert str(model.equations).splitlines()[1] == "0       = B - K*A**2"


@pytest.mark.parametrize("engine", ["auto", "stiff"])
def test_robertsons_reaction_as_it_is_written_as_a_dae(engine):
    text = "d(y1)/dt = -k1*y1 + k3*y2*y3\nd(y2)/dt = k1*y1 - k3*y2*y3 - k2*y2**2\n0 = y1 + y2 + y3 - 1"
    parms = {"k1": 0.04, "k2": 3e7, "k3": 1e4}
    model = fme.OdeModel(
        text, state={"y1": 1, "y2": 0, "y3": 0.5}, parms=parms, times=[0, 0.4, 40, 4000], rtol=1e-8, engine=engine
    )
    expected = [[0.985172, 3.3864e-5, 0.0147940], [0.715827, 9.1855e-6, 0.284164], [0.183202, 8.942e-7, 0.816797]]
    np.testing.assert_allclose(model()[["y1", "y2", "y3"]][1:], expected, rtol=1e-4)  # Hindmarsh (1980)
    assert_agree(*differences(model, ["k1", "k3"]), 1e-3)


ACID = """
d(E)/dt = -k*E                        # an ester, hydrolysed
d(T)/dt = k*E
0 = Ka*(T - Ac) - H*Ac                # its acid, dissociated
0 = H + Na - Ac - Kw/H
"""


@pytest.mark.parametrize("engine", ["auto", "stiff"])
def test_the_ph_of_an_acid_that_is_set_free(engine):
    parms = {"k": 0.3, "Ka": 1.8e-5, "Kw": 1e-14, "Na": 0.05}
    start = {"E": 0.1, "T": 1e-3, "Ac": 1e-4, "H": 1e-4}  # far: the solution is basic
    model = fme.OdeModel(
        ACID, state=start, parms=parms, times=np.linspace(0, 10, 11), outputs={"pH": "-log10(H)"}, engine=engine
    )
    out = model()
    assert (out["H"] > 0).all()
    assert out["pH"][0] == pytest.approx(14 + np.log10(0.049), abs=1e-6)
    T, H, Ac = 0.101 - 0.1 * np.exp(-3.0), out["H"].iloc[-1], out["Ac"].iloc[-1]
    assert out["T"].iloc[-1] == pytest.approx(T, rel=1e-5)
    roots = np.roots([1.0, 0.05 + 1.8e-5, 1.8e-5 * (0.05 - T) - 1e-14, -1e-14 * 1.8e-5])
    assert pytest.approx(roots[roots > 0][0], rel=1e-5) == H
    assert Ac == pytest.approx(1.8e-5 * T / (1.8e-5 + H), rel=1e-5)
    S, D = differences(model, ["Na"])
    assert_agree(S[:, 2:3], D[:, 2:3])


CIRCUIT = """
d(vC)/dt = (iR - vC/R2)/C
0 = U - R*iR - vD - vC
0 = iR - Is*(exp(vD/Vt) - 1)
"""


@pytest.fixture(scope="module")
def circuit():
    return fme.OdeModel(
        CIRCUIT,
        state={"vC": 0, "iR": 0.01, "vD": 0.5},
        parms={"C": 0.5, "R": 1.0, "R2": 10.0, "Is": 1e-6, "Vt": 0.05},
        times=np.linspace(0, 4, 21),
        forcings={"U": ([0, 1, 2.55, 3], [2.0, 4, 1, 3], "constant")},
        events=[
            {"var": "vC", "time": 2.0, "value": "0.5*vC + 0.1*iR"},
            {"var": "vC", "time": 2.0, "value": "0.2*iR", "method": "add", "order": 1},
        ],
    )


@pytest.mark.parametrize("words", [{}, {"engine": "scipy"}, {"engine": "stiff"}, {"method": "rk4", "dt": 0.02}])
def test_a_rectifier_jumps_with_its_source_and_with_events(circuit, words):
    """Kirchhoff's laws hold in every row, before the jump of its time; sensitivities jump with the states."""
    model = circuit.replace(**words)
    assert_agree(*differences(model, ["R"]), 1e-3)
    out = model()
    U = np.select([out["time"] <= 1, out["time"] <= 2.55, out["time"] < 3.1], [2.0, 4, 1], 3.0)
    U[out["time"] == 0] = 2.0
    U[np.isclose(out["time"], 1)] = 2.0
    left = U - out["iR"] - out["vD"] - out["vC"]
    assert np.abs(left[~np.isclose(out["time"], 3)]).max() < 1e-5
    np.testing.assert_allclose(out["iR"], 1e-6 * np.expm1(out["vD"] / 0.05), rtol=1e-3, atol=1e-7)


def test_engines_agree_on_jumps(circuit):
    first, second = circuit(), circuit.replace(engine="scipy")()
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)


def test_the_second_event_of_a_time_sees_algebraic_states_after_the_first():
    events = [{"var": "A", "time": 2.0, "value": 3.0}, {"var": "A", "time": 2.0, "value": "B", "order": 1}]
    out = decay(events=events, times=[0, 2, 3])()
    assert out["B"][1] == pytest.approx(2 * np.exp(-2.0), rel=1e-4)
    assert out["A"][2] == pytest.approx(18 * np.exp(-0.5), rel=1e-5)  # B = 2 * 3**2


SWITCHED = """
d(A)/dt = -k*A + where(B > 1, 0.2, 0)
0 = B - K*A**2 - where(A > 0.6, s, 0)
"""


@pytest.mark.parametrize("engine", ["compiled", "scipy"])
def test_one_switch_may_throw_another_by_a_jump_of_an_algebraic_state(engine):
    model = fme.OdeModel(SWITCHED, state=START, times=np.linspace(0, 4, 17), parms={**PARMS, "s": 0.5}, engine=engine)
    out = model()
    at = np.log(0.6 / 0.2) / 0.5  # A = 0.4 + 0.6 exp(-t/2) reaches 0.6
    behind = out["time"] > at
    A = np.where(behind, 0.6 * np.exp(-0.5 * (out["time"] - at)), 0.4 + 0.6 * np.exp(-0.5 * out["time"]))
    np.testing.assert_allclose(out["A"], A, atol=1e-5)
    np.testing.assert_allclose(out["B"], 2 * A**2 + np.where(behind, 0, 0.5), atol=1e-5)
    assert_agree(*differences(model, ["k", "K", "s"]))


def test_a_condition_on_time_in_a_constraint():
    text = "d(A)/dt = -k*A\n0 = B - K*A**2 - where(t > 1.3, s, 0)\nd(I)/dt = B"
    model = fme.OdeModel(text, state={**START, "I": 0}, times=TIMES, parms={**PARMS, "s": 0.5})
    assert model.states == ("A", "I", "B")
    I = 2 * (1 - np.exp(-TIMES)) + 0.5 * np.maximum(TIMES - 1.3, 0)  # noqa: E741
    np.testing.assert_allclose(model()["I"], I, atol=1e-5)


@pytest.mark.parametrize("words", [{}, {"engine": "scipy"}, {"engine": "stiff"}, {"method": "rk4", "dt": 0.1}])
@pytest.mark.parametrize("guess", [2, -2])
def test_the_guess_says_which_branch_a_run_stays_on(words, guess):
    out = fme.OdeModel("d(A)/dt = -A\n0 = B**2 - A", state={"A": 1, "B": guess}, times=[0, 1, 2, 3], **words)()
    np.testing.assert_allclose(out["B"], np.sign(guess) * np.exp(-out["time"] / 2), rtol=1e-3)


def test_a_pendulum_of_index_one_keeps_its_length():
    text = """
    d(x)/dt = u
    d(y)/dt = v
    d(u)/dt = -F*x
    d(v)/dt = -F*y - g
    0 = u**2 + v**2 - g*y - F*(x**2 + y**2)
    """
    start = {"x": 1, "y": 0, "u": 0, "v": 0, "F": 0}
    out = fme.OdeModel(text, state=start, times=np.linspace(0, 2, 21), parms={"g": 9.81}, rtol=1e-8)()
    np.testing.assert_allclose(out["x"] ** 2 + out["y"] ** 2, 1.0, atol=1e-4)


def test_many_algebraic_states_of_a_vector_function():
    n = 40

    def cells(t, y, p):
        c, h = y[:n], y[n:]
        return np.r_[-p["k"] * c, h + h**3 - c]

    start = {str(i): v for i, v in enumerate(np.r_[np.linspace(1, 2, n), np.full(n, 0.5)])}
    model = fme.OdeModel(
        cells, state=start, times=[0, 1.0], parms={"k": 0.5}, algebraic=[str(i) for i in range(n, 2 * n)]
    )
    y = model().iloc[1, 1:].to_numpy(dtype=float)
    np.testing.assert_allclose(y[:n], np.linspace(1, 2, n) * np.exp(-0.5), rtol=1e-5)
    np.testing.assert_allclose(y[n:] + y[n:] ** 3, y[:n], rtol=1e-10)


# --- a model like any other


def test_it_is_costed_fitted_screened_and_sampled(model):
    data = pd.DataFrame({"time": TIMES[1:], "B": closed_form(TIMES, 0.6, 1.5)[0][1:, 1]})
    cost = fme.SimulationCost(model, data)
    fit = fme.modFit(cost, p={"k": 1.0, "K": 1.0})
    np.testing.assert_allclose(fit.par, [0.6, 1.5], rtol=1e-4)
    sens = fme.sensFun(cost, fit.par)
    assert fme.collin(sens).frame["collinearity"].iloc[-1] < 20
    one = fme.sensRange(model, parRange={"k": (0.3, 0.7)}, num=6, seed=1)
    two = fme.sensRange(model, parRange={"k": (0.3, 0.7)}, num=6, seed=1, executor=2)
    pd.testing.assert_frame_equal(one.frame, two.frame)
    chain = fme.modMCMC(cost, p=fit.par, niter=30, jump=0.01, seed=1, var0=1.0)
    assert np.isfinite(np.asarray(chain.pars)).all()


def test_copies_and_pickles(model):
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(model))(), model())
    other = model.replace(parms={"K": 3.0}, state={"B": -5.0})
    assert other.equations is model.equations
    assert other()["B"][0] == pytest.approx(3.0, rel=1e-12)
    masked = fme.OdeModel(untraced, state=START, times=TIMES, algebraic="B").replace(parms={"K": 3.0})
    assert masked()["B"][0] == pytest.approx(3.0, rel=1e-12)


@pytest.mark.parametrize("tables", [False, True])
def test_equations_may_stand_in_any_order_and_their_sensitivities_are_exact(monkeypatch, tables):
    """The compiled engine puts each at the place of a state that stands in it."""
    if tables:
        monkeypatch.setattr(unrolled_lu, "MOST_OPERATIONS", 0)
    explicit._functions.cache_clear()
    stiff_code.stiff_plan.cache_clear()
    options = {"state": {"A": 1, "B": 0.1, "C": 0}, "parms": PARMS, "times": TIMES, "rtol": 1e-8, "atol": 1e-10}
    Y, S = closed_form(TIMES)
    for text in ("0 = C - K*A**2\n0 = B - 3*A", "0 = B - 3*A\n0 = C - K*A**2"):
        bound = fme.OdeModel(f"d(A)/dt = -k*A\n{text}", **options).bind()
        Z, R = bound.sensitivities(bound.theta0)
        np.testing.assert_allclose(Z, np.c_[Y[:, 0], 3 * Y[:, 0], Y[:, 1]], atol=1e-7)
        np.testing.assert_allclose(R, np.stack([S[:, 0], 3 * S[:, 0], S[:, 1]], 1), atol=1e-6)
        assert bound.retries == 0
    explicit._functions.cache_clear()
    stiff_code.stiff_plan.cache_clear()


def test_a_steady_state_takes_it_as_one_more_equation():
    text = "d(S)/dt = D*(Sin - S) - mu*S/(K + S)\n0 = P - S**2"
    model = fme.SteadyModel(text, state={"S": 1, "P": 1}, parms={"D": 0.5, "Sin": 4.0, "mu": 2.0, "K": 1.0})
    S = (-1 + np.sqrt(17)) / 2  # S**2 + S - 4 = 0
    np.testing.assert_allclose(model()[["S", "P"]].iloc[0], [S, S**2], rtol=1e-9)
    bound = model.bind(["Sin"])
    slopes = bound.sensitivities(bound.theta0)[1][0, :, 0]
    assert slopes[1] == pytest.approx(2 * S * slopes[0], rel=1e-8)
    assert fme.SteadyModel("0 = x**2 - a", state={"x": 1}, parms={"a": 2})()["x"][0] == pytest.approx(np.sqrt(2))


# --- what cannot be


PENDULUM = "d(x)/dt = u\nd(y)/dt = v\nd(u)/dt = -F*x\nd(v)/dt = -F*y - g\n0 = x**2 + y**2 - L**2"


def pendulum(t, s, p):
    if plain(t) > 1e9:
        return s
    return np.array([s[2], s[3], -s[4] * s[0], -s[4] * s[1] - 9.81, s[0] ** 2 + s[1] ** 2 - 1])


@pytest.mark.parametrize("x", [1.0, 0.3])
def test_a_higher_index_is_refused_by_name(x):
    words = {"state": {"x": x, "y": 0, "u": 0, "v": 0, "F": 0}, "times": TIMES}
    with pytest.raises(ModelError, match=r"index above one.*'F'; `0 = x\*\*2 \+ y\*\*2 - L\*\*2`.*Differentiate"):
        fme.OdeModel(PENDULUM, parms={"g": 9.81, "L": 1.0}, **words)
    with pytest.raises(ModelError, match=r"index above one.*do not determine 'F'; the one in the place of 'F'"):
        fme.OdeModel(pendulum, algebraic="F", **words)


@pytest.mark.parametrize(
    ("text", "state", "what"),
    [
        ("d(A)/dt = -A\n0 = B**2 - A", {"A": 1, "B": 0}, r"do not determine 'B' at the start \(B = 0\).*another guess"),
        ("d(A)/dt = -A\n0 = B - C - A\n0 = B - C - A", {"A": 1, "B": 1, "C": 0}, "determine 'B', 'C' at the start"),
        ("d(A)/dt = -A\n0 = B - A", {"A": 1}, r"line 2: there is 1 algebraic.*no name has.*state=\{'B': 1.0\}"),
        ("d(A)/dt = -A\n0 = B - A\n0 = C - A", {"A": 1, "B": 1}, r"only 'B' has.*such as state=\{'C': 1.0\}"),
        ("d(A)/dt = -A\n0 = B - A", {"A": 1, "B": 1, "C": 1}, r"'B', 'C' have.*only 1 algebraic equation \(0 = ...\)"),
        ("d(A)/dt = -A", {"A": 1, "B": 1}, r"'B' has no equation.*d\(B\)/dt = \.\.\., or an algebraic equation, 0 ="),
        ("0 = B - 1", {"B": 1}, "No state of the model has a rate.*SteadyModel"),
    ],
)  # fmt: skip
def test_equations_that_determine_nothing(text, state, what):
    with pytest.raises(ModelError, match="(?s)" + what):
        fme.OdeModel(text, state=state, times=TIMES)


def test_bad_words():
    words = {"state": START, "times": TIMES}
    with pytest.raises(ParameterError, match=r"no state 'b'. Did you mean 'B'"):
        fme.OdeModel(named, algebraic=["b"], **words)
    with pytest.raises(ParameterError, match=r"no state '3'. There are '1', '2'"):
        fme.OdeModel(vector, state=[1, 2], times=TIMES, parms=PARMS, algebraic=3)
    with pytest.raises(ModelError, match=r"`algebraic` is for functions; text says itself"):
        fme.OdeModel(DECAY, parms=PARMS, algebraic=["B"], **words)
    with pytest.raises(ModelError, match=r"'B' is an algebraic state.*changes states that have a rate"):
        fme.OdeModel(named, algebraic=["B"], events=[{"var": "B", "time": 1, "value": 1}], **words)
    with pytest.raises(ModelTextError, match=r"'0 = \.\.\.' is an algebraic equation beside differential"):
        fme.DifferenceModel("next(A) = A\n0 = B - A", state=START, times=[0, 1])
    with pytest.raises(ModelError, match="explicit: its steps are explicit, and the model has algebraic states"):
        fme.OdeModel(named, algebraic=["B"], engine="explicit", **words)


def test_no_consistent_start_and_a_branch_that_ends():
    with pytest.raises(SimulationError, match=r"no values of the algebraic states 'B'.*`0 = B\*\*2 \+ A` leaves"):
        fme.OdeModel("d(A)/dt = -A\n0 = B**2 + A", state={"A": 1, "B": 2}, times=TIMES)()
    with pytest.raises(SimulationError, match=r"has no value where the search stands \(B = -1\)"):
        fme.OdeModel("d(A)/dt = -A\n0 = log(B) - A", state={"A": 1, "B": -1}, times=TIMES)()
    with pytest.raises(SimulationError, match=r"failed at time 0: .*do not settle.*`0 = 1/B - A`"):
        fme.OdeModel("d(A)/dt = -A\n0 = 1/B - A", state={"A": 1, "B": -3}, times=TIMES)()  # Newton: to -infinity
    with pytest.raises(SimulationError, match=r"failed at time 0.[45]"):
        fme.OdeModel("d(A)/dt = -1\n0 = B**2 - A", state={"A": 0.5, "B": 1}, times=TIMES, engine="scipy", atol=1e-6)()


def test_who_needs_a_rate_for_every_state_says_so(model):
    data = model()
    with pytest.raises(ModelError, match="FimlofCost needs a rate for every state, and 'B'"):
        fme.FimlofCost(model, data, process_noise={"A": 0.1}, measurement_noise={"A": 0.1, "B": 0.1})
    with pytest.raises(ModelError, match="PredictionErrorCost needs a rate"):
        fme.PredictionErrorCost(model, data, gain={"A": {"A": 0.1}})
    with pytest.raises(ModelError, match="fit_boundary needs a rate"):
        fme.fit_boundary(model, data, ["k"])


# --- past a fold

FOLDS = {
    "a root": ("d(x)/dt = -k\n0 = w**2 - x", {"x": 1.0, "w": 1.0}, 1.0),
    "two states": ("d(x)/dt = k\n0 = w*w + v*v - 4 + x\n0 = w - v", {"x": 0.0, "w": 1.4, "v": 1.4}, 4.0),
    "a fold": ("d(x)/dt = k\n0 = w**3 - 3*w + x", {"x": -3.0, "w": 2.5}, 5.0),
}


@pytest.mark.parametrize("engine", ["auto", "scipy"])
@pytest.mark.parametrize("name", FOLDS)
def test_a_run_past_a_fold_fails_after_a_few_searches(name, engine, monkeypatch):
    from fmepy.models.running.algebraic import _AlgebraicPoint

    text, state, end = FOLDS[name]
    searches, searched = [], _AlgebraicPoint.search

    def counted(self):
        searches.append(self.t)
        return searched(self)

    monkeypatch.setattr(_AlgebraicPoint, "search", counted)
    model = fme.OdeModel(text, state=state, times=np.linspace(0, 8, 41), parms={"k": 1.0}, engine=engine)
    with pytest.raises(SimulationError) as caught:
        model()
    bound = model.bind()
    searches.clear()
    with pytest.raises(SimulationError):
        bound.simulate([1.01])
    assert len(searches) <= 15  # of some milliseconds each; to the end of the solver's patience they were 623
    assert caught.value.time == pytest.approx(end, rel=0.02)
    before = model(times=np.linspace(0, 0.97 * end, 20))
    w = before["w"].to_numpy()
    if name == "a root":
        np.testing.assert_allclose(w, np.sqrt(before["x"]), rtol=1e-5)


def test_starts_that_need_a_search_each_are_no_lost_solution():
    model = fme.OdeModel("d(x)/dt = -k*x\n0 = exp(w) - x", state={"x": 1e3, "w": -3.0}, times=[0, 1], parms={"k": 1.0})
    bound = model.bind()
    for k in np.linspace(0.5, 1.5, 25):
        assert np.isfinite(bound.simulate([k])).all()
