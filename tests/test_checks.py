"""Numbers, counts, levels and seeds are checked at the door, in the same words everywhere."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.checks import as_rng, between_0_and_1, changed_arguments, positive_number, seed_sequence, whole_number
from fmepy.errors import ArgumentError, FmepyError, ModelError


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.float64(3.0), np.array(3)])
def test_a_whole_number_may_be_written_as_a_float(value):
    assert whole_number(value, "n") == 3
    assert type(whole_number(value, "n")) is int


@pytest.mark.parametrize("value", [2.5, "3", None, True, np.True_, np.nan, np.inf, [3], -1, 11, 1 + 0j])
def test_what_is_no_whole_number_within_its_limits_is_refused(value):
    with pytest.raises(ArgumentError, match=r"`n=.* must be a whole number, from 0 to 10, or a table\."):
        whole_number(value, "n", 0, 10, ", or a table")


@pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, "1", True, None, [1.0]])
def test_what_is_no_positive_number_is_refused(value):
    with pytest.raises(ModelError, match=r"`h=.* must be a positive( and finite)? number of seconds\."):
        positive_number(value, "h", " of seconds", error=ModelError)


def test_a_positive_number_may_be_infinite_where_that_makes_sense():
    assert positive_number(np.inf, "most", finite=False) == np.inf


@pytest.mark.parametrize("value", [0, 1, 95, np.nan, "0.9", True])
def test_a_level_lies_between_0_and_1(value):
    with pytest.raises(ArgumentError, match=r"`level=.* must lie between 0 and 1, such as 0\.95\."):
        between_0_and_1(value, "level")
    assert between_0_and_1(0.9, "level") == 0.9


def test_a_seed_gives_numpy_s_own_numbers():
    assert as_rng(3).random() == np.random.default_rng(3).random()
    rng = np.random.default_rng(4)
    assert as_rng(rng) is rng
    assert seed_sequence(rng) is rng.bit_generator.seed_seq
    assert as_rng(None).random() != as_rng(None).random()


@pytest.mark.parametrize("seed", [-1, 1.0, "1", True])
def test_another_seed_is_refused(seed):
    with pytest.raises(ArgumentError, match="seed"):
        as_rng(seed)


def test_changed_arguments_merge_what_is_by_name_and_replace_the_rest():
    given = {"parms": pd.Series({"a": 1.0, "µ": 2.0}), "transform": "log", "times": {"a": 1}}
    assert changed_arguments(given, {"parms": {"μ": 3.0}}, ["parms"], "X")["parms"] == {"a": 1.0, "μ": 3.0}
    assert changed_arguments(given, {"parms": None}, ["parms"], "X")["parms"] is None
    assert changed_arguments(given, {"transform": {"y": "log"}}, ["transform"], "X")["transform"] == {"y": "log"}
    assert changed_arguments(given, {"times": {"b": 2}}, ["parms"], "X")["times"] == {"b": 2}
    assert given["transform"] == "log"
    with pytest.raises(ArgumentError, match=r"Model has no argument 'parm'. Did you mean 'parms'"):
        changed_arguments(given, {"parm": {}}, [], "Model")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda cost, fit: fme.design(cost, fit, n=1, candidates="new.csv"), "`candidates` must be a table"),
        (lambda cost, fit: fme.identifiable_fit(cost, maxcomb="many"), "`maxcomb='many'` must be a positive"),
        (lambda cost, fit: fme.confidence(cost, fit, which=0), r"`which=0` must be names, as in \['r'\]"),
        (lambda cost, fit: fme.modFit(cost, method=np.array([])), "`method=array.* is not known"),
        (lambda cost, fit: cost.model.replace(engine=[]), r"`engine=\[\]` is not known"),
        (lambda cost, fit: cost.model.replace(engine="scipy", bandwidth=np.eye(2)), r"`bandwidth=array[\s\S]* must be"),
        (lambda cost, fit: fme.structural_identifiability(cost, known=np.eye(2)), "`known=array.* must be a flat list"),
        (lambda cost, fit: fme.Grid1D.growing(0, "10", 20, first=0.1), "`end='10'` must be a finite number"),
        (lambda cost, fit: fme.Grid1D.growing(0, 10, 20, first=None), "`first=None` must be a finite number"),
        (lambda cost, fit: fme.continuation(REST, np.eye(2), (0, 1)), "`parameter`: .* is none of the model"),
        (lambda cost, fit: fme.steady(np.array([1j]), lambda t, y, p: 1 - y, {}), "`y=array.*must hold numbers"),
        (lambda cost, fit: fme.ode({"a": 10**400}, [0, 1], lambda t, y, p: -y, {}), "'a' is 10+; a finite number"),
        (lambda cost, fit: fme.modCost(cost.model(), {"time": [1], "B": [1]}, outside=np.eye(2)), "`outside="),
        (lambda cost, fit: fme.modMCMC(cost, fit.par, prior=lambda p: 1j, niter=9, var0=1), "`prior` returned 1j"),
        (
            lambda cost, fit: fme.modMCMC(cost, fit.par, jump=lambda p: "a", niter=9, var0=1),
            r"`jump\(p\)='a'` must hold numbers",
        ),
        (lambda cost, fit: fme.derived(fit, lambda p: None), r"`function\(fit.par\)=None` must hold numbers"),
        (lambda cost, fit: fme.plot_model(cost.model(), labels=3.0), "`labels=3.0` must be a list"),
        (lambda cost, fit: fme.fit_boundary(cost.model, cost.model(), segments=np.eye(2)), "`segments=array"),
        (lambda cost, fit: fme.design(cost, fit, n=1, times=np.eye(2)), "`times=array.*must be two bounds"),
        (lambda cost, fit: fme.design(cost, fit, n=1, times=(0, 2), sd="a"), "`sd='a'` must be a positive number"),
        (lambda cost, fit: fme.design(cost, fit, n=1, times=(0, 2), for_=[]), "`for_` is empty"),
        (lambda cost, fit: fme.ode_1d(None, [0, 1], lambda t, y, p: -y, {}), "`state` is missing"),
        (lambda cost, fit: fme.design(cost, pd.DataFrame(), n=1, times=(0, 2)), "`p` has no rows"),
        (lambda cost, fit: fme.predict(lambda p: None, fit), "`func` returned NoneType; a table"),
        (lambda cost, fit: fme.predict(lambda p: np.array([1j]), fit), "`func` returned complex numbers"),
        (lambda cost, fit: fme.sensFun(lambda p: np.array([1j]), {"r": 1.0}), "`func` returned complex numbers"),
    ],
)
def test_what_is_of_another_kind_is_refused_at_the_door(asked, said):
    model = fme.OdeModel("d(B)/dt = -r*B", state={"B": 1.0}, times=[0, 1, 2], parms={"r": 0.5})
    cost = fme.SimulationCost(model, {"time": [1, 2], "B": [0.7, 0.3]})
    fit = fme.modFit(cost)
    with pytest.raises(FmepyError, match=f"(?s){said}"):
        asked(cost, fit)
    assert fme.confidence(cost, fit, sigmas=1).equals(fme.confidence(cost, fit, sigmas=[1]))


LOGISTIC = fme.OdeModel(
    "d(N)/dt = r * N * (1 - N / K)", state={"N": 1}, times=np.arange(5), parms={"r": 0.5, "K": 10.0}
)
REST = fme.SteadyModel("dA/dt = s - A", state={"A": 1}, parms={"s": 1})
DECAY = fme.dmi.Module("decay", "d(x)/dt = -x\nx(0) = 1")
SITES = {"site": ["a", "a", "b", "b"], "time": [1, 2, 1, 2], "N": [1.6, 2.2, 1.5, 2.4]}


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("replicate", lambda x: fme.cross2long({"x": [1], "y": [2]}, "x", replicate=x)),
        ("select", lambda x: fme.cross2long({"x": [1], "y": [2]}, "x", select=x)),
        ("known", lambda x: fme.structural_identifiability(LOGISTIC, known=x)),
        ("observed", lambda x: fme.structural_identifiability(LOGISTIC, observed=x)),
        ("entity_parms", lambda x: fme.SimulationCost(LOGISTIC, SITES, entity="site", entity_parms=x)),
        ("sensvar", lambda x: fme.sensFun(LOGISTIC, ["r"], sensvar=x)),
        ("sensvar", lambda x: fme.sensRange(LOGISTIC, sensvar=x, parRange={"r": (0, 1)}, num=2)),
        ("N", lambda x: fme.collin(np.eye(3), N=x)),
        ("outputs", lambda x: fme.dmi.ModularModel([DECAY], times=[0, 1], dt=1.0, outputs=x)),
        ("modules", lambda x: fme.dmi.ModularModel(x, times=[0, 1], dt=1.0)),
        ("events", lambda x: LOGISTIC.replace(events=x)()),
        ("path", fme.read_sbml),
        ("path", fme.read_petab),
        ("checkpoint", lambda x: fme.resume_mcmc(fme.SimulationCost(LOGISTIC, LOGISTIC()), x)),
        ("folder", fme.dmi.read_modules),
        ("file", fme.workflow.calibrate),
        ("start", lambda x: fme.continuation(REST, "s", (0, 1), start=x)),
        ("t", lambda x: fme.steady({"A": 1.0}, lambda t, y, p: 1 - y, t=x)),
        ("xmodel", lambda x: fme.gaussianWeights({"x": [1], "y": [2]}, xmodel=x, spread=1)),
        ("y", lambda x: fme.gaussianWeights({"x": [1], "y": [2]}, "x", x, spread=1)),
        ("parCovar", lambda x: fme.Norm({"a": 1, "b": 2}, x, num=3)),
        ("outputs", lambda x: LOGISTIC.replace(outputs={"double": [x]})),
        ("control", lambda x: fme.modMCMC(lambda p: p[0] ** 2, [0.0], control=x, niter=10)),
        ("fit", lambda x: fme.landscape(fme.SimulationCost(LOGISTIC, LOGISTIC()), {"r": (0.1, 1)}, fit=x)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [1j, object()])
def test_what_is_no_list_path_number_or_fit_is_refused_by_the_name_of_its_argument(argument, call, value):
    with pytest.raises(FmepyError, match=f"`{argument}"):
        call(value)


def test_names_that_come_one_by_one_are_all_taken():
    by_site = fme.SimulationCost(LOGISTIC, SITES, entity="site", entity_parms=(k for k in ["r"]))
    assert list(by_site.parms.index) == ["r[a]", "r[b]", "K"]  # they were shared without a word
    assert fme.SimulationCost(LOGISTIC, SITES, entity="site", entity_parms=None).entity_parms == ()
    assert fme.structural_identifiability(LOGISTIC, known=None).known == ()
    with pytest.raises(ModelError, match="`events` must be a table or a list"):
        LOGISTIC.replace(events=(e for e in [{"var": "N", "time": 2, "value": 1, "method": "add"}]))


def test_a_table_without_columns_is_no_forcings_and_no_covariance():
    assert LOGISTIC.replace(forcings=pd.DataFrame())().equals(LOGISTIC())
    with pytest.raises(ArgumentError, match="columns none"):
        fme.FimlofCost(LOGISTIC, LOGISTIC(), process_noise=pd.DataFrame(), measurement_noise={"N": 1.0})
