"""A warning names noise that is to be estimated and that `p` leaves out, whatever fits or samples."""

import warnings

import lmfit
import numpy as np
import pytest

import fmepy as fme

T = np.linspace(0.0, 10.0, 12)
OBS = {"time": T, "N": 10 * np.exp(-0.3 * T) + 0.3 * np.cos(7 * T)}
MODEL = fme.OdeModel("d(N)/dt = -k*N", state={"N": 10.0}, times=T, parms={"k": 0.3})
WORDS = {"measurement_noise": {"N": "estimate"}}


def plain(**words):
    return fme.SimulationCost(MODEL, OBS, **{**WORDS, **words})


def filtered(**words):
    return fme.FimlofCost(MODEL, OBS, process_noise={"N": "estimate"}, **{**WORDS, **words})


@pytest.mark.parametrize(
    ("cost", "which"),
    [
        (plain(), "sd_v_N"),
        (filtered(), "sd_w_N=.*, sd_v_N="),
        (plain() + fme.SimulationCost(MODEL, {"time": [1.0], "N": [7.0]}, measurement_noise={"N": 1.0}), "sd_v_N"),
        (fme.transformed(plain(), {"k": "log"}), "sd_v_N"),
    ],
)
def test_noise_that_p_leaves_out_is_told(cost, which):
    with pytest.warns(UserWarning, match=f"stays at a first guess: .*{which}"):
        fme.modFit(cost, ["k"])


def test_chains_and_other_searches_say_the_same():
    for search in (
        lambda p: fme.modMCMC(plain(), p, niter=3, seed=1),
        lambda p: fme.pseudoOptim(plain(), p, lower=0.1, upper=1, control={"numiter": 2}, seed=1),
        lambda p: fme.identifiable_fit(filtered(), p),
    ):
        with pytest.warns(UserWarning, match="`p` leaves out noise that is 'estimate'"):
            search({"k": 0.25})


def test_what_is_meant_is_not_told():
    params = lmfit.Parameters()
    params.add("k", 0.25, min=0.1)
    params.add("sd_v_N", 0.4, vary=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fme.modFit(plain())
        fme.modFit(plain(), ["k", "sd_v_N"])
        fme.modFit(plain(parms={"sd_v_N": 0.3}), ["k"])
        fme.modFit(filtered(parms={"sd_v_N": 0.3, "sd_w_N": 0.1}), ["k"])
        fme.modFit(plain(), params)
        fme.modFit(plain(measurement_noise={"N": 0.3}), ["k"])
