"""Units: what a text stands for, what equations give, what does not fit, and that a run never minds."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi import Database, DiagnosticWarning, ModularModel, Module, item
from fmepy.dmi.unit_text import read_unit, unit_text
from fmepy.errors import ModelTextError

FIRM = Path(__file__).parents[2] / "vignettes" / "market_modules"


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("people/month", "person/month"),
        ("$ / (unit * months)", "dollar/(month*unit)"),
        ("units/month/month", "unit/month^2"),
        ("widgets per week", "widget/week"),
        ("m^2", "m^2"),
        ("m**-2 kg", "kg/m^2"),
        ("1/(a*b)", "1/(a*b)"),
        ("1000 people", "person"),
        ("Dmnl", "1"),
        ("month*1/month", "1"),
        ("mass", "mass"),
    ],
)
def test_a_text_is_a_product_of_powers(text, unit):
    assert unit_text(read_unit(text)) == unit


@pytest.mark.parametrize("text", ["?", "(", "a/", "a**b", "a)", "", "^2", "a b ] c", "()" * 3])
def test_what_is_none_is_none(text):
    assert read_unit(text) is None


def misfits(text, **units):
    """Return the messages of a module whose constants have these units."""
    data = Database({name: item(2.0, unit=unit) for name, unit in units.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiagnosticWarning)
        model = ModularModel([Module("m", text)], data, times=[0, 1], dt=0.5, strict=True)
    found = model.diagnostics
    assert (found["level"] == "note").all()
    assert np.isfinite(model().to_numpy(dtype=float)).all()  # wrong units never stop a run
    return found["message"].tolist()


STOCK = "stock(0) = 1 [people]\n"


def test_a_sum_of_people_and_dollars_and_a_rate_without_time_are_told():
    assert misfits("x = a + b", a="people", b="$") == ["the equation of 'x' adds person and dollar"]
    assert misfits(f"d(stock)/dt = births\n{STOCK}births = c", c="people") == [
        "the equation of 'stock' moves by a rate without time: both are in person"
    ]
    other = f"d(stock)/dt = births\n{STOCK}d(other)/dt = c [people]\nother(0) = 1\nbirths = c / year"
    assert misfits(other, c="people/month", year="year") == [
        "the equation of 'stock' is in person, so that its rate is in person/month; here it is in person/(month*year)"
    ]


@pytest.mark.parametrize(
    ("text", "units", "message"),
    [
        ("x = exp(a)", {"a": "month"}, "takes exp of what is in month, not of a plain number"),
        ("x = a ** b", {"a": "month", "b": "1"}, "raises what is in month to a power that is no plain number"),
        ("x = max(a, b)", {"a": "m", "b": "kg"}, "takes the max of m and kg"),
        ("x = where(a > b, 1, 2)", {"a": "m", "b": "kg"}, "compares m and kg"),
        ("x = where(c > 0, a, b)", {"a": "m", "b": "kg", "c": "1"}, "chooses between m and kg"),
        ("x = a * b [kg]", {"a": "m", "b": "kg"}, "is in kg, and its equation gives kg*m"),
        ("x = a + t\nd(y)/dt = b\ny(0) = c", {"a": "m", "b": "kg/s", "c": "kg"}, "adds m and s"),
        ("d(y)/dt = b + smooth(b, a)\ny(0) = c", {"a": "m", "b": "kg/day", "c": "kg"}, "is in kg/day"),
    ],
)
def test_what_does_not_fit_is_told_once(text, units, message):
    found = misfits(text, **units)
    assert len(found) == 1
    assert message in found[0]


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("x = 1 - a / b", {"a": "people", "b": "person"}),
        ("x = 0.5 * a + 3", {"a": "people"}),
        ("x = sqrt(a) [m]", {"a": "m^2"}),
        ("x = a * free", {"a": "people", "free": ""}),
        ("x = table(a, [0, 1], [2, 3]) * a", {"a": "m"}),
        ("x = exp(-a / b) * sin(c)", {"a": "m", "b": "m", "c": "Dmnl"}),
        ("dims D[2]\nD = a * [1, 2]\nx = sum(D) + a", {"a": "m"}),
        (f"d(stock)/dt = a - smooth(stock, b) / b\n{STOCK}", {"a": "people/week", "b": "week"}),
    ],
)
def test_what_fits_or_is_open_is_left_alone(text, units):
    assert misfits(text, **units) == []


def test_the_firm_fits_and_a_slip_in_its_data_is_found_with_the_line():
    firm = ModularModel(fme.dmi.read_modules(FIRM), Database(FIRM / "data"), times=[0, 1], dt=0.5)
    assert not len(firm.diagnostics)
    assert firm.units["PCO"] == "unit/month^2"
    assert firm.variable_map.loc["BL", "unit"] == "unit"
    items = {name: firm.data[name] for name in firm.data.items.index}
    wrong = firm.replace(data={**items, "SEM": item(400.0, unit="$/month")}).diagnostics.iloc[-1]
    assert (wrong["kind"], wrong["level"], Path(wrong["file"]).name, wrong["line"]) == ("units", "note", "sales.fme", 3)
    assert wrong["message"] == "the equation of 'OB' adds dollar/month and unit/month"


def test_a_unit_stands_in_brackets_behind_a_blank_and_an_index_does_not():
    module = Module("m", "dims D[2]\nD = [1, 2] [m]\nx = D[1] * a  [m*kg]  # area\ny = D [0]\nz = (a +\n  1) [kg]")
    assert dict(module.units) == {"D": "m", "x": "m*kg", "z": "kg"}
    model = ModularModel([module], {"a": 3.0}, times=[0], dt=1)
    assert model().iloc[0].tolist() == [0, 1, 2, 6, 1, 4]
    with pytest.raises(ModelTextError, match="'kg \\^ m' is no unit"):
        Module("m", "x = a [kg ^ m]")
    two = ModularModel([Module("m", "d(a)/dt = 1 [m]")], {"a": item(1.0, unit="kg")}, times=[0], dt=1).diagnostics
    assert two["message"].tolist() == ["the unit of 'a' is 'm' here and 'kg' elsewhere"]
