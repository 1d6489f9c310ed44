"""Models of Vensim and Stella: what a file means, by runs computed by hand; what cannot be said, with its place."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi import read_vensim
from fmepy.errors import ModelError
from fmepy.exchange.expressions import Reader, key_of, tokens_of

CONTROL = """
INITIAL TIME = 0 ~ Year ~ |
FINAL TIME = 4 ~ Year ~ |
TIME STEP = 1 ~ Year [0,?] ~ |
SAVEPER = TIME STEP ~~|
"""
RK4 = (
    "\n\\\\\\---/// Sketch information - do not modify anything except names\nV300  Do not put anything below this "
    "section - it will be ignored\n*View 1\n///---\\\\\\\n:L<%^E!@\n15:0,0,0,1,0,0\n"
)
XMILE = """<?xml version="1.0" encoding="utf-8"?>
<xmile version="1.0" xmlns="http://docs.oasis-open.org/xmile/ns/XMILE/v1.0">
<sim_specs method="{method}"><start>0</start><stop>4</stop><dt{dt}</dt></sim_specs>
<dimensions><dim name="Place"><elem name="North"/><elem name="South"/></dim></dimensions>
<model><variables>{variables}</variables>{rest}</model></xmile>"""


@pytest.fixture
def read(tmp_path: Path):
    def reading(text: str, name: str = "model.mdl", end: str = ""):
        file = tmp_path / name
        file.write_text(text if name != "model.mdl" else "{UTF-8}\n" + text + CONTROL + end, encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return read_vensim(file)

    return reading


def xmile(variables: str, method: str = "Euler", dt: str = ">1", rest: str = "") -> str:
    return XMILE.format(variables=variables, method=method, dt=dt, rest=rest)


def value(text: str, dialect: str = "mdl") -> float:
    """Return the value of an expression of numbers, by its tree."""
    sign = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b}

    def of(e):
        args = [of(a) for a in e.args]
        if e.word == "chain":
            total = args[0]
            for s, a in zip(e.value, args[1:], strict=True):
                total = sign[s](total, a)
            return total
        return {"number": lambda: e.value, "power": lambda: args[0] ** args[1], "minus": lambda: -args[0]}[e.word]()

    return of(Reader(tokens_of(text, dialect, 1), dialect).values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2^3^2", 512), ("-2^2", 4), ("-(2)^2", -4), ("1-2-3", -4), ("8/4/2", 1), ("2*-3", -6), ("1 - -2", 3),
        ("(1+2)*3", 9), (".5 + 2.", 2.5), ("1e3-1E-1", 999.9), ("2^-1", 0.5), ("+3", 3), ("{a note}1{ + 5} + 1", 2),
        ("1 + \\\n 2", 3),
    ],
)  # fmt: skip
def test_the_order_of_operations_is_that_of_the_file(text: str, expected: float):
    assert value(text) == pytest.approx(expected, rel=1e-15)
    assert "\\" in text or value(text, "xmile") == pytest.approx(expected, rel=1e-15)


def test_names_are_the_same_in_any_case_with_blanks_or_underscores_or_quotes():
    assert {key_of(n) for n in ("Room  Temp", '"room_temp"', "ROOM\n TEMP", "room__temp")} == {"room_temp"}


TEA = """
Tea Temperature = INTEG(-Heat Loss, Start) ~ Degrees ~ |
Heat Loss = (Tea temperature - "ROOM") / Time Constant ~ Degrees/Year ~ as it {cools} |
Room = 70 ~ Degrees [0,100] ~ of the air |
Start == 180 ~~|
Time Constant = 10 ~ Year [0,?] ~~ :SUPPLEMENTARY |
********************************************************
	.Other
********************************************************~
		Not in a view
