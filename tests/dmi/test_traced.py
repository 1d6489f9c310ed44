"""Modules that are Python functions: statements where they can be, with the same numbers, else as they are."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi import traced
from fmepy.errors import ModelError, TracingError

WEIGHTS = np.array([0.2, 0.3, 0.5])
kept = []
RATES = {"a": 1.0}


def _root(x):
    for _ in range(6):
        x = x - (x * x - 2) / (2 * x + 1)
    return x


@fme.dmi.module(reads=("N", "v"), assigns=("births", "w", "kind"), dims={"v": 3, "w": (2, 3)})
def growth(N, v):
    mean = v @ WEIGHTS / N
    births = np.where((N > 2) & (mean < 5), np.maximum(_root(N), 0.3), np.exp(-mean)) - N**0.5 / 3 + N % 0.7
    w = np.array([v * births, np.where(v > 1, np.cos(v) / births, -(np.minimum(v, N) ** -2))])
    return {"w": w, "kind": 3, "births": births}


FIRM = fme.dmi.Module(
    "firm", "dims v[3], w[2,3]\nd(N)/dt = 0.1 * births * kind / 3 - 0.01 * sum(w)\nv = [N, 3, 0.5 + t]\nN(0) = N0"
)


def _model(*modules, **arguments):
    options = {"times": np.arange(0, 3, 0.5), "dt": 0.25} | arguments
    data = {"N0": 2.5} if any("N0" in m.names for m in modules) else {}
    return fme.dmi.ModularModel(modules, data, **options)


@pytest.fixture
def as_python(monkeypatch):
    """Return what makes a model whose functions are not traced."""

    def refused(statement):
        raise TracingError("not today")

    def make(*modules, **arguments):
        with monkeypatch.context() as changed:
            changed.setattr(traced, "traced_assignments", refused)
            model = _model(*modules, **arguments)
            assert "not today" in model.engine_note
        return model

    return make


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_function_that_is_traced_gives_the_numbers_of_the_function(as_python, method):
    model = _model(FIRM, growth, method=method)
    assert not model.engine_note
    assert model.bind().runs_on_threads
    plain = as_python(FIRM, growth, method=method)
    np.testing.assert_allclose(model(), plain(), rtol=1e-12)
    np.testing.assert_array_equal(model.variable_map, plain.variable_map)


def test_it_becomes_equations_of_steps_and_of_time():
    model = _model(FIRM, growth)
    found = model.compiled("difference")()
    np.testing.assert_allclose(found[["N", "births", "w[1,2]"]], model()[["N", "births", "w[1,2]"]], rtol=1e-11)

    @fme.dmi.module(reads=("N", "K"), assigns="births")
    def logistic(N, K):
        return 0.8 * N * (1 - N / K)

    system = fme.dmi.ModularModel(
        [fme.dmi.Module("m", "d(N)/dt = births"), logistic], {"N": 1.0, "K": 9.0}, times=[0, 2, 6], dt=0.5
    )
    closed = 9 / (1 + 8 * np.exp(-0.8 * np.array([0, 2, 6])))
    np.testing.assert_allclose(system.compiled("ode")()["N"], closed, rtol=1e-4)


def test_in_a_loop_it_settles_where_the_function_does(as_python):
    @fme.dmi.module(reads=("price",), assigns=("demand",))
    def buyers(price):
        return 40 / (1 + 0.1 * price)

    market = fme.dmi.Module("market", "price = 2 + 0.05 * demand + 0.1 * t")
    model, plain = (
        make(market, buyers, tol=1e-12, max_iterations=50, outputs=["price", "demand"]) for make in (_model, as_python)
    )
    found = model()
    np.testing.assert_allclose(found, plain(), rtol=1e-10)
    np.testing.assert_allclose(found["demand"], 40 / (1 + 0.1 * found["price"]), rtol=1e-10)
    with pytest.raises(ModelError, match="need one another"):
        model.replace(modules={"stock": fme.dmi.Module("stock", "d(S)/dt = demand\nS(0) = 0")}).compiled("ode")


def _keeps(a):
    kept.append(a)
    return a


def _random(a):
    return a + np.random.default_rng().normal()


def _looks_up(a):
    return a * RATES["a"]


def _counts(a, calls=[0]):  # noqa: B006
    calls[0] += 1
    return a * calls[0]


def _prints(a):
    print(a)
    return a


def _endless(a):
    x = a
    for _ in range(500):
        x = x + 0.01 * np.sin(x)
    return x


def _imports(a):
    import scipy.special

    return scipy.special.erf(a)


def _depends_on_type(a):
    return 2 * a if isinstance(a, float) else 3 * a


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_keeps, "'kept' \\(list\\)"),
        (_random, "random"),
        (_looks_up, "'RATES' \\(dict\\)"),
        (_counts, "a default"),
        (_prints, "calls print"),
        (_endless, "too many operations"),
        (_imports, "imports"),
        (_depends_on_type, "does not give the numbers"),
    ],
)
def test_what_cannot_be_traced_runs_as_python_and_the_model_says_why(function, said, capsys, monkeypatch):
    monkeypatch.setattr(traced, "MOST_OPERATIONS", 300)
    wrapped = fme.dmi.module(reads=("a",), assigns=("b",))(function)
    assert not kept
    model = _model(
        fme.dmi.Module("m", "a = N0 * (1 + t)\nd(N)/dt = b\nN(0) = 1\noutput b"), wrapped, times=[0, 1], dt=1
    )
    with pytest.raises(ModelError, match=f"(?s)'{function.__name__}' is a Python function.*{said}"):
        model.compiled("difference")
    assert not kept, "it was not called for nothing"
    assert wrapped.name in model.engine_note
    assert not model.bind().runs_on_threads
    if function not in (_random, _counts):
        assert model()["b"].tolist() == [function(2.5), function(5.0)]
    kept.clear()
    capsys.readouterr()


def test_functions_of_very_large_arrays_run_as_they_are():
    @fme.dmi.module(reads=("v",), assigns=("s",), dims={"v": 1000})
    def total(v):
        return np.sum(v)

    model = _model(fme.dmi.Module("m", "dims v[1000]\nv = t"), total, outputs=["s"])
    assert "1001 numbers" in model.engine_note
    np.testing.assert_allclose(model()["s"], 1000 * model.times)


def test_what_ends_a_program_ends_a_run_of_python_modules_too():
    @fme.dmi.module(reads=("x",), assigns=("y",))
    def leaves(x):
        if x > 2:
            raise SystemExit(3)
        return x

    stock = fme.dmi.Module("stock", "d(x)/dt = y\nx(0) = 1")
    model = fme.dmi.ModularModel([stock, leaves], times=[0, 1, 2, 3], dt=1.0)
    with pytest.raises(SystemExit):
        model()
    assert model(times=[0, 1])["x"].tolist() == [1, 2]
