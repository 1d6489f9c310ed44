"""Which parameters have one value only: a Gröbner basis of the equations that the coefficients of the outputs are.

The coefficients c_k of the power series of the outputs are rational functions of the parameters. At a random point p*
the equations ``c_k(p) = c_k(p*)`` are polynomials, over the prime field of `power_series`; a parameter of which the
basis says ``p_i = p*_i`` has no other value (Hong et al. 2020). That runs in a separate process with a limit of time: a
basis of a few polynomials may take seconds or years.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from fmepy.designs.power_series import PRIME, remainder
from fmepy.language.nodes import Node, Number, Symbol, in_order

MOST_PARAMETERS = 6
SECONDS = 5
"""Of a processor, whatever else the machine does; a machine that cannot count them gives them by the clock."""
LONGEST = 60
"""Seconds by the clock."""
_RATIONAL = ("+", "*", "**", "shared", "number", "symbol")


def unique_parameters(case: Any, names: Sequence[str]) -> set[str]:
    """Return the parameters that are proven to have one value; a note says where the proof was not completed."""
    expressions = [*case.rates, *case.initial, *(case.outputs[n] for n in case.observed)]
    nodes = in_order(expressions, set[Node]().__contains__)
    nodes = list(dict.fromkeys(nodes))
    whole = all(e.word in _RATIONAL and (e.word != "**" or _is_whole(e.args[1])) for e in nodes)
    if not names or len(case.names) > MOST_PARAMETERS or not whole:
        return set()
    if find_spec("sympy") is None:
        case.notes.append("Whether a parameter has one value only was not tried: that needs sympy (pip install sympy).")
        return set()
    place = {e: i for i, e in enumerate(nodes)}
    task = {
        "names": case.names, "known": case.known, "states": case.states, "forcings": case.forcings,
        "time": case.time.name, "start": remainder(case.start), "rows": [_row(e, place) for e in nodes],
        "rates": [place[e] for e in case.rates], "initial": [place[e] for e in case.initial],
        "observed": [place[case.outputs[n]] for n in case.observed], "wanted": list(names),
    }  # fmt: skip
    command = [sys.executable, "-m", "fmepy.designs.uniqueness"]
    try:
        done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, timeout=LONGEST)
        output, is_late = done.stdout, done.returncode != 0
    except subprocess.TimeoutExpired as late:
        output, is_late = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or "", True
    if is_late:
        case.notes.append(f"Whether a parameter has one value only was tried for {SECONDS} s, not to the end.")
    lines = output.strip().splitlines()
    return set(json.loads(lines[-1])) if lines else set()


def _is_whole(e: Node) -> bool:
    return isinstance(e, Number) and e.value == int(e.value)


def _row(e: Node, place: dict[Node, int]) -> list[Any]:
    if isinstance(e, Number):
        return ["number", remainder(e.value), int(e.value) if e.value == int(e.value) else 0]
    return ["symbol", e.name] if isinstance(e, Symbol) else [e.word, *(place[a] for a in e.args)]


# --- in a separate process


def main() -> None:
    """Read a task, and write after each further coefficient, as a line, what is proven so far."""
    import random

    from sympy import GF, field, groebner, ring

    _limit_time()
    task = json.load(sys.stdin)
    names, rng = task["names"], random.Random(1)
    F = field(names, GF(PRIME))[0]
    there = [rng.randrange(2, PRIME - 2) for _ in names]
    order = len(names) + len(task["states"]) + 2
    series = _Series(task, F, rng, order)
    R, *x = ring([*names, "saturation"], GF(PRIME))
    equations, proven, wanted = [], set[str](), set(task["wanted"])
    below = R(1)
    for k in range(order):
        for c in series.coefficient(k):
            numerator, denominator = c.numer, c.denom
            value = _at(numerator, there) * pow(_at(denominator, there), PRIME - 2, PRIME) % PRIME
            equation = numerator - denominator * value
            if equation and not equation.is_ground:
                equations.append(_embedded(equation, R))
                if not denominator.is_ground:
                    below = (below * _embedded(denominator, R)).quo(below.gcd(_embedded(denominator, R)))
        if len(equations) < len(wanted):
            continue
        basis = groebner([*(e.as_expr() for e in equations), (1 - x[-1] * below).as_expr()], *R.symbols,
                         modulus=PRIME, order="grevlex")  # fmt: skip
        for i, name in enumerate(names):
            if name in wanted - proven and basis.contains(R.symbols[i] - there[i]):
                proven.add(name)
        sys.stdout.write(f"{json.dumps(sorted(proven))}\n")
        sys.stdout.flush()
        if proven == wanted:
            return


def _limit_time() -> None:
    """Limit the processor time of this process to `SECONDS` from now on."""
    try:
        import resource
    except ImportError:  # Windows
        threading.Timer(SECONDS, os._exit, [1]).start()
        return
    limit = int(time.process_time()) + SECONDS + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))


class _Series:
    """Power series of the rows of a task, their coefficients rational functions of the parameters."""

    def __init__(self, task: dict[str, Any], F: Any, rng: Any, order: int) -> None:
        self.rows, self.task, self.F = task["rows"], task, F
        values = dict(zip(task["names"], F.gens, strict=True))
        self.fixed = {**values, **{n: F(rng.randrange(2, PRIME - 2)) for n in task["known"]}}
        self.inputs = {n: [F(rng.randrange(2, PRIME - 2)) for _ in range(order + 1)] for n in task["forcings"]}
        self.inputs[task["time"]] = [F(task["start"]), F(1), *[F(0)] * order]
        self.known: dict[tuple[int, int], Any] = {}
        self.states: dict[str, list[Any]] = {n: [] for n in task["states"]}
        for name, i in zip(self.states, task["initial"], strict=True):
            self.states[name].append(self.of(i, 0))
        self.known.clear()

    def coefficient(self, k: int) -> list[Any]:
        """Return the coefficients of t^k of what is observed."""
        out = [self.of(i, k) for i in self.task["observed"]]
        rates = [self.of(i, k) for i in self.task["rates"]]
        for name, rate in zip(self.states, rates, strict=True):
            self.states[name].append(rate / self.F(k + 1))
        return out

    def of(self, i: int, k: int) -> Any:
        """Return a coefficient of a row."""
        if (i, k) not in self.known:
            self.known[i, k] = self._series_of(i, k)
        return self.known[i, k]

    def _series_of(self, i: int, k: int) -> Any:
        word, *parts = self.rows[i]
        zero = self.F(0)
        if word == "number":
            return self.F(parts[0]) if k == 0 else zero
        if word == "symbol":
            name = parts[0]
            if name in self.states:
                return self.states[name][k]
            return self.inputs[name][k] if name in self.inputs else self.fixed[name] if k == 0 else zero
        if word == "shared":
            return self.of(parts[0], k)
        if word == "+":
            return sum((self.of(j, k) for j in parts), zero)
        if word == "*":
            return self._product([lambda m, j=j: self.of(j, m) for j in parts], k)
        n = self.rows[parts[1]][2]
        whole = [lambda m: self.of(parts[0], m)] * abs(n)
        if n > 0:
            return self._product(whole, k)
        first = self._product(whole, 0)
        rest = sum((self._product(whole, j) * self.of(i, k - j) for j in range(1, k + 1)), zero)
        return ((self.F(1) if k == 0 else zero) - rest) / first

    def _product(self, parts: list[Any], k: int) -> Any:
        if len(parts) == 1:
            return parts[0](k)
        first, *others = parts
        return sum((first(j) * self._product(others, k - j) for j in range(k + 1)), self.F(0))


def _at(polynomial: Any, values: Sequence[int]) -> int:
    total = 0
    for powers, c in polynomial.terms():
        term = int(c)
        for v, n in zip(values, powers, strict=True):
            term = term * pow(v, n, PRIME) % PRIME
        total += term
    return total % PRIME


def _embedded(polynomial: Any, R: Any) -> Any:
    """Return a polynomial as one of the ring with one more variable."""
    return R.from_dict({(*powers, 0): c for powers, c in polynomial.terms()})


if __name__ == "__main__":
    main()
