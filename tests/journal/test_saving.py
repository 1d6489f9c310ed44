"""Every result is saved and loaded equal in every field; what is no result of ours is refused, with what to do."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import json
import math
import os
import pickle
import pkgutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.journal.encoding import Gone
from fmepy.journal.saving import Saved
from fmepy.parameters.scales import Mark, scale_of
from tests.journal.samples import SAMPLES, chain, cost, data, filtered_cost, fit, model

NO_RESULTS = {  # what is asked, not an answer
    *("Equations", "FimlofCost", "PredictionErrorCost", "Sector", "SimulationCost", "SumCost", "Transport")
}


def is_live(field):
    return bool(field.metadata)


def differs(a, b, place="result"):
    """Return where two values differ, or an empty string."""
    if type(a) is not type(b):
        return f"{place}: {type(a)} and {type(b)}"
    if dataclasses.is_dataclass(a):
        pairs = [(f.name, f) for f in dataclasses.fields(a) if f.name != "loaded"]
        found = [differs(getattr(a, n), getattr(b, n), f"{place}.{n}") for n, f in pairs if not is_live(f)]
    elif isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{place}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        if a.dtype.kind != "O":
            return "" if a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=True) else f"{place}: {a}, {b}"
        found = [differs(x, y, f"{place}[{i}]") for i, (x, y) in enumerate(zip(a.ravel(), b.ravel(), strict=True))]
    elif isinstance(a, pd.DataFrame | pd.Series):
        test = pd.testing.assert_frame_equal if isinstance(a, pd.DataFrame) else pd.testing.assert_series_equal
        test(a, b, check_exact=True, check_index_type="exact", check_freq=True)
        found = [differs(dict(a.attrs), dict(b.attrs), f"{place}.attrs")]
    elif isinstance(a, Mark):
        found = [differs(dict(a), dict(b), place), differs(a.numbers, b.numbers, place)]
    elif isinstance(a, pd.Index):
        pd.testing.assert_index_equal(a, b, exact=True, check_exact=True)
        return ""
    elif isinstance(a, dict):
        if list(a) != list(b):
            return f"{place}: {list(a)} and {list(b)}"
        found = [differs(a[k], b[k], f"{place}[{k!r}]") for k in a]
    elif isinstance(a, list | tuple):
        if len(a) != len(b):
            return f"{place}: {len(a)} and {len(b)}"
        found = [differs(x, y, f"{place}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        same = a is b or a == b or (a != a and b != b)
        return "" if same else f"{place}: {a!r} and {b!r}"
    return next((f for f in found if f), "")


@pytest.fixture(params=["result.json", "result"], ids=["json", "folder"])
def place(request, tmp_path):
    return tmp_path / request.param


# --- every result


def result_classes():
    """Return the names of all classes of the package that can be saved."""
    for found in pkgutil.walk_packages(fme.__path__, "fmepy."):
        if not found.name.rpartition(".")[2].startswith("_"):
            importlib.import_module(found.name)

    def below(cls):
        return {cls}.union(*map(below, cls.__subclasses__()))

    return {c.__name__ for c in below(Saved) if dataclasses.is_dataclass(c) and c.__module__.startswith("fmepy.")}


def test_every_result_class_has_a_sample_here():
    assert result_classes() - {"Filtered"} == set(SAMPLES), "a line for it in SAMPLES, in samples.py"


def test_every_public_dataclass_is_a_result_that_can_be_saved():
    public = {name: getattr(fme, name) for name in (*fme.__all__, *fme.types.RESULTS_AND_CONTRACTS)}
    dataclass = {n for n, c in public.items() if isinstance(c, type) and dataclasses.is_dataclass(c)}
    cannot = {n for n in dataclass if not issubclass(public[n], Saved)}
    assert cannot == NO_RESULTS, "let the class inherit Saved (Shown and Framed do)"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_result_comes_back_equal_in_every_field(name, place):
    result = SAMPLES[name]()
    assert type(result).__name__ == name
    again = fme.load(result.save(place))
    assert not differs(result, again)
    assert repr(again) == repr(result)
    if hasattr(result, "_repr_html_"):
        assert again._repr_html_() == result._repr_html_()
    third = fme.load(again.save(place))  # and once more, over itself
    assert not differs(result, third)
    assert not differs(pickle.loads(pickle.dumps(again)), again)


def on_logs():
    return fme.SimulationCost(model(), data(), transform="log")


def experiments():
    both = pd.concat([data().assign(who="a"), data().assign(who="b", N=1.1 * data()["N"])])
    return fme.SimulationCost(model(), both, entity="who", entity_parms=["r"])


def twice():
    return cost() + fme.SimulationCost(model(), data()[["time", "N"]].assign(N=lambda d: 2 * d["N"]))


def by_lmfit():
    import lmfit

    p = lmfit.Parameters()
    p.add("r", 0.8, min=0)
    p.add("K", expr="9 * r")
    p.add("N0", 1.0, vary=False)
    return fme.modFit(cost(), p)


FITS = {
    "logarithms": lambda: fme.modFit(on_logs(), {"r": 0.8}),
    "experiments": lambda: fme.modFit(experiments(), {"r[a]": 0.8, "r[b]": 0.9}),
    "a sum": lambda: fme.modFit(twice(), {"r": 0.8}),
    "a filter": lambda: fme.modFit(filtered_cost(), {"a": 0.8, "s": 1.0}),
    "a prior": lambda: fme.modFit(cost(), {"r": 0.8}, prior={"r": scipy.stats.norm(1, 0.1)}),
    "lmfit": by_lmfit,
    "a number": lambda: fme.modFit(lambda p: (p["a"] - 1) ** 2, {"a": 0.0}),
    "a sequence": lambda: fme.modFit(lambda p: [p[0] - 1, p[0] - 2], [0.0]),
    "annealing": lambda: fme.modFit(cost(), {"r": 0.8}, lower=0, upper=2, method="SANN", seed=1),
    "several starts": lambda: fme.modFit(cost(), {"r": 0.8}, lower=0, upper=2, starts=3, seed=1),
    "one at a bound": lambda: fme.modFit(cost(), {"r": 0.8, "K": 8.0}, upper=[0.9, 20.0]),
}


@pytest.mark.filterwarnings("ignore:Nothing is known of the errors")  # some kinds have no stated errors
@pytest.mark.parametrize("name", FITS)
def test_a_fit_of_every_kind_comes_back(name, place):
    result = FITS[name]()
    again = fme.load(result.save(place))
    assert not differs(result, again)
    for derived in ("par", "cov_scaled", "residuals", "starts", "loglik", "aic"):
        assert not differs(getattr(result, derived), getattr(again, derived))
    assert repr(again.summary()) == repr(result.summary())


# --- every kind of value


@dataclasses.dataclass(frozen=True, eq=False)
class Box(Saved):
    held: object
    later: object = None
    made: list = dataclasses.field(default_factory=list)


VALUES = {
    "numbers": [0, -1, 2**100, True, 1.5, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2],
    "not finite": (math.nan, math.inf, -math.inf),
    "texts": ["", "Ärger µ g/l", "emoji 🙂", "\x00\x1f", 'quote " \\ \n', "\ud800", "</script>"],
    "nested": ({"a": [1, (2, [3, ()])], "type": "tuple", "": {}}, None, []),
    "keys": {1: "one", "1": "text", (1, "a"): 2.0, None: 3, 1.5: 4},
    "complex and bytes": [1 + 2j, complex(math.nan, -0.0), b"\x00\xff"],
    "sets": [{1, 2}, frozenset({"a"})],
    "scalars": [np.float64(0.1), np.float32(0.1), np.int8(-5), np.uint64(2**64 - 1), np.bool_(True),
                np.datetime64("2020-01-02T03:04"), np.timedelta64(3, "s"), np.str_("é"), np.complex64(1 - 2j)],
    "floats": np.array([[0.1, np.nan], [np.inf, -np.inf], [-0.0, 5e-324]]),
    "shapes": [np.array(3.5), np.empty((0, 3)), np.empty(0, dtype=np.int32), np.ones((2, 1, 3), dtype=np.float32)],
    "types": [np.array([1, 2], ">i2"), np.array([True, False]), np.array([1 + 2j, np.nan]), np.array(["a", "ßß"]),
              np.array([b"ab", b"\xff"]), np.array(["2020-01-01", "NaT"], "M8[D]"), np.array([1, 2], "m8[ms]"),
              np.array([2**64 - 1], np.uint64), np.array([0.1], np.float16)],
    "objects": np.array([{"a": (1,)}, None, "text", [1, 2], np.nan], dtype=object),
    "a view": np.arange(12.0).reshape(3, 4)[::2, ::-1],
    "random numbers": np.random.default_rng(5).bit_generator.state,
    "old random numbers": np.random.RandomState(5).get_state(),
    "missing": [pd.NA, pd.NaT, pd.Timestamp("2020-01-01", tz="Europe/Berlin"), pd.Timedelta("3h")],
    "table": pd.DataFrame(
        {"i": [1, 2], "f": [0.1, np.nan], "s": ["a", None], "o": [(1, 2), {"k": 1}], "b": [True, False],
         "t": pd.to_datetime(["2020-01-01", None]), "f32": np.array([0.1, 0.2], np.float32)}, index=["r", "s"]),
    "no rows": pd.DataFrame({"a": np.empty(0), "b": np.empty(0, dtype=object)}),
    "no columns": pd.DataFrame(index=[3, 1]),
    "nothing": pd.DataFrame(),
    "columns twice": pd.DataFrame([[1.0, "x", 2.0]], columns=["a", "a", "b"]),
    "rows twice": pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}, index=["r", "r"]),
    "labels": pd.DataFrame(
        np.eye(2), index=pd.MultiIndex.from_tuples([(1, 2), (1, 5)], names=["chain", "iteration"]),
        columns=pd.MultiIndex.from_tuples([("a", 1), ("b", np.nan)])),
    "labels of labels": pd.DataFrame([[1]], index=pd.Index([(1, 2)], tupleize_cols=False), columns=[None]),
    "mixed labels": pd.Series([1, 2, 3], index=[1, "1", None], name=("a", 1)),
    "pandas' types": pd.DataFrame(
        {"I": pd.array([1, None], "Int64"), "F": pd.array([0.5, None], "Float32"), "B": pd.array([True, None]),
         "S": pd.array(["a", None], "string"), "C": pd.Categorical(["u", None], categories=["v", "u"], ordered=True),
         "Z": pd.to_datetime(["2020-01-01", None]).tz_localize("UTC").tz_convert("Asia/Tokyo")}),
    "texts as objects": pd.DataFrame(
        {"a": np.array(["x", "y"], dtype=object)}, index=np.array(["r", "s"], dtype=object)),
    "attrs": pd.Series([1.0], name="x"),
    "times": pd.Series(1.5, index=pd.date_range("2020-01-01", periods=3, freq="2D", name="day"), name=3),
    "indexes": [pd.RangeIndex(3, 11, 4, name="n"), pd.Index([1.5, np.nan]), pd.Index(["a", None]), pd.Index([True])],
}  # fmt: skip
VALUES["attrs"].attrs.update(units={"x": "mg/l"}, made=(1, 2))


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back_as_it_was(name, place):
    again = fme.load(Box(VALUES[name]).save(place))
    assert not differs(Box(VALUES[name]), again)


def test_a_scale_is_remembered(place):
    par = fme.modFit(fme.transformed(cost(), "log"), {"r": 0.0, "K": 2.0})
    again = fme.load(par.save(place))
    assert scale_of(again.par) == {"r": "log", "K": "log"} == scale_of(again.cov_scaled)
    kept = fme.load(Box([par.par, par.cov_scaled]).save(place)).held
    assert scale_of(kept[0]) == scale_of(kept[1]) == {"r": "log", "K": "log"}
    with pytest.raises(ArgumentError, match="log"):
        fme.modFit(cost(), kept[0])


@pytest.mark.parametrize(
    "value",
    [lambda: 1, model, object(), np.ma.masked_array([1.0], [True]), np.zeros(1, dtype=[("a", float)]), os, 1 .__class__,
     pd.Series(pd.period_range("2020", periods=2)), dataclasses.make_dataclass("Foreign", ["x"])(1)],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_what_is_no_number_is_refused_by_its_place_and_nothing_is_written(value, place):
    with pytest.raises(ArgumentError, match=r"cannot be saved: `held\.b\.1`"):
        Box({"b": (1, value)}).save(place)
    assert not place.exists()


def test_what_holds_itself_is_refused(place):
    ring = []
    ring.append(ring)
    with pytest.raises(ArgumentError, match="holds itself"):
        Box(ring).save(place)


# --- loaded results work


def test_loaded_fits_are_compared_and_predicted(tmp_path):
    one = fme.load(fit().save(tmp_path / "one.json"))
    other = fme.load(fme.modFit(cost(), {"r": 0.8}).save(tmp_path / "other"))
    together = fme.compare_fits({"both": one, "r": other})
    assert together.tests["df"].tolist() == [1]
    pd.testing.assert_frame_equal(fme.predict(model(), one).frame, fme.predict(model(), fit()).frame)
    later = fme.modFit(cost(), one.par)
    assert later.converged
    assert repr(one.to_lmfit().params) == repr(fit().to_lmfit().params)
    with pytest.raises(ArgumentError, match="not of the same data"):
        fme.compare_fits({"one": one, "less": fme.modFit(fme.SimulationCost(model(), data()[:-1]), {"r": 0.8})})


def test_a_loaded_chain_goes_into_ranges_and_chains(tmp_path):
    again = fme.load(chain().save(tmp_path / "chain"))
    a, b = (fme.sensRange(model(), parInput=c.pars, num=10, seed=3) for c in (again, chain()))
    assert not differs(a, b)
    noisy = a.with_error(again.sig, seed=1)
    assert not differs(noisy, b.with_error(chain().sig, seed=1))
    assert not differs(again.transform(np.log), chain().transform(np.log))
    assert not differs(again.diagnostics(), chain().diagnostics())


@pytest.mark.parametrize("name", ["ModFit", "ModMCMC", "SensRange", "RangeSummary", "Collin", "SensFun", "Forecast"])
def test_a_loaded_result_draws(name, tmp_path):
    import matplotlib.pyplot as plt

    fme.load(SAMPLES[name]().save(tmp_path / "r")).plot()
    plt.close("all")


def test_a_loaded_filter_says_all_but_what_needs_the_model(tmp_path):
    import matplotlib.pyplot as plt

    flt = filtered_cost().filter()
    again = fme.load(flt.save(tmp_path / "filter"))
    for kind in ("predicted", "filtered", "smoothed"):
        pd.testing.assert_frame_equal(getattr(again, kind), getattr(flt, kind))
        pd.testing.assert_frame_equal(again.sd(kind), flt.sd(kind))
    for table in ("residuals", "shocks", "samples", "contributions", "data_as_given"):
        pd.testing.assert_frame_equal(getattr(again, table), getattr(flt, table))
    assert (again.loglik, again.nobs, again.positive, again.measured_states) == (
        *(flt.loglik, flt.nobs, flt.positive, flt.measured_states),
    )
    assert repr(again.summary(estimated=["a"])) == repr(flt.summary(estimated=["a"]))
    pd.testing.assert_frame_equal(again.of(None).smoothed, flt.smoothed)
    again.plot()
    again.plot_diagnostics()
    plt.close("all")
    for ask in (lambda: again.forecast(2), again.nonlinearity, lambda: again.at([1.0]), lambda: again.cost.filter()):
        with pytest.raises(
            ArgumentError, match=r"holds numbers only. Filter again for it: cost.filter\(result.parms\)"
        ):
            ask()
    assert "not saved" in repr(again.cost)
    assert isinstance(copy.deepcopy(again).bound, Gone)


def test_nothing_of_the_model_is_needed_to_load(tmp_path):
    """A process that never made the model loads the file, whatever was imported there."""
    fit().save(tmp_path / "fit.json")
    code = f"from fmepy.journal.saving import load; print(load({str(tmp_path / 'fit.json')!r}).par.to_dict())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(fit().par.to_dict())


def test_the_file_is_plain(tmp_path):
    """JSON without NaN, arrays without pickles, for whoever reads them without fmepy."""
    head = json.loads(fit().save(tmp_path / "fit.json").read_text(), parse_constant=pytest.fail)
    assert (head["format"], head["version"], head["class"], head["arrays"]) == ("fmepy result", 1, "ModFit", None)
    assert head["fmepy"] == fme.__version__
    assert head["result"]["fields"]["theta"]["values"] == fit().theta.tolist()
    folder = chain().save(tmp_path / "chain")
    head = json.loads((folder / "result.json").read_text())
    with np.load(folder / head["arrays"], allow_pickle=False) as arrays:
        assert np.array_equal(arrays["pars"], chain().pars.to_numpy())


def test_equal_results_make_equal_files(tmp_path):
    a, b = fit().save(tmp_path / "a"), fit().save(tmp_path / "b")
    assert sorted(f.name for f in a.iterdir()) == sorted(f.name for f in b.iterdir())
    assert all((a / f.name).read_bytes() == f.read_bytes() for f in b.iterdir())


# --- where it is written


def test_an_earlier_result_is_replaced_and_nothing_else(tmp_path, place):
    Box(np.arange(3.0)).save(place)
    Box(np.arange(5.0)).save(place)
    assert len(fme.load(place).held) == 5
    assert len(list(tmp_path.iterdir())) == 1
    if place.is_dir():
        assert len(list(place.iterdir())) == 2


def test_what_is_no_result_is_left_alone(tmp_path):
    letter = tmp_path / "letter.json"
    letter.write_text('{"dear": "reader"}')
    with pytest.raises(ArgumentError, match=r"not a result of fmepy\. Nothing was written"):
        Box(1).save(letter)
    assert letter.read_text() == '{"dear": "reader"}'
    with pytest.raises(ArgumentError, match=r"holds other things \('letter.json'\)"):
        Box(1).save(tmp_path)
    with pytest.raises(ArgumentError, match="is a file; a name that does not end in"):
        Box(1).save(letter.rename(tmp_path / "letter.txt"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ArgumentError, match="is a folder; a name ending in"):
        Box(1).save(tmp_path / "folder.json")
    with pytest.raises(ArgumentError, match=r"there is no folder .* Make it first"):
        Box(1).save(tmp_path / "nowhere" / "fit.json")
    for wrong in (None, 3, ""):
        with pytest.raises(ArgumentError, match="must be the name of a file or folder"):
            Box(1).save(wrong)
    empty = tmp_path / "empty.json"
    empty.touch()
    assert fme.load(Box(1).save(empty)).held == 1


def test_a_full_disk_leaves_the_earlier_result(place, monkeypatch):
    Box(np.arange(3.0)).save(place)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ArgumentError, match="cannot be written: No space left on device"):
        Box(np.arange(5.0)).save(place)
    with pytest.raises(ArgumentError, match="No space left"):
        Box(1).save(place.with_name("other"))
    assert not place.with_name("other").exists()
    monkeypatch.undo()
    assert len(fme.load(place).held) == 3


def test_a_kill_leaves_a_whole_result(tmp_path):
    code = textwrap.dedent(f"""
        import numpy as np, itertools, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.journal.test_saving import Box
        for i in itertools.count():
            Box(np.full(300_000, i)).save({str(tmp_path / "r")!r})
            print(i, flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    for _ in range(3):
        assert child.stdout.readline()
    time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    held = fme.load(tmp_path / "r").held
    assert (held == held[0]).all()
    Box(1).save(tmp_path / "r")
    assert [f.name for f in (tmp_path / "r").iterdir()] == ["result.json"]  # what was left is tidied up


# --- what cannot be loaded


def refused(path, match):
    with pytest.raises(ArgumentError, match=match):
        fme.load(path)


def test_what_is_no_result_is_refused_with_what_it_is(tmp_path):
    Box(1).save(tmp_path / "fit.json")
    refused(tmp_path / "fitt.json", "Did you mean 'fit.json'")
    refused(tmp_path / "no" / "fit.json", "there is no folder")
    refused(tmp_path, "is not a result of fmepy")
    for wrong in (None, 3, b"x"):
        refused(wrong, "must be the name of a file or folder")
    for content, what in {
        b'{"a": 1, "b": 2}': "it holds an object of 'a', 'b'",
        b"[1, 2]": "it holds a list",
        b"time,N\n1,2\n": "it is not JSON",
        b"": "it is not JSON",
        b"\xff\xfe\x00": "it is not JSON",
        b"[" * 100_000: "it is not JSON",
        pickle.dumps(fit().par): "looks like a pickle, which is never read",
        pickle.dumps({"a": 1}, protocol=0): "looks like a pickle, which is never read",
    }.items():
        (tmp_path / "x.json").write_bytes(content)
        refused(tmp_path / "x.json", what)
    np.savez(tmp_path / "x.npz", a=1)
    refused(tmp_path / "x.npz", "it holds arrays of numpy. Of a result, name the folder")


def test_a_checkpoint_is_pointed_to_resume(tmp_path):
    fme.modMCMC(lambda p: (p["a"] - 1) ** 2, {"a": 0.0}, niter=20, seed=1, checkpoint=tmp_path / "chain")
    refused(tmp_path / "chain", r"is a checkpoint, .* resume_mcmc\(f, ")


def changed(path, change):
    head = json.loads(path.read_text())
    change(head)
    path.write_text(json.dumps(head))
    return path


def test_a_newer_format_or_class_is_refused(tmp_path):
    path = Box(1).save(tmp_path / "b.json")
    refused(changed(path, lambda h: h.update(version=2, fmepy="9.0")), "format 2, written by fmepy 9.0.*up to date")
    path = fit().save(tmp_path / "b.json")
    refused(
        changed(path, lambda h: h["result"].update({"class": "NewFit"})), "a NewFit, which this fmepy does not know"
    )
    refused(changed(path, lambda h: h["result"].update(module="os.path")), "import os.path first")
    path = fit().save(path)
    refused(changed(path, lambda h: h["result"]["fields"].update(extra=1)), "fields 'extra', which this fmepy")
    path = fit().save(path)
    refused(changed(path, lambda h: h["result"]["fields"].pop("theta")), "ModFit has no field 'theta'")


def test_a_field_that_came_later_has_its_default(tmp_path):
    path = Box(1, later=5, made=[1]).save(tmp_path / "b.json")
    changed(path, lambda h: (h["result"]["fields"].pop("later"), h["result"]["fields"].pop("made")))
    assert (fme.load(path).later, fme.load(path).made) == (None, [])


def test_a_class_is_found_where_it_moved_to(tmp_path):
    path = fit().save(tmp_path / "fit.json")
    changed(path, lambda h: h["result"].update(module="fmepy.somewhere.else_"))
    assert not differs(fme.load(path), fit())


@pytest.mark.parametrize("keep", [0.02, 0.3, 0.7, 0.99])
def test_a_cut_file_is_refused(keep, tmp_path):
    path = fit().save(tmp_path / "fit.json")
    text = path.read_text()
    path.write_text(text[: max(40, int(keep * len(text)))])
    refused(path, "is damaged: it is cut or changed")
    folder = chain().save(tmp_path / "chain")
    (arrays,) = folder.glob("*.npz")
    arrays.write_bytes(arrays.read_bytes()[: int(keep * arrays.stat().st_size)])
    refused(folder, "is damaged")


def test_missing_and_foreign_arrays_are_refused(tmp_path):
    folder = Box(np.arange(3.0)).save(tmp_path / "b")
    (arrays,) = folder.glob("*.npz")
    np.savez(arrays, other=1.0)
    refused(folder, "'held' is missing")
    np.savez(arrays, held=np.array([{"a": 1}], dtype=object))
    refused(folder, "it holds a pickle, which is never read")
    arrays.unlink()
    refused(folder, "its arrays are missing")
    changed(folder / "result.json", lambda h: h.update(arrays="../arrays-0123456789abcdef.npz"))
    refused(folder, "`arrays` is '../arrays")
    (folder / "result.json").unlink()
    arrays.touch()
    refused(folder, "result.json is missing")


def leaves(value, path=()):
    """Yield the paths to all values of a structure."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from leaves(inner, (*path, key))


def test_whatever_is_changed_in_a_file_is_refused_or_loaded_never_a_crash(tmp_path):
    path = Box([fit().par, np.eye(2), ("a", {1: 2}), pd.DataFrame({"a": ["x"], "b": [1]})]).save(tmp_path / "b.json")
    whole = json.loads(path.read_text())
    rng = np.random.default_rng(1)
    found = list(leaves(whole))
    wrong = [None, "x", -1, 10**30, [], {}, [[1], [2, 3]], {"type": "array"}, {"type": "frame"}, {"type": "?"}]
    for _ in range(300):
        hurt = copy.deepcopy(whole)
        *way, last = found[rng.integers(len(found))]
        inner = hurt
        for key in way:
            inner = inner[key]
        inner[last] = wrong[rng.integers(len(wrong))]
        path.write_text(json.dumps(hurt))
        with contextlib.suppress(ArgumentError):
            fme.load(path)


def test_two_classes_of_one_name_do_not_meet(tmp_path):
    other = type("ModFit", (Saved,), {"__module__": "elsewhere"})
    assert type(fme.load(fit().save(tmp_path / "fit.json"))) is fme.ModFit is not other
