"""SBML read into models, against solutions in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ModelError
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


def test_the_rate_of_a_quantity_and_the_number_of_avogadro(tmp_path):
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


def test_an_event_whose_trigger_holds_at_the_start_happens_there(tmp_path):
    events = [event("time >= 0", {"x": "2"}, initial=False), event("x > 1", {"y": "x"}),
              event("time >= 0", {"z": "9"})]  # fmt: skip
    close(model(tmp_path, T, **step(Events=events))()[["x", "y", "z"]].to_numpy(), [[2, 2, 0]] * 4)


def test_an_event_that_sets_the_size_of_a_compartment_keeps_amounts(tmp_path):
    m = model(
        tmp_path, T, Compartments=[compartment(size=1.0, constant=False)], Species=[species("A", 4.0)],
        Events=[event("time > 0.7", {"cell": "2"}), event("time > 1.5", {"A": "7"})],
    )  # fmt: skip
    close(m()["A"], [4, 4, 2, 7])


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


def refused(folder, text):
    path = folder / "model.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        fme.read_sbml(path)
    assert "model.xml" in str(caught.value)
    return str(caught.value)


def test_fast_reactions_packages_and_delays_are_refused_by_name_and_line(tmp_path):
    fast = sbml(Compartments=[compartment()], Species=[species("A")], Reactions=[reaction("r", "1", ("A",), fast=True)])
    assert "line 1, reaction 'r': fast reactions" in refused(tmp_path, fast)
    comp = ' xmlns:comp="http://www.sbml.org/sbml/level3/version1/comp/version1" comp:required="true"'
    assert "'comp'" in refused(tmp_path, sbml(more=comp, Parameters=[parameter("x", 1)]))
    late = sbml(Parameters=[parameter("x", 1.0, False)], Rules=[rate("x", "delay(x, 2)")])
    assert "rateRule 'x': 'delay(x, 2)'" in refused(tmp_path, late)


def test_entities_and_what_is_no_xml_are_refused(tmp_path):
    entity = '<!DOCTYPE sbml [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + sbml(Parameters=[parameter("x", 1)])
    assert "line 1: a document type" in refused(tmp_path, entity)
    assert "line 2" in refused(tmp_path, "<sbml>\n<model></sbml>")
    deep = "<a>" * 400 + "</a>" * 400
    assert "more than 300 elements" in refused(tmp_path, deep)
    assert refused(tmp_path, "<html></html>")
    with pytest.raises(ModelError, match="cannot be read"):
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
