"""Whole numbers of the time in a function: what tables hold there, and what is decided by them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import interpolate

import fmepy as fme
from fmepy.compiled.python_code import scalar_function
from fmepy.language.equations import symbols
from fmepy.models.running.forcings import forced_at

RAIN = np.array([2.1, 1.3, 3.2, 0.4, 1.1, 2.8, 2.2, 0.3, 1.9, 2.0, 1.2, 0.7])
LIST, TABLE, BY_NAME = RAIN.tolist(), np.column_stack([RAIN, RAIN[::-1] + 3]), {"rain": RAIN}
WIDE = np.linspace(0.03, 11.9, 93)
BEFORE = np.linspace(-7.93, 11.9, 93)

FORMS = {
    "array": (lambda t: RAIN[int(t)], WIDE),
    "list": (lambda t: LIST[int(t)], WIDE),
    "in a dict": (lambda t: BY_NAME["rain"][int(t)], WIDE),
    "one before": (lambda t: RAIN[int(t) - 1], WIDE),
    "floor": (lambda t: RAIN[int(np.floor(t))], BEFORE),
    "without decimals": (lambda t: RAIN[int(t)], BEFORE),
    "held": (lambda t: RAIN[min(int(t / 2), 3)], WIDE * 9),
    "held on both sides": (lambda t: RAIN[max(min(int(t // 2), 3), 1)], BEFORE * 9),
    "clipped": (lambda t: RAIN[np.clip(int(t), 2, 5)], BEFORE),
    "weekdays": (lambda t: RAIN[int(t) % 7], WIDE * 9),
    "weekdays from a day on": (lambda t: RAIN[(int(t) + 3) % 7 + 1], WIDE * 9),
    "hours of days": (lambda t: RAIN[int(t * 3) // 3 % 5], WIDE * 9),
    "day of the year": (lambda t: RAIN[int(t % 9)], WIDE * 9),
    "rounded": (lambda t: RAIN[round(t / 2)], WIDE),
    "a day of the first week": (lambda t: RAIN[min(int(t), 7) % 4], WIDE * 9),
    "backwards": (lambda t: RAIN[5 - int(t) % 6], WIDE * 9),
    "column": (lambda t: TABLE[int(t), 1], WIDE),
    "along a row": (lambda t: TABLE.T[1, int(t)], WIDE),
    "row": (lambda t: TABLE[int(t)].sum(), WIDE),
    "several": (lambda t: RAIN[int(t)] * (int(t) + 1 - t) + RAIN[(int(t) + 1) % 12] * (t - int(t)), WIDE),
    "even days": (lambda t: 2.0 if int(t) % 2 == 0 else 1.0, WIDE),
    "odd days": (lambda t: 2.0 if int(t) % 2 != 0 else 1.0, WIDE),
    "some days": (lambda t: 2.0 if int(t) in (3, 4, 9) else 1.0, WIDE),
    "polynomial": (lambda t: np.polyval([0.1, -1.0, 2.0], t), WIDE),
    "missing": (lambda t: 1.0 if np.isnan(t) or not np.isfinite(t) else 2.0, WIDE),
}


@pytest.mark.parametrize("name", FORMS)
def test_it_has_the_function_s_values(name):
    f, times = FORMS[name]
    model = fme.OdeModel(lambda t, x, *, k=0.4: f(t) - k * x, state={"x": 1.0}, times=[0.05, 9])
    assert model.engine == "compiled", model.engine_note
    d = model.definition
    function = scalar_function(symbols(*d.groups[:4]), d.equations.rates)
    for t in times.tolist():
        found = function([t], [1.3], d.parms.tolist(), forced_at(d.forcings, t))[0]
        assert found == pytest.approx(float(f(t)) - 0.52, rel=1e-12), t


def test_runs_stop_where_the_entry_changes():
    model = fme.OdeModel(lambda t, x, *, k=0.4: RAIN[int(t)] - k * x, state={"x": 1.0}, times=np.arange(0, 12, 0.5))
    held = fme.OdeModel(
        "dx/dt = u - k * x", state={"x": 1.0}, parms={"k": 0.4}, times=np.arange(0, 12, 0.5),
        forcings={"u": (np.arange(12.0), RAIN, "constant")},
    )  # fmt: skip
    np.testing.assert_array_equal(model()["x"], held()["x"])
    one, other = (m.bind(["k"]).sensitivities([0.4])[1] for m in (model, held))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("f", "fails"),
    [(lambda t: RAIN[int(t)], 12), (lambda t: RAIN[min(int(t), 14)], 12), (lambda t: RAIN[int(t) % 7], None)],
)
def test_where_a_table_ends_the_run_fails(f, fails):
    model = fme.OdeModel(lambda t, x, *, k=0.4: f(t) - k * x, state={"x": 1.0}, times=[0, 5, 20])
    if fails is None:
        assert np.isfinite(model()["x"]).all()
        return
    with pytest.raises(fme.errors.SimulationError, match=f"failed at time {fails}"):
        model()


def test_a_week_that_begins_before_zero_runs_as_it_is():
    model = fme.OdeModel(lambda t, x, *, k=0.4: RAIN[int(t) % 7] - k * x, state={"x": 1.0}, times=[-2, 5])
    assert model.engine == "scipy"  # int(-0.5) is 0, and the days before it come backwards


class Pond:
    """A model with tables of its own."""

    def __init__(self):
        self.rain, self.light, self.itself = RAIN, interpolate.interp1d(np.arange(12.0), RAIN), self

    def rates(self, t, x, *, k=0.4):
        return self.rain[int(t)] + self.itself.light(t) - k * x


POND, SPACE = Pond(), SimpleNamespace(rain=RAIN, k=2.0)


@pytest.mark.parametrize(
    "rates",
    [POND.rates, lambda t, x, *, k=0.4: POND.rain[int(t)] + POND.light(t) - k * x,
     lambda t, x, *, k=0.4: SPACE.k * SPACE.rain[int(t)] / 2.0 + np.interp(t, np.arange(12), SPACE.rain) - k * x],
)  # fmt: skip
def test_tables_may_be_attributes(rates):
    model = fme.OdeModel(rates, state={"x": 1.0}, times=[0.05, 9])
    assert model.engine == "compiled", model.engine_note
    by_name = fme.OdeModel(
        lambda t, x, *, k=0.4: RAIN[int(t)] + np.interp(t, np.arange(12.0), RAIN) - k * x,
        state={"x": 1.0}, times=[0.05, 9],
    )  # fmt: skip
    np.testing.assert_allclose(model()["x"], by_name()["x"], rtol=1e-6)
    assert type(POND.rain) is np.ndarray


def test_of_a_long_table_at_many_places_no_entry_is_left_out():
    table = np.sin(np.arange(200_000.0))
    model = fme.OdeModel(lambda t, x, *, k=0.4: table[int(t * 100)] - k * x, state={"x": 1.0}, times=[0, 1])
    assert "looked up at more than 50000 places" in model.engine_note
    few = fme.OdeModel(lambda t, x, *, k=0.4: table[min(int(t), 20_000)] - k * x, state={"x": 1.0}, times=[0, 30_000])
    assert few.engine == "compiled", few.engine_note
    (series,) = few.definition.forcings
    assert series.at(29_000.0) == table[20_000]


def test_a_week_that_comes_to_begin_before_zero_fails_there():
    model = fme.OdeModel(lambda t, x, *, k=0.4: RAIN[int(t) % 7] - k * x, state={"x": 1.0}, times=[0, 5])
    with pytest.raises(fme.errors.SimulationError, match="failed at time -2"):
        model.replace(times=[-2, 5])()


def test_a_place_by_a_state_has_no_form_and_is_run_as_it_is():
    model = fme.OdeModel(lambda t, x, *, k=0.4: RAIN[int(x)] - k * x, state={"x": 1.0}, times=[0, 5])
    assert model.engine == "scipy"
    assert "has a form of the time alone" in model.engine_note


def test_functions_that_numba_compiles_are_read_as_python():
    class Compiled:
        """As numba's: it holds the function that it was made of."""

        def __init__(self, f):
            self.py_func = f

        def __call__(self, x, a):
            return self.py_func(float(x), float(a))

    def plain(x, a):
        return a * x / (1 + x)

    growth = Compiled(plain)
    model = fme.OdeModel(lambda t, x, *, k=0.4: growth(x, k) - k * x, state={"x": 1.0}, times=[0, 5])
    assert model.engine == "compiled", model.engine_note
