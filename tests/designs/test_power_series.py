"""Series over a prime field against the equations that define them, with their derivatives to the parameters."""

from contextlib import suppress

import numpy as np
import pytest

from fmepy.designs.power_series import PRIME, SingularStartError, Truncated
from fmepy.language.text import parse_expression

ORDER, U = 6, "2 + p*t + q + t**2/3"


def series(*texts):
    """Return the coefficients of expressions at parameters where all of their square roots are whole numbers."""
    for value in range(11, 100):
        with suppress(SingularStartError):
            return series_at(value, texts)
    raise AssertionError("half of all numbers have a square root")


def series_at(value, texts):
    """Return the coefficients of expressions of time and two parameters, as whole numbers."""
    t, p, q = (parse_expression(n) for n in "tpq")
    out = Truncated(ORDER, 2, np.random.default_rng(3), {t})
    out.known[t] = out.new(5)
    out.known[t][1, 0] = 1
    out.known[p], out.known[q] = out.constant(7, 0), out.constant(value, 1)
    rows = [out.of(parse_expression(text)) for text in texts]
    for k in range(ORDER + 1):
        out.coefficient(k)
    return [r.astype(object) for r in rows]


def product(a, b):
    """Return the product of two series of values and derivatives."""
    out = np.zeros_like(a)
    for k in range(len(a)):
        for j in range(k + 1):
            out[k, 0] += a[j, 0] * b[k - j, 0]
            out[k, 1:] += a[j, 0] * b[k - j, 1:] + a[j, 1:] * b[k - j, 0]
    return out % PRIME


def slope(a):
    """Return the derivative to time, one coefficient shorter."""
    return a[1:] * np.arange(1, len(a)).astype(object)[:, None] % PRIME


@pytest.mark.parametrize(
    "text",
    [
        f"sqrt({U})**2 - ({U})",
        f"sin({U})**2 + cos({U})**2 - 1",
        f"exp({U})*exp(-({U})) - 1",
        f"({U})**3/({U})**2 - ({U})",
        f"1/sqrt({U}) - sqrt({U})/({U})",
        f"cosh({U})**2 - sinh({U})**2 - 1",
    ],
)
def test_identities_hold_in_all_coefficients_and_derivatives(text):
    (zero,) = series(text)
    assert not (zero % PRIME).any()


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        (f"exp({U})", "1", f"exp({U})"),
        (f"log({U})", U, "1"),
        (f"({U})**q", U, f"q*({U})**q"),
        (f"tanh({U})", "1", f"1 - tanh({U})**2"),
        (f"atan({U})", f"1 + ({U})**2", "1"),
    ],
)
def test_functions_fulfil_their_differential_equations(text, left, right):
    z, a, b, u = series(text, left, right, U)
    np.testing.assert_array_equal(product(slope(z), a[:-1]), product(slope(u), b[:-1]))
    assert slope(z)[:, 0].all()
    # at the start: dz/dp = (dz/du) du/dp
    per_u = b[0, 0] * pow(int(a[0, 0]), PRIME - 2, PRIME)
    if text != f"({U})**q":
        np.testing.assert_array_equal(z[0, 1:], per_u * u[0, 1:] % PRIME)
    else:
        assert z[0, 1] == per_u * u[0, 1] % PRIME


def test_a_logarithm_is_the_same_wherever_it_stands():
    a, b = series(f"log({U})*q", f"q*log({U})")
    np.testing.assert_array_equal(a, b)
