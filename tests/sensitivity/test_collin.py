"""collin: R's collinearities, its mistakes mended, all subsets at once."""

from __future__ import annotations

import itertools
import pickle
import time
import warnings

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, ParameterError
from fmepy.sensitivity import collin, sensFun
from fmepy.sensitivity.collinearity import Normalised, collinearities, smallest_eigenvalues
from tests.models.problems import cases
from tests.sensitivity.references import FIVE, bacteria, bacteria_cost, hiv_cost, table, vignette

CASES = cases("collin.json")


def given(case):
    """Return the sensitivities of a case."""
    inputs = case["inputs"]
    if "sensfun_ref" in inputs:
        return given(CASES[inputs["sensfun_ref"]])
    entry = inputs["sensfun"]
    if "table" in entry:
        return table(entry["table"])
    return table(entry) if "columns" in entry else np.array(entry["matrix"])


def arguments(case):
    """Return R's arguments; positions count from 0."""
    out = dict(case["inputs"]["args"])
    if "parset" in out:
        sets = out["parset"] if isinstance(out["parset"], list) else [out["parset"]]
        out["parset"] = [k - 1 if isinstance(k, int) else k for k in sets]
    return out


def assert_same(found, expected):
    assert list(found.columns) == list(expected.columns)
    np.testing.assert_array_equal(found.iloc[:, :-1].to_numpy(), expected.iloc[:, :-1].to_numpy())
    a, b = found["collinearity"].to_numpy(), expected["collinearity"].to_numpy(dtype=float)
    known = b < 1e6  # beyond it R shows rounding of an eigenvalue near 0
    # an eigenvalue good to 1e-15 leaves gamma good to gamma^2 1e-15
    assert (np.abs(a[known] - b[known]) <= b[known] * (1e-10 + 2e-15 * b[known] ** 2)).all()
    assert (a[~known] > 1e6).all()


def brute(S, columns):
    s = S[:, columns] / np.linalg.norm(S[:, columns], axis=0)
    return 1 / np.linalg.svd(s, compute_uv=False)[-1]


# --- against R


PLAIN = [k for k in CASES if k != "misuse" and not k.startswith(("quirk", "maxcomb")) and k != "mat_zero"]


@pytest.mark.parametrize("name", PLAIN)
def test_collinearities_are_those_of_R(name):
    case = CASES[name]
    assert_same(collin(given(case), **arguments(case)).frame, table(case["outputs"]["table"]))


@pytest.mark.parametrize("name", ["maxcomb_50", "maxcomb_36"])
def test_quirk_14_maxcomb_excludes_equality_and_warns_once(name):
    case = CASES[name]
    with pytest.warns(UserWarning, match="are left out") as told:
        found = collin(given(case), **arguments(case))
    assert len(told) == 1
    assert_same(found.frame, table(case["outputs"]["table"]))


def test_quirk_12_which_takes_the_rows_of_its_variables():
    sens = given(CASES["quirk_which2"])
    right = np.array(sens.loc[sens["var"] == "Sub", sens.columns[2:]], dtype=float)
    found = collin(sens, [0, 1, 3], which="Sub").value
    assert found == pytest.approx(brute(right, [0, 1, 3]), rel=1e-9)
    assert found != pytest.approx(table(CASES["quirk_which2"]["outputs"]["table"])["collinearity"][0], rel=0.1)
    assert found == collin(sens, [0, 1, 3], which=1).value  # by position: of variables, from 0
    both = collin(sens, [0, 1, 3], which=["Sub", "Bact"]).value
    assert both == pytest.approx(collin(sens, [0, 1, 3]).value)


def test_quirk_12_which_by_position_works_for_costs():
    sens = sensFun(bacteria_cost(), varscale=1)
    assert collin(sens, [0, 1, 2], which=1).value == collin(sens, [0, 1, 2], which="Sub").value


def test_a_parameter_without_influence_is_named_and_all_its_sets_are_infinite():
    case = CASES["mat_zero"]
    with pytest.warns(UserWarning, match="sensitivities to 'b' are all zero"):
        found = collin(given(case), **arguments(case))
    expected = table(case["outputs"]["table"])
    np.testing.assert_allclose(found["collinearity"], expected["collinearity"])


def test_quirk_13_two_parameters_without_influence_are_no_error():
    S = pd.DataFrame({"a": [1.0, 2, 3], "b": 0.0, "c": [3.0, 1, 0], "d": 0.0})
    with pytest.warns(UserWarning, match="'b', 'd'"):
        found = collin(S)
    with_zero = found["b"].to_numpy() + found["d"].to_numpy() > 0
    assert np.isinf(found["collinearity"][with_zero]).all()
    assert np.isfinite(found["collinearity"][~with_zero]).all()