|
Twice = 2 * Room ~~|
"""
SKETCH = """\\\\\\---/// Sketch information - do not modify anything except names
V300  Do not put anything below this section - it will be ignored
*Cooling cup
10,1,Tea Temperature,229,189,40,20,3,3,0,0,0,0,0,0
10,2,"Room",1,1,40,20,8,3,0,0,0,0,0,0
*Losses
10,1,Heat Loss,229,189,40,20,3,3,0,0,0,0,0,0
10,2,Tea Temperature,229,189,40,20,8,2,0,3,-1,0,0,0
///---\\\\\\
:L\x7f<%^E!@
15:0,0,0,{method},0,0
"""


def test_a_model_runs_as_euler_does_by_hand(read):
    model = read(TEA)
    expected = [180.0]
    for _ in range(4):
        expected.append(expected[-1] - (expected[-1] - 70) / 10)
    out = model()
    assert out["time"].tolist() == [0, 1, 2, 3, 4]
    assert out["Tea_Temperature"].to_numpy() == pytest.approx(expected, rel=1e-14)
    assert model.parms.to_dict() == {"Room": 70, "Start": 180, "Time_Constant": 10}
    assert model.renamed[["Tea Temperature", "Heat Loss"]].tolist() == ["Tea_Temperature", "Heat_Loss"]
    units = {"Tea_Temperature": "Degrees", "Heat_Loss": "Degrees/Year", "Room": "Degrees", "Time_Constant": "Year"}
    assert model.units.to_dict() == units | {"Twice": "degree"}
    assert model.variable_map["unit"].to_dict() == units | {"Start": "", "Twice": "degree"}
    assert model.documentation.loc["Room"].tolist() == ["Room", "Degrees", 0, 100, "of the air", 5]
    assert model.documentation.loc["Time_Constant", ["lower", "upper"]].tolist() == [0, np.inf]
    assert "[Degrees/Year]  # as it {cools}" in model.modules[0].text
    assert model.data.items.loc["Room", ["lower", "upper", "comment"]].tolist() == [0, 100, "of the air"]
    assert model.data.items.loc["Room", "unit"] == "Degrees"
    assert model({"Time_Constant": 20.0})["Tea_Temperature"].iloc[1] == pytest.approx(180 - 110 / 20)
    assert model.replace(parms={"Room": 60}).renamed.equals(model.renamed)


def test_views_are_modules_and_groups_where_no_view_shows_a_variable(tmp_path: Path):
    file = tmp_path / "tea.mdl"
    file.write_text(TEA + CONTROL + SKETCH.replace(":L\x7f", ":L").replace("{method}", "1"), encoding="utf-8")
    model = read_vensim(file)
    assert [(m.name, m.assigns) for m in model.modules] == [
        ("Cooling cup", ("Tea_Temperature",)), ("Losses", ("Heat_Loss",)), ("Other", ("Twice",)),
    ]  # fmt: skip
    assert model.rules.method == "rk4"
    assert model()["Tea_Temperature"].iloc[-1] == pytest.approx(70 + 110 * np.exp(-0.4), rel=1e-6)


def test_tables_hold_at_their_ends_and_are_called_by_name(read):
    model = read(
        "effect([(0,0)-(4,9)],(0,1),(2,3),(3,3)) ~~|\n"
        "a = effect(Time * 2) ~~|\n"
        "b = WITH LOOKUP(Time, ([(0,0)-(9,9)],(1,-1),(3,1))) ~~|\n"
        "c = LOOKUP EXTRAPOLATE(effect, -1 - Time) ~~|\n"
        "d = 0 * a ~~|"
    )
    out = model()
    assert out["a"].tolist() == [1, 3, 3, 3, 3]
    assert out["b"].tolist() == [-1, -1, 0, 1, 1]
    assert out["c"].tolist() == [0, -1, -2, -3, -4]
    assert model.data["effect"].numbers["effect[2,0]"] == 3
    assert model({"effect[0,1]": 2.0})["a"].tolist() == [2, 3, 3, 3, 3]


RANGES = """
Place: North, South ~~|
Age: (A1-A3) ~~|
Old: A2, A3 -> Young ~~|
Young: A1, A2 ~~|
people[Place, Age] = INTEG(births[Place, Age] - 0.1 * people[Place, Age], start[Age]) ~~|
start[Age] = 1, 2, 3 ~~|
births[Place, Age] = rate[Place] * people[Place, Age] ~~|
rate[Place] :EXCEPT: [South] = 0.5 ~~|
rate[South] = IF THEN ELSE(Time > 1, 0, 1) ~~|
total[Place] = SUM(people[Place, Age!]) ~~|
most = VMAX(people[Place!, Age!]) ~~|
aged[Old] = people[North, Young] ~~|
of the north = people[North, A2] ~~|
number[Age] = Age * ELMCOUNT(Place) ~~|
curve[North]((0,0),(4,8)) ~~|
curve[South]((0,1),(4,1)) ~~|
bent[Place] = curve[Place](Time) ~~|
"""


def test_subscripts_ranges_mappings_exceptions_and_reductions(read):
    model = read(RANGES)
    assert "d(people[Place,Age])/dt = births[Place,Age] - 0.1 * people[Place,Age]" in model.modules[0].text
    assert "total[Place] = sum(people[Place,Age])" in model.modules[0].text
    assert model.parms["start[A1]":"start[A3]"].tolist() == [1, 2, 3]
    assert model.parms["curve_South[1,1]"] == 1
    out = model()
    people = np.tile([1.0, 2.0, 3.0], (2, 1))
    for i in range(5):
        ours = out.iloc[i]
        for p, a in np.ndindex(2, 3):
            assert ours[model.renamed[f"people[{('North', 'South')[p]},A{a + 1}]"]] == pytest.approx(people[p, a])
        assert ours[["total[South]", "most"]].tolist() == pytest.approx([people[1].sum(), people.max()])
        assert [ours[model.renamed[f"aged[A{k}]"]] for k in (2, 3)] == pytest.approx(people[0, :2])
        assert ours["of_the_north"] == pytest.approx(people[0, 1])
        assert [ours[f"number[A{k}]"] for k in (1, 2, 3)] == [2, 4, 6]
        assert ours[["bent[North]", "bent[South]"]].tolist() == [2 * i, 1]
        people = people * (1 + np.array([[0.5], [0.0 if i > 1 else 1.0]]) - 0.1)


def test_macros_are_expanded_at_each_call(read):
    model = read(
        ":MACRO: FILL(inflow, first)\nFILL = INTEG(inflow * k, first) ~~|\nk = 2 ~~|\n:END OF MACRO:\n"
        "a = FILL(1, 10) + FILL(Time, 0) ~~|\n"
    )
    assert model()["a"].tolist() == [10, 12, 16, 22, 30]


def test_a_macro_gives_more_than_its_value(read):
    model = read(
        ":MACRO: SPLIT(x, part : rest)\nSPLIT = x * part ~~|\nrest = x - SPLIT ~~|\n:END OF MACRO:\n"
        "a = SPLIT(Time, 0.25 : left over) ~~|\nb = left over * 2 ~~|\n"
    )
    assert model()["a"].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert model()["b"].tolist() == [0, 1.5, 3, 4.5, 6]


def test_a_pulse_lasts_its_width_and_a_train_comes_again(read):
    model = read(
        "a = PULSE(1, 2) ~~|\nb = PULSE TRAIN(0, 1, 2, 3) ~~|\nc = ramp(2, 1, 3) + STEP(5, 3) ~~|\n"
        "d = SAVEPER + TIME STEP + INITIAL TIME + FINAL TIME ~~|"
    )
    out = model()
    assert out["a"].tolist() == [0, 1, 1, 0, 0]
    assert out["b"].tolist() == [1, 0, 1, 0, 0]
    assert out["c"].tolist() == [0, 0, 2, 9, 9]
    assert out["d"].tolist() == [6] * 5


def test_pulses_and_steps_begin_at_the_nearest_step_and_last_one_at_least(read):
    model = read(
        "a = PULSE(3, 0) ~~|\nb = PULSE TRAIN(1, 0, 2, 3) ~~|\nc = PULSE TRAIN(1.3, 0.1, 2, 9) ~~|\n"
        "d = STEP(1, 2.3) ~~|\ne = PULSE(2.3, 1) ~~|\nf = STEP(1, 2.5) ~~|\ng = STEP(1, late) ~~|\nlate = 1.7 ~~|\n"
        "h = PULSE(width, width) ~~|\nwidth = 0.5 ~~|\ni = PULSE(1, TIME STEP) ~~|\nj = PULSE(1, 2) ~~|\n"
    )
    out = model()
    for name, wanted in {
        "a": [0, 0, 0, 1, 0], "b": [0, 1, 0, 1, 0], "c": [0, 1, 0, 1, 0], "d": [0, 0, 1, 1, 1], "e": [0, 0, 1, 0, 0],
        "f": [0, 0, 0, 1, 1], "g": [0, 0, 1, 1, 1], "h": [0, 1, 0, 0, 0], "i": [0, 1, 0, 0, 0], "j": [0, 1, 1, 0, 0],
    }.items():  # fmt: skip
        assert out[name].tolist() == wanted, name


def test_with_rk4_what_is_tested_with_is_constant_through_a_step(read):
    levels = {
        "s": "STEP(3, 2)",
        "p": "PULSE(2, 1)",
        "r": "RAMP(1, 2, 4)",
        "q": "PULSE TRAIN(1, 1, 2, 9)",
        "x": "x * 0.1",
    }
    text = "".join(f"{k} = INTEG({v}, {float(k == 'x')}) ~~|\n" for k, v in levels.items())
    out = read(text, end=RK4)()
    for name, wanted in {
        "s": [0, 0, 0, 3, 6],
        "p": [0, 0, 0, 1, 1],
        "r": [0, 0, 0, 0, 1],
        "q": [0, 0, 1, 1, 2],
    }.items():
        assert out[name].tolist() == wanted, name
    step = 1 + 0.1 + 0.1**2 / 2 + 0.1**3 / 6 + 0.1**4 / 24
    np.testing.assert_allclose(out["x"], step ** np.arange(5), rtol=1e-12)


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("QUANTUM(5, -2)", [5] * 5),
        ("QUANTUM(Time, z)", [0, 1, 2, 3, 4]),
        ("QUANTUM(Time, 2)", [0, 0, 2, 2, 4]),
        ("ZIDZ(Time, 0)", [0] * 5),
        ("XIDZ(Time, 0, 3)", [3] * 5),
        ("ZIDZ(Time, z)", [0] * 5),
    ],
)
def test_functions_have_vensims_values_at_their_edges(read, formula, wanted):
    assert read(f"a = {formula} ~~|\nz = 0 ~~|\nb = a + z ~~|\n")()["a"].tolist() == wanted


@pytest.mark.parametrize("name", ["price table", "rate mult", "step size", "cost", "trends", "tab 0", "mean age"])
def test_tables_may_have_names_that_resemble_functions(read, name):
    out = read(f"{name}((0,1),(4,3)) ~~|\na = {name}(Time) ~~|\nb = {name}(2) ~~|\n")()
    assert out["a"].tolist() == [1, 1.5, 2, 2.5, 3]
    assert out["b"].tolist() == [2] * 5


def test_orders_of_delays_are_lowered_and_told_and_a_time_that_moves_goes_from_level_to_level(read):
    model = read(
        "x = STEP(8, 1) ~~|\nlowered = DELAY3(x, 2) ~~|\nsecond = DELAY N(x, 2, 0, 2) ~~|\n"
        "tau = 2 + STEP(2, 2) ~~|\nmoving = DELAY N(x, tau, 0, 2) ~~|\n"
    )
    out = model()
    assert out["lowered"].tolist() == out["second"].tolist() == [0, 0, 0, 8, 8]
    assert model.ignored == ("line 3, 'lowered': a delay of 2 steps has no 3 levels; it is of order 2",)
    first, second, expected = 0.0, 0.0, []
    for i in range(5):
        a, b = 2 * first / (2, 2, 4, 4, 4)[i], 2 * second / (2, 2, 2, 4, 4)[i]
        expected.append(b)
        first, second = first + (8 if i >= 1 else 0) - a, second + a - b
    assert out["moving"].tolist() == pytest.approx(expected)


def test_what_has_a_memory_starts_as_it_says(read):
    model = read(
        "a = SMOOTHI(Time, 2, 5) ~~|\nb = DELAY FIXED(Time, 2, -1) ~~|\nc = INITIAL(a + 1) ~~|\n"
        "d = SAMPLE IF TRUE(Time = 2, Time, 9) ~~|\ne = DELAY1I(Time, 2, 3) ~~|\n"
    )
    out = model()
    assert out["a"].tolist() == [5, 2.5, 1.75, 1.875, 2.4375]
    assert out["b"].tolist() == [-1, -1, 0, 1, 2]
    assert out["c"].tolist() == [6] * 5
    assert out["d"].tolist() == [9, 9, 2, 2, 2]
    assert out["e"].tolist() == [3, 1.5, 1.25, 1.625, 2.3125]


def test_initial_values_use_the_second_argument_of_active_initial(read):
    model = read("s = INTEG(1, 2 * b) ~~|\nb = a + 1 ~~|\na = ACTIVE INITIAL(s * 3, 5) ~~|")
    assert model()["s"].tolist() == [12, 13, 14, 15, 16]
    assert model()["a"].tolist() == [36, 39, 42, 45, 48]


STELLA = """
<stock name="Full Time"><eqn>10</eqn><inflow>hires</inflow><outflow>"quits"</outflow></stock>
<flow name="hires"><eqn>IF time &gt;= 2 AND share &lt;&gt; 3 THEN 4 ELSE 1</eqn></flow>
<flow name="quits"><eqn>Full_Time * share</eqn><non_negative/></flow>
<aux name="share"><doc>a part</doc><eqn>0.1</eqn><units>1/month</units><range min="0" max="1"/></aux>
<aux name="jump"><eqn>time</eqn><gf><xscale min="0" max="2"/><ypts>0,5,7</ypts></gf></aux>
<aux name="by place"><dimensions><dim name="Place"/></dimensions><element subscript="North"><eqn>1</eqn></element>
<element subscript="South"><eqn>Full Time / 10</eqn></element></aux>
<aux name="all"><eqn>SUM(by_place[*]) + SUM(by_place)</eqn></aux>
<aux name="least"><dimensions><dim name="Place"/></dimensions><eqn>MIN(by_place, 1.05) + SUM(by_place)</eqn></aux>
<aux name="doubled"><dimensions><dim name="Place"/></dimensions><eqn>2 * by_place</eqn></aux>
"""


def test_initial_equations_and_pulses_of_stella_and_what_is_ignored(read):
    model = read(
        xmile(
            '<stock name="s"><eqn>a</eqn><inflow>p</inflow></stock><flow name="p"><eqn>PULSE(6, 1, 2)</eqn></flow>'
            '<aux name="a"><eqn>s + 1</eqn><init_eqn>4</init_eqn><tint/></aux>'
        ), "model.xmile",
    )  # fmt: skip
    assert model()["s"].tolist() == [4, 4, 10, 10, 16]
    assert model()["a"].tolist() == [5, 5, 11, 11, 17]
    assert model.ignored == ("line 5, 'a': <tint>",)


@pytest.mark.parametrize("name", ["model.xmile", "model.stmx"])
def test_a_model_of_stella_runs_as_by_hand(read, name: str):
    text = xmile(STELLA.replace("share &lt;&gt; 3", "share &lt; 3"))
    out, full = read(text, name)(), 10.0
    for i in range(5):
        row = out.iloc[i]
        expected = [full, (0, 5, 7, 7, 7)[i], full / 5, 2 * (1 + full / 10)]
        expected += [min(full / 10, 1.05) + 1 + full / 10]
        assert row[["Full_Time", "jump", "doubled[South]", "all", "least[South]"]].tolist() == pytest.approx(expected)
        full += (4 if i >= 2 else 1) - 0.1 * full


def test_a_reciprocal_step_and_the_method_are_as_the_file_says(read):
    model = read(xmile('<stock name="x"><eqn>1</eqn><inflow>f</inflow></stock><flow name="f"><eqn>x</eqn></flow>',
                       "RK4", ' reciprocal="true">4'), "model.xmile")  # fmt: skip
    assert (model.dt, len(model.times)) == (0.25, 17)
    assert model()["x"].iloc[-1] == pytest.approx(np.exp(4), rel=2e-4)


DATA = (
    "Place: North, South ~~|\nprice ~ Dollar ~ |\nstock[Place] :HOLD BACKWARD: ~~|\nboth = price + stock[South] ~~|\n"
)


@pytest.mark.parametrize(
    "table",
    [
        "Time,Price,Stock[North],stock[south]\n0,1,5,10\n2,5,5,20\n4,9,5,30\n",
        "Time\t0\t2\t4\nprice\t1\t5\t9\nstock[North]\t5\t5\t5\nStock[South]\t10\t20\t30\n",
    ],
)
def test_data_variables_have_their_series_from_tables(tmp_path: Path, table: str):
    file, data = tmp_path / "m.mdl", tmp_path / "data.csv"
    file.write_text(DATA + CONTROL)
    data.write_text(table)
    model = read_vensim(file, data=data)
    assert model()["both"].tolist() == [11, 13, 25, 27, 39]
    assert model.data.items.loc["price", ["kind", "unit"]].tolist() == ["series", "Dollar"]
    with pytest.raises(fme.errors.ModelError, match="'price': it is data, of which the file has none"):
        read_vensim(file)


def test_elements_of_data_have_times_of_their_own(tmp_path: Path):
    text = "P: a, b ~~|\nd[P] ~~|\nh[P] :HOLD BACKWARD: ~~|\ny[P] = d[P] ~~|\nz[P] = h[P] ~~|"
    (tmp_path / "m.mdl").write_text(text + CONTROL)
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("time,d[a],d[b],h[a]\n0,1,2,1\n2,,9,\n4,5,6,5\n")
    two.write_text("time,h[b]\n1,7\n3,8\n")
    out = read_vensim(tmp_path / "m.mdl", data=[one, two])()
    assert out["y[a]"].tolist() == [1, 2, 3, 4, 5]
    assert out["y[b]"].tolist() == [2, 5.5, 9, 7.5, 6]
    assert out["z[a]"].tolist() == [1, 1, 1, 1, 5]
    assert out["z[b]"].tolist() == [7, 7, 7, 8, 8]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("time,d\n4,1\n0,5\n", r"data\.csv:3: time 0 comes after 4"),
        ("time,d\n0,1\n,5\n", r"data\.csv:3: the value in column 'time' is missing"),
        ("time,4,0\nd,1,5\n", r"data\.csv, row 2: time 0 comes after 4"),
        ("time,d,D\n0,1,2\n4,5,6\n", r"data\.csv:1: 'd' and 'D' are one variable; keep one"),
        ("time,d\n0,\n4,\n", "'d': it is data, of which the file has none"),
    ],
)
def test_a_table_of_data_that_is_not_whole(tmp_path: Path, table: str, told: str):
    (tmp_path / "m.mdl").write_text("d ~~|\ny = d ~~|" + CONTROL)
    (tmp_path / "data.csv").write_text(table)
    with pytest.raises(fme.errors.FmepyError, match=told):
        read_vensim(tmp_path / "m.mdl", data=tmp_path / "data.csv")


# --- what is refused


def test_everything_that_cannot_be_said_is_told_at_once_with_its_line(read):
    with pytest.raises(fme.errors.ModelError) as caught:
        read(
            "a = GET XLS DATA('x.xlsx', 'S', 'A', 'B2') ~~|\nb = 2 + * 3 ~~|\n\nc = ALLOCATE AVAILABLE(a, b, 1) ~~|\n"
            "d = lenght * 2 ~~|\nlength = 1 ~~|\ne = DELAY3(a) ~~|\nf = NO SUCH(a) ~~|\ng[Nowhere] = 1 ~~|"
        )
    text = str(caught.value)
    assert "line 3, 'b'" in text  # what cannot be read comes first, alone
    with pytest.raises(fme.errors.ModelError) as caught:
        read(
            "a = GET XLS DATA('x.xlsx', 'S', 'A', 'B2') ~~|\n\n\nc = ALLOCATE AVAILABLE(a, b, 1) ~~|\n"
            "d = lenght * 2 ~~|\nlength = 1 ~~|\ne = DELAY3(a) ~~|\nf = NO SUCH(a) ~~|\ng[Nowhere] = 1 ~~|\nh ~~|"
        )
    text = str(caught.value)
    for part in (
        "line 2, 'a': GET XLS DATA: it reads a file cell by cell", "line 5, 'c': ALLOCATE AVAILABLE",
        "line 6, 'd': 'lenght' has no equation. Did you mean 'length'?",
        "line 8, 'e': DELAY3 takes 2 or 3 arguments, not 1",
        "line 9, 'f': the function NO SUCH is not supported",
        "line 10, 'g': there is no subscript 'nowhere'", "line 11, 'h'",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = " + "(" * 5000 + "1" + ")" * 5000 + "~~|", "line 2, 'x': more than 100 brackets"),
        ("x = " + "-" * 5000 + "1 ~~|", "more than 100"),
        ("x = __import__('os').system('echo') ~~|", "line 2, 'x': "),
        ("x = 1e999 ~~|", "beyond the range"),
        ("x = 1 ~~|\nx = 2 ~~|", "two equations"),
        ("A: B ~~|\nB: A ~~|\nx[A] = 1 ~~|", "made of one another"),
        ("A: (a1-a9000) ~~|\nB: (b1-b9000) ~~|\nx[A,B] = 1 ~~|", "more than 10000 elements"),
        (":MACRO: M(a)\nM = M(a) + M(a) ~~|\n:END OF MACRO:\nx = M(1) ~~|", "without end"),
        ("x = TIME ~~|\nFINAL TIME = x ~~|", "two equations"),
        ("a[b = 1 ~~|", "line 2, 'a'"),
        ("A: a1 ~~|\nx[A] = 1 ~~|\ny = SUM(x[B!]) ~~|", "there is no range of subscripts 'b'"),
        ("a = INITIAL() ~~|", "lacks an argument"),
        ("a = 'text' ~~|", "a text stands where a number is needed"),
        ("A: a1 ~~|\na[A] = 1 ~~|", "line 3, 'a': it is the name of a range of subscripts, too"),
    ],
)
def test_bad_text_is_an_error_with_the_place(read, text: str, message: str):
    with pytest.raises(fme.errors.ModelError, match=r"model\.mdl") as caught:
        read(text)
    assert message in str(caught.value)


def test_control_variables_that_change_are_refused(tmp_path: Path):
    file = tmp_path / "m.mdl"
    file.write_text("x = Time ~~|\n" + CONTROL.replace("TIME STEP = 1", "TIME STEP = IF THEN ELSE(x > 1, 1, 2)"))
    with pytest.raises(fme.errors.ModelError, match="line 5, 'TIME STEP': it is no constant"):
        read_vensim(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE l [<!ENTITY a "ha">]><xmile/>', "line 1: document types and entities are refused"),
        ('<!DOCTYPE l SYSTEM "file:///etc/passwd"><xmile/>', "document types"),
        ("<a>" * 200, "more than 100 elements"),
        ("<xmile>\n<model>", "line 2, column 8: this is no whole XML"),
        ("<sbml/>", "no <xmile>"),
        (xmile('<aux name="x"><eqn>1 +</eqn></aux>'), "line 5, 'x'"),
        (xmile("", rest='</model><model name="inner">'), "sub-models"),
        (xmile('<stock name="line"><eqn>1</eqn><conveyor/></stock>'), "a conveyor is not supported"),
        (xmile('<aux name="x"><eqn>time</eqn></aux>', "RK2"), "'rk2'"),
    ],
)
def test_bad_xml_is_an_error_with_the_place(read, text: str, message: str):
    with pytest.raises(fme.errors.ModelError) as caught:
        read(text, "model.xmile")
    assert message in str(caught.value)


def test_files_that_are_not_there_or_too_large_or_of_another_kind(tmp_path: Path):
    with pytest.raises(fme.errors.ModelError, match="There is no file"):
        read_vensim(tmp_path / "none.mdl")
    with pytest.raises(fme.errors.ArgumentError, match="by the ending of the name"):
        read_vensim(tmp_path / "none.txt")
    large = tmp_path / "large.mdl"
    with large.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(fme.errors.ModelError, match="more than 20 MB"):
        read_vensim(large)


def test_a_saveper_between_the_steps_is_refused(tmp_path):
    (tmp_path / "m.mdl").write_text("y = Time ~~|" + CONTROL.replace("SAVEPER = TIME STEP", "SAVEPER = 1.5"))
    with pytest.raises(ModelError, match=r"m\.mdl: SAVEPER 1\.5 is no multiple of TIME STEP 1; choose"):
        read_vensim(tmp_path / "m.mdl")


def test_the_encodings_that_programs_write_are_read_and_others_refused(tmp_path):
    text = "{UTF-8}\nGröße = 3 ~ € ~ |\nstock = INTEG(Größe, 1) ~~|\nINITIAL TIME = 0 ~~|\n"
    text += "FINAL TIME = 1 ~~|\nTIME STEP = 1 ~~|"
    file = tmp_path / "size.mdl"
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "cp1252"):
        file.write_bytes(text.replace("\n", "\r\n").encode(encoding))
        assert read_vensim(file).parms.to_dict() == {"Größe": 3.0}
    file.write_bytes(text.encode("utf-16-le"))
    with pytest.raises(ModelError, match=r"size\.mdl:1: this is no UTF-8 text; save the file as UTF-8"):
        read_vensim(file)
