"""predict and confidence: bands and intervals of known width."""

import pickle

import lmfit
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm, t

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError
from fmepy.fitting import confidence, modFit, predict
from tests.fitting.problems import PROBLEMS

MONOD = PROBLEMS[0]
X = np.arange(8.0)
Y = 1 + 2 * X + np.array([0.1, -0.2, 0.15, 0.05, -0.1, 0.2, -0.25, 0.05])


def straight(p):
    return pd.DataFrame({"x": X, "y": p["a"] + p["b"] * X})


@pytest.fixture(scope="module")
def fit():
    return modFit(lambda p: straight(p).y.to_numpy() - Y, {"a": 0.0, "b": 1.0})


def textbook(level, reading):
    A = np.column_stack([np.ones(8), X])
    b, rss, *_ = np.linalg.lstsq(A, Y, rcond=None)
    s2 = rss[0] / 6
    leverage = np.einsum("ij,jk,ik->i", A, np.linalg.inv(A.T @ A), A)
    half = t.ppf((1 + level) / 2, 6) * np.sqrt(s2 * (leverage + reading))
    return A @ b, half


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize("reading", [False, True])
def test_the_band_of_a_straight_line_is_the_textbooks(fit, level, reading):
    band = predict(straight, fit, level=level, reading=reading)
    centre, half = textbook(level, reading)
    np.testing.assert_allclose(band["fit"], centre, rtol=1e-6)
    np.testing.assert_allclose(band["upper"] - band["fit"], half, rtol=1e-5)
    np.testing.assert_allclose(band["fit"] - band["lower"], half, rtol=1e-5)
    assert list(band.columns) == ["x", "var", "fit", "se", "lower", "upper"]


def test_a_fmepy_model_gives_its_band_at_any_times_by_exact_sensitivities():
    tight = {"rtol": 1e-10, "atol": 1e-12}
    parms = {"k": 0.5, "N0": 2.0}
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": "N0"}, times=np.linspace(0, 6, 13), parms=parms, **tight)
    times = np.array([0.5, 1, 2, 3, 4.5, 6])
    data = pd.DataFrame({"time": times, "N": 2 * np.exp(-0.5 * times) + [0.02, -0.03, 0.01, 0.02, -0.01, 0.01]})
    fit = modFit(fme.SimulationCost(model, data))
    at = np.array([0.0, 1.7, 5.0])
    band = fit.predict(model, times=at)
    k, N0 = fit.par[["k", "N0"]]
    S = np.column_stack([-N0 * at * np.exp(-k * at), np.exp(-k * at)])
    C = fit.cov_scaled.loc[["k", "N0"], ["k", "N0"]].to_numpy()
    np.testing.assert_allclose(band["se"], np.sqrt(np.einsum("ij,jk,ik->i", S, C, S)), rtol=1e-5)
    np.testing.assert_allclose(band["fit"], N0 * np.exp(-k * at), rtol=1e-6)
    assert band.columns[0] == "time"
    wide = predict(model, fit, times=at, reading=True)
    variance = fit.ssr / fit.df_residual
    np.testing.assert_allclose(wide["se"] ** 2 - band["se"] ** 2, variance, rtol=1e-6)
    assert len(predict(model, fit)) == 13
    assert pickle.loads(pickle.dumps(band)).level == 0.95


def test_parameters_that_lmfit_fixes_stay_fixed_in_the_band():
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": "N0"}, times=np.arange(0, 5.0), parms={"k": 0.5, "N0": 2.0})
    cost = fme.SimulationCost(model, pd.DataFrame({"time": [1.0, 2, 3], "N": [1.8, 1.1, 0.7]}))
    q = lmfit.Parameters()
    q.add("k", value=0.5)
    q.add("N0", value=3.0, vary=False)
    fit = modFit(cost, q)
    band = predict(model, fit)
    assert band["fit"].iloc[0] == 3.0
    assert band["se"].iloc[0] == pytest.approx(0, abs=1e-12)
    assert band["fit"].iloc[2] == pytest.approx(3 * np.exp(-2 * fit.par["k"]), rel=1e-4)
    q["N0"].set(expr="4 * k")
    with pytest.raises(ArgumentError, match="expressions"):
        predict(model, modFit(cost, q))


