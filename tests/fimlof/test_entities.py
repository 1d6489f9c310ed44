"""Several experiments in a filter's likelihood: the same words as in a simulation cost, and the same numbers."""

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, DataError, ParameterError
from fmepy.fimlof import FimlofCost
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel

STARTS = {"a": 5.0, "b": 2.0, "c": 8.0}


def walk(n, x, *, r=0.8, u=0.5, x0=4.0):
    return r * x + u


MODEL = DifferenceModel(walk, state={"x": "x0"}, times=range(9))


def data():
    rng = np.random.default_rng(3)
    rows = []
    for label, x in STARTS.items():
        for n in range(1, 9):
            x = 0.8 * x + 0.5 + 0.2 * rng.standard_normal()
            rows.append((label, n, x + 0.1 * rng.standard_normal()))
    return pd.DataFrame(rows, columns=["pond", "time", "x"])


NOISE = {"process_noise": {"x": "sd_w"}, "measurement_noise": {"x": "sd_v"}, "parms": {"sd_w": 0.2, "sd_v": 0.1}}


def cost(**words):
    words = {"conditions": {"pond": list(STARTS), "x0": list(STARTS.values())}, **NOISE, **words}
    return FimlofCost(MODEL, data(), entity="pond", **words)


def alone(label, **parms):
    part = data().query("pond == @label").drop(columns="pond")
    return FimlofCost(MODEL.replace(parms={"x0": STARTS[label], **parms}), part, **NOISE)


def test_conditions_are_the_sum_of_the_separate_likelihoods():
    p = {"r": 0.75, "u": 0.6, "sd_w": 0.3, "sd_v": 0.15}
    whole = cost()
    assert list(whole.parms.index) == ["r", "u", "sd_w", "sd_v"]
    assert whole(p) == pytest.approx(sum(alone(e)(p) for e in STARTS), rel=1e-12)
    names, theta = list(p), np.array(list(p.values()))
    apart = [alone(e).bind(names) for e in STARTS]
    bound = whole.bind(names)
    np.testing.assert_allclose(bound.score(theta), sum(b.score(theta) for b in apart), rtol=1e-8)
    np.testing.assert_allclose(bound.information(theta), sum(b.information(theta) for b in apart), rtol=1e-8)


def test_names_in_conditions_are_shared_parameters_also_of_the_noise():
    rows = pd.DataFrame(
        {"x0": STARTS, "r": {"a": "fast", "b": "r", "c": "fast"}, "sd_v": {"a": 0.1, "b": 0.2, "c": "sd_v"}}
    )
    whole = cost(conditions=rows, parms={**NOISE["parms"], "fast": 0.6})
    assert whole.parms.to_dict() == {"r": 0.8, "u": 0.5, "sd_w": 0.2, "sd_v": 0.1, "fast": 0.6}
    assert whole.lower.tolist() == [-np.inf, -np.inf, 0.0, 0.0, -np.inf]
    p = {"r": 0.75, "fast": 0.7, "sd_v": 0.3}
    expected = (
        alone("a")({"r": 0.7, "sd_v": 0.1}) + alone("b")({"r": 0.75, "sd_v": 0.2}) + alone("c")({"r": 0.7, "sd_v": 0.3})
    )
    assert whole(p) == pytest.approx(expected, rel=1e-12)
    assert whole.bind(["sd_v", "fast"]).scale_parameters.tolist() == [True, False]
    assert whole.replace(entity_parms=["u"])(p) == pytest.approx(expected, rel=1e-12)


def test_local_parameters_stand_beside_conditions():
    whole = cost(entity_parms=["u"], parms={**NOISE["parms"], "u[b]": 0.7})
    assert whole.parms["u[b]"] == 0.7
    expected = alone("a")() + alone("b", u=0.7)() + alone("c")()
    assert whole() == pytest.approx(expected, rel=1e-12)
    assert whole.filter().failure is None


def test_without_process_noise_runs_of_the_model_serve_all_entities():
    def decay(t, y, *, k=0.3, y0=10.0):
        return -k * y

    model = OdeModel(decay, state={"y": "y0"}, times=[0, 10], rtol=1e-10, atol=1e-12)
    t = np.array([1.0, 2.0, 5.0])
    table = pd.DataFrame({"tank": np.repeat([1, 2], 3), "time": np.tile(t, 2), "y": [7.0, 5.0, 2.0, 3.8, 2.7, 1.0]})
    both = FimlofCost(model, table, process_noise={}, measurement_noise={"y": 0.2}, entity="tank", entity_parms=["k"],
                      conditions={"tank": [1, 2], "y0": [10, 5]})  # fmt: skip
    r = (table["y"] - np.r_[10 * np.exp(-0.25 * t), 5 * np.exp(-0.35 * t)]) / 0.2
    value = float(r @ r) + 6 * np.log(2 * np.pi * 0.04)
    assert both({"k[1]": 0.25, "k[2]": 0.35}) == pytest.approx(value, rel=1e-8)
    score = both.bind().score(np.array([0.25, 0.35]))
    slopes = np.r_[-10 * t * np.exp(-0.25 * t), -5 * t * np.exp(-0.35 * t)]
    np.testing.assert_allclose(score, [(r * slopes)[:3].sum() / 0.2, (r * slopes)[3:].sum() / 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "kind", "match"),
    [
        ({"entity_parms": ["x0"]}, ParameterError, "column of `conditions`"),
        ({"entity_parms": "r"}, ParameterError, r"such as \['r'\]"),
        ({"conditions": {"pond": ["a", "b"], "x0": [1, 2]}}, DataError, "no row for 'c'"),
        ({"conditions": {"pond": list("abcd"), "x0": [1, 2, 3, 4]}}, DataError, "no data of 'd'"),
        ({"conditions": {"pond": list("abc"), "x": [1, 2, 3]}}, DataError, "make its initial value a parameter"),
        ({"conditions": {"pond": list("abc"), "sd_vv": [1, 2, 3]}}, DataError, "Did you mean 'sd_v'"),
        ({"parms": {**NOISE["parms"], "u[d]": 1.0}, "entity_parms": ["u"]}, ParameterError, "Did you mean 'u"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_as_in_a_simulation_cost(words, kind, match):
    with pytest.raises(kind, match=match):
        cost(**words)


def test_conditions_need_an_entity():
    with pytest.raises(ArgumentError, match="`conditions` needs `entity`"):
        FimlofCost(MODEL, data().drop(columns="pond"), conditions={"pond": ["a"], "x0": [1]}, **NOISE)
