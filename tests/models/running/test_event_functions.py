"""Values of events that are functions, roots that change nothing, and roots that end a run."""

import logging
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, EndedRunError, ModelError


def growth(t, N, *, r=1.0, K=10.0):
    return r * N * (1 - N / K)


def delayed(t, N, *, r=1.0, tau=1.5):
    return r * N * (1 - fme.lag(N, tau) / 10), {"twice": 2 * N}


def falling(t, h, v, *, g=10.0, e=0.8):
    return v, -g


END = {"root": "N - 5", "direction": 1, "terminal": True}


def of_growth(events, **words):
    return fme.OdeModel(growth, state={"N": 1}, times=[0, 1, 2, 5, 10], events=events, **words)


def of_ball(*events):
    return fme.OdeModel(falling, state={"h": 5, "v": 0}, times=np.linspace(0, 5, 6), events=[*events])


# --- functions


@pytest.mark.parametrize(
    "row",
    [
        {"value": lambda t, s, p: {"v": -p["e"] * s["v"]}},
        {"value": lambda t, s, p: -p["e"] * s[1], "var": "v"},
        {"value": lambda t, s, p: {"v": -p[1] * s[-1], "h": s[0]}},
        {"value": lambda t, s, p: p["e"] * s["v"] if s["v"] > 0 else -p["e"] * s["v"], "var": "v"},
    ],
)
def test_a_function_is_the_expression_that_it_computes(row):
    model = of_ball({"root": "h", "direction": -1, **row})
    text = of_ball({"root": "h", "direction": -1, "var": "v", "value": "-e*v"})
    pd.testing.assert_frame_equal(model(), text(), atol=1e-9)
    own, expected = model.hits(sensitivities=True), text.hits(sensitivities=True)
    pd.testing.assert_frame_equal(own.drop(columns="event"), expected.drop(columns="event"), atol=1e-6)


def test_a_function_at_a_time_sees_time_and_states_before_it_and_changes_several_at_once():
    swap = {"time": 0.5, "value": lambda t, s, p: {"h": s["v"], "v": s["h"] + 100 * t + p["g"]}}
    after = of_ball(swap)(times=[0.5, 0.5 + 1e-9]).iloc[1]
    before = of_ball()(times=[0.5]).iloc[0]
    assert after["h"] == pytest.approx(before["v"], abs=1e-6)
    assert after["v"] == pytest.approx(before["h"] + 50 + 10, abs=1e-6)


def test_functions_get_forcings_and_numbers_and_stand_in_tables():
    events = pd.DataFrame({"var": ["N"], "time": [1.0], "value": [lambda t, s, p: p["pulse"] + t]})
    model = fme.OdeModel("d(N)/dt = 0*N*pulse", state={"N": 1}, forcings={"pulse": ([0, 2], [0, 4])},
                         times=[0, 1, 2], events=events)  # fmt: skip
    assert model()["N"].tolist() == pytest.approx([1, 1, 3])
    assert of_growth([{"time": 1, "value": lambda t, s, p: {"N": 3}, "method": "add"}])(times=[1, 1 + 1e-9])[
        "N"
    ].diff().iloc[1] == pytest.approx(3, abs=1e-6)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"var": "N", "value": lambda t, s, p: np.random.default_rng().random()}, "random numbers"),
        ({"var": "N", "value": lambda t, s, p: {"N": 1}}, "leave `var` out"),
        ({"value": lambda t, s, p: 1.0}, "name a state by `var`"),
        ({"value": lambda t, s, p: {"M": 1.0}}, "'M' is not a state"),
        ({"value": lambda t, s, p: {"N": s["n"]}}, r"line \d+.*'n' is none of 'N'"),
        ({"value": lambda t, s, p: {"N": [1, 2][int(s["N"])]}}, "an integer value is needed"),
        ({"value": lambda t, s, p: {"N": None}}, "not a number"),
        ({"value": lambda t, s: {"N": 1}}, "positional argument"),
        ({"value": lambda t, s, p: {"N": np.nan}}, "finite number"),
    ],
)
def test_functions_that_cannot_be_read_are_refused(row, words):
    with pytest.raises(ModelError, match=f"(?s)`events`, row 0.*{words}"):
        of_growth([{"time": 1, **row}])


