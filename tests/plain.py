"""Numbers that keep a model's function from being turned into equations."""

from __future__ import annotations

import math


def plain(x):
    """Return x, by a function that has no symbolic form: what calls it runs as Python."""
    return math.ldexp(x, 0)
