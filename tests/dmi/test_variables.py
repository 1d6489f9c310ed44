"""The global variable map, and diagnostics of modules and data base."""

import pickle
import warnings
from dataclasses import dataclass

import pytest

import fmepy as fme
from fmepy.dmi.diagnostics import DiagnosticWarning, diagnose, diagnostics_table, warn_of
from fmepy.dmi.variables import system_of
from fmepy.errors import ModelError
from fmepy.language.nodes import Symbol

Module = fme.dmi.Module

SALES = Module("sales", "OB = SM * SE\nd(SM)/dt = (ISM - SM) / SAT\nSM(0) = 10", file="sales.fme")
DELIVERY = Module("delivery", "d(BL)/dt = OB - DR\nDR = min(BL, PC)\nPC = 12 + PCX", file="delivery.fme")


def cells(system, variable):
    return dict(system.variable_map.loc[variable].drop("dims"))


# --- the map


def test_the_map_has_a_row_a_variable_and_a_column_a_module():
    found = system_of([SALES, DELIVERY]).variable_map
    assert found.index.name == "variable"
    assert list(found.columns) == ["dims", "sales", "delivery"]
    assert list(found.index) == ["OB", "SM", "SE", "ISM", "SAT", "BL", "DR", "PC", "PCX"]
    assert list(found.loc["OB"]) == ["", "endogenous", "exogenous"]
    assert list(found.loc["SM"]) == ["", "endogenous", "-"]
    assert list(found.loc["BL"]) == ["", "-", "both"]  # a level without an initial value
    assert list(found.loc["PCX"]) == ["", "-", "exogenous"]


def test_declarations_say_more_than_the_text():
    text = "d(x)/dt = -y\ny = x + z\nx(0) = 1\nd(w)/dt = 1"
    assert cells(system_of([Module("m", text)]), "x") == {"m": "endogenous"}
    system = system_of([Module("m", text, exogenous=("x", "y"), endogenous=("w",))])
    assert [cells(system, n)["m"] for n in "xywz"] == ["both", "both", "endogenous", "exogenous"]
    assert system.variables["y"].outside == (True,)
    assert system.variables["w"].outside == (False,)


def test_elements_have_a_map_of_their_own():
    first = Module("first", "dims D[3], A[2,2]\nD[0] = 1\nD[1] = D[2]\nA = 1")
    second = Module("second", "dims D[3]\nx = D[0] + D[2]\ny = D[1]")
    system = system_of([first, second])
    assert list(system.variable_map["dims"]) == ["[3]", "[2,2]", "", ""]
    assert cells(system, "D") == {"first": "both", "second": "exogenous"}
    found = system.element_map
    assert list(found.columns) == ["variable", "first", "second"]
    assert list(found.loc["D[2]"]) == ["D", "exogenous", "exogenous"]
    assert list(found.loc["D[1]"]) == ["D", "endogenous", "exogenous"]
    assert list(found.loc["A[0,1]"]) == ["A", "endogenous", "-"]
    assert system.variables["D"].assigned == (True, True, False)
    assert system.variables["D"].elements == ("D[0]", "D[1]", "D[2]")
    assert (system.variables["D"].endogenous, system.variables["D"].exogenous) == (True, True)


def test_elements_of_levels_need_initial_values_one_by_one():
    system = system_of([Module("m", "dims D[2]\nd(D)/dt = 1\nD[1](0) = 3")])
    assert list(system.element_map["m"]) == ["both", "endogenous"]


def test_a_new_module_appends_rows_and_a_changed_one_keeps_their_order():
    before = system_of([SALES, DELIVERY])
    more = system_of([SALES, DELIVERY, Module("new", "PQ = OB + PCX")], before)
    assert list(more.variables) == [*before.variables, "PQ"]
    changed = Module("sales", "q = 3\nd(SM)/dt = (q - SM) / SAT\nOB = SM")
    again = system_of([changed, DELIVERY], before)
    assert list(again.variables) == ["OB", "SM", "SAT", "BL", "DR", "PC", "PCX", "q"]
    assert list(system_of([changed, DELIVERY]).variables)[:2] == ["q", "SM"]


