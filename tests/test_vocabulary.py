"""Words of neighbours are answered with ours."""

import inspect
import re

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError, UnknownArgumentError, did_you_mean
from fmepy.vocabulary import AnswersInOwnWords
from fmepy.workflow.command import main

TIMES = np.arange(0.0, 11.0)


@pytest.fixture(scope="module")
def model():
    return fme.OdeModel("dN/dt = r*N*(1 - N/K)", parms={"r": 0.6, "K": 10.0}, state={"N": 1.0}, times=TIMES)


@pytest.fixture(scope="module")
def cost(model):
    data = model().assign(N=lambda d: d["N"] * (1 + 0.03 * np.sin(7 * d["time"])))
    return fme.SimulationCost(model, data)


@pytest.fixture(scope="module")
def fit(cost):
    return fme.modFit(cost, {"r": 0.5, "K": 9.0}, lower=0, upper={"K": 20})


@pytest.mark.parametrize(
    ("verb", "arguments", "own"),
    [
        (fme.modFit, {"bounds": [(0, 1)]}, "`lower` and `upper`"),
        (fme.modFit, {"x0": [1.0]}, "`p`"),
        (fme.modFit, {"maxiter": 3}, "`control`"),
        (fme.modFit, {"n_jobs": 3}, "`executor`"),
        (fme.modFit, {"sigma": 0.1}, "SimulationCost(model, obs, err='sd')"),
        (fme.modFit, {"weights": 0.1}, "the cost knows the errors"),
        (fme.profile, {"alpha": 0.05}, "`level`"),
        (fme.predict, {"confidence": 0.9}, "`level`"),
        (fme.modFit, {"bouns": 3}, "There are 'f', 'p', 'lower'"),
        (fme.modFit, {"metod": 3}, "Did you mean 'method'"),
        (fme.modMCMC, {"nsteps": 10}, "`niter`"),
        (fme.modMCMC, {"nwalkers": 10}, "control={'walkers'"),
        (fme.modMCMC, {"tune": 10}, "`burninlength`"),
        (fme.modMCMC, {"bounds": 10}, "`lower` and `upper`"),
        (fme.sensRange, {"bounds": {"r": (0, 1)}}, "`parRange`"),
        (fme.sensRange, {"params": {"r": 1}}, "`parms`"),
        (fme.sensFun, {"p0": {"r": 1}}, "`parms`"),
        (fme.Latinhyper, {"bounds": {"r": (0, 1)}}, "`parRange`"),
        (fme.OdeModel, {"y0": {"N": 1}}, "`state`"),
        (fme.OdeModel, {"t_eval": TIMES}, "`times`"),
        (fme.OdeModel, {"params": {}}, "`parms`"),
        (fme.OdeModel, {"hmax": 1}, "`max_step`"),
        (fme.SimulationCost, {"yerr": 1}, "`err`"),
        (fme.PredictionErrorCost, {"data": 1}, "`obs`"),
        (fme.FimlofCost, {"yerr": 1}, "`err`"),
        (fme.modCost, {"xdata": "t"}, "`x`"),
        (fme.transport_1d, {"C_up": 1.0}, "`up` and `down`"),
        (fme.transport_1d, {"dx": 1.0}, "Grid1D(edges, area=...)"),
        (fme.steady, {"pos": True}, "`positive`"),
        (fme.SimulationCost, {"noise": {"N": 0.1}}, "`measurement_noise`: measurement_noise={'N': 0.1}"),
        (fme.FimlofCost, {"noise": {"N": 0.1}}, "`process_noise` and `measurement_noise`"),
        (fme.profile, {"random_state": 1}, "has no argument 'random_state'"),
    ],
)  # fmt: skip
def test_a_keyword_of_another_package_is_answered_with_ours(verb, arguments, own):
    with pytest.raises(UnknownArgumentError) as error:
        verb(**arguments)
    assert own in str(error.value)
    assert verb.__name__ in str(error.value)
    assert isinstance(error.value, TypeError)  # as Python's own
    assert isinstance(error.value, ArgumentError)