# --- roots that change nothing, or end the run


def test_a_root_without_var_is_reported_and_changes_nothing():
    model = of_growth([{"root": "N - 5", "direction": 1}])
    np.testing.assert_allclose(model()["N"], of_growth([])()["N"], rtol=2e-6)
    hit = model.hits(sensitivities=True).iloc[0]
    assert hit["time"] == pytest.approx(np.log(9), rel=1e-5)
    assert hit["r"] == pytest.approx(-np.log(9), rel=1e-4)
    in_a_table = of_growth(pd.DataFrame([{"var": "N", "time": 1.0, "value": 2.0}, {"root": "N - 5"}]))
    assert in_a_table.hits()["time"].tolist() == pytest.approx([1 + np.log(4)], rel=1e-5)


@pytest.mark.parametrize("words", [{}, {"engine": "explicit"}, {"engine": "scipy"}, {"method": "rk4", "dt": 0.05}])
def test_a_terminal_root_ends_the_table_with_a_row_at_it(words):
    model = of_growth([END], **words)
    table = model()
    assert table["time"].tolist() == pytest.approx([0, 1, 2, np.log(9)], rel=1e-5)
    assert table["N"].iloc[-1] == pytest.approx(5, abs=1e-9)
    assert model({"r": 0.1})["time"].tolist() == [0, 1, 2, 5, 10]
    assert model(times=[3, 4])["time"].tolist() == pytest.approx([np.log(9)], rel=1e-5)
    assert model(times=[0, 2])["time"].tolist() == [0, 2]


def test_of_a_row_at_the_end_itself_there_is_one():
    table = of_growth([END])(times=[1, np.log(9), 3])
    assert len(table) == 2
    assert table["N"].iloc[1] == pytest.approx(5, abs=1e-4)


def test_the_row_at_the_end_shows_the_state_before_the_change_and_its_outputs():
    events = [{**END, "var": "N", "value": 0}, {"var": "N", "time": 1, "value": "N + gift"}]
    model = of_growth(events, outputs={"twice": "2*N + gift"}, forcings={"gift": ([0, 10], [1, 1])})
    last = model().iloc[-1]
    assert (last["N"], last["twice"]) == pytest.approx((5, 11), abs=1e-8)
    assert len(model.hits()) == 1


def test_after_events_and_switches_the_end_is_where_the_run_crosses():
    pulses = [{"var": "N", "time": t, "value": 0.5, "method": "add"} for t in (0.25, 0.5, 5)]
    text = "d(N)/dt = where(t < 1, 1, 2)"
    model = fme.OdeModel(text, state={"N": 0}, times=[0, 1, 2, 3, 6], events=[*pulses, END])
    assert model()["time"].tolist() == pytest.approx([0, 1, 2, 2.5])


@pytest.mark.parametrize("times", [[0, 1, 2, 5], [0, 1]])
def test_with_a_delay_too(times):
    model = fme.OdeModel(delayed, state={"N": 1}, times=times, events=[END, {"root": "N - 2"}])
    at = np.interp(5, *_fine(delayed))
    table = model()
    assert table["time"].iloc[-1] == pytest.approx(min(at, times[-1]), rel=1e-5)
    if times[-1] > at:
        assert table[["N", "twice"]].iloc[-1].tolist() == pytest.approx([5, 10], abs=1e-6)
    assert model.hits()["root"].tolist() == ["N - 2", "N - 5"][: len(model.hits())]


def _fine(function):
    table = fme.OdeModel(function, state={"N": 1}, times=np.linspace(0, 2, 20001), rtol=1e-9)()
    return table["N"], table["time"]


