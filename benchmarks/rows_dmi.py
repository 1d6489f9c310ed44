"""The rows of modular models: market growth beside PySD, and what a large system takes from texts to its first run."""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import fmepy as fme
from benchmarks import hiv
from benchmarks.row import Row, at_least, at_most, within
from benchmarks.timing import fresh_process, side_by_side
from fmepy.compiled import explicit_loop, explicit_runs, kernels, switching

FOLDER = Path(__file__).parent.parent / "vignettes" / "market_modules"
TIMES = np.arange(0, 100.5, 0.5)
LEVELS = ["SM", "BL", "DRA", "DDRC", "DDRM", "L1", "L2", "L3", "PC"]
VENSIM = """{UTF-8}
OB = SM * SE ~~|
SE = SEM * SEDM(DDRM) ~~|
SM = INTEG((RS * DRA / SS - SM) / SAT, 10) ~~|
DDRM = INTEG((DDRC - DDRM) / TDDRM, DDRC) ~~|
BL = INTEG(OB - DR, 8000) ~~|
DR = PC * PCF(BL / PC) ~~|
DRA = INTEG((DR - DRA) / DRAT, DR) ~~|
DDRC = INTEG((BL / DRA - DDRC) / TDDRC, BL / DRA) ~~|
PCO = PC * CEF(DDRC / DDOG - DDB) ~~|
L1 = INTEG(PCO - L1 / stage, stage * PCO) ~~|
L2 = INTEG((L1 - L2) / stage, L1) ~~|
L3 = INTEG((L2 - L3) / stage, L2) ~~|
PC = INTEG(L3 / stage, 12000) ~~|
SEDM((0,1),(1,.97),(2,.87),(3,.73),(4,.53),(5,.38),(6,.25),(7,.15),(8,.08),(9,.03),(10,.02)) ~~|
PCF((0,0),(.5,.25),(1,.5),(1.5,.67),(2,.8),(2.5,.87),(3,.93),(3.5,.95),(4,.97),(4.5,.98),(5,1)) ~~|
CEF((0,-.07),(.5,-.02),(1,0),(1.5,.02),(2,.07),(2.5,.15)) ~~|
SEM = 400 ~~|
RS = 12 ~~|
SS = 2000 ~~|
SAT = 20 ~~|
DRAT = 1 ~~|
TDDRC = 4 ~~|
TDDRM = 6 ~~|
stage = 4 ~~|
DDOG = 2 ~~|
DDB = 0.3 ~~|
INITIAL TIME = 0 ~~|
FINAL TIME = 100 ~~|
TIME STEP = 0.5 ~~|
SAVEPER = TIME STEP ~~|
"""
"""The market-growth model as PySD reads it."""


def market() -> fme.dmi.ModularModel:
    """Return the market-growth model of three modules."""
    return fme.dmi.ModularModel(
        fme.dmi.read_modules(FOLDER), FOLDER / "data", times=TIMES, dt=0.5, outputs=[*LEVELS, "OB", "DR"]
    )


def pysd_market() -> Any:
    """Return the same in PySD, translated to Python as it does it."""
    pysd = importlib.import_module("pysd")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "market.mdl"
        file.write_text(VENSIM, encoding="utf-8")
        return pysd.read_vensim(str(file))


