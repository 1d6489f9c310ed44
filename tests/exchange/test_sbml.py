"""SBML read into models, against solutions in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ModelError, SimulationError
from tests.exchange.files import (
    algebraic,
    assignment,
    compartment,
    event,
    function,
    initial,
    math,
    model,
    parameter,
    rate,
    reaction,
    sbml,
    species,
)

T = np.array([0.0, 0.5, 1.0, 2.0])


def close(found, wanted, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found, dtype=float), wanted, rtol=tolerance, atol=tolerance)


def test_a_concentration_changes_by_the_rate_over_the_size_of_its_compartment(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=2.0)],
        Species=[species("A", 3.0), species("B", 4.0, kind="Amount"), species("C", 1.0, amount=True)],
        Reactions=[reaction("r", "k * A", ("A",), ("B", "2*C"), k=0.8)],
    )  # fmt: skip
    out = m()
    a = 3 * np.exp(-0.4 * T)
    close(out["A"], a)
    close(out["B"], 2 + 3 - a)
    close(out["C"], 1 * 2 + 2 * 2 * (3 - a))
    close(out["r"], 0.8 * a)


def test_the_amount_stays_where_a_compartment_grows(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=2.0, constant=False)], Species=[species("A", 3.0)],
        Rules=[rate("cell", "cell / 2")],
    )  # fmt: skip
    close(m()["A"], 6 / (2 * np.exp(T / 2)))


def test_a_boundary_species_is_read_and_not_moved(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment()], Species=[species("A", 3.0, boundary=True), species("B", 0.0)],
        Reactions=[reaction("r", "A", ("A",), ("B",))],
    )  # fmt: skip
    close(m()["B"], 3 * T)
    assert m.parms["A"] == 3


def test_factors_of_conversion_and_stoichiometries_that_are_assigned(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment()],
        Species=[species("A", 1.0, more='conversionFactor="f"'), species("B")],
        Parameters=[parameter("f", 4.0)], Rules=[assignment("n", "2 * time")],
        Reactions=[reaction("r", "1", (), ("A", "n*B"))],
    )  # fmt: skip
    close(m()["A"], 1 + 4 * T)
    close(m()["B"], T**2)


def test_functions_pieces_and_initial_assignments(tmp_path):
    m = model(
        tmp_path, T, FunctionDefinitions=[function("square", "lambda(x, x^2)")],
        Parameters=[parameter("k", 3.0), parameter("y", None, False), parameter("twice", 0.0)],
        InitialAssignments=[initial("y", "square(k) + 1"), initial("twice", "2 * y")],
        Rules=[rate("y", "piecewise(1, time < 1, 2) * twice / 20")],
    )  # fmt: skip
    close(m()["y"], 10 + np.where(T < 1, T, 1 + 2 * (T - 1)))
    close(m({"k": 0.0})["y"], 1 + 0.1 * np.where(T < 1, T, 1 + 2 * (T - 1)))


def test_what_an_algebraic_rule_determines_is_an_algebraic_state(tmp_path):
    m = model(
        tmp_path, T, Parameters=[parameter("x", 1.0, False), parameter("w", 1.0, False)],
        Rules=[rate("x", "-x"), algebraic("w^2 - 4 * x")],
    )  # fmt: skip
    close(m()["w"], 2 * np.exp(-T / 2))


@pytest.mark.parametrize(("event_of", "value", "ignored"), [("a", 1.0, False), ("", None, False), ("", 1.0, True)])
def test_of_several_an_algebraic_rule_determines_what_nothing_else_sets(tmp_path, event_of, value, ignored):
    w, a = parameter("w", value, False), parameter("a", 3.0, False)
    m = model(
        tmp_path, T, Parameters=[parameter("x", 1.0, False), *((w, a) if ignored else (a, w))],
        Rules=[rate("x", "-x"), algebraic("w + a - 4 * x")],
        Events=[event("time >= 1.5", {event_of: "5"})] if event_of else [],
    )  # fmt: skip
    close(m()["w"], 4 * np.exp(-T) - np.where((T > 1.4) & (event_of == "a"), 5, 3))
    assert bool(m.ignored) == ignored
    assert not ignored or m.ignored == ("that the algebraic rule in line 6 might determine 'a': 'w' is taken",)


def test_an_algebraic_rule_of_what_events_set_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"nothing is left .* no other rule, reaction or event changes"):
        model(
            tmp_path, T, Parameters=[parameter("x", 1.0, False), parameter("w", 1.0, False)],
            Rules=[rate("x", "-x"), algebraic("w - 4 * x")], Events=[event("time > 1", {"w": "5"})],
        )  # fmt: skip


def test_rules_that_need_one_another_are_named_in_a_circle(tmp_path):
    with pytest.raises(ModelError, match=r": rules need one another: v -> s -> u -> v\. Write"):
        model(
            tmp_path, T, Parameters=[parameter(n, None, False) for n in ("s", "u", "q")],
            Species=[species("A", 1.0)], Compartments=[compartment()],
            Rules=[assignment("s", "u + A"), assignment("u", "2 * v"), assignment("q", "v")],
            Reactions=[reaction("v", "A * s", ("A",))],
        )  # fmt: skip


def test_the_rate_of_a_quantity(tmp_path):
    name = '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/{}">x</csymbol>'
    rule = (
        '<assignmentRule variable="s"><math xmlns="http://www.w3.org/1998/Math/MathML"><apply>'
        f"{name.format('rateOf')}<ci>x</ci></apply></math></assignmentRule>"
    )
    m = model(
        tmp_path, T, version=2, Parameters=[parameter("x", 1.0, False), parameter("s", None, False)],
        Rules=[rate("x", "-2 * x"), rule],
    )  # fmt: skip
    close(m()["s"], -2 * np.exp(-2 * T))


def test_the_number_of_avogadro(tmp_path):
    m = model(tmp_path, T, Parameters=[parameter("x", None, False)], Rules=[assignment("x", "2 * avogadro / 1e23")])
    close(m()["x"], 2 * 6.02214179)


def test_text_and_initial_values_say_the_whole_model(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment("t", 2.0)],
        Species=[species("lambda", 3.0, of="t"), species("B", of="t")],
        Parameters=[parameter("unused", 7.0)], Reactions=[reaction("exp", "k * lambda", ("lambda",), ("B",), k=0.5)],
        Events=[event("B > 1", {"B": "0"})],
    )  # fmt: skip
    assert m.renamed.to_dict() == {"lambda": "lambda_", "t": "t_", "exp": "exp_", "exp.k": "exp_k"}
    again = fme.OdeModel(str(m.equations), state=m.state, parms=m.parms, events=m.events, times=T)
    close(again().to_numpy(), m().to_numpy(), 1e-12)
    assert (m()["unused"] == 7).all()


def test_ids_of_stoichiometries_are_constants_and_outputs_and_sizes_that_are_not_there_are_one(tmp_path):
    two = reaction("r", "0.5 * A", ("A",)).replace('species="A"', 'species="A" id="n"').replace('"1"/>', '"2"/>')
    m = model(
        tmp_path, T, Compartments=['<compartment id="cell" constant="true" spatialDimensions="3"/>'],
        Species=[species("A", 3.0)], Reactions=[two],
    )  # fmt: skip
    close(m()["A"], 3 * np.exp(-T))
    assert m.parms["n"] == 2
    close(m({"n": 0.0})["A"], 3)
    assert m.ignored == ("that 'cell' has no size: 1 is taken",)


def test_levels_one_and_two(tmp_path):
    text = (
        '<sbml xmlns="http://www.sbml.org/sbml/level1" level="1" version="1"><model name="m"><listOfCompartments>'
        '<compartment name="cell" volume="2"/></listOfCompartments><listOfSpecies><specie name="A" compartment="cell" '
        'initialAmount="6"/><specie name="B" compartment="cell" initialAmount="0"/></listOfSpecies><listOfParameters>'
        '<parameter name="k" value="0.4"/></listOfParameters><listOfReactions><reaction name="r"><listOfReactants>'
        '<specieReference specie="A" stoichiometry="2"/></listOfReactants><listOfProducts><specieReference specie="B" '
        'stoichiometry="3" denominator="2"/></listOfProducts><kineticLaw formula="k*A"/></reaction></listOfReactions>'
        "</model></sbml>"
    )
    (tmp_path / "m.xml").write_text(text)
    out = fme.read_sbml(tmp_path / "m.xml", times=T)()
    a = 3 * np.exp(-0.4 * T)
    close(out[["A", "B"]].to_numpy(), np.column_stack([a, (3 - a) * 0.75]))
    (tmp_path / "m.xml").write_text(
        text.replace("level1", "level2/version4").replace('level="1" version="1"', 'level="2" version="4"')
        .replace("specieRef", "speciesRef").replace("specie ", "species ").replace("specie=", "species=")
        .replace("name=", "id=").replace("volume", "size").replace(' stoichiometry="3" denominator="2"/>',
            f'><stoichiometryMath>{math("3 * k")}</stoichiometryMath></speciesReference>')
        .replace('formula="k*A"/>', f">{math('k*A')}</kineticLaw>")
    )  # fmt: skip
    out = fme.read_sbml(tmp_path / "m.xml", times=T)()
    close(out["B"], (3 - a) * 0.6)


def test_the_past_is_read_and_before_the_start_it_is_the_start(tmp_path):
    m = model(
        tmp_path, T, Parameters=[parameter("x", 1.0, False), parameter("y", None, False), parameter("z", None, False)],
        Rules=[rate("x", "-delay(x, 1)"), assignment("y", "delay(z, 0.5)"), assignment("z", "2 * x")],
    )  # fmt: skip
    close(m()["x"], [1, 0.5, 0, -0.5])
    close(m()["y"], [2, 2, 1, -0.75])


def test_an_algebraic_rule_alone_and_elements_without_formulas(tmp_path):
    m = model(
        tmp_path, T, version=2, Parameters=[parameter("x", 1.0, False), parameter("w", 1.0, False)],
        Rules=[algebraic("w - 4 * time"), "<algebraicRule/>", '<rateRule variable="x"/>'],
    )  # fmt: skip
    close(m()["w"], 4 * T)
    assert (m()["x"] == 1).all()


# --- events


def step(**words):
    return dict(
        Parameters=[parameter("x", 0.0, False), parameter("y", 0.0, False), parameter("z", 0.0, False)], **words
    )


def test_a_row_at_an_event_shows_the_state_after_it(tmp_path):
    m = model(tmp_path, T, **step(Events=[event("time >= 1", {"x": "5", "y": "x + time"})]))
    close(m()["x"], [0, 0, 5, 5])
    close(m()["y"], [0, 0, 1, 1])


def test_an_event_happens_because_of_another_one_at_the_same_time(tmp_path):
    events = [event("time >= 1", {"x": "5"}), event("x > 3", {"y": "x + 1"}), event("y == 6", {"z": "y"})]
    m = model(tmp_path, T, **step(Events=events))
    close(m()[["x", "y", "z"]].to_numpy()[2:], [[5, 6, 6]] * 2)


def test_of_events_of_one_time_the_larger_priority_is_first(tmp_path):
    events = [event("time >= 1", {"x": "1", "y": "y + 1"}, priority="1", early=False),
              event("time >= 1", {"x": "2", "z": "y"}, priority="5", early=False)]  # fmt: skip
    assert model(tmp_path, T, **step(Events=events))().iloc[-1][["x", "y", "z"]].tolist() == [1, 1, 0]


def test_priorities_are_of_the_moment_at_which_an_event_is_next(tmp_path):
    events = [event(f"time >= {t}", {"x": "3"}, priority="1.25", early=False) for t in (1, 2)]
    events += [event(f"time >= {t}", {"x": "x + 5"}, priority="time", early=False) for t in (1, 2)]
    close(model(tmp_path, T, **step(Events=events))()["x"], [0, 0, 8, 3])


def test_an_event_of_a_strict_condition_is_just_after_its_time(tmp_path):
    events = [event("time > 1", {"x": "5"}), event("x > 3", {"y": "x"}, delay="1"), event("time > 0", {"z": "1"})]
    out = model(tmp_path, [0.0, 0.5, 1.0, 1.5, 2.0, 2.5], **step(Events=events))()
    close(out["x"], [0, 0, 0, 5, 5, 5])
    close(out["y"], [0, 0, 0, 0, 5, 5])
    close(out["z"], [0, 1, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("trigger", "first"),
    [
        ("(x > 1 && time < 50) || (x <= 1 && time < 50)", None),
        ("abs(x - 1) >= 0", None),
        ("piecewise(x, x > 1, 2 * x) < 10", None),
        ("time >= 1 && x < 0.3", None),
        ("b != 1", None),
        ("2 * b > 5", None),
        ("over > 50", None),
        ("time >= 1 && time < 2", 1),
        ("time >= 1 && x < 5", 1),
        ("time > 1 && time < 2", 2),
        ("time >= 3 || x > 1", 3),
        ("time > 3 || x >= 1", 4),
        ("xor(time >= 2, time >= 4)", 2),
        ("x > 1", 5),
        ("max(0, x - 1) > 0", 5),
        ("max(0, x - 1) >= 0", None),
        ("min(0, 1 - x) < 0", 5),
        ("piecewise(x - 1, x > 1, 0) > 0", 5),
    ],
)
@pytest.mark.parametrize("rtol", [1e-6, 1e-10])
def test_an_event_happens_where_its_trigger_begins_to_hold_and_nowhere_else(tmp_path, trigger, first, rtol):
    names = [
        parameter("x", 0.2, False),
        parameter("n", 0.0, False),
        parameter("b", 1.0),
        parameter("over", None, False),
    ]
    m = model(
        tmp_path, range(8), version=2, Parameters=names, Rules=[rate("x", "0.2"), assignment("over", "2 * b")],
        Events=[event(trigger, {"n": "n + 1"})],
    )  # fmt: skip
    wanted = [float(first is not None and t >= first) for t in range(8)]
    assert m.replace(rtol=rtol, atol=rtol * 1e-2)()["n"].tolist() == wanted


def test_of_two_delayed_events_of_one_time_the_first_calls_off_the_other(tmp_path):
    names = [parameter("x", 0.0, False), parameter("b", 1.0, False), parameter("n", 0.0, False)]
    for persistent, wanted in ((False, 0.0), (True, 1.0)):
        second = event("time >= 1 && b > 0.5", {"n": "1"}, delay="0.5", priority="1", persistent=persistent)
        events = [event("time >= 1", {"b": "0"}, delay="0.5", priority="10"), second]
        m = model(tmp_path, range(4), Parameters=names, Rules=[rate("x", "1")], Events=events)
        assert m()["n"].iloc[-1] == wanted


@pytest.mark.parametrize("trigger", ["time == 2", "x != 2", "x == 2 && b > 0"])
def test_an_equality_of_what_moves_is_no_trigger(tmp_path, trigger):
    names = [parameter("x", 0.0, False), parameter("b", 1.0, False)]
    with pytest.raises(ModelError, match=r"model.xml, line \d+, event: its trigger compares .* by == or !="):
        model(tmp_path, T, Parameters=names, Rules=[rate("x", "1")], Events=[event(trigger, {"b": "2"})])


def test_a_delayed_event_may_be_due_again_while_it_waits(tmp_path):
    t = np.linspace(0, 8, 81)
    m = model(
        tmp_path, t, Parameters=[parameter(n, 0.0, False) for n in "xyw"], Rules=[rate("w", "1")],
        Events=[event("w >= 1", {"w": "0", "y": "y + 1"}), event("w >= 0.55", {"x": "y + 1"}, delay="2.5")],
    )  # fmt: skip
    close(m()["y"], np.floor(t + 1e-9))
    close(m()["x"], np.clip(np.floor(t - 3.05 + 1 + 1e-9), 0, None))


def test_a_trigger_may_be_a_truth_value_that_a_rule_assigns(tmp_path):
    m = model(
        tmp_path, T, version=2, Parameters=[parameter("x", 0.0, False), parameter("on", None, False)],
        Rules=[assignment("on", "piecewise(1, time > 0.75, 0)")], Events=[event("on", {"x": "7"})],
    )  # fmt: skip
    close(m()["x"], [0, 0, 7, 7])


def test_values_are_of_the_time_of_the_trigger_unless_they_are_of_the_execution(tmp_path):
    events = [event("time >= 1", {"x": "x + 1"}, priority="2"), event("time >= 1", {"y": "x"}),
              event("time >= 1", {"z": "x"}, early=False)]  # fmt: skip
    assert model(tmp_path, T, **step(Events=events))().iloc[-1][["x", "y", "z"]].tolist() == [1, 0, 1]


def test_an_event_that_does_not_persist_is_gone_when_its_trigger_ends(tmp_path):
    events = [event("time >= 1", {"x": "-5"}, priority="9"),
              event("time >= 1 && x >= 0", {"y": "1"}, persistent=False),
              event("time >= 1 && x >= 0", {"z": "1"})]  # fmt: skip
    assert model(tmp_path, T, **step(Events=events))().iloc[-1][["x", "y", "z"]].tolist() == [-5, 0, 1]


@pytest.mark.parametrize(("early", "wanted"), [(True, 0.75), (False, 1.25)])
def test_a_delayed_event_happens_later_with_the_values_of_its_trigger(tmp_path, early, wanted):
    m = model(
        tmp_path, T, Parameters=[parameter("x", 0.0, False), parameter("y", 0.0, False), parameter("wait", 0.5)],
        Rules=[rate("x", "1")], Events=[event("x > 0.75", {"y": "x"}, delay="wait", early=early)],
    )  # fmt: skip
    close(m()["y"], [0, 0, 0, wanted])
    slope = m.bind(["wait"]).sensitivities([0.5])[1][-1, list(m.var_names).index("y"), 0]
    assert slope == pytest.approx(0.0 if early else 1.0, abs=1e-6)


def test_a_delayed_event_that_does_not_persist_is_called_off(tmp_path):
    rules = [assignment("s", "sin(3 * time)")]
    names = [parameter("s", None, False), parameter("y", 0.0, False), parameter("z", 0.0, False)]
    events = [event("s > 0.5", {n: "1"}, delay="0.9", persistent=p) for n, p in (("y", True), ("z", False))]
    assert model(tmp_path, T, Parameters=names, Rules=rules, Events=events)().iloc[-1][["y", "z"]].tolist() == [1, 0]


def test_a_delayed_concentration_is_of_the_trigger_and_the_size_of_the_compartment_of_the_execution(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=1.0, constant=False)], Species=[species("A", 4.0)],
        Rules=[rate("cell", "1")], Events=[event("time >= 0.5", {"A": "A"}, delay="1")],
    )  # fmt: skip
    close(m()["A"], [4, 4 / 1.5, 4 / 2, 4 / 1.5 * 2.5 / 3])


def test_an_event_whose_trigger_holds_at_the_start_happens_there(tmp_path):
    events = [event("time >= 0", {"x": "2"}, initial=False), event("x > 1", {"y": "x"}),
              event("time >= 0", {"z": "9"})]  # fmt: skip
    close(model(tmp_path, T, **step(Events=events))()[["x", "y", "z"]].to_numpy(), [[2, 2, 0]] * 4)


def test_what_events_set_at_the_start_does_not_reach_initial_values_that_are_of_before(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=2.0, constant=False)], Species=[species("A", 3.0)],
        Parameters=[parameter("k", 1.0, False), parameter("w"), parameter("x", None, False)],
        InitialAssignments=[initial("w", "10 * k"), initial("x", "100 * k")], Rules=[rate("x", "0 * w")],
        Events=[event("true", {"k": "5", "cell": "6"}, initial=False)],
    )  # fmt: skip
    close(m()[["w", "x", "A", "k"]].to_numpy(), [[10, 100, 1, 5]] * 4)


def test_events_at_the_start_follow_one_another_by_priority_and_through_parameters(tmp_path):
    events = [event("time >= 0", {"x": "1"}, initial=False, priority="3"),
              event("time >= 0", {"y": "10 * y + 1"}, initial=False, priority="1", early=False),
              event("x * a > 0.5", {"y": "10 * y + 2"}, priority="2"), event("y * a > 1.5", {"z": "rateOf(u)"}),
              event("y > 5", {"u": "7"})]  # fmt: skip
    more = {"Parameters": [parameter(n, 0.0, False) for n in "xyzu"] + [parameter("a", 1.0)]}
    m = model(tmp_path, T, version=2, Rules=[rate("u", "3 - u + 0 * a")], Events=events, **more)
    close(m()[["x", "y", "z"]].to_numpy(), [[1, 21, 3]] * 4)
    close(m({"a": 0.25})[["x", "y", "z"]].iloc[0], [1, 1, 0])
    endless = [event(f"x {sign} 0.5", {"x": f"{v}"}, initial=False) for sign, v in (("<", 1), (">", 0))]
    why = refused(tmp_path, sbml(Parameters=more["Parameters"], Events=endless))
    assert "more than 100 events happen one after the other at one time" in why


def test_events_at_the_start_that_hang_on_parameters_are_not_left_off_after_a_few(tmp_path):
    events = [event(f"time >= 0 && x {sign} 0.5 && y < a", {"x": f"{v}", "y": "y + 1"}, initial=False)
              for sign, v in (("<", 1), (">", 0))]  # fmt: skip
    m = model(tmp_path, T, Parameters=[parameter(n, 0.0, False) for n in "xy"] + [parameter("a", 4.0)], Events=events)
    assert m()["y"].tolist() == [4] * 4
    with pytest.raises(SimulationError, match="an initial or event value is not finite"):
        m({"a": 30.0})


@pytest.mark.parametrize(("trigger", "wanted"), [
    ("time >= 1 && n > 2", 0), ("n > 2 && time >= 1", 0), ("time >= 1 && n >= 2", 1), ("n >= 2 && time >= a", 1),
    ("time >= 1 && none > 0", 0), ("none > 0 && time >= 1", 0), ("none <= 0 && time >= a", 1),
    ("time >= a && rule < 5", 0), ("over >= 6 && time >= a", 1), ("time >= 1 && !(rule < 7)", 0),
])  # fmt: skip
def test_what_rests_on_the_border_of_a_trigger_holds_or_does_not(tmp_path, trigger, wanted):
    names = ("n", "x", "rule", "over")
    m = model(
        tmp_path, [0.0, 0.5, 2.0], Parameters=[parameter(n, 0.0, False) for n in names] + [parameter("a", 1.0)],
        Compartments=[compartment()], Species=[species("none"), species("B")],
        Reactions=[reaction("r", "a * none", ("none",), ("B",))],
        Rules=[assignment("rule", "piecewise(3 * n, n >= 2, 4)"), assignment("over", "rule")],
        Events=[event("time >= 0.25", {"n": "2"}), event(trigger, {"x": "exp(-a * time)"})],
    )  # fmt: skip
    bound = m.bind(["a"])
    Y, S = bound.sensitivities([1.0])
    column = list(m.var_names).index("x")
    close(Y[-1, column], wanted * np.exp(-1))
    slope = -2 if "a" in trigger else -1
    close(S[-1, column, 0], wanted * slope * np.exp(-1), 1e-6)


def test_an_event_that_sets_the_size_of_a_compartment_keeps_amounts(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=1.0, constant=False)], Species=[species("A", 4.0)],
        Events=[event("time > 0.7", {"cell": "2"}), event("time > 1.5", {"A": "7"})],
    )  # fmt: skip
    close(m()["A"], [4, 4, 2, 7])


def test_an_event_that_sets_the_size_keeps_the_amount_of_a_concentration_with_a_rate_rule(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=1.0, constant=False)], Species=[species("A", 4.0, boundary=True)],
        Rules=[rate("A", "0.5"), rate("cell", "0.4 * cell")], Events=[event("time >= 0.7", {"cell": "2 * cell"})],
    )  # fmt: skip
    close(m()["A"], [4, 4.25, 4.35 / 2 + 0.15, 4.35 / 2 + 0.65], 1e-5)


def test_sensitivities_go_through_events_that_follow_one_another(tmp_path):
    m = model(
        tmp_path, T, Parameters=[parameter("x", 0.0, False), parameter("y", 0.0, False), parameter("a", 0.7)],
        Rules=[rate("x", "1"), rate("y", "a")],
        Events=[event("x > a", {"x": "5 + x"}), event("x > 3", {"y": "a * x"})],
    ).replace(rtol=1e-9, atol=1e-9)  # fmt: skip
    bound = m.bind(["a"])
    S = bound.sensitivities([0.7])[1][..., 0]
    h = 1e-5
    wanted = (bound.simulate([0.7 + h]) - bound.simulate([0.7 - h])) / (2 * h)
    close(S, wanted, 1e-5)


# --- what is refused

DECAY = {
    "Compartments": [compartment()], "Species": [species("A", 1.0), species("B")],
    "Parameters": [parameter("past", None, False), parameter("q", 1.0, False)],
    "Reactions": [reaction("v", "A", ("A",), ("B",))],
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"Reactions": [reaction("v", "A", ("A",), ("BB",))]}, "reaction 'v': there is no species 'BB'. Did you mean"),
        ({"Rules": [assignment("r", "A")]}, "assignmentRule 'r': there is no quantity 'r'."),
        ({"Rules": [assignment("v", "A")]}, "assignmentRule 'v': there is no quantity 'v'."),
        ({"InitialAssignments": [initial("r", "A")]}, "initialAssignment: there is no quantity 'r'."),
        ({"Rules": [assignment("q", "A"), rate("q", "1")]}, "rateRule 'q': another rule gives it its values, too"),
        ({"Rules": [rate("A", "1")]}, "rateRule 'A': a reaction changes it, too: let its boundaryCondition be true"),
        ({"Events": [event("delay(A, 1) < 0.5", {"q": "0"})]}, "event: it reads the past"),
        ({"Events": [event("B > 0.5", {"q": "past"})]}, "event: it reads the past"),
        ({"Events": [event("B > 0.5", {"q": "0"}, delay="past")]}, "event: it reads the past"),
        ({"Events": [event("B > 0.5", {"A": "0"}, delay="-1")]}, "event: its delay is -1; zero or more is needed."),
        (
            {"Events": [event("B > 0.5", {"cell": "2"})]},
            "eventAssignment 'cell': it would change 'cell', which is constant",
        ),
        ({"Rules": [rate("cell", "1")]}, "rateRule 'cell': it would change 'cell', which is constant"),
        (
            {"Species": [species("A", 1.0), species("B", constant=True)]},
            "reaction 'v': it would change 'B', which is con",
        ),
        ({"InitialAssignments": [initial("past", "A")]}, "initialAssignment: an assignment rule gives it its values"),
    ],
)
def test_what_determines_nothing_or_too_much_is_refused(tmp_path, more, said):
    text = sbml(**{**DECAY, "Rules": [assignment("past", "delay(A, 1)")], **more})
    assert said in refused(tmp_path, text)


def test_what_has_no_word_for_constants_or_stands_on_the_boundary_is_read(tmp_path):
    rule = '<parameterRule name="x" formula="-x" type="rate"/>'  # of level 1
    text = (
        '<sbml xmlns="http://www.sbml.org/sbml/level1" level="1" version="2"><model>'
        '<listOfCompartments><compartment name="cell"/></listOfCompartments>'
        f'<listOfParameters><parameter name="x" value="1"/></listOfParameters><listOfRules>{rule}</listOfRules>'
        "</model></sbml>"
    )
    (tmp_path / "old.xml").write_text(text, encoding="utf-8")
    close(fme.read_sbml(tmp_path / "old.xml", times=T)()["x"], np.exp(-T))
    outside = [species("A", 1.0), species("B", constant=True, boundary=True)]
    close(model(tmp_path, T, **{**DECAY, "Species": outside})()["A"], np.exp(-T))


def test_a_reaction_without_a_kinetic_law_is_named(tmp_path):
    bare = reaction("v", "A", ("A",)).replace("<kineticLaw>", "<!--").replace("</kineticLaw>", "-->")
    m = model(tmp_path, T, Compartments=[compartment()], Species=[species("A", 1.0)], Reactions=[bare])
    assert m.ignored == ("that 'v' has no kinetic law: its rate is 0",)
    close(m()["A"], 1)


def refused(folder, text):
    path = folder / "model.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        fme.read_sbml(path)
    assert "model.xml" in str(caught.value)
    return str(caught.value)


def test_fast_reactions_packages_and_triggers_that_jump_are_refused_by_name_and_line(tmp_path):
    fast = sbml(Compartments=[compartment()], Species=[species("A")], Reactions=[reaction("r", "1", ("A",), fast=True)])
    assert "line 1, reaction 'r': fast reactions" in refused(tmp_path, fast)
    comp = ' xmlns:comp="http://www.sbml.org/sbml/level3/version1/comp/version1" comp:required="true"'
    assert "'comp'" in refused(tmp_path, sbml(more=comp, Parameters=[parameter("x", 1)]))
    jumps = sbml(Parameters=[parameter("x", 1.0, False)], Events=[event("floor(time) > 2", {"x": "1"}, id="e")])
    assert "line 1, event 'e': its trigger jumps" in refused(tmp_path, jumps)


def test_entities_and_what_is_no_xml_are_refused(tmp_path):
    entity = '<!DOCTYPE sbml [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + sbml(Parameters=[parameter("x", 1)])
    assert "line 1: document types and entities are refused" in refused(tmp_path, entity)
    assert "line 2" in refused(tmp_path, sbml().replace("<model>", "\n<model>").replace("</model>", ""))
    deep = sbml().replace("<model>", "<model>" + "<a>" * 400 + "</a>" * 400)
    assert "more than 300 elements" in refused(tmp_path, deep)
    assert "'html' of level" in refused(tmp_path, "<html></html>")
    other = sbml(Parameters=[parameter("x", 1)]).replace("version1", "version2", 1)  # libsbml would end the process
    assert "no SBML" in refused(tmp_path, other)
    with pytest.raises(ModelError, match="There is no file"):
        fme.read_sbml(tmp_path / "missing.xml")


def test_names_without_a_meaning_or_a_value_are_told(tmp_path):
    unknown = sbml(Parameters=[parameter("speed", 1.0, False)], Rules=[rate("speed", "sped")])
    assert "Did you mean 'speed'" in refused(tmp_path, unknown)
    unset = sbml(Parameters=[parameter("x", 1.0, False), parameter("k")], Rules=[rate("x", "k")])
    assert "'k' has no value" in refused(tmp_path, unset)
    loop = sbml(Parameters=[parameter("x"), parameter("y")], InitialAssignments=[initial("x", "y"), initial("y", "x")])
    assert "need one another" in refused(tmp_path, loop)


def test_the_helper_writes_what_it_says():
    assert "<ci> x </ci>" in math("x")


def test_a_condition_of_ones_own_makes_events_follow_one_another():
    rows = [{"root": "t - 1", "direction": 1, "when": "where(t >= 1, 1, 0)", "var": "x", "value": "x + 2"},
            {"root": "x - 3", "direction": 1, "when": "where(x > 3, 1, 0)", "var": "y", "value": "x"}]  # fmt: skip
    text = "d(x)/dt = 1\nd(y)/dt = 0"
    m = fme.OdeModel(text, state={"x": 0.5, "y": 0.0}, times=[0, 1, 2], events=rows)
    close(m()[["x", "y"]].to_numpy(), [[0.5, 0], [3.5, 3.5], [4.5, 3.5]])
    plain = m.replace(events=[{k: v for k, v in row.items() if k != "when"} for row in rows])
    close(plain()[["x", "y"]].to_numpy(), [[0.5, 0], [1.5, 0], [4.5, 0]])


@pytest.mark.parametrize("root", ["min(t - k, n - 1)", "min(n - 1, t - k)"])
@pytest.mark.parametrize(("sign", "wanted"), [(">=", 1.0), (">", 0.0)])
def test_a_root_that_comes_to_zero_and_stays_fires_if_its_condition_holds(root, sign, wanted):
    row = {
        "root": root,
        "direction": 1,
        "when": f"where(t < k, 0, where(n {sign} 1, 1, 0))",
        "var": "x",
        "value": "x + 1",
    }
    words = {"state": {"x": 1.0, "n": 1.0}, "parms": {"k": 2.0}, "times": [0, 1, 3.0], "events": [row]}
    Y, S = fme.OdeModel("d(x)/dt = -0.5*x\nd(n)/dt = 0", **words).bind(["k"]).sensitivities(np.array([2.0]))
    close(Y[-1, 0], np.exp(-1.5) + wanted * np.exp(-0.5), 1e-5)
    close(S[-1, 0, 0], wanted * 0.5 * np.exp(-0.5), 1e-5)


def test_a_root_may_jump_where_events_alone_decide():
    row = {"root": "where(n > 0.5, x - 1, x - 2)", "var": "x", "value": 0.0}
    words = {"state": {"x": 0.0, "n": 1.0}, "times": [0, 0.9, 1.5, 3.2, 3.4]}
    text, reset = "d(x)/dt = 1\nd(n)/dt = 0", {"time": 1.2, "var": "n", "value": 0.0}
    close(fme.OdeModel(text, **words, events=[row, reset])()["x"], [0, 0.9, 0.5, 0.2, 0.4])
    with pytest.raises(ModelError, match="may jump across zero"):
        fme.OdeModel(text.replace("= 0", "= 1"), **words, events=[row])