def test_attributes_of_other_packages_are_answered_with_ours(cost, fit, model):
    chain = fme.modMCMC(cost, fit, niter=20, seed=1)
    for thing, name, own in [
        (fit, "params", "`par`"), (fit, "x", "`par`"), (fit, "bse", "`std_error`"), (fit, "pcov", "`cov_scaled`"),
        (fit, "chisqr", "`ssr`"), (fit, "success", "`converged`"), (fit, "conf_int", "`confidence()`"),
        (chain, "flatchain", "`pars`"), (chain, "acceptance_fraction", "`acceptance_rate`"),
        (chain, "rhat", "`diagnostics()`"),
        (model, "params", "`parms`"), (model, "y0", "`parms`"), (model, "solve", "a call"),
    ]:  # fmt: skip
        with pytest.raises(AttributeError, match=re.escape(f"has no attribute '{name}'; here it is {own}")):
            getattr(thing, name)
    with pytest.raises(AttributeError, match="object has no attribute 'nothing_of_the_kind'"):
        _ = fit.nothing_of_the_kind
    assert not hasattr(model, "nothing_of_the_kind")


def test_every_answer_names_what_there_is(cost, fit, model, filtered):
    chain = fme.modMCMC(cost, fit, niter=20, seed=1)
    for thing in (fit, chain, model, filtered, filtered.filter()):
        for name, own in type(thing).elsewhere.items():
            first = own.split("`")[1].removesuffix("()").split("(")[0] if "`" in own else ""
            holder = fme if first.startswith("fmepy.") else thing
            first = first.removeprefix("fmepy.")
            assert not first or hasattr(type(holder), first) or hasattr(holder, first), (name, own)
            assert not hasattr(thing, name), name


def test_a_chain_starts_at_a_fit_with_its_covariance_variance_and_bounds(cost, fit):
    short = {"niter": 300, "seed": 3}
    plain = fme.modMCMC(
        cost, fit.par, jump=fit.cov_scaled * 2.4**2 / 2, var0=fit.var_ms_unweighted, lower=0, upper={"K": 20}, **short
    )
    from_fit = fme.modMCMC(cost, fit, **short)
    assert (from_fit.pars == plain.pars).all().all()
    assert from_fit.upper["K"] == 20
    other = fme.modMCMC(cost, fit, jump=0.001, **short)
    assert not (other.pars == plain.pars).all().all()


def test_the_variance_of_a_fit_can_be_sampled(cost, fit):
    chain = fme.modMCMC(cost, fit, wvar0=0.1, niter=200, seed=1)
    assert chain.sig is not None
    assert chain.sig.to_numpy().std() > 0


def test_a_likelihood_takes_no_variance_from_its_fit(model):
    data = model()[["time", "N"]]
    data["N"] += 0.1 * np.cos(5 * data["time"])
    cost = fme.SimulationCost(model, data, measurement_noise={"N": "s"}, parms={"s": 0.2})
    fit = fme.modFit(cost)
    assert fme.modMCMC(cost, fit, niter=50, seed=1).sig is None


def test_a_prior_of_the_fit_is_asked_for(cost):
    import scipy.stats as st

    prior = {"K": st.norm(10, 1)}
    with pytest.warns(UserWarning, match="errors of some data, which beside a prior count as 1"):
        fit = fme.modFit(cost, {"r": 0.5, "K": 9.0}, prior=prior)
    with pytest.warns(UserWarning, match="The fit had a prior"):
        fme.modMCMC(cost, fit, niter=20, seed=1)
    fme.modMCMC(cost, fit, prior=prior, niter=20, seed=1)


