"""identifiability names what cannot be told apart, and expects the errors that a fit then has."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.sensitivity import collin, identifiability, sensFun
from tests.sensitivity.references import FIVE, hiv_cost


def random_table(n_par=6, seed=0):
    rng = np.random.default_rng(seed)
    S = rng.normal(size=(12, n_par))
    S[:, -1] = S[:, 0] + 0.01 * rng.normal(size=12)  # the last is nearly the first
    return pd.DataFrame(S, columns=[chr(97 + k) for k in range(n_par)])


def test_the_undetermined_combination_of_a_product_is_its_quotient():
    def product(p):
        x = np.arange(1.0, 6.0)
        return {"x": x, "y": p["a"] * p["b"] * x + p["c"]}

    found = identifiability(sensFun(product, {"a": 2.0, "b": 3.0, "c": 1.0}, varscale=1))
    assert found.told() == ["+0.71 a -0.71 b"]
    assert found.largest == [("a", "c"), ("b", "c")]  # equally important: in the order of the parameters
    assert found.frame["vif"]["c"] < 20
    assert found.frame["vif"][["a", "b"]].min() > 1e10


def test_the_undetermined_combination_moves_the_outputs_least():
    S = random_table()
    found = identifiability(S)
    combination = found.combinations.iloc[0, 1:].to_numpy(dtype=float)
    moved = (S / np.linalg.norm(S, axis=0)).to_numpy() @ combination
    assert np.linalg.norm(moved) == pytest.approx(1 / found.collinearity, rel=1e-9)
    assert found.collinearity == pytest.approx(collin(S, list(S.columns)).value, rel=1e-9)


def test_variance_inflation_is_that_of_the_textbook():
    S = random_table()
    s = (S / np.linalg.norm(S, axis=0)).to_numpy()
    vif = identifiability(S).frame["vif"]
    np.testing.assert_allclose(vif, np.diag(np.linalg.inv(s.T @ s)), rtol=1e-8)
    for j in range(s.shape[1]):  # 1 / (1 - R^2) of each column on the others
        rest = np.delete(s, j, axis=1)
        left = s[:, j] - rest @ np.linalg.lstsq(rest, s[:, j], rcond=None)[0]
        assert vif.iloc[j] == pytest.approx(1 / (left @ left), rel=1e-6)


def test_the_largest_sets_are_those_that_collin_finds():
    S = random_table(7, seed=1)
    found = identifiability(S, threshold=20)
    table = collin(S)
    small = [names for names, g in zip(table.sets(), table["collinearity"], strict=True) if g < 20]
    most = max(map(len, small))
    assert set(found.largest) == {s for s in small if len(s) == most}
    assert found.is_exhaustive
    rho = found.sets["importance"].to_numpy()
    assert (np.diff(rho) <= 0).all()
    one = S[list(found.largest[0])].to_numpy()
    assert rho[0] == pytest.approx(np.linalg.det(one.T @ one) ** (1 / (2 * one.shape[1])), rel=1e-9)


def test_with_too_many_sets_to_try_leaving_out_one_by_one_still_ends_below_the_threshold():
    S = random_table(8, seed=2)
    found = identifiability(S, threshold=5, maxcomb=2)
    assert not found.is_exhaustive
    assert len(found.sets) == 1
    assert found.sets["collinearity"][0] < 5
    everything = identifiability(S, threshold=5)
    assert len(found.largest[0]) <= len(everything.largest[0])


@pytest.mark.parametrize(("rank", "is_exhaustive"), [(2, True), (3, True), (4, False)])
def test_sizes_beyond_the_number_of_large_singular_values_need_not_be_tried(rank, is_exhaustive):
    rng = np.random.default_rng(3)
    S = rng.normal(size=(12, rank)) @ rng.normal(size=(rank, 8)) + 1e-6 * rng.normal(size=(12, 8))
    found = identifiability(S, maxcomb=60)  # of four there are 70: too many
    assert found.is_exhaustive == is_exhaustive
    assert set(map(len, found.largest)) == {rank}
    table = collin(S, N=rank)
    below = {names for names, g in zip(table.sets(), table["collinearity"], strict=True) if g < 20}
    assert set(found.largest) == below if is_exhaustive else set(found.largest) < below


def test_standard_errors_are_those_that_the_fit_has():
    cost = hiv_cost()
    expected = identifiability(sensFun(cost, FIVE, weighted=True)).frame["std_error"]
    bound = cost.bind(FIVE)
    J = bound.jacobian(bound.theta0)
    np.testing.assert_allclose(expected, np.sqrt(np.diag(np.linalg.inv(J.T @ J))), rtol=1e-6)
    fit = fme.modFit(cost, FIVE)
    at_fit = identifiability(sensFun(cost, fit.par, weighted=True), sd=fit.summary().sigma)
    np.testing.assert_allclose(at_fit.frame["std_error"], fit.std_error, rtol=1e-3)
    np.testing.assert_allclose(at_fit.frame["relative"], fit.std_error / fit.par, rtol=1e-3)


def test_a_parameter_without_influence_has_an_infinite_error_and_is_in_no_set():
    S = random_table().assign(z=0.0)
    with pytest.warns(UserWarning, match="'z' are all zero"):
        found = identifiability(S)
    assert found.frame.loc["z", ["vif", "std_error"]].tolist() == [np.inf, np.inf]
    assert found.told()[0] == "+1.00 z"
    assert not any("z" in s for s in found.largest)
    assert np.isfinite(found.frame["vif"].drop("z")).all()
    with pytest.warns(UserWarning, match="all zero"):
        nothing = identifiability(np.zeros((4, 2)))
    assert nothing.largest == []


def test_orthogonal_parameters_are_all_identifiable():
    found = identifiability(np.eye(4))
    assert found.collinearity == pytest.approx(1)
    assert len(found.combinations) == 0
    assert found.largest == [("1", "2", "3", "4")]
    assert found.frame["vif"].tolist() == pytest.approx([1, 1, 1, 1])


def test_rows_of_some_variables_say_less():
    sens = sensFun(hiv_cost(), FIVE)
    both, one = identifiability(sens), identifiability(sens, which="logV")
    assert both.collinearity == pytest.approx(collin(sens, FIVE).value)
    assert one.collinearity == pytest.approx(60.4, abs=0.05)
    assert both.largest == [tuple(FIVE)]
    assert len(one.largest[0]) < 5


def test_it_prints_delegates_and_pickles():
    found = identifiability(sensFun(hiv_cost(), weighted=True))
    text = repr(found)
    assert "NOT identifiable (threshold 20)" in text
    assert "Undetermined: +0.79 n -0.57 bet +0.22 c" in text
    assert "varscale" not in text
    assert "Standard errors are for errors of the size of varscale" in repr(identifiability(random_table()))
    assert len(found) == 6
    assert list(found.columns) == ["value", "scale", "L2", "vif", "std_error", "relative"]
    assert found["vif"]["n"] > 1000
    assert pickle.loads(pickle.dumps(found)).told() == found.told()
    assert "<table" in found._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "words"), [({"threshold": 1}, "above 1"), ({"sd": 0}, "positive"), ({"which": "T"}, "plain matrix")]
)
def test_what_cannot_be_is_told(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        identifiability(random_table(), **arguments)


def test_every_set_below_the_threshold_is_found_by_brute_force():
    S = random_table(5, seed=9)
    s = (S / np.linalg.norm(S, axis=0)).to_numpy()
    best: list[tuple[str, ...]] = []
    for n in range(5, 0, -1):
        for c in itertools.combinations(range(5), n):
            if 1 / np.linalg.svd(s[:, c], compute_uv=False)[-1] < 3:
                best.append(tuple(S.columns[list(c)]))
        if best:
            break
    assert set(identifiability(S, threshold=3).largest) == set(best)
