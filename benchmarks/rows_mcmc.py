"""Rows of modMCMC: what a chain takes, what it adds to the runs, and what each kernel is worth."""

from __future__ import annotations

import itertools
import json
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import fmepy as fme
from benchmarks import boehm, hiv
from benchmarks.row import R_TIMINGS, Row, at_least, at_most, within
from benchmarks.timing import side_by_side
from fmepy.costs.base import with_slopes
from fmepy.costs.user_function import as_objective
from fmepy.errors import SimulationError
from fmepy.mcmc import modMCMC
from fmepy.mcmc.convergence import ess_bulk
from fmepy.mcmc.kernels.whitening import Unbounded

NITER, PEER_NITER, PINTS_NITER = 5000, 100, 1000
CASES = {c["id"]: c for c in json.loads((R_TIMINGS.parent / "modMCMC_hiv.json").read_text(encoding="utf-8"))["cases"]}


class Instant:
    """A cost with the face of fmepy's that takes no time: a standard normal in five dimensions, as five residuals."""

    is_scalar = has_jacobian = False
    retries = 0
    x = np.arange(5.0)
    weights, scales, groups = np.ones(5), np.ones(2), np.array([0, 0, 0, 1, 1])
    group_names, names = ("a", "b"), ["a", "a", "a", "b", "b"]
    parms = pd.Series(np.zeros(5), index=hiv.FITTED)

    def bind(self, names: Sequence[str] | None = None, **_: Any) -> Instant:
        """Return itself."""
        self.parameter_names = tuple(names or self.parms.index)
        self.theta0, self.lower, self.upper = np.zeros(5), np.full(5, -np.inf), np.full(5, np.inf)
        return self

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """Return theta."""
        return theta


def chain_hiv() -> Row:
    """Draw 5,000 times with up to two tries, fixed variances."""
    case, plain = CASES["hiv_dr"], hiv.plain_residuals()
    start, args = case["inputs"]["p"], case["inputs"]["args"]
    settings = {"jump": np.array(args["jump"]["matrix"]), "var0": {"logV": 0.2025, "T": 20.25}, "ntrydr": 2, "seed": 1}
    cost = fme.transformed(hiv.cost(hiv.model()), "log")
    peer_cost = fme.transformed(hiv.cost(hiv.odeint_model()), "log")
    chain = modMCMC(cost, start, niter=NITER, **settings)
    long = case["outputs"]["long_chain"]
    assert all(abs(chain.pars[k].mean() - long["mean"][k]) < long["sd"][k] for k in start), chain
    assert chain.retries == 0, chain
    ours, peer, hand = side_by_side(
        lambda: modMCMC(cost, start, niter=NITER, **settings),
        lambda: modMCMC(peer_cost, start, niter=PEER_NITER, **settings),
        lambda: plain(hiv.TRUTH),
        rounds=3,
    )
    work = f"modMCMC HIV, {NITER:,} iterations, up to 2 tries"
    name = f"the same through odeint ({PEER_NITER} iterations, scaled)"
    goals = [within(ours, 0.6, hand)]
    return Row(work, ours, name, peer * NITER / PEER_NITER, goals, float(case["outputs"]["seconds"]))


def overhead() -> Row:
    """Run chains on a cost that takes no time."""
    cost = Instant()
    kinds = {
        "plain": {},
        "adaptive": {"updatecov": 100},
        "up to 2 tries": {"ntrydr": 2},
        "sampled variances": {"wvar0": 1},
        "five priors": {"prior": dict.fromkeys(cost.parms.index, stats.truncnorm(-9, 9, scale=5.0))},
    }
    niter = 10_000
    basic = {"jump": 1.0, "var0": {"a": 1.0, "b": 1.0}, "niter": niter, "seed": 1}
    chain = modMCMC(cost, None, **basic)
    assert abs(float(chain.pars.to_numpy().std()) - 1) < 0.1
    evaluations = [niter + int(modMCMC(cost, None, **basic, **k).count["dr_steps"].sum()) for k in kinds.values()]
    objective = as_objective(cost, None)
    points = list(np.random.default_rng(1).standard_normal((niter, 5)))
    *times, bare = side_by_side(
        *(lambda k=k: modMCMC(cost, None, **basic, **k) for k in kinds.values()),
        lambda: [objective.residuals(point) for point in points],
        rounds=3,
    )
    own = [1e6 * (t - n * bare / niter) / niter for t, n in zip(times, evaluations, strict=True)]
    goals = [at_most(us, 25, "{:.1f} us an iteration beyond the cost, " + k) for k, us in zip(kinds, own, strict=True)]
    return Row("modMCMC, 10,000 iterations of nothing", times[0], "with up to 2 tries", times[2], goals)


