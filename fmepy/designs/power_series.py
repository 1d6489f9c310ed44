"""The power series of a model's outputs, and their derivatives to the parameters, over a prime field.

At random parameters every number is a remainder modulo the prime 2^31 - 1, so that sums and products are exact, and the
coefficient of t^k of every part of the equations follows from those before (Sedoglavic 2002, J. Symb. Comput. 33)::

    a b:     (a b)_k = sum_j a_j b_{k-j}                1/b:   r_k = (delta_k0 - sum_{j>0} b_j r_{k-j}) / b_0
    x' = f:  x_{k+1} = f_k / (k + 1)                    z = exp(u), log(u), u^a, sin(u), ...:  z' = ... u', likewise

What is no rational function is one of an auxiliary state, whose value at the start is any number: its derivative to the
parameters is what counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

import numpy as np

from fmepy.errors import ModelError
from fmepy.language.nodes import HALF, ONE, TABLE, Node, Number, Symbol, as_node, call, in_order, number
from fmepy.types import IntMatrix

PRIME = 2**31 - 1
_MOST_PRODUCTS = 16  # whole powers up to which a power is a product


class SingularStartError(Exception):
    """A part of the equations has no power series at the start: something is divided by zero there."""


def inverse(a: int) -> int:
    """Return 1/a; SingularStartError of zero."""
    if a % PRIME == 0:
        raise SingularStartError
    return pow(int(a), PRIME - 2, PRIME)


def remainder(value: float) -> int:
    """Return a number as it was written, 0.1 as 1/10."""
    exact = Fraction(repr(float(value)))
    return exact.numerator * inverse(exact.denominator) % PRIME


class Truncated:
    """Series of the parts of expressions, row k of each its coefficient of t^k: the value, then the derivatives.

    Parameters
    ----------
    order : int
        The last coefficient.
    n_par : int
        Parameters to whom there are derivatives.
    rng : Generator
        Of what may be any number.
    moving : set of Symbol
        States, inputs and the time; other symbols are constants.
    """

    def __init__(self, order: int, n_par: int, rng: np.random.Generator, moving: Set[Symbol]) -> None:
        self.order, self._width, self._rng, self.moving = order, n_par + 1, rng, moving
        self._fixed: set[int] = set()  # series that are constants, by their id: they live as long as this
        self.known: dict[Node, IntMatrix] = {}
        self._steps: list[Callable[[int], None]] = []
        self._any: dict[tuple[Any, ...], int] = {}

    def new(self, value: int = 0, parameter: int | None = None) -> IntMatrix:
        """Return a series with a value at the start, else zero; `parameter`: to which it has the derivative 1."""
        out = np.zeros((self.order + 1, self._width), dtype=np.int64)
        out[0, 0] = value % PRIME
        if parameter is not None:
            out[0, 1 + parameter] = 1
        return out

    def random_number(self, *of: Any) -> int:
        """Return a random number, the same for the same arguments."""
        if of not in self._any or not of:
            self._any[of] = int(self._rng.integers(2, PRIME - 2))
        return self._any[of]

    def constant(self, value: int, parameter: int | None = None) -> IntMatrix:
        """Return a series that is a constant."""
        out = self.new(value, parameter)
        self._fixed.add(id(out))
        return out

    def coefficient(self, k: int) -> None:
        """Compute the coefficients of t^k of all parts."""
        for step in self._steps:
            step(k)

    def of(self, e: Node) -> IntMatrix:
        """Return the series of an expression; its coefficients are there once `coefficient` was called."""
        for part in in_order([e], self.known.__contains__):
            if part not in self.known:
                self.known[part] = self._series_of(part)
        return self.known[e]

    # --- parts

    def _series_of(self, e: Node) -> IntMatrix:
        if isinstance(e, Number):
            return self.constant(0 if math.isnan(e.value) else remainder(e.value))  # of a branch that is left out
        if isinstance(e, Symbol):  # a transcendental number, such as log 2
            return self.constant(self.random_number(e.name))
        parts = [self.known[a] for a in e.args]
        if e.word in ("shared", "abs", "nan_of", "positive"):  # which sign a size has is no matter close by
            return parts[0]
        if e.word == "where" and any(isinstance(a, Number) and math.isnan(a.value) for a in e.args[2:]):
            no = e.args[3]  # one branch has a value, such as that of an interpolant within its points
            return parts[2] if isinstance(no, Number) and math.isnan(no.value) else parts[3]
        if e.word == "+":
            return self._sum(parts)
        if e.word == "*":
            return self._product(parts)
        if e.word == "**":
            return self._power(e.args[0], e.args[1])
        if e.word in _REWRITTEN:
            return self.of(_REWRITTEN[e.word](*e.args))
        if e.word in _TRANSCENDENTAL:
            return _TRANSCENDENTAL[e.word](self, e.args[0])
        own = TABLE.get(e.word)
        if own is not None and own.slopes is not None and len(e.args) == 1 and not own.jumps:  # of `add_function`
            (slope,) = own.slopes(e, *e.args)
            if e not in in_order([slope := as_node(slope)]):
                return Truncated.primitive(e.word, lambda _: slope)(self, e.args[0])
            raise ModelError(
                f"Structural identifiability is of equations that have power series, and the derivative of {e.word!r} "
                "is given by its own value. Write its slope in terms of its argument, or the model without it."
            )
        raise ModelError(
            f"Structural identifiability is of equations that have power series, and {e.word!r} has none where it "
            "changes branch. Judge the model of one branch, with the expression of that branch in its place."
        )

    def _step(self, fill: Callable[[int, IntMatrix], None]) -> IntMatrix:
        out = self.new()
        self._steps.append(lambda k: fill(k, out))
        return out

    def _sum(self, parts: Sequence[IntMatrix]) -> IntMatrix:
        def fill(k: int, out: IntMatrix) -> None:
            out[k] = sum(p[k] for p in parts) % PRIME

        return self._step(fill)

    def _product(self, parts: Sequence[IntMatrix]) -> IntMatrix:
        out = parts[0]
        for other in parts[1:]:
            out = self._times(out, other)
        return out

    def _times(self, a: IntMatrix, b: IntMatrix) -> IntMatrix:
        if id(b) in self._fixed:
            a, b = b, a
        is_fixed = id(a) in self._fixed

        def fill(k: int, out: IntMatrix) -> None:
            out[k] = _convolution(a[:1], b[k:], 0, 0) if is_fixed else _convolution(a, b, k, 0)

        return self._step(fill)

    def _reciprocal(self, b: IntMatrix) -> IntMatrix:
        def fill(k: int, out: IntMatrix) -> None:
            first = inverse(b[0, 0])
            rest = -_convolution(b, out, k, 1) % PRIME
            rest[0] = (rest[0] + (k == 0)) % PRIME
            out[k, 0] = rest[0] * first % PRIME
            out[k, 1:] = (rest[1:] - out[k, 0] * b[0, 1:] % PRIME) % PRIME * first % PRIME

        return self._step(fill)

    def _slope(self, u: IntMatrix) -> IntMatrix:
        """Return u', whose coefficients lag: that of t^(k-1) is there with that of t^k of u."""

        def fill(k: int, out: IntMatrix) -> None:
            if k:
                out[k - 1] = k * u[k] % PRIME

        return self._step(fill)

    def _integral(self, factors: Sequence[IntMatrix | None], start: Callable[[], tuple[int, Any]]) -> IntMatrix:
        """Return z with a value at the start and z' the product of some series, of which None is z itself."""
        out = self.new()
        product = [self.new() for _ in factors]

        def fill(k: int) -> None:
            if k == 0:
                out[0, 0], out[0, 1:] = start()
                return
            series = [out if f is None else f for f in factors]
            product[0] = series[0]
            for j in range(1, len(series)):
                product[j][k - 1] = _convolution(product[j - 1], series[j], k - 1, 0)
            out[k] = product[-1][k - 1] * inverse(k) % PRIME

        self._steps.append(fill)
        return out

    def _power(self, base: Node, exponent: Node) -> IntMatrix:
        u = self.known[base]
        if isinstance(exponent, Number) and abs(exponent.value) in range(1, _MOST_PRODUCTS):
            n = int(abs(exponent.value))
            whole = self._product([u] * n)
            return self._reciprocal(whole) if exponent.value < 0 else whole
        if exponent.free_symbols & self.moving:
            return self.of(call("exp", exponent * call("log", base)))
        a = self.known[exponent]
        half = isinstance(exponent, Number) and exponent.value == 0.5
        turned = self._reciprocal(u)

        def start() -> tuple[int, Any]:
            value = int(u[0, 0])
            z = _root(value) if half else self.random_number("power", value, int(a[0, 0]))
            log = self.random_number("log", value)
            slope = int(a[0, 0]) * inverse(value) % PRIME * u[0, 1:] % PRIME + log * a[0, 1:] % PRIME
            return z, z * (slope % PRIME) % PRIME

        return self._integral([None, a, self._slope(u), turned], start)

    def _exp(self, e: Node) -> IntMatrix:
        if e.word == "*" and isinstance(e.args[0], Number) and e.args[0].value < 0:  # so that exp(-u) exp(u) = 1
            return self.of(ONE / call("exp", -e))
        u = self.of(e)

        def start() -> tuple[int, Any]:
            z = 1 if not u[0].any() else self.random_number("exp", int(u[0, 0]))
            return z, z * u[0, 1:] % PRIME

        return self._integral([None, self._slope(u)], start)

    def _log(self, e: Node) -> IntMatrix:
        u = self.of(e)

        def start() -> tuple[int, Any]:
            value = int(u[0, 0])
            return self.random_number("log", value), inverse(value) * u[0, 1:] % PRIME

        return self._integral([self._slope(u), self._reciprocal(u)], start)

    @staticmethod
    def primitive(word: str, slope: Callable[[Node], Node]) -> Callable[[Truncated, Node], IntMatrix]:
        """Return what makes the series of a function with the derivative `slope`."""

        def made(self: Truncated, e: Node) -> IntMatrix:
            u, factor = self.of(e), self.of(as_node(slope(e)))

            def start() -> tuple[int, Any]:
                return self.random_number(word, int(u[0, 0])), int(factor[0, 0]) * u[0, 1:] % PRIME

            return self._integral([factor, self._slope(u)], start)

        return made

    def _circle(self, e: Node) -> tuple[IntMatrix, IntMatrix]:
        """Return sine and cosine."""
        key = call("sin", e), call("cos", e)
        if key[0] not in self.known or key[1] not in self.known:
            u = self.of(e)
            du, sine, cosine = self._slope(u), self.new(), self.new()

            def fill(k: int) -> None:
                if k == 0:
                    m = 0 if not u[0].any() else self.random_number("circle", int(u[0, 0]))
                    below = inverse(1 + m * m)
                    sine[0, 0], cosine[0, 0] = 2 * m * below % PRIME, (1 - m * m) * below % PRIME
                    sine[0, 1:], cosine[0, 1:] = cosine[0, 0] * u[0, 1:] % PRIME, -sine[0, 0] * u[0, 1:] % PRIME
                else:
                    sine[k] = _convolution(cosine, du, k - 1, 0) * inverse(k) % PRIME
                    cosine[k] = -_convolution(sine, du, k - 1, 0) * inverse(k) % PRIME

            self._steps.append(fill)
            self.known[key[0]], self.known[key[1]] = sine, cosine
        return self.known[key[0]], self.known[key[1]]


