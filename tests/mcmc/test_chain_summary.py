"""The summary has R's numbers under the right names, and says when a sample should not be trusted."""

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError
from fmepy.mcmc import modMCMC
from fmepy.mcmc.chain_summary import remaining_rows, sampled_values, summarise
from fmepy.mcmc.diagnostics import chain_diagnostics


def sample(chains, sig=None, names=None, **fields):
    """Return what summaries need of a sample; chains is a list of arrays (n_draw, n_par)."""
    chains = [np.asarray(c, dtype=float) for c in chains]
    names = names or [f"p{j + 1}" for j in range(chains[0].shape[1])]
    index = pd.MultiIndex.from_tuples(
        [(c, i + 1) for c, x in enumerate(chains) for i in range(len(x))], names=["chain", "iteration"]
    )
    pars = pd.DataFrame(np.concatenate(chains), index=index, columns=names)
    good = {
        "SS": pd.Series(1.0, index=index),
        "sig": None if sig is None else pd.DataFrame(sig).set_index(index),
        "acceptance_rate": pd.Series([0.3] * len(chains)),
        "failures": 0,
        "retries": 0,
        "method": "dram",
        "lower": pd.Series(-np.inf, index=names),
        "upper": pd.Series(np.inf, index=names),
    }
    fields = {**good, **fields}
    first = np.broadcast_to(np.asarray(fields["acceptance_rate"], dtype=float), (len(chains),))
    fields.setdefault("acceptance_by_try", pd.DataFrame({1: first}))
    return SimpleNamespace(pars=pars, **fields)


def normals(n_chain=2, n_draw=1000, n_par=2, seed=1):
    return list(np.random.default_rng(seed).normal(size=(n_chain, n_draw, n_par)))


@pytest.fixture(scope="module")
def cases(reference):
    return {c["id"]: c for c in json.loads((reference / "fme" / "modMCMC_exact.json").read_text())["cases"]}


@pytest.fixture(scope="module")
def of_reference(cases):
    """Return the sample of R's summary: 60 draws of a and b, the variance |a| of the other chain."""
    one, two = (np.array(cases["coda"]["inputs"][k]["matrix"])[:60] for k in ("chain1", "chain2"))
    return sample([one], {"var_model": np.abs(two[:, 0])}, ["a", "b"])


# --- the table


def test_the_summary_has_rs_numbers(cases, of_reference):
    expected = cases["summary_fixed"]["outputs"]["summary"]
    frame = summarise(of_reference).frame
    assert list(frame.columns) == expected["columns"]
    for name, values in expected["data"].items():
        found = frame.loc[["mean", "sd", "min", "max", "25%", "50%", "75%"], name]
        np.testing.assert_allclose(found, values, rtol=1e-12)


def test_quirk_36_quantiles_are_what_their_labels_say(of_reference):
    """FME calls the 25, 50 and 75 % quantiles q025, q050 and q075."""
    frame = summarise(of_reference).frame
    assert list(frame.index) == ["mean", "sd", "min", "2.5%", "25%", "50%", "75%", "97.5%", "max"]
    for label, q in (("2.5%", 0.025), ("25%", 0.25), ("50%", 0.5), ("75%", 0.75), ("97.5%", 0.975)):
        np.testing.assert_allclose(frame.loc[label, ["a", "b"]], of_reference.pars.quantile(q))


def test_remove_shortens_the_parameters_as_in_r_and_the_variances_too(cases, of_reference):
    expected = cases["summary_fixed"]["outputs"]["summary_removed"]["data"]
    frame = summarise(of_reference, remove=range(20)).frame
    rows = ["mean", "sd", "min", "max", "25%", "50%", "75%"]
    np.testing.assert_allclose(frame.loc[rows, "a"], expected["a"], rtol=1e-12)
    np.testing.assert_allclose(frame.loc[rows, "b"], expected["b"], rtol=1e-12)
    rest = of_reference.sig["var_model"].iloc[20:]
    assert frame.loc["mean", "var_model"] == pytest.approx(rest.mean())
    assert frame.loc["mean", "var_model"] != pytest.approx(expected["var_model"][0])  # R leaves them in


def test_one_variance_keeps_its_name_and_several_are_called_sig():
    draws = normals(1, 50)
    one = {"var_model": np.ones(50)}
    assert list(summarise(sample(draws, one)).columns) == ["p1", "p2", "var_model"]
    two = {"var_T": np.ones(50), "var_V": np.ones(50)}
    assert list(sampled_values(sample(draws, two)).columns) == ["p1", "p2", "sig.var_T", "sig.var_V"]
    assert list(sampled_values(sample(draws)).columns) == ["p1", "p2"]


def test_a_variance_that_is_not_drawn_has_no_spread():
    chain = sample([np.linspace(0, 1, 30).reshape(-1, 1)], {"var_T": np.full(30, 0.1 + 0.2)}, ["a"])
    assert summarise(chain).frame.loc["sd", "var_T"] == 0.0  # not what rounding leaves
    printed = repr(modMCMC(lambda p: p[0] + np.array([0.0, 0.4, 0.1]), [0.0], var0=0.1 + 0.2, niter=30, seed=1))
    assert printed.splitlines()[-1].split()[1:] == ["0.3", "0"]


