"""Structural identifiability: verdicts of the literature and by hand, combinations, remedies, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError
from tests.plain import plain


def model_of(text, state, parms, **words):
    return fme.OdeModel(text, state=state, times=[0, 1], parms=dict.fromkeys(parms.split(), 0.7), **words)


def verdicts(found):
    return {v: set(found.verdicts.index[found.verdicts == v]) for v in ("globally", "locally", "not")}


CASES = {
    # Bellman and Astrom (1970): two compartments that both leak
    "two compartments": (
        "d(x1)/dt = -(k01 + k21)*x1 + k12*x2\nd(x2)/dt = k21*x1 - (k02 + k12)*x2", {"x1": 1, "x2": 0},
        "k01 k02 k12 k21", ["x1"], "", "", "k01 k02 k12 k21", {"k12*k21", "k01 + k21", "k02 + k12"},
    ),
    # the same with one leak
    "one leak": (
        "d(x1)/dt = -(k01 + k21)*x1 + k12*x2\nd(x2)/dt = k21*x1 - k12*x2", {"x1": 1, "x2": 0}, "k01 k12 k21", ["x1"],
        "k01 k12 k21", "", "", set(),
    ),
    # flip-flop: absorption and elimination change places
    "flip-flop": (
        "d(A)/dt = -ka*A\nd(C)/dt = ka*A - ke*C\ny = C/V", {"A": 1, "C": 0}, "ka ke V", ["y"], "", "ka ke V", "", set(),
    ),
    # Vajda and Rabitz (1994): slow-fast ambiguity
    "slow-fast": (
        "d(a)/dt = -k1*a\nd(b)/dt = k1*a - k2*b\nd(c)/dt = k2*b\ny = 2*a + e*b + 3*c", {"a": 1, "b": 0, "c": 0},
        "k1 k2 e", ["y"], "", "k1 k2 e", "", set(),
    ),
    # Perelson's model of HIV, virus alone
    "HIV": (
        "d(T)/dt = lam - rho*T - beta*T*V\nd(I)/dt = beta*T*V - delta*I\nd(V)/dt = n*delta*I - c*V",
        {"T": "T0", "I": "I0", "V": "V0"}, "lam rho beta delta n c T0 I0 V0", ["V"], "", "rho beta delta c V0",
        "lam n T0 I0", {"lam/I0", "lam/T0", "lam*n"},
    ),
    # SIR in people, of whom a part is reported
    "SIR": (
        "d(S)/dt = -b*S*I/N\nd(I)/dt = b*S*I/N - g*I\ny = q*I", {"S": "S0", "I": "I0"}, "b g q N S0 I0", ["y"], "g", "",
        "b q N S0 I0", {"q*S0", "q*I0", "b/(q*N)"},
    ),
    "Lotka-Volterra": (
        "d(x)/dt = a*x - b*x*y\nd(y)/dt = c*x*y - m*y", {"x": "x0", "y": "y0"}, "a b c m x0 y0", ["x"], "a c m x0", "",
        "b y0", {"b*y0"},
    ),
    # Michaelis-Menten elimination of a known dose (Godfrey and Fitch 1984)
    "elimination": (
        "d(C)/dt = -Vm*C/(Km + C)\ny = C/V", {"C": 10}, "Vm Km V", ["y"], "Vm Km V", "", "", set(),
    ),
    "elimination of an unknown dose": (
        "d(C)/dt = -Vm*C/(Km + C)\ny = C/V", {"C": "D"}, "Vm Km V D", ["y"], "", "", "Vm Km V D",
        {"Vm/Km", "Vm/V", "Vm/D"},
    ),
    "squares": ("d(x)/dt = -k**2*x", {"x": 1}, "k", ["x"], "", "k", "", set()),
    "a rate hidden by zero": ("d(x)/dt = -k*x", {"x": 0}, "k", ["x"], "", "", "k", set()),
    "sums": ("d(A)/dt = -(k1 + k2)*A", {"A": "A0"}, "A0 k1 k2", ["A"], "A0", "", "k1 k2", {"k1 + k2"}),
    "Hill": ("d(S)/dt = -v*S**n/(K**n + S**n)", {"S": "S0"}, "v n K S0", ["S"], "", "v n K S0", "", set()),
    "exponential": ("d(x)/dt = a*exp(-k*t) - m*x", {"x": 0}, "a k m", ["x"], "", "a k m", "", set()),
    "a redundant exponential": (
        "d(x)/dt = a*exp(b - k*t) - m*x", {"x": 0}, "a b k m", ["x"], "", "k m", "a b", None,
    ),
    "sine": ("d(x)/dt = a*sin(w*t + f)", {"x": 0}, "a w f", ["x"], "", "a w f", "", set()),
    "logarithm and root": ("d(x)/dt = -a*log(b*x)\ny = sqrt(c*x)", {"x": 2}, "a b c", ["y"], "", "a b c", "", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_those_of_the_literature(name):
    text, state, parms, observed, unique, local, never, functions = CASES[name]
    found = fme.structural_identifiability(model_of(text, state, parms), observed=observed, seed=1)
    sets = zip(("globally", "locally", "not"), (unique, local, never), strict=True)
    assert verdicts(found) == {verdict: set(names.split()) for verdict, names in sets}
    if functions is not None:
        assert set(found.combinations) == functions
    assert found.missing.empty == (not never)
    assert found.error < 1e-6


def test_each_remedy_cures_and_smaller_ones_do_not():
    text, state, parms, observed, *_ = CASES["SIR"]
    model = model_of(text, state, parms)
    found = fme.structural_identifiability(model, observed=observed, seed=1)
    assert (found.missing["observed"] == "").any()
    for _, row in found.missing.iloc[[0, 3, -1]].iterrows():
        known, seen = ([n for n in row[c].split(", ") if n] for c in ("known", "observed"))
        assert len(known) + len(seen) == 2
        cured = fme.structural_identifiability(model, observed=[*observed, *seen], known=known, seed=2)
        assert not (cured.verdicts == "not").any()
        for one in known[:1]:
            half = fme.structural_identifiability(model, observed=observed, known=[one], seed=2)
            assert (half.verdicts == "not").any()


def test_values_are_not_read_and_known_names_are_known():
    text, state, parms, observed, *_ = CASES["HIV"]
    model = model_of(text, state, parms)
    zeros = model.replace(parms=dict.fromkeys(model.parms.index, 0.0))
    first, second = (fme.structural_identifiability(m, observed=observed, seed=3) for m in (model, zeros))
    assert first.verdicts.equals(second.verdicts)
    cured = fme.structural_identifiability(model, observed="V", known="n", seed=1)
    assert not (cured.verdicts == "not").any()
    assert "n" not in cured.verdicts
    assert first.verdicts.equals(fme.structural_identifiability(model, observed=observed, seed=99).verdicts)


def test_inputs_are_rich_and_events_at_the_start_are_doses():
    driven = model_of("d(x)/dt = -k*x + b*u", {"x": 0}, "k b", forcings={"u": ([0, 1], [0, 0])})
    assert set(fme.structural_identifiability(driven, seed=1).verdicts) == {"globally"}
    dose = [dict(var="A", time=0, value="F", method="add"), dict(var="A", time=0.5, value=2.0, method="add")]
    bolus = model_of("d(A)/dt = -k*A\ny = A/V", {"A": 0}, "k V F", events=dose)
    found = fme.structural_identifiability(bolus, seed=1)
    assert found.observed == ("y",)
    assert found.verdicts.to_dict() == {"k": "globally", "V": "not", "F": "not"}
    assert found.combinations == ["V/F"] or found.combinations == ["F/V"]
    assert any("events after the start" in note for note in found.notes)


def test_an_event_at_the_start_may_be_of_states():
    twice = [dict(var="B", time=0, value="A", method="replace")]  # B starts as A does, known
    model = model_of("d(A)/dt = -k*A\nd(B)/dt = -m*B\ny = B/V", {"A": 3, "B": "B0"}, "k m V B0", events=twice)
    found = fme.structural_identifiability(model, seed=1)
    assert found.verdicts.to_dict() == {"k": "not", "m": "globally", "V": "globally", "B0": "not"}
    grown = [dict(var="B", time=0, value="f*A", method="replace")]
    model = model_of("d(A)/dt = -k*A\nd(B)/dt = -m*B\ny = B/V", {"A": "A0", "B": 1}, "k m V f A0", events=grown)
    assert set(fme.structural_identifiability(model, seed=1).verdicts[["V", "f", "A0"]]) == {"not"}


def test_a_cost_is_judged_by_what_it_has_data_of():
    text, state, parms, _, *_ = CASES["Lotka-Volterra"]
    model = model_of(text, state, parms)
    data = {"time": [0.2, 0.5], "x": [1.0, 1.1]}
    cost = fme.SimulationCost(model, data, measurement_noise={"x": "estimate"})
    found = fme.structural_identifiability(cost, seed=1)
    assert found.observed == ("x",)
    assert set(found.verdicts.index) == set(model.parms.index)
    log = fme.structural_identifiability(fme.transformed(cost, "log"), seed=1)
    assert log.verdicts.equals(found.verdicts)


def test_a_singular_start_is_told_and_judged_later():
    model = model_of("d(S)/dt = a - v*S**n/(K**n + S**n)", {"S": 0}, "a v n K")
    found = fme.structural_identifiability(model, seed=1)
    assert set(found.verdicts) == {"locally"}
    assert any("singular" in note for note in found.notes)


def test_thirty_states_and_sixty_parameters():
    n = 30
    flows = ["0*x0", *(f"k{i - 1}*x{i - 1}" for i in range(1, n))]
    text = "\n".join(f"d(x{i})/dt = {flow} - k{i}*x{i} - m{i}*x{i}/(1 + x{i})" for i, flow in enumerate(flows))
    parms = " ".join([f"k{i} m{i}" for i in range(n)])
    model = model_of(text, {f"x{i}": float(i == 0) for i in range(n)}, parms)
    found = fme.structural_identifiability(model, observed=[f"x{i}" for i in range(n)], seed=1)
    assert set(found.verdicts) == {"locally"}
    last = fme.structural_identifiability(model, observed=["x5"], seed=1)
    assert (last.verdicts[[f"k{i}" for i in range(6, n)]] == "not").all()


def test_it_prints_and_shows():
    text, state, parms, observed, *_ = CASES["sums"]
    found = fme.structural_identifiability(model_of(text, state, parms), observed=observed, seed=1)
    assert "k1 + k2" in repr(found)
    assert "observed 'A'" in repr(found)
    assert "<table" in found._repr_html_()
    assert r"\textbf{Structural identifiability" in found.to_latex()


@pytest.mark.parametrize("branches", [lambda k: (k, np.nan), lambda k: (np.nan, k)])
def test_of_two_branches_one_without_a_value_is_left_out(branches):
    model = fme.OdeModel(lambda t, x, *, k=0.4: -np.where(t < 3, *branches(k)) * x, state={"x": 1.0}, times=[0, 1])
    assert fme.structural_identifiability(model, observed="x").verdicts["k"] in ("locally", "globally")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model_of("d(x)/dt = -k*max(x, 1)", {"x": 2}, "k"), "'max' has none where it changes branch"),
        (lambda: model_of("d(x)/dt = where(x > 1, k, 1)", {"x": 2}, "k"), "changes branch"),
        (lambda: model_of("d(x)/dt = -k*lag(x, 1)", {"x": 2}, "k"), "lag"),
        (lambda: fme.DifferenceModel("next(x) = k*x", state={"x": 1}, times=[0, 1], parms={"k": 1}), "goes in steps"),
        (lambda: fme.OdeModel(lambda t, y, p: [-p["k"] * plain(y[0])], state={"x": 1}, times=[0, 1],
                              parms={"k": 1}), "needs equations"),
        (lambda: model_of("d(x)/dt = -k/x", {"x": 0}, "k"), None),
    ],
)  # fmt: skip
def test_what_cannot_be_judged_is_refused_by_name(make, message):
    if message is None:
        assert "singular" in " ".join(fme.structural_identifiability(make(), seed=1).notes)
        return
    with pytest.raises(ModelError, match=message):
        fme.structural_identifiability(make())


def test_wrong_names_and_nothing_left_are_errors():
    model = model_of("d(prey)/dt = -rate*prey", {"prey": 1}, "rate")
    for words, message in (
        ({"observed": ["pray"]}, "Did you mean 'prey'"),
        ({"observed": []}, "empty"),
        ({"known": ["rte"]}, "Did you mean 'rate'"),
        ({"known": ["rate"]}, "nothing is left"),
    ):
        with pytest.raises(ArgumentError, match=message):
            fme.structural_identifiability(model, **words)
    with pytest.raises(ArgumentError, match="must be an OdeModel"):
        fme.structural_identifiability(lambda p: p)