def _convolution(a: IntMatrix, b: IntMatrix, k: int, first: int) -> Any:
    """Return the coefficient of t^k of a b, the terms from a_first on: its value, then the derivatives."""
    left, right = a[first : k + 1], b[k - first :: -1] if k >= first else b[:0]
    out = (left[:, :1] * right % PRIME).sum(axis=0)
    out[1:] += (left[:, 1:] * right[:, :1] % PRIME).sum(axis=0)
    return out % PRIME


def _root(value: int) -> int:
    """Return a square root; SingularStartError where there is none, so that another point is taken."""
    z = pow(value, (PRIME + 1) // 4, PRIME)
    if z * z % PRIME != value or not z:
        raise SingularStartError
    return z


def _hyperbolic(sign: float) -> Callable[[Node], Node]:
    return lambda u: (call("exp", u) + sign / call("exp", u)) * HALF


_TWO = number(2.0)
_REWRITTEN: dict[str, Callable[..., Node]] = {
    "sqrt": lambda u: u**HALF,
    "cbrt": lambda u: u ** number(1 / 3),
    "expit": lambda u: ONE / (ONE + call("exp", -u)),
    "expm1": lambda u: call("exp", u) - ONE,
    "log1p": lambda u: call("log", ONE + u),
    "sinh": _hyperbolic(-1.0),
    "cosh": _hyperbolic(1.0),
    "tanh": lambda u: ONE - _TWO / (call("exp", _TWO * u) + ONE),
    "tan": lambda u: call("sin", u) / call("cos", u),
    "hypot": lambda u, v: (u * u + v * v) ** HALF,
    "exp2": lambda u: call("exp", Symbol("log 2") * u),
    "log2": lambda u: call("log", u) / Symbol("log 2"),
    "log10": lambda u: call("log", u) / Symbol("log 10"),
}
_SLOPES: Mapping[str, Callable[[Node], Node]] = {
    "atan": lambda u: ONE / (ONE + u * u),
    "atanh": lambda u: ONE / (ONE - u * u),
    "asin": lambda u: (ONE - u * u) ** (-HALF),
    "acos": lambda u: -((ONE - u * u) ** (-HALF)),
    "asinh": lambda u: (ONE + u * u) ** (-HALF),
    "acosh": lambda u: (u * u - ONE) ** (-HALF),
}
_TRANSCENDENTAL: dict[str, Callable[[Truncated, Node], IntMatrix]] = {
    "exp": Truncated._exp,
    "log": Truncated._log,
    "sin": lambda series, u: series._circle(u)[0],
    "cos": lambda series, u: series._circle(u)[1],
    **{word: Truncated.primitive(word, slope) for word, slope in _SLOPES.items()},
}