def test_a_single_draw_has_no_sd():
    frame = summarise(sample([[[1.0, 2.0]]])).frame
    assert frame.loc["sd"].isna().all()
    assert frame.loc["97.5%", "p2"] == 2.0


def test_draws_too_few_to_be_judged_are_told():
    summary = summarise(sample([[[1.0, 2.0]]]))
    assert "p1 (1), p2 (1) is worth fewer than 400 independent draws" in summary.advice[0]
    assert "1 draw, 1 chain" in str(summary)


# --- remove


@pytest.mark.parametrize(
    ("remove", "left"),
    [
        (None, [0, 1, 2, 3, 4]),
        (0, [0, 1, 2, 3, 4]),
        (2, [2, 3, 4]),
        (range(2), [2, 3, 4]),
        ([0, 3], [1, 2, 4]),
        (np.array([4]), [0, 1, 2, 3]),
        (slice(None, None, 2), [1, 3]),
        ([-1], [0, 1, 2, 3]),
        ([], [0, 1, 2, 3, 4]),
    ],
)
def test_remove_drops_draws_of_every_chain(remove, left):
    kept = remaining_rows(sample(normals(2, 5)), remove)
    for c in (0, 1):
        np.testing.assert_array_equal(np.flatnonzero(kept[5 * c : 5 * c + 5]), left)


@pytest.mark.parametrize(
    ("remove", "told"),
    [
        (5, "leaves none of the 5 draws of chain 0"),
        (-1, "number of first draws"),
        ([5], "no draw 5; its 5 draws are counted from 0 to 4"),
        ([0.5], "positions from 0"),
        ([True, False], "positions from 0"),
        ("all", "positions from 0"),
        (slice("a", 3), "a slice, or positions"),
    ],
)
def test_a_wrong_remove_is_told(remove, told):
    with pytest.raises(ArgumentError, match=told):
        remaining_rows(sample(normals(2, 5)), remove)


# --- advice


def test_a_good_sample_gets_no_advice():
    found = summarise(sample(normals()))
    assert found.advice == []
    assert (found.n_chain, found.n_draw) == (2, 2000)


def advice_of(*args, **fields):
    return summarise(sample(*args, **fields)).advice


def test_chains_that_disagree_are_told_with_the_parameter_that_is_worst():
    chains = normals()
    chains[1][:, 1] += 1
    (mixing,) = (a for a in advice_of(chains) if "R-hat" in a)
    worst = chain_diagnostics(sample(chains).pars).loc["p2", "rhat"]
    assert f"p2 ({worst:.3g})" in mixing
    assert "p1" not in mixing
    assert "chains do not agree" in mixing


def test_a_single_drifting_chain_is_told():
    (chain,) = normals(1, 2000)
    chain[:, 0] += np.linspace(0, 2, 2000)
    assert any("halves of the chain do not agree" in a for a in advice_of([chain]))


def test_variances_are_judged_as_parameters_are():
    drift = {"var_model": np.exp(np.linspace(0, 2, 2000))}
    assert any("R-hat of var_model" in a for a in advice_of(normals(), drift))


def test_too_few_draws_are_told():
    (few,) = advice_of(normals(2, 150))
    assert "fewer than 400 independent draws:" in few
    # eight chains need 100 each
    (few,) = advice_of(normals(8, 90))
    assert "fewer than 800 independent draws (100 a chain)" in few


def test_members_of_an_ensemble_need_400_together():
    draws = normals(8, 70, n_par=1)
    assert any("fewer than 800" in a for a in advice_of(draws))
    assert not any("fewer than" in a for a in advice_of(draws, method="emcee"))


def test_the_removed_draws_do_not_count():
    chains = normals(2, 1500)
    for chain in chains:
        chain[:300] += 5
    good = sample(chains)
    assert any("R-hat" in a or "fewer" in a for a in summarise(good).advice)
    assert summarise(good, remove=300).advice == []


@pytest.mark.parametrize(
    ("rate", "told"), [(0.04, "Only 4 %"), (0.05, None), (0.7, None), (0.72, "72 % of the proposals")]
)
def test_acceptance_outside_5_to_70_percent_is_told(rate, told):
    advice = advice_of(normals(1, 2000), acceptance_rate=rate)
    assert (len(advice) == 0) if told is None else (told in advice[0])


def test_acceptance_is_told_for_the_chains_it_concerns():
    (advice,) = advice_of(normals(), acceptance_rate=pd.Series([0.02, 0.3]))
    assert "Only 2 % of the proposals were accepted in 1 of 2 chains" in advice


def test_failed_runs_are_told_with_their_number():
    (advice,) = advice_of(normals(), failures=3)
    assert advice.startswith("3 runs of the model failed")
    (advice,) = advice_of(normals(), failures=1)
    assert advice.startswith("1 run of the model failed")