def test_ranges_of_a_fit_are_its_normal_distribution(model, fit):
    ranges = fme.sensRange(model, parInput=fit, num=400, seed=1)
    assert len(ranges) == 400
    assert ranges.pars.mean().to_numpy() == pytest.approx(fit.par.to_numpy(), rel=0.01)
    assert np.cov(ranges.pars.to_numpy().T) == pytest.approx(fit.cov_scaled.to_numpy(), rel=0.3)
    again = fme.sensRange(model, parInput=fit, num=400, seed=1, executor=2)
    assert (again.frame == ranges.frame).all().all()


def test_what_a_fit_holds_on_a_bound_does_not_vary(model, cost):
    fit = fme.modFit(cost, {"r": 0.5, "K": 9.0}, upper={"K": 9.5})
    assert fit.at_bound == ("K",)
    pars = fme.sensRange(model, parInput=fit, num=50, seed=1).pars
    assert (pars["K"] == fit.par["K"]).all()
    assert pars["r"].std() > 0


def test_one_set_is_not_a_chain(cost, fit):
    chain = fme.modMCMC(cost, fit, niter=20, seed=1)
    with pytest.raises(ParameterError, match=r"is a chain.*chain\.bestpar"):
        fme.sensFun(cost, chain)
    assert fme.sensFun(cost, chain.bestpar).frame["r"].abs().max() > 0


@pytest.fixture(scope="module")
def filtered():
    walk = fme.DifferenceModel("next(x) = x", state={"x": 0.0}, times=range(9))
    table = {"time": range(1, 9), "x": np.cos(range(8))}
    return fme.FimlofCost(
        walk, table, process_noise={"x": "q"}, measurement_noise={"x": "s"}, parms={"q": 1.0, "s": 1.0}
    )


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda c, f: c.filter().forecast(h=3), "FilterResult.forecast has no argument 'h'; here it is `steps`"),
        (lambda c, f: c.filter().forecast(3, f.cov_scaled), r"takes 1 argument without a name \('steps'\)"),
        (lambda c, f: c.filter(smoth=True), "Did you mean 'smooth'"),
        (lambda c, f: fme.derived(f), r"derived needs `function`, too"),
        (lambda c, f: fme.Grid1D.growing(0, 1, N=3, first=0.1), "Did you mean 'n'"),
        (lambda c, f: fme.FimlofCost(c.model, c.obs), r"FimlofCost needs `process_noise`, too: write process_noise={"),
        (lambda c, f: fme.PredictionErrorCost(c.model, c.obs), r"PredictionErrorCost needs `gain`, too: write gain={"),
        (lambda c, f: fme.modFit(), r"modFit needs `f`, too: write f=..."),
        (lambda c, f: fme.profile(f), r"profile\(f, fit\), in this order; here `f` is of the type ModFit"),
        (lambda c, f: fme.predict(c.model, f, 3), r"predict takes 2 arguments without a name"),
        (lambda c, f: fme.predict(f), r"predict\(model, fit\), in this order; here `model` is of the type ModFit"),
        (lambda c, f: c.model.replace(1), "replace takes arguments by name alone"),
        (lambda c, f: fme.screen_bad_data(c, f.par, threshold=3), "`threshold` twice: threshold=3, and without a name"),
        (lambda c, f: fme.Grid1D(N=3), "here it is `edges`"),
    ],
)  # fmt: skip
def test_arguments_of_methods_and_those_that_are_missing_are_answered(filtered, fit, ask, message):
    with pytest.raises(UnknownArgumentError, match=message):
        ask(filtered, fit)


def test_names_of_other_packages_are_answered_with_ours(filtered):
    with pytest.raises(AttributeError, match=r"'tran_1D'; here it is transport_1d\("):
        _ = fme.tran_1D
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing_of_the_kind'$"):
        _ = fme.nothing_of_the_kind
    with pytest.raises(AttributeError, match="FilterResult has no attribute 'llf'; here it is `loglik`"):
        _ = filtered.filter().llf


