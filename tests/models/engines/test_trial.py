"""Whether many runs are worth the explicit engine follows from the model, its parameters and their number alone."""

from __future__ import annotations

import logging

import cloudpickle
import numpy as np
import pandas as pd
import pytest

from fmepy import OdeModel
from fmepy.costs.simulation import SimulationCost
from fmepy.models.base import bound_to
from fmepy.models.engines.diffsol import is_available
from fmepy.models.engines.trial import runs_that_pay
from tests.models.problems import every_model, hiv_model, van_der_pol

needs_diffsol = pytest.mark.skipif(not is_available(), reason="pydiffsol is not installed")
MANY = 10_000
OWN = "diffsol" if is_available() else "scipy"


def stiff(mu: float = 1000.0, **options) -> OdeModel:
    times = np.linspace(0, 2 * mu, 101)
    return OdeModel(van_der_pol, state={"x": 2, "v": 0}, times=times, parms={"mu": mu}, **options)


def test_more_equations_need_more_runs():
    numbers = [runs_that_pay(n) for n in (1, 3, 10, 30, 100)]
    assert numbers == sorted(numbers)
    assert 100 <= numbers[0] < numbers[-1] < MANY


def test_auto_takes_the_explicit_engine_from_so_many_runs_on():
    model = hiv_model()
    enough = runs_that_pay(3)
    assert model.engine == OWN
    assert [model.bind(runs=n).engine for n in (1, enough - 1, enough, MANY)] == [OWN, OWN, "numba", "numba"]


@needs_diffsol
@pytest.mark.parametrize("options", [{"engine": "diffsol"}, {"method": "tr_bdf2"}, {"engine": "scipy"}])
def test_who_names_an_engine_gets_it(options):
    model = hiv_model(**options)
    assert model.bind(runs=MANY).engine == model.engine


def test_what_cannot_be_traced_stays_where_it_is():
    def rates(t, y, p):
        return np.array([-p["k"] * y[0] if y[0] > 0 else 0.0])

    model = OdeModel(rates, state={"A": 1.0}, times=[0, 1, 2], parms={"k": 1.0})
    assert model.bind(runs=MANY).engine == "scipy"


def test_a_stiff_model_has_a_method_of_the_explicit_engine():
    assert stiff().bind(runs=MANY).engine == "numba"


def test_the_choice_is_told_and_repeats(caplog):
    with caplog.at_level(logging.INFO, logger="fmepy.models"):
        engines = {hiv_model().bind(["bet"], runs=MANY).engine for _ in range(3)}
    assert engines == {"numba"}
    assert caplog.text.count("runs on numba") == 3


@needs_diffsol
def test_the_choice_is_that_of_the_parameters_and_not_of_what_ran_before():
    quick, slow = stiff(5.0), stiff(1000.0)
    assert quick.replace(parms={"mu": 1000.0}, times=slow.times).bind(runs=MANY).engine == "numba"
    assert slow.replace(parms={"mu": 5.0}, times=quick.times).bind(runs=MANY).engine == "numba"
    assert quick.bind(runs=MANY).engine == "numba"


def test_a_bound_model_that_travels_keeps_its_engine():
    bound = hiv_model().bind(runs=MANY)
    there = cloudpickle.loads(cloudpickle.dumps(bound))
    assert there.engine == "numba"
    np.testing.assert_array_equal(there.simulate(bound.theta0), bound.simulate(bound.theta0))


@pytest.mark.parametrize("name", sorted(every_model("auto")))
def test_the_answers_are_those_of_the_default_engine(name):
    model = every_model("auto", rtol=1e-8, atol=1e-10)[name]
    one, many = model.bind(), model.bind(runs=MANY)
    Y, Z = one.simulate(one.theta0), many.simulate(one.theta0)
    np.testing.assert_allclose(Z, Y, rtol=2e-5, atol=1e-6 * np.abs(Y[np.isfinite(Y)]).max())


def test_a_run_that_turns_out_stiff_goes_on_where_it_is():
    bound = stiff(5.0).bind(["mu"], times=np.linspace(0, 10, 5), runs=MANY)
    assert bound.engine == "numba"
    np.testing.assert_allclose(
        bound.simulate(np.array([1e5])), stiff(5.0).bind(["mu"], times=bound.times).simulate(np.array([1e5])), rtol=1e-4
    )
    assert (bound.retries, bound.engine) == (0, "numba")


# --- the word `runs` on its way


class Foreign:
    """A model of somebody else's, whose bind does not know how often it is run."""

    def __init__(self, model):
        self.model = model
        self.parms, self.states, self.var_names, self.times = model.parms, model.states, model.var_names, model.times
        self.engine, self.engine_note = "own", ""

    def __call__(self, parms=None, times=None):
        return self.model(parms, times)

    def bind(self, names=None, *, times=None, hold_engine=False):
        return self.model.bind(names, times=times, hold_engine=hold_engine)

    def replace(self, **arguments):
        return Foreign(self.model.replace(**arguments))


def data() -> pd.DataFrame:
    return pd.DataFrame({"time": [1.0, 5.0, 20.0], "logV": [8.0, 7.0, 6.0]})


def test_costs_pass_it_on():
    cost = SimulationCost(hiv_model(), data())
    assert cost.bind(["bet"], runs=MANY).engine == "numba"
    assert cost.bind(["bet"]).engine == OWN


def test_a_model_that_does_not_know_the_word_is_bound_without_it():
    model = Foreign(hiv_model())
    assert bound_to(model, ["bet"], runs=MANY).engine == OWN
    assert SimulationCost(model, data()).bind(["bet"], runs=MANY).engine == OWN
