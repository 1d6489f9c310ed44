"""The analytic problems of the reference runs: residuals, Jacobians, starts, boxes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

REFERENCE = Path(__file__).parents[1] / "reference" / "fme"


@cache
def cases(topic: str) -> dict[str, dict[str, Any]]:
    found = json.loads((REFERENCE / f"{topic}.json").read_text())["cases"]
    return {c["id"]: c for c in found}


def case(name: str) -> dict[str, Any]:
    return cases("modFit")[name]


@dataclass(frozen=True)
class Problem:
    name: str
    start: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    x: np.ndarray
    y: np.ndarray
    curve: Any
    slopes: Any
    ssr: float

    def residuals(self, p):
        return self.y - self.curve(np.asarray(p), self.x)

    def jacobian(self, p):
        return -self.slopes(np.asarray(p), self.x)

    def box(self):
        return {"lower": self.lower, "upper": self.upper}


def _data(name, x="x", y="y"):
    problem = case(name)["inputs"]["problem"]
    return np.array(problem[x], dtype=float), np.array(problem[y], dtype=float)


def monod():
    def slopes(p, x):
        return np.column_stack([x / (x + p[1]), -p[0] * x / (x + p[1]) ** 2])

    x, y = _data("monod_truth")
    return Problem("monod", (0.12, 30.0), (0.01, 1.0), (1.0, 500.0), x, y, lambda p, x: p[0] * x / (x + p[1]), slopes,
                   case("monod_truth")["outputs"]["ssr"])  # fmt: skip


def bod():
    def slopes(p, x):
        return np.column_stack([1 - np.exp(-p[1] * x), p[0] * x * np.exp(-p[1] * x)])

    x, y = _data("bod_Marq")
    return Problem("bod", (20.0, 1.0), (1.0, 0.01), (100.0, 10.0), x, y, lambda p, x: p[0] * (1 - np.exp(-p[1] * x)),
                   slopes, case("bod_Marq")["outputs"]["ssr"])  # fmt: skip


def logistic():
    def curve(p, t):
        r, K, N0 = p
        return K / (1 + (K / N0 - 1) * np.exp(-r * t))

    def slopes(p, t):
        r, K, N0 = p
        e = np.exp(-r * t)
        d = 1 + (K / N0 - 1) * e
        return np.column_stack([K * (K / N0 - 1) * t * e / d**2, 1 / d - K * e / N0 / d**2, K**2 * e / N0**2 / d**2])

    x, y = _data("logistic_Marq", "t", "N")
    return Problem("logistic", (0.4, 80.0, 0.2), (0.0, 1.0, 0.001), (5.0, 150.0, 10.0), x, y, curve, slopes,
                   case("logistic_Marq")["outputs"]["ssr"])  # fmt: skip


PROBLEMS = [monod(), bod(), logistic()]