def test_local_names_are_called_after_their_module():
    one = Module("one", "local a, c\na = 1 + c\nx = a")
    two = Module("two", "a = 2\ny = a + x")
    system = system_of([one, two])
    assert list(system.variables) == ["one.a", "one.c", "x", "a", "y"]
    assert system.variables["a"].read_in == ("two",)
    assert system.statements[1].value == Symbol("one.a")
    assert one.statements[1].value == Symbol("a")  # the module is as it was


def test_outputs_are_those_that_modules_declare():
    one = Module("one", "local a\noutput x, a\na = 1\nx = a")
    assert system_of([one, DELIVERY]).outputs == ("x", "one.a")
    assert system_of([DELIVERY]).outputs == ()
    with pytest.raises(ModelError, match="'z' is declared output, but no module gives it a value"):
        system_of([Module("m", "x = z", outputs=("z",))])


@fme.dmi.module(reads=("OB", "v"), assigns=("SE", "w"), dims={"v": 2, "w": 2})
def algorithm(OB, v):
    return OB / 2, v


def test_a_python_function_has_its_column():
    system = system_of([SALES, algorithm])
    assert cells(system, "SE") == {"sales": "exogenous", "algorithm": "endogenous"}
    assert list(system.element_map.loc["w[1]"]) == ["w", "-", "endogenous"]
    assert system.statements[-1].function is algorithm


def test_a_system_pickles():
    system = system_of([SALES, DELIVERY, algorithm])
    again = pickle.loads(pickle.dumps(system))
    assert again.variables == system.variables
    assert again.statements == system.statements


@pytest.mark.parametrize(
    ("modules", "says"),
    [
        ([], "is empty"),
        (["sales.fme"], "not a dmi.Module"),
        ([SALES, SALES], "two modules are called 'sales' .sales.fme, sales.fme."),
        (
            [Module("a", "dims D[3]\nD = 1"), Module("b", "x = 1\ny = D")],
            r"D\[3\] in module 'a' \(line 2\) and D without dims in module 'b' \(line 2\). Declare `dims D\[3\]`",
        ),
        ([Module("a", "dims D[2]\nD[0] = 1"), Module("b", "dims D[2]\nd(D[1])/dt = 1")], "or none is"),
        ([algorithm, Module("b", "SE = 1")], "Take it out of `assigns`"),
    ],
)
def test_modules_that_do_not_go_together_are_refused(modules, says):
    with pytest.raises(ModelError, match=says):
        system_of(modules)


def test_of_two_modules_that_assign_the_last_one_holds():
    one = Module("one", "x = 1\ny = 2\ny(0) = 4")
    two = Module("two", "x = 3\nz = x")
    system = system_of([one, two])
    assert [(s.target.name, s.module) for s in system.statements] == [
        ("y", "one"), ("y", "one"), ("x", "two"), ("z", "two"),
    ]  # fmt: skip
    assert system.conflicts == (("x", ("one", "two")),)
    assert cells(system, "x") == {"one": "endogenous", "two": "endogenous"}
    level = system_of([one, Module("two", "d(x)/dt = 3")])
    assert level.variables["x"].level
    assert level.variables["x"].outside == (True,)
    assert not system_of([Module("two", "d(x)/dt = 3"), one]).variables["x"].level


def test_modules_may_share_the_elements_of_an_array():
    system = system_of([Module("a", "dims D[2]\nD[0] = 1"), Module("b", "dims D[2]\nD[1] = 2")])
    assert system.conflicts == ()
    assert system.variables["D"].assigned == (True, True)
    assert len(system.statements) == 2


# --- diagnostics


@dataclass
class Item:
    kind: str = "constant"
    shape: tuple[int, ...] = ()
    source: str = "db.csv"


def found(modules, data, **arguments):
    """Return kind, variable, modules, file, line of what is wrong."""
    all_found = diagnose(system_of(modules), {n: Item(*v) for n, v in data.items()}, **arguments)
    return [(d.kind, d.variable, d.modules, d.file, d.line) for d in all_found]


FED = {"SE": ("series",), "ISM": (), "SAT": (), "PCX": (), "BL": ()}


