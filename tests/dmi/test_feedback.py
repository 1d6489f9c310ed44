"""Feedback loops: which there are, and whether they reinforce or balance, against what the equations say."""

from __future__ import annotations

import pytest

import fmepy as fme
from fmepy.dmi import ModularModel, Module
from fmepy.errors import ArgumentError
from tests.plain import plain


def loops_of(*texts, data=None, times=(0, 5, 10), dt=0.5, **words):
    modules = [Module(f"m{i}", text) for i, text in enumerate(texts)]
    return dict(ModularModel(modules, data, times=times, dt=dt).feedback_loops(**words)[["loop", "kind"]].to_numpy())


def test_signs_are_products_of_the_signs_of_links():
    firm = loops_of(
        "d(backlog)/dt = orders - deliveries\nbacklog(0) = 100\ndeliveries = backlog / 2",
        "orders = 80 - 10 * delay\ndelay = backlog / deliveries + 0.001 * backlog",
    )
    assert firm == {
        "backlog → deliveries → backlog": "balancing",
        "backlog → delay → orders → backlog": "balancing",
        "backlog → deliveries → delay → orders → backlog": "reinforcing",
    }


def test_a_loop_that_turns_round_along_the_run_is_changing_and_one_at_its_limit_inactive():
    grown = loops_of("d(N)/dt = N * (1 - N / 100)\nN(0) = 1", times=(0, 5, 20))
    assert grown == {"N → N": "changing"}
    assert loops_of("d(N)/dt = 2 * N\nN(0) = 1") == {"N → N": "reinforcing"}
    assert loops_of("d(N)/dt = min(N, 1)\nN(0) = 5") == {"N → N": "inactive"}
    assert loops_of("d(N)/dt = 1 + 0 * t\nN(0) = 5") == {}


def test_what_remembers_is_passed_and_not_named():
    for remembered in ("smooth(x, 4)", "delay1(x, 4)", "delay3(x, tau)", "lag(x, 2, 0)"):
        data = {"tau": 3.0} if "tau" in remembered else None
        found = loops_of(f"d(x)/dt = 3 - gone\nx(0) = 1\ngone = {remembered} / 4", data=data)
        assert found == {"x → gone → x": "balancing"}, remembered


def test_arrays_are_one_variable_whose_elements_agree_or_do_not():
    dims = "dims v[3]\n"
    assert loops_of(dims + "d(v)/dt = 0.1 * v\nv(0) = [1, 2, 3]") == {"v → v": "reinforcing"}
    assert loops_of(dims + "d(v)/dt = [1, -1, 1] * v\nv(0) = [1, 2, 3]") == {"v → v": "unknown"}
    assert loops_of(dims + "d(v)/dt = total * [1, 1, 1]\ntotal = -sum(v)\nv(0) = [1, 2, 3]") == {
        "v → total → v": "balancing"
    }


def test_python_modules_and_models_that_do_not_run_leave_signs_unknown():
    @fme.dmi.module(reads=("x",), assigns=("y",))
    def opaque(x):
        return plain(x) if x > 0 else 0.0

    model = ModularModel([opaque, Module("m", "d(x)/dt = y\nx(0) = 1")], times=[0, 1], dt=0.5)
    assert model.feedback_loops()["kind"].tolist() == ["unknown"]
    with pytest.warns(fme.dmi.DiagnosticWarning, match="missing"):
        missing = ModularModel([Module("m", "d(x)/dt = -k * x\nx(0) = 1")], times=[0, 1], dt=0.5)
    assert missing.feedback_loops()["kind"].tolist() == ["unknown"]


def test_the_shortest_come_first_and_most_is_a_limit():
    chain = "\n".join(f"d(x{i})/dt = x{(i - 1) % 6} - x{i}\nx{i}(0) = 1" for i in range(6))
    table = ModularModel([Module("ring", chain)], times=[0, 1], dt=0.1).feedback_loops()
    assert table["length"].tolist() == [1] * 6 + [6]
    assert table["kind"].tolist() == ["balancing"] * 6 + ["reinforcing"]
    assert len(loops_of(chain, times=(0, 1), most=2)) == 2
    with pytest.raises(ArgumentError, match="most"):
        loops_of(chain, times=(0, 1), most=0)