def test_the_hiv_vignette_has_the_collinearities_of_exact_sensitivities():
    found = collin(sensFun(hiv_cost())).frame
    expected = table(vignette("hiv_exact")["collin_all"])
    np.testing.assert_array_equal(found.iloc[:, :-1], expected.iloc[:, :-1])
    np.testing.assert_allclose(found["collinearity"], expected["collinearity"], rtol=1e-5)
    np.testing.assert_allclose(found["collinearity"], table(vignette("hiv_collin")["all"])["collinearity"], rtol=5e-3)


def test_the_dynamics_vignette_has_the_collinearities_of_R():
    r = vignette("dyna_tight")
    for sens, key in (
        (sensFun(bacteria("fine"), sensvar="Bact", varscale=1), "collin"),
        (sensFun(dyna_cost(), varscale=1), "collin_objective"),
    ):
        found, expected = collin(sens).frame, table(r[key])
        np.testing.assert_array_equal(found.iloc[:, :-1], expected.iloc[:, :-1])
        below = expected["collinearity"] < 1000  # above it R's numbers depend on the noise of its differences
        np.testing.assert_allclose(found["collinearity"][below], expected["collinearity"][below], rtol=2e-3)
        assert (found["collinearity"][~below] > 900).all()


def dyna_cost():
    import fmepy as fme
    from tests.sensitivity.references import DATA

    return fme.SimulationCost(bacteria("fine"), pd.read_csv(DATA / "bacteria.csv"))


# --- exact answers and properties


def test_collinearity_is_one_for_orthogonal_sensitivities():
    assert (collin(np.eye(6)).frame["collinearity"] == 1).all()
    assert collin(np.eye(3), 1).value == 1


def test_proportional_columns_are_infinitely_collinear():
    assert collin(np.outer(range(1, 6), [1, 2])).value == np.inf


def test_more_parameters_than_rows_are_infinitely_collinear():
    S = np.random.default_rng(1).normal(size=(3, 5))
    found = collin(S)
    assert np.isinf(found["collinearity"][found["N"] > 3]).all()
    assert np.isfinite(found["collinearity"][found["N"] <= 3]).all()


def test_two_columns_have_the_collinearity_of_their_angle():
    for angle in (1.0, 1e-3, 1e-6, 1e-9):
        S = np.array([[1.0, np.cos(angle)], [0.0, np.sin(angle)]])
        assert collin(S).value == pytest.approx(1 / (np.sqrt(2) * np.sin(angle / 2)), rel=1e-6)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_subsets_agree_with_a_decomposition_of_each(seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-9, 9, size=8)
    S = rng.normal(size=(20, 8)) @ np.diag(10.0 ** -np.linspace(0, 5, 8)) @ rng.normal(size=(8, 8)) * scale
    found = collin(S).frame
    for row, gamma in zip(found.iloc[:, :8].to_numpy(dtype=bool), found["collinearity"], strict=True):
        assert gamma == pytest.approx(brute(S, np.flatnonzero(row)), rel=1e-8)
    order = [tuple(np.flatnonzero(r)) for r in found.iloc[:, :8].to_numpy()]
    assert order == [c for n in range(2, 9) for c in itertools.combinations(range(8), n)]


def test_the_scale_of_columns_does_not_matter():
    S = np.random.default_rng(3).normal(size=(10, 5))
    a, b = collin(S).frame, collin(S * [1, -1e9, 1e-12, 3, 1e150]).frame
    np.testing.assert_allclose(a["collinearity"], b["collinearity"], rtol=1e-10)