def test_data_later_than_the_end_are_an_error_that_names_the_time():
    data = pd.DataFrame({"time": [1, 2.0, 5], "N": [2.3, 4.5, 6]})
    cost = fme.SimulationCost(of_growth([END]), data)
    with pytest.raises(EndedRunError, match=r"ended at time 2\.197.*row 0 of `events`.*to time 5.*Data later") as told:
        cost({"r": 1})
    assert told.value.time == pytest.approx(np.log(9), rel=1e-5)
    assert told.value.parameters == {"r": 1, "K": 10}
    with pytest.raises(ArgumentError, match=r"fails at the start.*ended at time 2\.197"):
        fme.modFit(cost, {"r": 1})
    before = fme.SimulationCost(of_growth([END]), data[:2])
    assert fme.modFit(before, {"r": 0.8}).par["r"] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"root": "N - 5", "var": "N"}, "'value' missing. A root that changes"),
        ({"root": "N - 5", "value": 1}, "'var' missing. A root that changes"),
        ({"root": "N - 5", "terminl": True}, "Did you mean 'terminal'"),
        ({"time": 1, "terminal": True}, "belongs to a root"),
    ],
)
def test_rows_that_are_neither_are_refused(row, words):
    with pytest.raises(ModelError, match=words):
        of_growth([row])


# --- ode, in deSolve's manner


def test_ode_takes_delays_by_position_and_by_array(caplog):
    caplog.set_level(logging.WARNING)
    of_text = fme.OdeModel("d(N)/dt = N*(1 - lag(N, 1.5)/10)", state={"N": 1}, times=[0, 5, 10], history={"N": 2})
    for f in (
        lambda t, y, p: y * (1 - fme.lag(y, p["tau"]) / 10),
        lambda t, y, p: [y[0] * (1 - fme.lag(y[0], p["tau"]) / 10)],
    ):
        table = fme.ode({"N": 1}, [0, 5, 10], f, {"tau": 1.5}, history={"N": 2})
        np.testing.assert_allclose(table["N"], of_text()["N"], rtol=1e-4)
    with pytest.raises(ModelError, match="reads the past"):
        fme.ode({"N": 1}, [0, 5], lambda t, y, p: -fme.lag(y, 1.0), method="rk4", dt=0.1)


@pytest.mark.parametrize("start", [{"y": 0.5}, [0.5], 0.5])
def test_ode_sees_a_delay_that_the_function_asks_for_later_in_the_run(start):
    def mackey_glass(t, y, p):  # as in deSolve's page on dede, whose numbers these are
        past = 0.5 if t < p["tau"] else fme.lag(y, p["tau"])
        return 0.2 * past / (1 + past**10) - 0.1 * y

    table = fme.ode(start, [0, 50, 100], mackey_glass, {"tau": 20.0})
    np.testing.assert_allclose(table.iloc[:, 1], [0.5, 0.9380847, 1.1294557], rtol=1e-4)


def test_ode_ends_at_a_terminal_root():
    table = fme.ode({"N": 1}, [0, 5, 10], lambda t, y, p: p["r"] * y, {"r": 1}, events=[{**END, "root": "N - 3"}])
    assert table["time"].tolist() == pytest.approx([0, np.log(3)], rel=1e-5)


OF_DESOLVE = (
    "lsoda lsode lsodes lsodar vode daspk adams impAdams impAdams_d bdf bdf_d radau irk3r irk5r irk4hh irk6kb irk4l "
    "irk6l ode45 rk34f rk45f rk45ck rk45e rk45dp6 rk45dp7 ode23 rk23 rk23bs rk78dp rk78f euler rk4 rk2 iteration"
)
PAGE = Path(__file__).parents[3] / "docs" / "from_r.md"


def test_the_table_of_solvers_is_complete_and_true():
    rows = re.findall(r"^\| (.*?) \| `\"(.*?)\"` \|", PAGE.read_text(encoding="utf-8"), flags=re.M)
    place = {name: own for names, own in rows for name in re.findall(r"`(\w+)`", names)}
    assert {*place, "iteration"} == set(OF_DESOLVE.split())
    for name, own in place.items():
        dt = {"dt": 0.01} if own in ("euler", "rk4") else {}
        table = fme.ode({"N": 1}, [0, 1], lambda t, y, p: y, method=own, **dt)
        assert table["N"].iloc[1] == pytest.approx(np.e, abs=0.02)
        if name != own:
            with pytest.raises(ArgumentError, match=f"Did you mean '{own}'"):
                fme.ode({"N": 1}, [0, 1], lambda t, y, p: y, method=name)
