"""The rows of problems from elsewhere: PEtab problems as costs, beside scipy's odeint and beside their own values."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import odeint

import fmepy as fme
from benchmarks import boehm
from benchmarks.row import Row, at_least, at_most
from benchmarks.rows_costs import somewhere_near
from benchmarks.timing import side_by_side
from fmepy.exchange.petab_layout import ATOL, RTOL
from tests.exchange.files import signalling

BOEHM = Path(__file__).parent.parent / "data" / "boehm" / "Boehm_JProteomeRes2014.yaml"
FIRST_SCORE = 3.0
"""Seconds that a first score may take."""


def boehm_by_hand(theta: np.ndarray) -> float:
    """Return -2 log L of Boehm's data, rates in Python, at the tolerances of the problem's runs."""
    rates, sds = dict(zip(boehm.RATES, theta[:6], strict=True)), theta[6:]
    start = [207.6 * 0.693, 207.6 * (1 - 0.693), *[0.0] * 6]
    y = odeint(lambda y, t: boehm.dimers(t, *y, **rates), start, boehm.TIMES, rtol=RTOL, atol=ATOL)
    total = 0.0
    for predicted, measured, sd in zip(boehm.observed(*y.T[:5]), boehm.DATA.values(), sds, strict=True):
        total += (((predicted - np.array(measured)) / sd) ** 2 + np.log(2 * np.pi * sd**2)).sum()
    return float(total)


def boehm_from_its_files() -> Row:
    """Take a value of Boehm's likelihood, as read from PEtab, beside odeint; its score, and the first of all."""
    began = time.perf_counter()
    read = fme.read_petab(BOEHM)
    bound = read.cost.bind(list(read.start.index))
    theta = bound.theta0.copy()
    bound.score(theta)
    first = time.perf_counter() - began
    own = np.array([*boehm.NOMINAL, *boehm.SDS.values()])
    assert abs(bound.minus2loglik(theta) - boehm.MINUS2LOGLIK) < 1e-4
    assert abs(boehm_by_hand(own) - boehm.MINUS2LOGLIK) < 1e-4
    point, by_hand = somewhere_near(theta), somewhere_near(own)
    ours, hand, score = side_by_side(
        lambda: bound.minus2loglik(point()), lambda: boehm_by_hand(by_hand()), lambda: bound.score(point())
    )
    goals = [
        at_least(hand / ours, 8, "{:.1f} times the speed of odeint"),
        at_most(first, FIRST_SCORE, "read, compiled and the first score in {:.2f} s"),
        at_most(score / ours, 8, "a score of 9 parameters is {:.1f} values"),
    ]
    return Row("-2 log L of Boehm's problem, read from PEtab", ours, "odeint, rates in Python", hand, goals)


def signalling_with_inputs() -> Row:
    """Take the score of 19 parameters over six conditions with an input in pieces, beside a value."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        bound: Any = fme.read_petab(signalling(Path(folder))).fit_cost.bind()
        theta = bound.theta0.copy()
        score = bound.score(theta)
        first = time.perf_counter() - began
    wanted = [bound.minus2loglik(theta + h) - bound.minus2loglik(theta - h) for h in 1e-4 * np.eye(len(theta))]
    np.testing.assert_allclose(-2 * score, np.array(wanted) / 2e-4, rtol=1e-4, atol=1e-4 * np.abs(score).max())
    point = somewhere_near(theta)
    ours, of_score = side_by_side(lambda: bound.minus2loglik(point()), lambda: bound.score(point()))
    goals = [
        at_most(of_score / ours, 40, "a score of 19 parameters is {:.1f} values"),
        at_most(first, FIRST_SCORE, "read, compiled and the first score in {:.2f} s"),
    ]
    return Row("-2 log L of a problem built as Fujita's", ours, "its score", of_score, goals)


ROWS = [boehm_from_its_files, signalling_with_inputs]
