"""
Observations as boundary conditions, and a chaotic record in segments
=====================================================================

Parameters are states that do not change: to find them is to find what a system began with. Then every observation is a
boundary condition on the solution of the equations, and three questions are one: which rates, which initial values, and
which path of what nobody has seen. `fit_boundary` answers it by superposing solutions of the linearised equations.

1. Leary's example, by hand: two difference equations, two rates, one observation of two states.
2. Hare and lynx, 1900-1920: four rates and both starts from the pelts.
3. Two compartments whose exchange slows down; one is never observed, and readings of the other are missing.
4. Lorenz's equations, of which one state in three is read: a record that is fitted in segments, whose ends must meet.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fmepy as fme

# %%
# Leary's example
# ---------------
#
# Two states grow by Y1' = Y1 + a11 Y1 + 0.75 Y2 and Y2' = Y2 + a21 Y1 + 0.25 Y2, from (1, 4). One step later they are
# (4.4, 5.6). With the guess a11 = a21 = 0.5 the equations give (4.5, 5.5). A change of a11 adds to Y1 and a change of
# a21 to Y2, one for one: so the multipliers of these two homogeneous solutions are -0.1 and 0.1.


def growth_step(n, Y1, Y2, *, a11=0.5, a21=0.5):
    """Return the states after a step."""
    return Y1 + a11 * Y1 + 0.75 * Y2, Y2 + a21 * Y1 + 0.25 * Y2


def leary() -> dict[str, fme.BoundaryFit]:
    """Return the fits by both strategies, and print the steps."""
    two = fme.DifferenceModel(growth_step, state={"Y1": 1, "Y2": 4}, times=[0, 1])
    seen = {"time": [1], "Y1": [4.4], "Y2": [5.6]}
    fits = {s: fme.fit_boundary(two, seen, ["a11", "a21"], strategy=s) for s in ("complementary", "particular")}
    for strategy, fit in fits.items():
        print(f"\n{strategy}:\n{fit.iterations.to_string(index=False)}\n\n{fit.solutions.to_string(index=False)}")
    return fits


fits = leary()
for fit in fits.values():
    assert np.allclose(fit.par, [0.4000, 0.6000], rtol=1e-12)
guesses = fits["particular"].iterations[["a.0", "a.a11", "a.a21"]]
assert np.allclose(guesses, [[1, -1, 1], [1, 0, 0]], atol=1e-12)

# %%
# Hare and lynx
# -------------
#
# Errors of the pelts are multiplicative, so the logarithms are compared: the observed outputs are log Hare and log
# Lynx, which are not linear in the states. They are linearised as the equations are. Six unknowns, 42 observations:
# least squares, and the same answer as `modFit` finds, standard errors included.

EQUATIONS = """
    d(Hare)/dt = alpha * Hare - beta * Hare * Lynx
    d(Lynx)/dt = delta * Hare * Lynx - gamma * Lynx
    Hare(1900) = Hare0
    Lynx(1900) = Lynx0
    log_hare = log(Hare)
    log_lynx = log(Lynx)
"""
FIRST_GUESS = {"alpha": 0.5, "beta": 0.02, "gamma": 1.0, "delta": 0.02, "Hare0": 30.0, "Lynx0": 4.0}


def hare_and_lynx() -> tuple[fme.OdeModel, pd.DataFrame]:
    """Return the model and the logarithms of the pelts."""
    pelts = fme.datasets.load("lynx_hare")
    logs = {"time": pelts["year"], "log_hare": np.log(pelts["Hare"]), "log_lynx": np.log(pelts["Lynx"])}
    return fme.OdeModel(EQUATIONS, times=np.linspace(1900, 1920, 201), parms=FIRST_GUESS), pd.DataFrame(logs)


def from_unknown_starts() -> fme.BoundaryFit:
    """Return the fit; that of `modFit` is the same."""
    model, logs = hare_and_lynx()
    fit = fme.fit_boundary(model, logs)
    shot = fme.modFit(fme.SimulationCost(model, logs))
    print(fit.summary())
    print(f"Steps: {len(fit.iterations)}; farthest from modFit: "
          f"{float(((fit.par - shot.par) / shot.std_error).abs().max()):.1e} standard errors")  # fmt: skip
    assert fit.converged
    assert ((fit.par - shot.par) / shot.std_error).abs().max() < 1e-3
    assert np.allclose(fit.std_error, shot.std_error, rtol=1e-3)
    return fit


def draw_hare_and_lynx(fit: fme.BoundaryFit) -> plt.Figure:
    """Return the fitted paths through the logarithms of the pelts, and how residual and correction fell."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    fit.plot(axes=axes, xlabel=["year", "year", "step"], ylabel=["log Hare", "log Lynx", ""])
    for ax in axes[:2]:
        ax.set_xticks(range(1900, 1921, 5))
    return figure