def test_a_larger_set_is_never_better_determined():
    S = np.random.default_rng(4).normal(size=(9, 6))
    found = collin(S)
    gamma = dict(zip(found.sets(), found["collinearity"], strict=True))
    for names, value in gamma.items():
        for left_out in names:
            rest = tuple(n for n in names if n != left_out)
            assert len(rest) < 2 or gamma[rest] <= value * (1 + 1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_smallest_eigenvalues_are_those_of_lapack(n):
    rng = np.random.default_rng(n)
    A = rng.normal(size=(50, n, n + 3))
    A = A @ A.transpose(0, 2, 1)
    A[0] = np.eye(n)
    A[1] = 0.0
    A[2] = np.ones((n, n))
    if n > 2:
        A[3, 0, 1:] = A[3, 1:, 0] = 0.0  # decoupled
    expected = np.maximum(np.linalg.eigvalsh(A)[:, 0], 0.0)
    found = smallest_eigenvalues(np.ascontiguousarray(A.transpose(1, 2, 0)))
    size = np.linalg.norm(A, axis=(1, 2))
    np.testing.assert_allclose(found, expected, atol=1e-14 * size.max())


def test_a_nearly_dependent_set_is_good_to_many_digits():
    # singular values 1 and 1e-9 exactly: the eigenvalue 1e-18 would be lost in s's
    gamma = 1e9
    c = 1 - 2 / gamma**2
    angle = 2 * np.arcsin(1 / gamma / np.sqrt(2))
    assert c <= 1
    S = np.array([[1.0, np.cos(angle)], [0.0, np.sin(angle)]])
    found = collinearities(Normalised(S), np.array([[0, 1]]))[0]
    assert found == pytest.approx(gamma, rel=1e-6)


# --- the sets


def test_one_set_by_name_or_position_in_any_order():
    sens = sensFun(hiv_cost())
    by_name = collin(sens, FIVE)
    assert by_name.value == collin(sens, [4, 0, 1, 3, 2]).value
    assert by_name.frame.iloc[0].to_dict() == pytest.approx(collin(sens, FIVE[::-1]).frame.iloc[0].to_dict())
    assert by_name.sets() == [tuple(FIVE)]


def test_a_single_parameter_is_its_own_set():
    assert collin(pd.DataFrame({"k": [1.0, 2.0, 3.0]})).frame.to_dict("records") == [
        {"k": 1, "N": 1, "collinearity": 1.0}
    ]


def test_sizes_are_a_number_or_several():
    S = np.random.default_rng(0).normal(size=(9, 5))
    assert collin(S, N=[4, 2]).frame["N"].tolist() == [2] * 10 + [4] * 5
    assert collin(S, N=1).frame["collinearity"].tolist() == [1.0] * 5


def test_twenty_five_parameters_go_by_size_and_the_cap_is_told():
    S = np.random.default_rng(0).normal(size=(40, 25))
    with pytest.warns(UserWarning, match="sets of 4 to 21 of 25 .* maxcomb=5000 or more of a size .up to 5200300"):
        found = collin(S)
    assert sorted(set(found["N"])) == [2, 3, 22, 23, 24, 25]
    told = []
    found = collin(S, N=4, maxcomb=20_000, progress=lambda done, total: told.append((done, total)))
    assert len(found) == 12650
    assert told[-1] == (12650, 12650)
    row = found.frame.iloc[7777]
    expected = brute(S, np.flatnonzero(row.to_numpy()[:25]))
    assert row["collinearity"] == pytest.approx(expected, rel=1e-10)


def test_a_progress_bar_is_drawn_if_asked_for(capsys):
    collin(np.eye(4), progress=True)
    assert "11/11" in capsys.readouterr().err


def test_all_32752_subsets_of_15_are_there_and_quick():
    S = np.random.default_rng(0).normal(size=(51, 15))
    began = time.process_time()
    found = collin(S, maxcomb=10_000)
    assert time.process_time() - began < 3  # the figure itself stands in the benchmarks; this catches a loop over sets
    assert len(found) == 32752


# --- the object


def test_it_prints_as_R_does_delegates_and_pickles():
    found = collin(pd.DataFrame({"a": [1.0, 2, 3], "b": [3.0, 1, 0]}))
    assert repr(found).split() == ["a", "b", "N", "collinearity", "0", "1", "1", "2", "1.3"]
    assert len(found) == 1
    assert found["N"][0] == 2
    assert pickle.loads(pickle.dumps(found)).value == found.value
    assert "<table" in found._repr_html_()
    many = collin(np.random.default_rng(0).normal(size=(9, 7)))
    assert len(repr(many).splitlines()) == 62
    with pytest.raises(ArgumentError, match="there are 120"):
        _ = many.value


def test_unnamed_columns_are_numbered():
    assert list(collin(np.eye(2)).columns) == ["1", "2", "N", "collinearity"]


# --- bad input

S3 = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [3.0, 1, 0, 1], "c": [1.0, 1, 0, 5]})


@pytest.mark.parametrize(
    ("sens", "arguments", "error", "words"),
    [
        (S3, {"N": 2, "maxcomb": 3}, ArgumentError, "there are 3 sets of 2 of 3 parameters"),
        (S3, {"N": 4}, ArgumentError, "from 1 to 3"),
        (S3, {"N": 2, "parset": ["a"]}, ArgumentError, "not both"),
        (S3, {"parset": "d"}, ParameterError, "no parameter 'd'"),
        (S3, {"parset": 3}, ParameterError, "positions go from 0 to 2"),
        (S3, {"parset": [["a", "b"]]}, ParameterError, "flat list"),
        (S3, {"parset": np.eye(2)}, ParameterError, "flat list"),
        (S3, {"which": "a"}, ArgumentError, "plain matrix"),
        (S3, {"maxcomb": 0}, ArgumentError, "positive"),
        (S3, {"progress": "yes"}, ArgumentError, "True, False"),
        (np.array([[1.0, np.nan]]), {}, ArgumentError, "column '2' holds values that are not finite"),
        (np.ones(3), {}, ArgumentError, "shape"),
        ("text", {}, ArgumentError, "table of numbers"),
    ],
)
def test_what_cannot_be_is_told(sens, arguments, error, words):
    with pytest.raises(error, match=words):
        collin(sens, **arguments)


def test_an_unknown_variable_is_told():
    with pytest.raises(ArgumentError, match=r"no variable 'logv'\. Did you mean 'logV'"):
        collin(sensFun(hiv_cost()), which="logv")


def test_all_zero_sensitivities_give_no_numerical_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.warns(UserWarning, match="'1', '2'"):
            assert collin(np.zeros((4, 2))).value == np.inf