def kernels() -> Row:
    """Count effective draws a second of every kernel, on the instant normal in five dimensions."""
    cost, rates, seconds = Instant(), [], {}
    methods = {
        "dram": {"updatecov": 100, "niter": 10_000, "burninlength": 2000},
        "dram, up to 2 tries": {"updatecov": 100, "ntrydr": 2, "niter": 8000, "burninlength": 2000},
        "demcz": {"method": "demcz", "niter": 6000, "burninlength": 1000},
        "emcee": {"method": "emcee", "niter": 1000, "burninlength": 200},
    }
    for name, settings in methods.items():
        full = {"jump": 1.0, "var0": {"a": 1.0, "b": 1.0}, "seed": 1, **settings}
        (seconds[name],) = side_by_side(lambda full=full: modMCMC(cost, None, **full), rounds=2)
        draws = modMCMC(cost, None, **full).draws()
        worst = min(float(ess_bulk(draws[:, :, j])) for j in range(draws.shape[2]))
        assert abs(draws.std() - 1) < 0.1
        rates.append((f"{worst / seconds[name]:.0f} effective draws a second, {name}", True))
    return Row("modMCMC, five normal parameters", seconds["dram"], "demcz", seconds["demcz"], rates)


def beside_pints() -> Row:
    """Draw 1,000 times with an adapting proposal; the same likelihood through PINTS and odeint, each evaluation."""
    case = CASES["hiv_dr"]
    start, jump = case["inputs"]["p"], np.array(case["inputs"]["args"]["jump"]["matrix"])
    long, point = case["outputs"]["long_chain"], np.array(list(start.values()))
    settings: dict[str, Any] = {"jump": jump, "var0": {"logV": 0.2025, "T": 20.25}, "updatecov": 100, "seed": 1}
    cost = fme.transformed(hiv.cost(hiv.model()), "log")

    def ours() -> pd.DataFrame:
        return modMCMC(cost, start, niter=PINTS_NITER, **settings).pars

    def assert_agrees(draws: Any) -> None:
        for k, x in zip(start, np.asarray(draws).T, strict=True):
            assert abs(x.mean() - long["mean"][k]) < long["sd"][k], (k, x.mean())

    assert list(start) == hiv.FITTED
    assert_agrees(ours())
    work = f"modMCMC HIV, {PINTS_NITER:,} iterations, adaptive: an evaluation"
    try:
        import pints  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        (seconds,) = side_by_side(ours, rounds=3)
        return Row(
            work,
            seconds / PINTS_NITER,
            "PINTS is not installed (extra `bench`)",
            np.nan,
            [("not compared; goal >= 12", False)],
        )

    plain, counted = hiv.plain_residuals(), [0]

    class Likelihood(pints.LogPDF):  # type: ignore[misc, unused-ignore]
        """That of the chain: the residuals over the sds of the data, which are the roots of var0."""

        def n_parameters(self) -> int:
            """Return 5."""
            return len(start)

        def __call__(self, theta: np.ndarray) -> float:
            """Return the logarithm of the likelihood, up to a constant."""
            counted[0] += 1
            r = plain(dict(zip(start, np.exp(theta), strict=True)))
            return -0.5 * float(r @ r)

    def theirs() -> np.ndarray:
        mcmc = pints.MCMCController(Likelihood(), 1, [point], sigma0=jump, method=pints.HaarioBardenetACMC)
        mcmc.set_max_iterations(PINTS_NITER)
        mcmc.set_initial_phase_iterations(100)
        mcmc.set_log_to_screen(False)
        np.random.seed(1)  # noqa: NPY002    # the only generator that PINTS draws from
        with warnings.catch_warnings():  # odeint says so where a far proposal is too much for it
            warnings.simplefilter("ignore")
            return np.asarray(mcmc.run()[0])

    likelihood, bound = Likelihood(), cost.bind(list(start))
    by_hand = [likelihood(t) for t in (point, point + 0.01)]
    in_chain = [-0.5 * float(np.sum(bound.residuals(t) ** 2)) for t in (point, point + 0.01)]
    assert abs(np.diff(by_hand) - np.diff(in_chain)) < 0.01 * abs(np.diff(by_hand)), (by_hand, in_chain)
    points = itertools.cycle(ours().to_numpy()[::10])
    counted[0] = 0
    assert_agrees(theirs())
    assert counted[0] == PINTS_NITER, counted
    seconds, peer, solve, peer_solve = side_by_side(
        ours, theirs, lambda: bound.residuals(next(points)), lambda: likelihood(next(points)), rounds=5
    )
    seconds, peer = seconds / PINTS_NITER, peer / PINTS_NITER
    goals = [
        at_least(peer / seconds, 12, "{:.1f} times the peer's speed"),
        (f"{seconds / solve:.2f} costs at points of the chain, the peer {peer / peer_solve:.2f} of its own", True),
    ]
    return Row(work, seconds, "PINTS, HaarioBardenetACMC, odeint by hand", peer, goals)