pelts = from_unknown_starts()
assert np.isclose(pelts.ssr, 2.01867, rtol=1e-4)  # as in the vignette on hare and lynx, which compares logarithms too
assert np.isclose(pelts.par["alpha"], 0.5402, rtol=2e-3)

# %%
# The fitted paths through the logarithms of the pelts (dots), and how the corrections shrink from step to step.

draw_hare_and_lynx(pelts)
plt.show()

# %%
# How near has a guess to be? All six unknowns are multiplied by factors at random. Both ways shoot through the whole
# record from its start, so that both need a guess that has about the right number of waves in twenty years. Where it
# has not, they end in a false minimum, mostly on a bound, or say that they did not arrive. So several guesses are tried
# (`modFit(starts=...)` does), and longer records want multiple shooting or prediction errors.


def from_worse_and_worse_guesses(best: pd.Series, num: int) -> pd.DataFrame:
    """Return how many of `num` guesses lead to the best fit, by how far they are off, and by which way."""
    model, logs = hare_and_lynx()
    cost, rng = fme.SimulationCost(model, logs), np.random.default_rng(1)
    least = cost(best).model
    ways = {
        "fit_boundary": lambda guess: fme.fit_boundary(model, logs, guess, lower=1e-6),
        "modFit": lambda guess: fme.modFit(cost, guess, lower=1e-6),
    }
    columns = [f"{way}{how}" for way in ways for how in ("", ", elsewhere")]
    table = pd.DataFrame(0, index=pd.Index([1.2, 1.5, 2.0], name="factor"), columns=columns)
    for factor in table.index:
        for _ in range(num):
            guess = best * factor ** rng.uniform(-1, 1, len(best))
            for way, find in ways.items():
                try:
                    fit = find(guess)
                except fme.errors.ArgumentError:  # the equations cannot be run from there
                    continue
                if fit.converged:
                    table.loc[factor, way if abs(fit.ssr - least) < 1e-3 else f"{way}, elsewhere"] += 1
    print(f"\nOf {num} guesses that are off by up to a factor, so many arrive, or converge elsewhere:\n{table}")
    return table


table = from_worse_and_worse_guesses(pelts.par, num=2)
assert table.loc[1.2, ["fit_boundary", "modFit"]].tolist() == [2, 2]

# %%
# Two compartments, one never seen
# --------------------------------
#
# A substance goes from A to B and out of B; both rates fall with time, as k/(1 + t) and m/(1 + t). Only B is read, and
# three of ten readings are lost. Unknown are both rates and both initial amounts. In the time s = log(1 + t) the rates
# are constant, so that the solution is known in closed form.

TRUTH = {"k": 0.7, "m": 1.6, "A0": 10.0, "B0": 1.5}
TIMES = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0])


def amounts(t, k, m, A0, B0):
    """Return A and B, in closed form."""
    s = np.log1p(t)
    return A0 * np.exp(-k * s), B0 * np.exp(-m * s) + A0 * k / (m - k) * (np.exp(-k * s) - np.exp(-m * s))