def market_growth() -> Row:
    """Return what a run of 200 steps takes beside PySD."""
    bound = market().bind(["SEM", "SAT"])
    peer = pysd_market()
    columns = [*LEVELS, "OB", "DR"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = peer.run(return_columns=columns)
    np.testing.assert_allclose(bound.simulate(bound.theta0), theirs[columns].to_numpy(), rtol=1e-9)
    turn = iter(range(10**9))

    def ours() -> np.ndarray:
        return bound.simulate(bound.theta0 * (1 + 1e-9 * next(turn)))

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return peer.run(return_columns=columns)

    mine, by_pysd = side_by_side(ours, run, rounds=3, seconds=0.2)
    return Row("market growth, 3 modules, 200 steps", mine, "PySD", by_pysd,
               [at_least(by_pysd / mine, 500, "PySD takes {:.0f} times as long")])  # fmt: skip


SIZES = (30, 300, 3000)
STEPS = 600
LARGE = """
import time
import numpy as np
import fmepy as fme
from tests.dmi.generated import generated
made = generated({size}, n_loops={loops})
t = time.process_time()
modules = [fme.dmi.Module(name, text, step=step) for name, text, step in made.modules]
model = fme.dmi.ModularModel(modules, made.data(), times=0.25 * np.arange({steps} + 1), dt=0.25, max_iterations=200)
bound = model.bind()
model.bind(times=model.times[:9]).simulate(bound.theta0)    # what is active together is sorted when it first is
prepared = time.process_time() - t
t = time.process_time()
Y = bound.simulate(bound.theta0)
ran = time.process_time() - t
reference = made.reference(8, 0.25)
for j, name in enumerate(model.var_names):
    base, _, index = name.partition("[")
    wanted = reference[base][(slice(None), int(index[:-1])) if index else slice(None)]
    assert np.allclose(Y[:9, j], wanted, rtol=1e-9, atol=1e-9), name
print({what})
"""
"""In a process of its own: a system that was made up, from texts to its first run, equal to plain numpy."""


def large_system() -> Row:
    """Return what 3,000 equations in 300 modules take: read, sorted, compiled; again in a second process; run."""
    hand = hiv.plain_residuals()
    by_hand = side_by_side(lambda: hand(hiv.TRUTH), rounds=3)[0]
    first, second, runs = [], [], []
    for size in SIZES:
        code = LARGE.format(size=size, steps=STEPS, loops=5 if size >= 300 else 1, what="{what}")
        with tempfile.TemporaryDirectory() as folder:
            first += fresh_process([code.replace("{what}", "prepared")], rounds=1, XDG_CACHE_HOME=folder)
            second += fresh_process([code.replace("{what}", "prepared")], rounds=1, XDG_CACHE_HOME=folder)
            runs += fresh_process([code.replace("{what}", "ran")], rounds=1, XDG_CACHE_HOME=folder)
    goals = [
        within(first[-1], 20.0, by_hand),
        within(second[-1], 5.0, by_hand),
        within(runs[-1], 1.0, by_hand),
        at_most(
            first[-1] / first[-2] / (SIZES[-1] / SIZES[-2]), 1.5, "{:.2f} times as long an equation as 300 of them"
        ),
        at_most(runs[-1] / runs[-2] / (SIZES[-1] / SIZES[-2]), 1.5, "{:.2f} times as long an equation in a run"),
    ]
    return Row("3,000 equations in 300 modules, from texts to machine code", first[-1], "in a second process",
               second[-1], goals)  # fmt: skip


def module_changed() -> Row:
    """Change one of 1,000 modules with 10,000 variables, and run again."""
    n = 1_000
    texts = [
        f"d(stock_{i})/dt = flow_{i} - stock_{i} / life\nstock_{i}(0) = 1\nflow_{i} = 0.1 * stock_{(i - 1) % n}\n"
        + "\n".join(f"more_{i}_{k} = {k} * stock_{i} + flow_{(i + k) % n}" for k in range(8))
        for i in range(n)
    ]
    modules = [fme.dmi.Module(f"sector_{i}", text) for i, text in enumerate(texts)]
    model = fme.dmi.ModularModel(modules, {"life": 10.0}, times=np.arange(0, 11.0), dt=1)
    model()
    number = iter(range(1, 10_000))

    def changed() -> None:
        text = texts[5].replace("0.1 *", f"0.1{next(number)} *")
        model.replace(modules={"sector_5": fme.dmi.Module("sector_5", text)})()

    plain = hiv.plain_residuals()
    ours, first, hand = side_by_side(changed, lambda: model.replace()(), lambda: plain(hiv.TRUTH), rounds=3)
    return Row("a module of 1,000 changed, 10,000 variables run again", ours, "the same unchanged", first,
               [within(ours, 0.5, hand)])  # fmt: skip


def world3() -> Row:
    """World3 as differential equations at 1e-6 beside its steps of Euler's method: no slower than it evaluates more."""
    folder = FOLDER.parent / "world3"
    data, times = fme.dmi.Database(folder / "data"), np.arange(1900, 2101)
    steps = fme.dmi.ModularModel(fme.dmi.read_modules(folder), data, times=times, dt=0.5)
    smooth = steps.compiled("ode")
    of_steps, of_smooth = steps.bind(), smooth.bind(times=times)
    of_smooth.simulate(of_smooth.theta0)  # the first run is looked at
    rates, conditions = evaluations(lambda: of_smooth.simulate(of_smooth.theta0))
    ours, by_steps = side_by_side(
        lambda: of_smooth.simulate(of_smooth.theta0), lambda: of_steps.simulate(of_steps.theta0), rounds=5, seconds=0.1
    )
    more = (rates + conditions) / 400
    text = f"{{:.1f}} times as long; {rates / 400:.1f} times the rates, {more:.1f} with the conditions"
    return Row("World3 as differential equations, 378 switches", ours, "its 400 steps", by_steps,
               [at_most(ours / by_steps, round(more, 1), text)])  # fmt: skip


def evaluations(run: Callable[[], Any]) -> tuple[int, int]:
    """Return how often a run of many switches evaluates its rates, and its conditions: the kernel runs as Python."""
    counts: Counter[str] = Counter()
    call = kernels.call

    def counted(self: Any, room: Any, watched: int = 0) -> None:
        arrays, functions, switches = room[0], self._functions, room[2][2]
        of = {functions.rates: "rates", functions.watch: "conditions"}

        def count(address: int, *arguments: Any) -> None:
            counts[of.get(address, "slopes")] += 1
            call(address, *arguments)

        with patch.object(switching, "call", count), patch.object(explicit_loop, "call", count):
            switching.run_through(self.tables, arrays, switches)

    with patch.object(explicit_runs.ExplicitRuns, "_run", counted):
        run()
    return counts["rates"], counts["conditions"]


ROWS = [market_growth, large_system, module_changed, world3]