def test_a_system_that_has_its_data_has_no_diagnostics():
    assert found([SALES, DELIVERY], FED) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"SAT": None}, ("missing", "SAT", ("sales",), "sales.fme", 2)),
        ({"BL": None}, ("missing", "BL", ("delivery",), "delivery.fme", 1)),
        ({"XX": ()}, ("redundant", "XX", (), "db.csv", 0)),
        ({"OB": ()}, ("redundant", "OB", ("sales",), "db.csv", 0)),
        ({"SM": ()}, ("redundant", "SM", ("sales",), "db.csv", 0)),
        ({"BL": ("series",)}, ("series_for_initial", "BL", ("delivery",), "delivery.fme", 1)),
    ],
)
def test_data_that_is_missing_redundant_or_too_much(changes, expected):
    data = {n: v for n, v in {**FED, **changes}.items() if v is not None}
    assert found([SALES, DELIVERY], data) == [expected]


def test_names_assigned_twice_or_kept_local_are_told():
    owner = Module("owner", "local q\nq = 1\nx = q")
    reader = Module("reader", "z = 1\ny = q + x\nx = 3")
    assert found([owner, reader], {"q": ()}) == [
        ("conflict", "x", ("owner", "reader"), "", 2),
        ("local_read", "q", ("owner", "reader"), "", 2),
    ]
    assert found([owner, Module("third", "q = 2"), Module("reader", "y = q")], {}) == []


def test_an_array_of_both_kinds_with_a_series_for_all_is_a_note():
    module = Module("m", "dims D[3]\nD[0] = 1\nx = sum(D)")
    system = system_of([module])
    (note,) = diagnose(system, {"D": Item("series", (3,))})
    assert (note.kind, note.level, note.variable) == ("mixed_array", "note", "D")
    warn_of([], strict=True)
    with pytest.warns(DiagnosticWarning, match="mixed_array"):
        warn_of([note], strict=True)
    assert found([module], {"D": ("vector", (3,))}) == []
    assert found([module], {"D[1]": (), "D[2]": ("series",)}) == []
    (missing,) = diagnose(system, {"D[1]": Item()})
    assert missing.variable == "D"
    assert missing.message.startswith("D[2] is read")


def test_a_guess_of_a_loop_is_not_redundant():
    loop = Module("m", "x = 0.5 * y\ny = 1 + 0.5 * x")
    assert found([loop], {"x": ()}) == [("redundant", "x", ("m",), "db.csv", 0)]
    assert found([loop], {"x": ()}, guesses={"x", "y"}) == []
    assert found([loop], {"x": ("series",)}, guesses={"x"}) == [("series_for_initial", "x", ("m",), "", 1)]


def test_what_may_have_been_meant_is_said():
    (missing, redundant) = diagnose(system_of([Module("m", "x = price")]), {"prise": Item()})
    assert "Did you mean 'prise'" in missing.message
    assert "Did you mean 'price'" in redundant.message
    assert str(missing).startswith("module 'm', line 1: price is read")


def test_each_diagnostic_is_a_warning_once_or_one_error():
    wrong = diagnose(system_of([SALES]), {"XX": Item()})
    assert [d.kind for d in wrong] == ["missing", "missing", "missing", "redundant"]
    with pytest.warns(DiagnosticWarning) as told:
        warn_of(wrong)
    first = told[0].message
    assert [w.message.variable for w in told] == ["SE", "ISM", "SAT", "XX"]
    assert (first.kind, first.modules, first.file, first.line, first.level) == (
        "missing", ("sales",), "sales.fme", 1, "warning",
    )  # fmt: skip
    assert told[0].filename == __file__
    assert pickle.loads(pickle.dumps(first)).diagnostic == first.diagnostic
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of(wrong, known_before=wrong)
    with pytest.raises(ModelError, match=r"4 diagnostics:\n  missing: sales.fme, line 1: SE is read"):
        warn_of(wrong, strict=True)


def test_the_table_has_a_row_a_diagnostic():
    table = diagnostics_table(diagnose(system_of([SALES, DELIVERY]), {}))
    assert list(table.columns) == ["kind", "level", "variable", "modules", "file", "line", "message"]
    assert list(table["variable"]) == ["SE", "ISM", "SAT", "BL", "PCX"]
    assert list(diagnostics_table([]).columns) == list(table.columns)