def beside_emcee() -> Row:
    """Draw with emcee's ensemble: through modMCMC, and with a likelihood by hand given to emcee itself."""
    import emcee

    case, plain, walkers, steps = CASES["hiv_dr"], hiv.plain_residuals(), 20, 50
    start, point = case["inputs"]["p"], np.array(list(case["inputs"]["p"].values()))
    jump = np.array(case["inputs"]["args"]["jump"]["matrix"])
    cost = fme.transformed(hiv.cost(hiv.model()), "log")
    settings: dict[str, Any] = {"method": "emcee", "control": {"walkers": walkers}, "niter": steps, "seed": 1}

    def ours() -> Any:
        return modMCMC(cost, start, jump=jump, var0={"logV": 0.2025, "T": 20.25}, **settings)

    def log_density(theta: np.ndarray) -> float:
        r = plain(dict(zip(start, np.exp(theta), strict=True)))
        return -0.5 * float(r @ r)

    def theirs() -> Any:
        rng = np.random.default_rng(1)
        sampler = emcee.EnsembleSampler(walkers, len(point), log_density)
        with warnings.catch_warnings():  # odeint says so where a far proposal is too much for it
            warnings.simplefilter("ignore")
            sampler.run_mcmc(rng.multivariate_normal(point, 0.01 * jump, walkers), steps)
        return sampler

    long = case["outputs"]["long_chain"]
    assert all(abs(ours().pars[k].mean() - long["mean"][k]) < 2 * long["sd"][k] for k in start)
    seconds, peer = side_by_side(ours, theirs, rounds=2)
    goals = [at_least(peer / seconds, 12, "{:.1f} times the peer's speed")]
    work = f"modMCMC(method='emcee') HIV, {walkers} walkers, {steps} steps"
    return Row(work, seconds, "emcee, odeint by hand", peer, goals)


def nuts_boehm() -> Row:
    """Return the row of NUTS on a posterior with two parameters at their bounds, beside nutpie on the same gradient."""
    cost = fme.transformed(boehm.noisy_cost(), "log10")
    fit = fme.modFit(cost, lower=-5, upper=5)
    settings: dict[str, Any] = {
        "method": "nuts",
        "niter": 2000,
        "burninlength": 1000,
        "lower": -5,
        "upper": 5,
        "seed": 1,
    }
    before = time.process_time()
    with warnings.catch_warnings():  # a parameter on a bound has no covariance
        warnings.simplefilter("ignore")
        chain = modMCMC(cost, fit, jump=fit.cov_scaled, **settings)
    seconds = time.process_time() - before
    draws = min(ess_bulk(chain.draws()[:, :, k]) for k in range(len(fit.par)))
    assert chain.divergences == 0, chain
    goals = [at_least(draws / seconds, 30, "{:.1f} effective draws a second")]
    work, name = "modMCMC(method='nuts'), Boehm's posterior, 2,000 iterations", "nutpie on the same gradient"
    try:
        import nutpie  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return Row(work, seconds, f"{name} is not installed", goals=goals)
    bound, box, n = cost.bind(), Unbounded(np.full(len(fit.par), -5.0), np.full(len(fit.par), 5.0)), len(fit.par)

    def density(u: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, slopes = with_slopes(bound, box.forward(u))
        except SimulationError:
            return -np.inf, np.zeros(n)
        steep, logs, of_logs = box.slopes(u)
        return -0.5 * value + logs, -0.5 * slopes * steep + of_logs

    start = box.inverse(np.clip(fit.par.to_numpy(), -4.99, 4.99))  # ours, too
    compiled = nutpie.compiled_pyfunc.from_pyfunc(
        n, lambda: density, lambda *_: lambda u: {"p": box.forward(u)}, [np.dtype("float64")], [(n,)], ["p"],
        make_initial_point_fn=lambda seed: start,
    )  # fmt: skip
    before = time.process_time()
    trace = nutpie.sample(compiled, draws=1000, tune=1000, chains=1, seed=1, progress_bar=False)
    peer = time.process_time() - before
    theirs = min(ess_bulk(trace.posterior["p"].to_numpy()[:, :, k]) for k in range(n))
    goals.append(at_least(draws / seconds / (theirs / peer), 2, "{:.1f} times the peer's effective draws a second"))
    return Row(work, seconds, name, peer, goals)


ROWS = [chain_hiv, overhead, kernels, beside_pints, beside_emcee, nuts_boehm]