def test_an_unobserved_variable_has_a_band_but_no_reading():
    model = fme.OdeModel("d(A)/dt = -k * A\nd(B)/dt = k * A", state={"A": 1.0, "B": 0.0}, times=np.arange(0, 5.0),
                         parms={"k": 0.5})  # fmt: skip
    fit = modFit(fme.SimulationCost(model, pd.DataFrame({"time": [1.0, 2, 3], "A": [0.6, 0.35, 0.25]})))
    assert predict(model, fit)["se"].notna().all()
    band = predict(model, fit, reading=True)
    assert band["se"][band["var"] == "B"].isna().all()
    assert band["se"][band["var"] == "A"].notna().all()


def test_with_a_prior_the_band_is_normal_and_not_scaled():
    fit = modFit(lambda p: straight(p).y.to_numpy() - Y, {"a": 0.0, "b": 1.0}, prior={"b": norm(2, 0.1)})
    band = predict(straight, fit)
    np.testing.assert_allclose((band["upper"] - band["fit"]) / band["se"], norm.ppf(0.975), rtol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "words"), [({"level": 95}, "between 0 and 1"), ({"times": [1.0]}, "for fmepy models")]
)
def test_misuse_of_predict_is_told(fit, arguments, words):
    with pytest.raises(ArgumentError, match=words):
        predict(straight, fit, **arguments)


def test_a_model_of_other_parameters_is_refused(fit):
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": 1.0}, times=[0, 1.0], parms={"k": 0.5})
    with pytest.raises(ArgumentError, match="none of the fitted parameters"):
        predict(model, fit)


def test_a_cost_is_no_model(fit):
    model = fme.OdeModel("d(N)/dt = a - b * N", state={"N": 1.0}, times=[0, 1.0, 2.0], parms={"a": 0.5, "b": 1.0})
    data = {"time": [1.0, 2.0], "N": [0.7, 0.6]}
    with pytest.raises(ArgumentError, match=r"must be a model.*got SimulationCost\. Pass its `model`\.$"):
        predict(fme.SimulationCost(model, data), fit)
    noisy = fme.FimlofCost(model, data, process_noise={"N": 0.1}, measurement_noise={"N": 0.1})
    with pytest.raises(ArgumentError, match=r"got FimlofCost\. The filter's own bands: cost\.filter\(fit\.par\)"):
        predict(noisy, fit)


def test_the_profile_interval_of_a_linear_model_is_the_t_interval(fit):
    # the F-test on one parameter is the t-test squared
    found = confidence(lambda p: straight(p).y.to_numpy() - Y, fit, sigmas=(0.95, 0.683))
    q95 = t.ppf(0.975, 6)
    for n in ("a", "b"):
        row = found.query("parameter == @n and level == 0.95").iloc[0]
        assert row.upper - row.estimate == pytest.approx(q95 * fit.std_error[n], rel=1e-6)
        assert row.estimate - row.lower == pytest.approx(q95 * fit.std_error[n], rel=1e-6)
    assert len(found) == 4


def test_the_intervals_of_monod_are_lmfits():
    q = lmfit.Parameters()
    q.add("p1", value=0.145)
    q.add("p2", value=49.0)
    mini = lmfit.Minimizer(lambda p: MONOD.residuals([p["p1"].value, p["p2"].value]), q)
    expected = lmfit.conf_interval(mini, mini.leastsq(), sigmas=[0.9])
    fit = modFit(MONOD.residuals, MONOD.start)
    found = fit.confidence(MONOD.residuals, sigmas=(0.9,)).set_index("parameter")
    for n in ("p1", "p2"):
        np.testing.assert_allclose(
            found.loc[n, ["lower", "upper"]].astype(float), [v for _, v in expected[n]][::2], rtol=2e-3
        )
    with pytest.raises(ParameterError, match="no parameter 'p3'"):
        fit.confidence(MONOD.residuals, ["p3"])


def test_a_likelihood_has_no_f_test():
    f = lambda p: (p["a"] - 1) ** 2  # noqa: E731
    with pytest.raises(ArgumentError, match="one number"):
        confidence(f, modFit(f, {"a": 0.0}))