def test_an_error_inside_a_property_is_not_taken_for_a_missing_one():
    class Broken(AnswersInOwnWords):
        @property
        def data(self):
            return None.names

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'names'"):
        _ = Broken().data


def test_brackets_of_what_has_none_are_answered_with_the_attribute(filtered, fit):
    for of, key, says in [
        (fit, "par", r"is an attribute: `\.par`"), (fit, fit.par.index[0], r"stands in `\.par\["),
        (fit, "pars", "Did you mean 'par'"), (filtered, filtered.parms.index[0], r"stands in `\.parms\["),
    ]:  # fmt: skip
        with pytest.raises(TypeError, match=f"{type(of).__name__}' object is not subscriptable.*{says}"):
            of[key]
    with pytest.raises(TypeError, match="not subscriptable"):
        list(fit)


@pytest.mark.parametrize(
    ("wrong", "known", "offered"),
    [("init", ["niter"], ""), ("estimate", ["state"], ""), ("metod", ["method"], "method"), ("mcmc", ["model"], ""),
     ("kk2", ["k2"], "k2"), ("weigth", ["weight"], "weight"), ("Ka", ["Ka1", "ka"], "ka"),
     ("paramters", ["parameters"], "parameters")],
)  # fmt: skip
def test_a_nearest_word_is_offered_when_it_is_near(wrong, known, offered):
    assert did_you_mean(wrong, known) == (f" Did you mean {offered!r}?" if offered else "")


@pytest.mark.parametrize(
    ("edit", "message"),
    [(("[sample]", "[mcmc]"), "unknown key 'mcmc'; here it is [sample]"),
     (("[fit]", "[estimate]"), "unknown key 'estimate'; here it is [fit]"),
     (("gamma = { start", "gamma = { init"), "here it is `start`"),
     (("gamma = { start = 1.0", "gamma = { start = 1.0, estimate = true"), "the number alone, k = 0.5, stays as it is"),
     (("upper = 3", "max = 3"), "here it is `upper`"),
     (("niter = 12000", "nsteps = 12000"), "here it is `niter`"),
     (("[model]", "[model]\ninit = 3"), "here it is `state`"),
     (("[data]", "[data]\nnothing = 3"), "unknown key 'nothing' in data; there are")],
)  # fmt: skip
def test_keys_of_other_tools_in_a_calibration_file_are_answered_with_ours(tmp_path, edit, message):
    assert main(["new", str(tmp_path / "hares"), "--from", "lynx"]) == 0
    (file,) = (tmp_path / "hares").glob("*.toml")
    file.write_text(file.read_text().replace(*edit, 1))
    with pytest.raises(ArgumentError) as error:
        fme.workflow.calibrate(file)
    assert message in str(error.value)
    assert "line" in str(error.value) or f"{file.name}:" in str(error.value)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("leastsq", "Marq"), ("lm", "Marq"), ("nelder", "Nelder-Mead"), ("SLSQP", "Port"), ("powell", "bobyqa"),
     ("differential_evolution", "Pseudo"), ("lbfgsb", "L-BFGS-B"), ("basinhopping", "SANN")],
)  # fmt: skip
def test_methods_of_neighbours_are_answered_with_the_nearest_of_ours(theirs, ours):
    with pytest.raises(ArgumentError, match=f"`method='{theirs}'` is not known.*Did you mean '{ours}'"):
        fme.modFit(lambda p: p["a"], {"a": 1.0}, method=theirs)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: fme.landscape(1, 2, 3),
            "takes 2 arguments without a name ('f', 'ranges').*landscape(f, ranges, fit=...)",
        ),
        (lambda: fme.structural_identifiability(1, ["y"]), "takes 1 argument without a name.*(model, observed=...)"),
        (lambda: fme.OdeModel("dN/dt = r*N", {"N": 1.0}), "takes 1 argument without a name.*OdeModel(rhs, state=...)"),
    ],
)
def test_what_follows_has_a_name(call, says):
    with pytest.raises(UnknownArgumentError, match=re.escape(says).replace(re.escape(".*"), ".*")):
        call()


