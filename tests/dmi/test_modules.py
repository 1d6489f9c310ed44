"""Modules as texts, files and Python functions: equal if the same was written, pickled, refused in plain words."""

import pickle

import pytest

import fmepy as fme
from fmepy.dmi.statements import FunctionStatement, Reference
from fmepy.errors import ModelError, ModelTextError

SALES = "OB = SM * SE\nd(SM)/dt = (ISM - SM) / SAT\nSM(0) = 10"


def test_a_module_says_what_it_reads_and_assigns():
    sales = fme.dmi.Module("sales", SALES)
    assert sales.assigns == ("OB", "SM")
    assert sales.reads == ("SM", "SE", "ISM", "SAT")
    assert sales.names == {"OB": 1, "SM": 1, "SE": 1, "ISM": 2, "SAT": 2}
    assert repr(fme.dmi.Module("sales", SALES, step=3)) == "Module('sales', 3 statements, step=3)"


def test_modules_are_equal_if_the_same_was_written():
    one = fme.dmi.Module("sales", SALES, dims=None)
    same = fme.dmi.Module("sales", SALES, file="elsewhere.fme")
    assert one == same
    assert hash(one) == hash(same)
    assert one != fme.dmi.Module("sales", SALES.replace("10", "11"))
    assert one != fme.dmi.Module("sales", SALES, step=2)
    assert one != fme.dmi.Module("shop", SALES)


def test_a_text_is_read_once():
    assert fme.dmi.Module("sales", SALES).statements is fme.dmi.Module("sales", SALES).statements


def test_a_module_is_frozen_and_pickles():
    sales = fme.dmi.Module("sales", SALES, file="sales.fme")
    with pytest.raises(AttributeError):
        sales.step = 3
    again = pickle.loads(pickle.dumps(sales))
    assert again == sales
    assert again.statements == sales.statements
    assert again.file == "sales.fme"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"name": ""}, "text such as 'sales'"),
        ({"name": 3}, "text such as 'sales'"),
        ({"name": "a\nb"}, "text such as 'sales'"),
        ({"name": "dims"}, "like a column"),
        ({"text": b"x = 1"}, "is a str; got bytes"),
        ({"text": None}, "is a str; got NoneType"),
        ({"step": 0}, "step"),
        ({"step": 1.5}, "step"),
        ({"step": "2"}, "step"),
        ({"local": ["1x"]}, "is not a name"),
        ({"local": [3]}, "3 is not a name"),
        ({"local": 3}, "names of variables"),
        ({"local": ["x", "x"]}, "twice"),
        ({"exogenous": ["x"], "endogenous": ["x"]}, "exogenous and endogenous"),
        ({"outputs": ["t"]}, "is the time"),
        ({"dims": {"x": 0}}, "from 1 on"),
        ({"dims": {"x": (2, 2, 0)}}, "whole numbers"),
        ({"dims": {"x": 2.5}}, "whole numbers"),
        ({"dims": {"x": True}}, "whole numbers"),
        ({"dims": {"x": "2"}}, "whole numbers"),
        ({"dims": {"x": 10_001}}, "10000 at most"),
        ({"dims": [3]}, "is a dict"),
        ({"dims": {"y": 2}}, "no statement names it"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, says):
    with pytest.raises(ModelError, match=says):
        fme.dmi.Module(**{"name": "m", "text": "x = 1", **arguments})


# --- files


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.fme").write_text(text, encoding="utf-8")


def test_files_are_read_in_the_order_of_their_names(tmp_path):
    write(tmp_path, b_sales=SALES, a_stock="d(S)/dt = OB")
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "c.fme").mkdir()
    read = fme.dmi.read_modules(tmp_path)
    assert [m.name for m in read] == ["a_stock", "b_sales"]
    assert read[1] == fme.dmi.Module("b_sales", SALES)
    assert read[1].file == str(tmp_path / "b_sales.fme")
    assert fme.dmi.read_modules(str(tmp_path)) == read