def test_parameters_of_entities_are_refused_by_a_model_that_is_none_of_them():
    model = fme.OdeModel("d(y)/dt = b", state={"y": "a"}, parms={"a": 5.0, "b": 1.0}, times=X)
    both = pd.concat([pd.DataFrame({"who": w, "time": X, "y": Y + up}) for w, up in (("one", 0), ("two", 3))])
    cost = fme.SimulationCost(model, both, entity="who", entity_parms=["a"])
    fit = modFit(cost)
    chain = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, var0=fit.ms, niter=60, seed=1)
    for use in (
        lambda m: predict(m, fit),
        lambda m: predict(m, chain),
        lambda m: fme.sensRange(m, parInput=chain.pars, num=20, seed=1),
        lambda m: fme.scenarios(m, {"as it is": {}}, parInput=chain.pars, num=20, seed=1),
    ):
        with pytest.raises(
            ParameterError, match=r"'a' of every entity \('a\[one\]', 'a\[two\]'\).*cost.model_of\('one'\)"
        ):
            use(model)
        use(cost.models[1])
    two = predict(cost.models[1], fit, times=[0.0])
    np.testing.assert_allclose(two["fit"].iloc[0], fit.par["a[two]"], rtol=1e-6)
    np.testing.assert_allclose(two["se"].iloc[0], fit.std_error["a[two]"], rtol=1e-5)
    one = chain.pars.rename(columns={"a[one]": "a"})
    assert fme.predict(model, one, times=[0.0])["fit"].iloc[0] == pytest.approx(one["a"].median(), rel=1e-3)


def test_the_wrong_way_round_is_answered():
    model = fme.OdeModel("d(N)/dt = -k*N", state={"N": 10.0}, times=range(6), parms={"k": 0.4})
    cost = fme.SimulationCost(model, {"time": [1, 2, 3], "N": [6.9, 4.4, 3.1]})
    fit = modFit(cost)
    with pytest.raises(ArgumentError, match=r"predict\(model, fit\)"):
        predict(fit, model)
    with pytest.raises(ArgumentError, match=r"modMCMC\(cost, fit\)"):
        fme.modMCMC(fit)
    with pytest.raises(ArgumentError, match=r"sensFun\(cost\)"):
        fme.collin(cost)


def test_a_parameter_at_its_bound_is_named():
    x = np.arange(1.0, 7.0)
    fit = modFit(lambda p: p["a"] * x + p["b"] - 2 * x + 1, {"a": 1.0, "b": 0.5}, lower={"b": 0.0})
    band = predict(lambda p: pd.DataFrame({"x": x, "y": p["a"] * x + p["b"]}), fit)
    assert "'b' is at its bound and counts as fixed" in " ".join(str(band).split())
    free = modFit(lambda p: p["a"] * x + p["b"] - 2 * x + np.cos(x), {"a": 1.0, "b": 0.5})
    assert predict(lambda p: pd.DataFrame({"x": x, "y": p["a"] * x + p["b"]}), free).message == ""


def test_times_may_be_dates_of_the_data():
    model = fme.OdeModel("d(x)/dt = -k*x", state={"x": 1.0}, times=range(11), parms={"k": 0.3})
    dates = pd.date_range("2020-01-01", periods=10)
    data = pd.DataFrame({"day": dates, "x": np.exp(-0.3 * np.arange(10)) + 0.01 * np.cos(np.arange(10))})
    fit = modFit(cost := fme.SimulationCost(model, data, x="day", unit="days"), {"k": 0.2})
    for some in (dates[[2, 5]], ["2020-01-03", "2020-01-06"], list(dates[[2, 5]])):
        assert predict(model, fit, times=some)["time"].tolist() == [2.0, 5.0]
    ends = fme.profile(cost, fit, prediction=("x", dates[3])).intervals
    assert ends["estimate"].item() == pytest.approx(predict(model, fit, times=[3.0])["fit"].item(), rel=1e-6)
    plain = modFit(fme.SimulationCost(model, data.assign(day=range(10)), x="day"), {"k": 0.2})
    with pytest.raises(ArgumentError, match="`times` holds dates"):
        predict(model, plain, times=dates)


def test_a_band_that_is_not_there_says_why():
    model = fme.OdeModel("dy/dt = -a * b * y", state={"y": 1}, times=[0, 1, 2], parms={"a": 0.5, "b": 1.0})
    seen = pd.DataFrame({"time": [0.5, 1.0, 2.0], "y": [0.75, 0.62, 0.36]})
    open_still = fme.predict(model, fme.modFit(fme.SimulationCost(model, seen)))
    assert "no covariance: the data leave parameters undetermined" in repr(open_still)
    none_left = fme.predict(model, fme.modFit(fme.SimulationCost(model, seen[:1]), ["a"]))
    assert "no covariance: no degrees of freedom are left" in repr(none_left)
    assert "There is no band" not in repr(fme.predict(model, fme.modFit(fme.SimulationCost(model, seen), ["a"])))
