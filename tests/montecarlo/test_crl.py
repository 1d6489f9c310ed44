"""modCRL: one value per variable over parameter sets, as R gives it."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError
from fmepy.models.ode import OdeModel
from fmepy.montecarlo import modCRL
from tests.models.problems import bacteria, cases, table

CASES = cases("sensRange.json")


@pytest.fixture(scope="module")
def at_end():
    model = OdeModel(bacteria, state={"Bact": 0.1, "Sub": 100}, times=[0, 25, 50], rtol=1e-10, atol=1e-12)
    return lambda p: model(p)[["Bact", "Sub"]].iloc[-1]


def arguments(case):
    args = dict(CASES[case]["inputs"]["args"])
    if "parRange" in args:
        args["parRange"] = table(args["parRange"]).set_axis(args["parRange"]["index"])
    if "parInput" in args:
        args["parInput"] = table(args["parInput"])
    return args


@pytest.mark.parametrize("case", ["crl_grid", "crl_input", "crl_sensvar"])
def test_runs_and_summary_are_those_of_r(case, at_end):
    out = CASES[case]["outputs"]
    result = modCRL(at_end, **arguments(case))
    expected = table(out["table"])
    pd.testing.assert_frame_equal(result.frame, expected.astype(float), rtol=1e-5)
    summary = table(out["summary"]).drop(columns="Sd")
    np.testing.assert_allclose(result.summary().frame[summary.columns], summary, rtol=1e-5)
    sd = expected[list(result.var)].std(ddof=1)
    np.testing.assert_allclose(result.summary()["Sd"], sd, rtol=1e-4)


def test_quirk_17_sd_of_one_output_is_defined_where_r_says_na(at_end):
    assert table(CASES["crl_sensvar"]["outputs"]["summary"])["Sd"].tolist() == ["NA"]
    assert modCRL(at_end, **arguments("crl_sensvar")).summary()["Sd"].notna().all()


def test_an_unnamed_number_is_called_x1(at_end):
    case = CASES["crl_scalar"]
    result = modCRL(lambda p: at_end(p).sum(), **arguments("crl_scalar"))
    assert result.var == ("X1",)
    pd.testing.assert_frame_equal(result.frame, table(case["outputs"]["table"]).astype(float), rtol=1e-5)


@pytest.mark.parametrize(
    "returned",
    [
        lambda p: {"u": p["a"], "v": 2 * p["a"]},
        lambda p: pd.Series({"u": p["a"], "v": 2 * p["a"]}),
        lambda p: pd.DataFrame({"u": [p["a"]], "v": [2 * p["a"]]}),
    ],
    ids=["dict", "Series", "one-row table"],
)
def test_one_row_may_come_in_any_form(returned):
    result = modCRL(returned, parRange={"a": (0, 1)}, dist="grid", num=3)
    assert result.frame.to_numpy().tolist() == [[0, 0, 0], [0.5, 0.5, 1], [1, 1, 2]]
    assert list(result.columns) == ["a", "u", "v"]


def test_several_rows_are_refused(at_end):
    with pytest.raises(ArgumentError, match=r"returns 3 rows; modCRL needs one value per variable"):
        modCRL(lambda p: {"y": [p["a"], 1, 2]}, parRange={"a": (0, 1)})


def test_an_output_may_not_have_the_name_of_a_varied_parameter():
    with pytest.raises(ArgumentError, match="'a', the name of a varied parameter"):
        modCRL(lambda p: {"a": p["a"]}, parRange={"a": (0, 1)})


def test_failures_are_kept(caplog):
    result = modCRL(lambda p: {"inverse": 1 / p["a"]}, {"a": 1.0}, parInput={"a": [1.0, 0.0, 2.0]})
    assert result.failures["run"].tolist() == [1]
    assert result.failures["message"][0].startswith("ZeroDivisionError")
    assert np.isnan(result.frame["inverse"][1])
    assert result.summary()["N"].tolist() == [2]
    assert "1 of them failed" in repr(result)


def test_it_pickles_and_shows():
    result = modCRL(lambda p: p["a"], parRange={"a": (0, 1)}, num=4, seed=0)
    assert pickle.loads(pickle.dumps(result)).frame.equals(result.frame)
    assert "<table" in result._repr_html_()
    assert len(result) == 4


def test_a_model_of_many_rows_is_told_what_to_pass():
    model = OdeModel("d(N)/dt = -k*N", state={"N": 1}, times=[0, 1, 2], parms={"k": 0.5})
    words = {"parRange": {"k": (0.3, 0.7)}, "num": 3, "seed": 1}
    with pytest.raises(ArgumentError, match=r"modCRL\(lambda p: model\(p\)\['N'\].iloc\[-1\], model.parms"):
        modCRL(model, **words)
    out = modCRL(lambda p: model(p)["N"].iloc[-1], model.parms, **words).frame
    np.testing.assert_allclose(out["X1"], np.exp(-2 * out["k"]), rtol=1e-5)