def test_every_public_word_answers_what_it_does_not_know():
    for name in fme.__all__:
        thing = getattr(fme, name)
        if name in ("Equations", "lag") or not callable(thing):
            continue
        try:
            signature = inspect.signature(thing)
        except ValueError:
            continue
        if all(p.kind is not p.VAR_KEYWORD for p in signature.parameters.values()):
            with pytest.raises(UnknownArgumentError, match="has no argument 'zzz'"):
                thing(zzz=1)


def test_errors_that_are_numbers_are_no_column(model):
    with pytest.raises(fme.errors.DataError, match=r"`err` must be the name.*measurement_noise={'N': 0.1}"):
        fme.SimulationCost(model, model(), err={"N": 0.3})


@pytest.mark.parametrize("value", ["yes", "no", None, 2, [True, False]])
def test_a_switch_is_true_or_false(value):
    with pytest.raises(ArgumentError, match=r"`hessian=.*` must be True or False"):
        fme.modFit(lambda p: p["a"] - np.arange(3.0), {"a": 1.0}, hessian=value)


@pytest.mark.parametrize("value", [False, 0, np.False_])
def test_what_is_false_to_numpy_is_false(value):
    assert fme.modFit(lambda p: p["a"] - np.arange(3.0), {"a": 1.0}, hessian=value).hessian is None


def test_what_a_cost_does_not_have_is_answered_by_where_it_is():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": 1.0}, times=[0, 1, 2], parms={"k": 0.5})
    cost = fme.SimulationCost(model, {"time": [1, 2], "A": [0.6, 0.4]}, measurement_noise={"A": 0.1})
    noisy = fme.FimlofCost(
        model, {"time": [1, 2], "A": [0.6, 0.4]}, process_noise={"A": 0.1}, measurement_noise={"A": 0.1}
    )
    for one, name, says in (
        (
            cost + cost.replace(obs={"time": [1], "A": [0.5]}),
            "plot",
            "SumCost has no attribute 'plot'; here it is of its",
        ),
        (fme.transformed(cost, "log"), "simulate", "MappedCost has no attribute 'simulate'; here it is of `inner`"),
        (noisy, "plot", r"here it is what cost\.filter\(fit\.par\) gives"),
    ):
        assert not hasattr(one, name)
        with pytest.raises(AttributeError, match=says):
            getattr(one, name)
        with pytest.raises(AttributeError, match="object has no attribute 'plit'"):
            _ = one.plit


def test_calls_of_costs_and_what_takes_no_argument_are_answered():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": 1.0}, times=[0, 1, 2], parms={"k": 0.5})
    cost = fme.SimulationCost(model, {"time": [1, 2], "A": [0.6, 0.4]})
    noisy = fme.FimlofCost(model, cost.obs, process_noise={"A": 0.1}, measurement_noise={"A": 0.1})
    for one in (model, cost, noisy, fme.transformed(cost, "log"), cost + cost.replace(obs={"time": [1], "A": [0.5]})):
        with pytest.raises(
            UnknownArgumentError, match=r"no argument 'k'.* If it is a parameter, it stands in a dict: .'k': 0.5."
        ):
            one(k=0.5)
    with pytest.raises(UnknownArgumentError, match=r"SimulationCost, called, takes 1 argument \('parms'\); got 2"):
        cost({}, 1)
    ranges = fme.sensRange(model, parRange={"k": (0.4, 0.6)}, num=3, seed=1)
    with pytest.raises(UnknownArgumentError, match=r"SensRange\.summary takes no argument; got 1"):
        ranges.summary(1)
    profile = fme.profile(cost, fme.modFit(cost))
    with pytest.raises(AttributeError, match="here it is `intervals`"):
        profile.confint()


