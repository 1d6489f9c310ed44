"""NIST's 27 certified nonlinear regressions: data, models, starts, certified values (tests/reference/nist)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy import arctan, cos, exp, pi, sin

FOLDER = Path(__file__).parents[1] / "reference" / "nist"


def _lanczos(b, x):
    return b[0] * exp(-b[1] * x) + b[2] * exp(-b[3] * x) + b[4] * exp(-b[5] * x)


def _gauss(b, x):
    first, second = b[2] * exp(-((x - b[3]) ** 2) / b[4] ** 2), b[5] * exp(-((x - b[6]) ** 2) / b[7] ** 2)
    return b[0] * exp(-b[1] * x) + first + second


def _chwirut(b, x):
    return exp(-b[0] * x) / (b[1] + b[2] * x)


def _cubics(b, x):
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _saturating(b, x):
    return b[0] * (1 - exp(-b[1] * x))


def _enso(b, x):
    waves = b[0] + b[1] * cos(2 * pi * x / 12) + b[2] * sin(2 * pi * x / 12)
    waves = waves + b[4] * cos(2 * pi * x / b[3]) + b[5] * sin(2 * pi * x / b[3])
    return waves + b[7] * cos(2 * pi * x / b[6]) + b[8] * sin(2 * pi * x / b[6])


MODELS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": _saturating,
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": _enso,
    "Eckerle4": lambda b, x: b[0] / b[1] * exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "Hahn1": _cubics,
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Lanczos1": _lanczos,
    "Lanczos2": _lanczos,
    "Lanczos3": _lanczos,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * exp(-x * b[3]) + b[2] * exp(-x * b[4]),
    "Misra1a": _saturating,
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** (-2)),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** (-0.5)),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[:, 0] * exp(-b[2] * x[:, 1]),
    "Rat42": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - arctan(b[2] / (x - b[3])) / pi,
    "Thurber": _cubics,
}


@dataclass(frozen=True)
class Certified:
    name: str
    starts: tuple[np.ndarray, np.ndarray]
    par: np.ndarray
    std_error: np.ndarray
    ssr: float
    x: np.ndarray
    y: np.ndarray

    def residuals(self, b):
        with np.errstate(all="ignore"):  # far parameters overflow; what is not finite counts as a failed run
            return MODELS[self.name](np.asarray(b, dtype=float), self.x) - self.y


@cache
def certified(name: str) -> Certified:
    text = (FOLDER / f"{name}.dat").read_text()
    rows = re.findall(r"^\s*b\d\s*=\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*$", text, flags=re.MULTILINE)
    first, second, par, std_error = np.array(rows, dtype=float).T
    (ssr,) = re.findall(r"Residual Sum of Squares:\s+(\S+)", text)
    data = text[text.rindex("Data:") :].split("\n", 1)[1]
    table = np.array([[float(v) for v in line.split()] for line in data.splitlines() if line.strip()])
    y, x = table[:, 0], table[:, 1:]
    if name == "Nelson":  # its model is of log y, in two predictors
        y = np.log(y)
    return Certified(name, (first, second), par, std_error, float(ssr), x if x.shape[1] > 1 else x[:, 0], y)