def compartments() -> tuple[fme.BoundaryFit, fme.BoundaryFit]:
    """Return the fits to exact readings and to noisy ones."""
    model = fme.OdeModel(
        "d(A)/dt = -k/(1 + t)*A\nd(B)/dt = (k*A - m*B)/(1 + t)",
        state={"A": "A0", "B": "B0"},
        parms={"k": 0.4, "m": 1.0, "A0": 6.0, "B0": 1.0},
        times=np.linspace(0, 10, 101),
        rtol=1e-10,
        atol=1e-10,
    )
    exact = pd.DataFrame({"time": TIMES, "B": amounts(TIMES, **TRUTH)[1]})
    exact.loc[[2, 6, 8], "B"] = np.nan
    fit = fme.fit_boundary(model, exact)
    print(f"\nExact readings: {fit.par.round(6).to_dict()}, {len(fit.iterations)} steps")
    assert np.allclose(fit.trajectory["A"], amounts(fit.trajectory["time"], **TRUTH)[0], rtol=1e-5)
    noisy = exact.assign(B=exact["B"] + 0.02 * np.random.default_rng(1).standard_normal(len(exact)))
    estimate = fme.fit_boundary(model, noisy)
    print(estimate.summary())
    off = (estimate.par - pd.Series(TRUTH)) / estimate.std_error
    assert estimate.converged
    assert off.abs().max() < 3
    return fit, estimate


def draw_compartments(estimate: fme.BoundaryFit) -> plt.Figure:
    """Return both compartments: what was fitted with its band, the truth, and the readings of one."""
    model = fme.OdeModel(
        "d(A)/dt = -k/(1 + t)*A\nd(B)/dt = (k*A - m*B)/(1 + t)",
        state={"A": "A0", "B": "B0"},
        parms=dict(estimate.par),
        times=np.linspace(0, 10, 101),
    )
    band = fme.predict(model, estimate.fit)
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    band.plot(axes=axes, ylabel=["A, never observed", "B"])
    seen = estimate.fit.cost.residuals
    axes[1].plot(seen["x"], seen["obs"], "o", color="black", markersize=4, label="readings")
    for ax, path in zip(axes, amounts(model.times, **TRUTH), strict=True):
        ax.plot(model.times, path, color="0.3", linestyle=":", label="truth")
        ax.legend(frameon=False, fontsize="small")
    return figure


exact_fit, noisy_fit = compartments()
assert np.allclose(exact_fit.par, [0.7000, 1.600, 10.00, 1.500], rtol=1e-5)

# %%
# Both compartments with 95 % bands: of A, which nobody has read, little is known but the curve; B follows its readings.

draw_compartments(noisy_fit)
plt.show()

# %%
# A chaotic record, in segments
# -----------------------------
#
# Along a solution of Lorenz's equations a small error grows ten thousandfold in ten units of time. A run from a guess
# that is 20 % off has nothing in common with the record after the first turns, and a search that begins with such runs
# ends in one of many false minima. Multiple shooting cuts the record into segments with starts of their own, which the
# data hold in place; that every segment ends where the next begins is a condition on the answer, not on the way to
# it. At first it is soft (the column `defect_scale`: how large a gap is worth as much as a residual), and the gaps
# (`defect`, in units of the sizes of the states) close as it hardens. Only x is read; y and z of the first starts come
# from a run in which x is set to each reading, which they follow (`path=` gives others).

CHAOTIC = {"s": 10.0, "r": 28.0, "b": 8 / 3, "x0": -8.0, "y0": 7.0, "z0": 27.0}


def lorenz(t, x, y, z, *, s=10.0, r=28.0, b=8 / 3):
    """Return the rates of Lorenz's equations."""
    return s * (y - x), x * (r - z) - y, x * y - b * z


