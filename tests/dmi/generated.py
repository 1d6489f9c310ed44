"""Large systems of modules, made up: their texts, their data, and what they compute, by plain numpy.

Every equation is text that both fmepy and Python understand. The equations are made in an order in which each comes
after what it needs; so the reference evaluates them in this order, a loop until nothing moves in the last digit. Into
the modules they are dealt in any order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np

LENGTH = 5
STEPS = (1, 2, 4)
SIZE_OF_LOOP = 3
NAMES = {
    "sin": np.sin, "cos": np.cos, "exp": np.exp, "tanh": np.tanh, "abs": np.abs, "sum": np.sum, "dot": np.dot,
    "max": np.maximum, "min": np.minimum, "where": np.where, "table": np.interp,
}  # fmt: skip


@dataclass
class Equation:
    """One equation: of a level, or of an assigned variable."""

    name: str
    text: str
    step: int
    shape: tuple[int, ...] = ()
    is_level: bool = False
    loop: int = -1
    start: float = 0.0
    code: object = field(init=False)

    def __post_init__(self) -> None:
        self.code = compile(self.text, self.name, "eval")

    @property
    def line(self) -> str:
        """The statement."""
        return (
            f"d({self.name})/dt = {self.text}\n{self.name}(0) = {self.start}"
            if self.is_level
            else f"{self.name} = {self.text}"
        )


@dataclass
class Generated:
    """A system: modules as (name, text, step), data, and its equations in an order in which they can be evaluated."""

    modules: list[tuple[str, str, int]]
    constants: dict[str, object]
    series: dict[str, tuple[np.ndarray, np.ndarray]]
    equations: list[Equation]

    def data(self) -> dict[str, object]:
        """Return the data base as a dict."""
        return {**self.constants, **self.series}

    def sampled(self, name: str, times: np.ndarray) -> np.ndarray:
        """Return a series on other times."""
        return np.interp(times, *self.series[name])

    def reference(self, n_steps: int, dt: float) -> dict[str, np.ndarray]:
        """Return all variables at all steps."""
        values = {**NAMES, **{k: np.asarray(v) if np.ndim(v) else v for k, v in self.constants.items()}}
        levels = [e for e in self.equations if e.is_level]
        values |= {e.name: np.full(e.shape, e.start) if e.shape else e.start for e in levels}
        values |= {e.name: np.zeros(e.shape) for e in self.equations if not e.is_level}
        rates: dict[str, np.ndarray] = {}
        rows: dict[str, list[np.ndarray]] = {e.name: [] for e in self.equations}
        for k in range(n_steps + 1):
            for e in levels:
                if k > 0 and k % e.step == 0:
                    values[e.name] = values[e.name] + e.step * dt * rates[e.name]
            values |= {name: self.sampled(name, k * dt) for name in self.series}
            values["t"] = k * dt
            self._evaluate(values, k)
            for e in levels:
                if k % e.step == 0:
                    rates[e.name] = eval(e.code, {}, values)
            for e in self.equations:
                rows[e.name].append(np.broadcast_to(values[e.name], e.shape))
        return {name: np.array(row) for name, row in rows.items()}

    def _evaluate(self, values: dict[str, object], k: int) -> None:
        loops: dict[int, list[Equation]] = {}
        for e in self.equations:
            if e.is_level or k % e.step:
                continue
            if e.loop < 0:
                values[e.name] = np.broadcast_to(eval(e.code, {}, values), e.shape)
                continue
            group = loops.setdefault(e.loop, [])
            group.append(e)
            if len(group) < SIZE_OF_LOOP:
                continue
            for _ in range(200):
                before = [values[m.name] for m in group]
                for m in group:
                    values[m.name] = eval(m.code, {}, values)
                if before == [values[m.name] for m in group]:
                    break


def generated(n: int, seed: int = 1, n_loops: int = 5, duration: float = 150.0) -> Generated:
    """Return a system of n equations in n / 10 modules, n / 10 levels among them, 20 % vectors, n / 3 series."""
    rng = np.random.default_rng(seed)
    series = {f"u{i}": _series(rng, duration) for i in range(max(1, n // 3))}
    constants: dict[str, object] = {f"c{i}": round(float(rng.uniform(0.5, 1.5)), 3) for i in range(max(2, n // 10))}
    constants["A"] = (rng.uniform(-0.2, 0.2, (LENGTH, LENGTH))).round(3)
    maker = _Maker(rng, list(series), [c for c in constants if c != "A"])
    n_levels, looping = max(1, n // 10), SIZE_OF_LOOP * n_loops
    levels = [maker.level(i) for i in range(n_levels)]
    assigned: list[Equation] = []
    at = set(np.linspace(5, n - n_levels - looping, n_loops).astype(int).tolist()) if n_loops else set()
    while len(assigned) < n - n_levels:
        if len(assigned) - sum(e.loop >= 0 for e in assigned) in at:
            at.discard(len(assigned) - sum(e.loop >= 0 for e in assigned))
            assigned += maker.loop(n_loops - len(at) - 1)
        else:
            assigned.append(maker.assigned(len(assigned)))
    equations = assigned + [maker.with_rate(e) for e in levels]
    used = set(re.findall(r"\w+", " ".join(e.text for e in equations)))
    constants, series = ({k: v for k, v in data.items() if k in used} for data in (constants, series))
    return Generated(_dealt(rng, equations, max(3, n // 10)), constants, series, equations)


def _series(rng: np.random.Generator, duration: float) -> tuple[np.ndarray, np.ndarray]:
    times = np.linspace(0.0, duration, int(rng.integers(10, 40)))
    return times, rng.uniform(-1, 1, len(times)).round(4)


class _Maker:
    def __init__(self, rng: np.random.Generator, series: list[str], constants: list[str]) -> None:
        self.rng, self.series, self.constants = rng, cycle(series), cycle(constants)
        self.scalars: list[str] = []
        self.vectors: list[str] = []

    def _one(self, of: list[str], last: int = 60) -> str:
        return of[int(self.rng.integers(max(0, len(of) - last), len(of)))]

    def _scalar(self) -> str:
        kind = int(self.rng.integers(6))
        if kind in (0, 5) or not self.scalars:
            return next(self.series)
        if kind == 1:
            return next(self.constants)
        if kind == 2 and self.vectors:
            return f"{self._one(self.vectors)}[{int(self.rng.integers(LENGTH))}]"
        return self._one(self.scalars)

    def _step(self) -> int:
        return int(self.rng.choice(STEPS, p=[0.6, 0.2, 0.2]))

    def level(self, i: int) -> Equation:
        e = Equation(
            f"L{i}",
            "0",
            self._step(),
            (LENGTH,) if i % 5 == 2 else (),
            True,
            start=round(float(self.rng.uniform(-1, 1)), 3),
        )
        (self.vectors if e.shape else self.scalars).append(e.name)
        return e

    def with_rate(self, e: Equation) -> Equation:
        inflow = self._one(self.vectors) if e.shape else self._scalar()
        return Equation(
            e.name, f"({inflow} - {e.name}) / {self.rng.integers(5, 20)}", e.step, e.shape, True, start=e.start
        )

    def assigned(self, i: int) -> Equation:
        w = self.rng.uniform(0.1, 0.4, 3).round(3)
        a, b, c = (self._scalar() for _ in range(3))
        if self.rng.uniform() < 0.2 and self.vectors:
            x, y = self._one(self.vectors), self._one(self.vectors)
            text = str(self.rng.choice([
                f"{w[0]} * {x} - {w[1]} * sin({y}) + {w[2]} * {a}", f"dot(A, {x}) + {w[1]} * {a} * cos({y})",
                f"where({x} > {a}, {w[0]} * {y}, {w[1]} * {b})", f"max({w[0]} * {x}, {w[2]} * {a}) + {w[1]} * {y}",
            ]))  # fmt: skip
            e = Equation(f"v{i}", text, self._step(), (LENGTH,))
            self.vectors.append(e.name)
            return e
        whole = f"{w[0]} * sum({self._one(self.vectors)}) / 5" if self.vectors else f"{w[0]} * {c}"
        text = str(self.rng.choice([
            f"{w[0]} * {a} + {w[1]} * {b} - {w[2]} * {c}", f"{w[0]} * {a} * tanh({b}) + {w[1]} * exp(-{c} ** 2)",
            f"{w[0]} * {a} / (1 + {b} ** 2) + {w[1]} * sin({c} - t)", f"{whole} + {w[1]} * {b} - {w[2]} * abs({c})",
            f"{w[0]} * table({a}, [-1, 0, 0.5, 1], [0.2, 0.5, 1, 0.7]) + {w[1]} * {b}",
            f"where({a} > {b}, {w[0]} * {c}, {w[1]} * {a}) + {w[2]} * min({b}, {c})",
        ]))  # fmt: skip
        e = Equation(f"x{i}", text, self._step())
        self.scalars.append(e.name)
        return e

    def loop(self, number: int) -> list[Equation]:
        names = [f"p{number}_{i}" for i in range(SIZE_OF_LOOP)]
        w = self.rng.uniform(0.05, 0.2, 3).round(3)
        out = [
            Equation(name, f"{w[i]} * {names[i - 1]} + 0.3 * {self._scalar()}", 1, loop=number)
            for i, name in enumerate(names)
        ]
        self.scalars += names
        return out


def _dealt(rng: np.random.Generator, equations: list[Equation], n_modules: int) -> list[tuple[str, str, int]]:
    """Return the equations in modules of their step, in any order."""
    steps = [STEPS[i % 5 - 2] if i % 5 > 2 else 1 for i in range(n_modules)]
    steps[:3] = STEPS
    by_step = {s: [i for i, step in enumerate(steps) if step == s] for s in STEPS}
    held: list[list[Equation]] = [[] for _ in range(n_modules)]
    shapes = {e.name: e.shape for e in equations}
    for i in rng.permutation(len(equations)):
        e = equations[i]
        held[int(rng.choice(by_step[e.step]))].append(e)
    modules = []
    for i, mine in enumerate(held):
        text = "\n".join(e.line for e in mine)
        vectors = [n for n, shape in shapes.items() if shape and f"{n}" in text]
        named = [n for n in vectors if _names(text, n)]
        dims = [f"{n}[{LENGTH}]" for n in named] + ([f"A[{LENGTH},{LENGTH}]"] if _names(text, "A") else [])
        if mine:
            modules.append((f"m{i}", (f"dims {', '.join(dims)}\n" if dims else "") + text, steps[i]))
    return modules


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