def test_a_mistake_in_a_file_names_it_with_the_line(tmp_path):
    write(tmp_path, sales="x = 1\ny = (")
    with pytest.raises(ModelTextError, match=r"sales.fme, line 2: '\(' is never closed"):
        fme.dmi.read_modules(tmp_path)


def test_marks_of_windows_editors_are_no_part_of_the_text(tmp_path):
    (tmp_path / "m.fme").write_bytes(b"\xef\xbb\xbfx = 1\r\ny = x\r\n")
    assert fme.dmi.read_modules(tmp_path)[0].assigns == ("x", "y")


def test_folders_and_files_that_cannot_be_are_refused(tmp_path):
    with pytest.raises(ModelError, match="does not exist"):
        fme.dmi.read_modules(tmp_path / "no")
    with pytest.raises(ModelError, match=r"there is no module in .* holds none"):
        fme.dmi.read_modules(tmp_path)
    (tmp_path / "m.fme").write_bytes(b"x = 1\ny = \xff\n")
    with pytest.raises(ModelError, match=r"m.fme:2: this is no UTF-8 text; save the file"):
        fme.dmi.read_modules(tmp_path)
    with pytest.raises(ModelError, match="is a file"):
        fme.dmi.read_modules(tmp_path / "m.fme")
    with pytest.raises(ModelError, match=r"There is no file .*Did you mean 'm.fme'"):
        fme.dmi.read_module_file(tmp_path / "m2.fme")
    (tmp_path / "m.fme").unlink()
    write(tmp_path, **{"\u00b5": "x = 1", "\u03bc": "y = 1"})
    with pytest.raises(ModelError, match="two modules are called"):
        fme.dmi.read_modules(tmp_path)


# --- Python functions


@fme.dmi.module(reads=("price", "demand"), assigns=("supply", "cost"), step=2)
def dispatch(price, demand):
    supply = min(demand, 10 * price)
    return supply, 0.5 * supply


def test_a_function_becomes_a_module_and_can_still_be_called():
    assert dispatch(2.0, 30.0) == (20.0, 10.0)
    assert (dispatch.name, dispatch.step) == ("dispatch", 2)
    assert dispatch.reads == ("price", "demand")
    assert dispatch.assigns == ("supply", "cost")
    (statement,) = dispatch.statements
    assert statement == FunctionStatement(
        dispatch, (Reference("price"), Reference("demand")), (Reference("supply"), Reference("cost")), "dispatch"
    )
    assert dispatch.file.endswith("test_modules.py")
    assert statement.line > 100


def test_a_function_knows_shapes():
    @fme.dmi.module(reads="D", assigns=["E", "x"], dims={"D": 3, "E": (2, 2)})
    def vectors(D):
        return D[:2], D[0]

    assert [n.shape for n in (*vectors.statements[0].reads, *vectors.statements[0].targets)] == [(3,), (2, 2), ()]


def test_a_decorated_function_pickles():
    assert pickle.loads(pickle.dumps(dispatch)) is dispatch
    plain = fme.dmi.module(reads=["a"], assigns=["b"])(plus_one)
    assert pickle.loads(pickle.dumps(plain)) == plain


def plus_one(a):
    return a + 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"assigns": ()}, "`assigns` is empty"),
        ({"reads": ("a", "b", "c")}, "reads 3 variables"),
        ({"reads": ("b", "a")}, "in another order"),
        ({"reads": ("a", "a")}, "twice"),
        ({"reads": ("a", "t")}, "is the time"),
        ({"step": 0}, "step"),
        ({"dims": {"q": 3}}, "neither reads nor assigns"),
    ],
)
def test_functions_that_cannot_be_modules_are_refused(arguments, says):
    with pytest.raises(ModelError, match=says):
        fme.dmi.module(**{"reads": ("a", "b"), "assigns": ("c",), **arguments})(lambda_of_two)


def lambda_of_two(a, b):
    return a + b


def test_a_module_needs_a_function_with_a_name():
    with pytest.raises(ModelError, match="written with def"):
        fme.dmi.module(reads=["a"], assigns=["b"])(lambda a: a)
    with pytest.raises(ModelError, match="written with def"):
        fme.dmi.module(reads=["a"], assigns=["b"])(3)