def in_segments() -> dict[int, fme.BoundaryFit]:
    """Return the fits by number of segments; the answer does not depend on it, the way there does."""
    starts = {name: CHAOTIC[name] for name in ("x0", "y0", "z0")}
    model = fme.OdeModel(
        lorenz, state={"x": "x0", "y": "y0", "z": "z0"}, parms=starts, times=np.linspace(0, 10, 201), rtol=1e-8,
        atol=1e-8,
    )  # fmt: skip
    noise = 0.1 * np.random.default_rng(1).standard_normal(201)
    seen = pd.DataFrame({"time": model.times, "x": model().x + noise, "err": 0.1})
    guess = {name: 0.8 * value for name, value in CHAOTIC.items()}
    fits = {n: fme.fit_boundary(model, seen, guess, segments=n, err="err") for n in (10, 20, 40)}
    told = {n: (len(fit.iterations), fit.fit.evaluations, fit.ssr) for n, fit in fits.items()}
    columns = ["steps", "runs of the record", "ssr"]
    print(f"\nLorenz, by segments:\n{pd.DataFrame(told, index=columns).T.astype({c: int for c in columns[:2]})}")
    print(fits[20].summary())
    far = fme.SimulationCost(model, seen, err="err")(guess).model
    print(f"Sum of squares of the truth {(noise**2).sum() / 0.01:.0f}, of a run from the guess {far:.3g}")
    for fit in fits.values():
        assert fit.converged
        assert fit.defect < 1e-8
        assert ((fit.par - pd.Series(CHAOTIC)) / fit.std_error).abs().max() < 3
        assert fit.ssr < (noise**2).sum() / 0.01
        assert np.allclose(fit.par, fits[20].par, rtol=1e-4)
    return fits


def draw_segments(fit: fme.BoundaryFit) -> plt.Figure:
    """Return the fitted path, of x through the readings and of z beside the truth, and how the gaps closed."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained", width_ratios=[2, 2, 1.4])
    path, seen, steps = fit.trajectory, fit.fit.cost.residuals, fit.iterations
    state, starts = {"x": "x0", "y": "y0", "z": "z0"}, {name: CHAOTIC[name] for name in ("x0", "y0", "z0")}
    words = {"state": state, "times": path["time"].to_numpy(), "rtol": 1e-8, "atol": 1e-8}
    truth = fme.OdeModel(lorenz, parms=starts, **words)()
    guess = fme.OdeModel(lorenz, parms={name: 0.8 * value for name, value in CHAOTIC.items()}, **words)()
    axes[0].plot(seen["x"], seen["obs"], ".", color="black", markersize=3, label="readings")
    axes[1].plot(truth["time"], truth["z"], color="black", linestyle=":", zorder=3, label="truth")
    for ax, name, label in zip(axes, ("x", "z"), ("x", "z, never read"), strict=False):
        ax.plot(path["time"], path[name], color="#2f5d8a", lw=1.2, label="fitted")
        ax.plot(guess["time"], guess[name], color="#b5651d", lw=0.8, label="from the guess")
        ax.set(xlabel="time", ylabel=label, xlim=(0, 10))
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.2 * (high - low))
        ax.legend(loc="upper center", ncols=3, frameon=False, fontsize="small")
    axes[2].semilogy(
        steps["step"], steps["defect"], "o-", color="#3d8a5a", markersize=3, label="largest gap, of the sizes"
    )
    axes[2].semilogy(steps["step"], steps["residual"], "o-", color="0.4", markersize=3, label="residual")
    axes[2].set(xlabel="step", xticks=range(0, len(steps) + 1, 4))
    axes[2].legend(loc="lower left", frameon=False, fontsize="small")
    return figure


segments = in_segments()
# below that of least squares on the simulated path that begin at the truth, which stop at 168.87
assert np.isclose(segments[20].ssr, 168.8422, rtol=1e-5)
assert [len(segments[n].iterations) < most for n, most in ((10, 40), (20, 25), (40, 20))] == [True] * 3

# %%
# The fitted path follows the readings of x and, unseen, z; a run from the guess has lost them after a turn. The gaps
# between the segments close to nothing in the last steps.

draw_segments(segments[20])
plt.show()