@pytest.mark.parametrize(
    ("word", "own"),
    [("hini", "dt"), ("rootfunc", "events"), ("fcontrol", "forcings"), ("lags", "history"), ("jacfunc", "bandwidth")],
)
def test_words_of_deSolve_are_answered(word, own):
    with pytest.raises(UnknownArgumentError, match=f"no argument '{word}'; here it is `{own}`"):
        fme.ode({"N": 1.0}, [0, 1], lambda t, y, p: [-y[0]], None, **{word: 1})


def test_states_by_name_in_a_function_of_arrays_are_answered():
    with pytest.raises(fme.errors.ModelError, match=r"IndexError: .* y is an array, of 'A', 'C'\."):
        fme.ode({"A": 1.0, "C": 0.0}, [0, 1], lambda t, y, p: [-y["A"], y["A"]], None)


def test_a_variable_in_the_place_of_the_observations_is_told(model, fit):
    band = fme.predict(model, fit)
    with pytest.raises(
        UnknownArgumentError, match=r"`obs` twice: .*without a name 'N'. Its order is 'obs'; 'which', 'ax"
    ):
        band.plot("N", obs=model())
    with pytest.raises(ArgumentError, match="A variable is chosen by which='N'"):
        band.plot("N")


def test_a_method_that_takes_any_keyword_hands_it_on(model, fit):
    (panel,) = fme.predict(model, fit).plot(color="black", title="a band")
    assert (panel.lines[0].get_color(), panel.get_title()) == ("black", "a band")
    assert model.replace(times=[0, 1]).times.tolist() == [0, 1]


def test_a_model_of_modules_answers_in_its_own_words():
    growth = fme.dmi.Module("growth", "d(N)/dt = r*N\nN(0) = 10\noutput N")
    with pytest.raises(UnknownArgumentError, match=r"ModularModel has no argument 'parms'; here it is `data`"):
        fme.dmi.ModularModel([growth], times=range(3), dt=1.0, parms={"r": 0.5})
    with pytest.raises(UnknownArgumentError, match=r"ModularModel needs `dt`, too"):
        fme.dmi.ModularModel([growth], {"r": 0.5}, times=range(3))


def test_a_sum_and_a_comparison_say_what_they_take(cost):
    with pytest.raises(UnknownArgumentError, match=r"compare_fits\(one, other\)"):
        fme.compare_fits()
    with pytest.raises(UnknownArgumentError, match=r"SumCost\(\[a, b\]\)"):
        fme.SumCost()
    with pytest.raises(ArgumentError, match=r"SumCost\(\[a, b\]\).*got one SimulationCost"):
        fme.SumCost(cost)


def test_variances_of_a_chain_that_has_none_are_answered(model):
    runs = fme.sensRange(model, parRange={"r": (0.4, 0.6)}, num=3, seed=1)
    with pytest.raises(ParameterError, match=r"`parInput` must be a table, .* chain.pars; got 'chain'"):
        fme.sensRange(model, parInput="chain")
    chain = fme.modMCMC(lambda p: float(np.sum(p**2)), [1.0], jump=1.0, niter=10, seed=1)
    with pytest.raises(ArgumentError, match=r"is None; a number is needed. Chains sample variances .*`var0=`"):
        runs.with_error(chain.sig)
    with pytest.raises(ArgumentError, match=r"such as numpy.exp; got 'log'"):
        chain.transform("log")


@pytest.mark.parametrize("word", ["summary", "plot", "pairs", "hist", "coef", "residuals"])
def test_generic_functions_of_R_are_answered_with_methods(word):
    with pytest.raises(AttributeError, match=rf"'{word}'; here it is of the result: fit.summary\(\)"):
        getattr(fme, word)


@pytest.mark.parametrize(("word", "own"), [("convergence", "converged"), ("counts", "evaluations"), ("value", "ssr")])
def test_parts_of_a_fit_in_R_are_answered(fit, word, own):
    with pytest.raises(AttributeError, match=f"here it is `{own}`"):
        getattr(fit, word)