def test_a_chain_that_never_moves_is_told():
    chains = normals()
    chains[1][:] = 0.1
    assert any("Of 2 chains, 1 never moved" in a for a in advice_of(chains))
    assert any("The chain never moved" in a for a in advice_of([np.full((50, 2), 0.1)]))


def test_a_chain_that_rests_at_one_point_is_told():
    chains = normals(2, 2000)
    chains[1][500:699] = chains[1][500]
    assert advice_of(chains) == []  # 199 of 2000
    chains[1][500:700] = chains[1][500]
    (advice,) = advice_of(chains)
    assert "chain 1" in advice
    assert "200 of its 2000 draws" in advice


def test_a_parameter_that_rests_while_others_move_is_not_a_stuck_chain():
    chains = normals(2, 2000)
    for chain in chains:
        chain[:, 1] = 3.0
    assert not any("stuck" in a or "never moved" in a for a in advice_of(chains))


def test_draws_that_crowd_at_a_bound_are_told():
    chains = normals(2, 2000)
    for chain in chains:
        chain[:, 0] = np.abs(chain[:, 0])
    lower = pd.Series([0.0, -4.0], index=["p1", "p2"])
    (advice,) = advice_of(chains, lower=lower)
    assert "lower bound of p1" in advice
    assert "p2" not in advice
    assert "Widen" not in advice, "sds and rates end at zero by nature"
    (advice,) = advice_of([c + 1 for c in chains], lower=lower + 1)
    assert "Widen it if it is not physical" in advice
    assert advice_of(chains) == []
    (advice,) = advice_of([-c for c in chains], upper=pd.Series([0.0, 5.0], index=["p1", "p2"]))
    assert "upper bound of p1" in advice


# --- how it shows


def test_advice_is_printed_under_the_table():
    found = summarise(sample(normals(), failures=2))
    text = repr(found)
    assert text.index("97.5%") < text.index("2000 draws, 2 chains") < text.index("! 2 runs of the model failed")
    assert max(map(len, text.splitlines())) <= 100
    assert "!" not in repr(summarise(sample(normals())))


def test_a_notebook_shows_table_and_advice():
    html = summarise(sample(normals(), acceptance_rate=0.01))._repr_html_()
    assert "<table" in html
    assert "<li>Only 1 %" in html
    assert "<li>" not in summarise(sample(normals()))._repr_html_()


def test_names_do_not_become_markup_in_a_notebook():
    html = summarise(sample(normals(2, 100), names=["<b>", "c"]))._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt; (" in html  # in the advice too


def test_the_summary_reaches_through_to_its_frame_and_pickles():
    found = summarise(sample(normals()))
    assert len(found) == 9
    assert found["p1"].equals(found.frame["p1"])
    back = pickle.loads(pickle.dumps(found))
    pd.testing.assert_frame_equal(back.frame, found.frame)
    assert list(found.diagnostics.index) == ["p1", "p2"]


def test_the_summary_leaves_the_sample_alone():
    given = sample(normals(1, 100), {"var_model": np.ones(100)})
    before = given.pars.copy()
    values = sampled_values(given)
    values.iloc[:] = 0
    pd.testing.assert_frame_equal(given.pars, before)
    sampled_values(sample(normals(1, 100)))


def test_samplers_that_find_their_own_steps_get_no_advice_on_jumps():
    told = advice_of(normals(2, 150), acceptance_rate=0.97, method="nuts")
    assert len(told) == 1
    assert told[0].endswith("Run longer (niter).")
    (told,) = advice_of(normals(2, 2000), acceptance_rate=0.01, method="nuts")
    assert "jump" not in told


def log_density(p):
    with np.errstate(over="ignore"):
        return float(-0.5 * np.sum(((p - np.array([1.0, 2.0])) / 0.1) ** 2))


@pytest.mark.parametrize("words", [{}, {"jump": 0.1}, {"jump": 0.5, "updatecov": 100, "burninlength": 500}])
def test_a_log_density_in_place_of_minus_two_log_l_is_told(words):
    def advice(f):
        return modMCMC(f, [0.0, 1.0], niter=2000, seed=1, **words).summary().advice

    assert "a log density has the other sign" in advice(log_density)[0]
    assert not [a for a in advice(lambda p: -2 * log_density(p)) if "other sign" in a]


def test_a_cost_beyond_all_likelihoods_is_endless():
    x = np.random.default_rng(1).normal(size=(40, 2))
    assert "nothing bounds it" in advice_of([x], SS=np.full(40, -1e200))[0]


def test_a_chain_that_comes_down_to_its_optimum_does_not_fall_without_bound():
    for start in ([30.0, 40.0], [1.0, 2.0]):  # far off, and on it; the best cost may well be negative
        chain = modMCMC(lambda p: -2 * log_density(p) - 1e6, start, jump=0.2, niter=2000, seed=1)
        assert not [a for a in chain.summary().advice if "other sign" in a]
