# mypy: ignore-errors
"""Kernels that tests translate: each writes into `out` what it finds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fmepy.compiled.dialect.types import structure
from fmepy.compiled.kernels import (
    call,
    choose_above,
    doubles,
    in_lanes,
    independent,
    inner,
    lanes,
    lanes_at,
    new,
    set_lanes,
    weighted,
)
from fmepy.types import Cube, IntVector, Matrix, Vector

WIDE, KINDS, WEIGHTS = 3, (1, 4), ((0.1,), (0.0, -0.7))


def halved(x: float, out: int):
    doubles(out, 1)[0] = x / 2


class Part(NamedTuple):
    """A tuple within another one."""

    flag: bool
    rows: Cube


class Job(NamedTuple):
    """What the kernels get."""

    n: int
    a: float
    x: Vector
    M: Matrix
    part: Part
    at: IntVector
    function: int
    out: Vector


class Work(NamedTuple):
    """A tuple of the kernel's own."""

    x: Vector
    where: IntVector
    inner: Part
    count: int


def numbers(job: Job):
    out, a, n = job.out, job.a, job.n
    out[0], out[1], out[2], out[3] = a + n, a - n, a * n, n / a
    out[4], out[5], out[6], out[7] = -a, a**2, a**-0.5, 2.0**n
    out[8], out[9] = 17 // n, 17 % n
    out[10] = min(a, 0.5, n)
    out[11] = max(a, math.nan)  # the first, since nothing beats it
    out[12] = max(math.nan, a)
    out[13] = abs(-a) + math.sqrt(a) + np.exp(-a) + math.log(a) + np.floor(a) + np.ceil(a)
    out[14] = int(a * 10.0) + float(n)
    out[15] = a / (a - a)
    out[16] = n * 3 - 7
    total = 0  # a whole number first, then a float
    for i in range(5):
        total += a * i
    out[17] = total
    out[18] = len(job.x) + job.M.shape[1] + WIDE


def choices(job: Job):
    out, a, n = job.out, job.a, job.n
    out[0] = 1.0 if a > 1 and n > 2 else 2.0
    out[1] = 1.0 if a > 1 or n > 100 else 2
    out[2] = 1.0 if not (n == 4 or n == 5) and a != 2 else 3.0
    out[3] = 1.0 if n in (1, 4) and n not in (2, 3) else 5.0
    out[4] = 1.0 if n in KINDS else 2.0
    out[5] = 1.0 if 0 < n <= 4 else 0.0
    out[6] = 1.0 if math.nan > a else 2.0
    out[7] = 1.0 if not math.nan <= a else 2.0
    k = -1
    while True:
        k += 1
        if k == 2:
            continue
        if k > 5:
            break
        out[8 + k] = k
    for i in range(10, 0, -3):
        out[20 + i] = i
    if job.part.flag:
        out[14] = 1.0
    elif a > 3:
        out[14] = 2.0
    else:
        out[14] = 3.0
    out[15] = (job.x if n > 3 else job.M[0])[1]
    out[16] = _early(n) + _early(100)


def _early(n):
    for i in range(10):
        if i > n:
            return i * 1.0
    return -1.0


def _pair(x, scale):
    return x[0] * scale, x[1] * scale


def arrays(job: Job):
    out, x, M, at = job.out, job.x, job.M, job.at
    first, second = _pair(x, 2.0)
    out[0], out[1] = first, second
    A, B = new(2, 3), new(2, 3)
    for i in range(2):
        for j in range(3):
            A[i, j] = M[at[i], j]
    A, B = B, A
    out[2], out[3] = A[1, 2], B[1, 2]
    rows = job.part.rows
    out[4] = rows[1][0, 2] + rows[1, 0, 1]
    part = rows[1:]
    out[5], out[6] = part.shape[0], part[0, 1, 1]
    flat = out[7:13].reshape((2, 3))
    flat[1, 2] = M[1, 2]
    flat[0, 1] += 2.5
    out[13] = x[-1]
    inner = M[1, 1:]
    out[14], out[15] = inner.shape[0], inner[0]
    n, d = M.shape
    out[16] = n * 10 + d
    out[17], out[18] = weighted(WEIGHTS[1], rows[1], 2), weighted(WEIGHTS[0], M, at[0], x[1])


def tuples(job: Job):
    work = Work(job.x, job.at, job.part, 3)
    work.x[0] = _of_work(work, None) + _of_work(work, job.M)
    job.out[0] = work.x[0]
    state = (job.a, job.out, 2)
    job.out[1] = state[0] * state[2]
    a, out, _ = state
    out[2] = a
    job.out[3] = _applied(_square, 3.0) + _applied(_cube, 2.0)


def at_an_address(words: int, out: int):
    job = structure(words, Job)
    doubles(out, 4)[0] = job.a + job.n + job.part.rows[1, 0, 2]
    doubles(out, 4)[1] = job.M[1, 2] + job.at[1] + _of_work(Work(job.x, job.at, job.part, 3), None)


def _of_work(work, M):
    if M is not None:
        return work.count + M[0, 0]
    return work.inner.rows[0, 0, 0] + work.where[1]


def _applied(function, x):
    return function(x)


def _square(x):
    return x * x


def _cube(x):
    return x * x * x


def calls(job: Job):
    row = new(3)
    call(job.function, job.a, job.x, row)
    for i in range(3):
        job.out[i] = row[i]


def sums(job: Job):
    out, x, rows = job.out, job.x, job.part.rows[0]
    for i in independent(3):
        out[i], out[3 + i] = weighted(WEIGHTS[0], rows, i, x[i]), 2.0 * x[i]
    flat = out[:6]
    for first in range(4):
        out[10 + first] = inner(flat, flat, first, 6)


def with_lanes(job: Job):
    flat, out = job.part.rows.reshape((12,)), job.out
    a, b = lanes_at(flat, 1, 4), lanes(job.a, flat[0], 2.0, job.x[1])
    for _ in range(2):
        a = a * b - 0.5 + job.a * a
    set_lanes(out, 3, -a / b)
    set_lanes(out, 16, choose_above(a, b, abs(a), 0.0) + np.sqrt(b * b))
    grid = in_lanes(new(3, 2, 8), 8)
    rows = grid[1:]
    for i in range(2):
        rows[0, i] = lanes_at(flat, i, 8)
        rows[1, i] = choose_above(job.a, 1.0, job.a, rows[0, i])
    rows[0, 1] += 2.0 * rows[1, 0]
    total = 0.0
    for i in range(2):
        total += rows[0, i] ** 2
    set_lanes(out, 20, total)
    set_lanes(out, 28, weighted(WEIGHTS[0], grid, 1, rows[0, 0]))
    out[39] = choose_above(job.a, 1.0, 3.0, job.x[0])
