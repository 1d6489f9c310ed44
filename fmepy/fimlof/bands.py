"""Bands around states and outputs: symmetric, or on the scale of logarithms for what cannot be negative.

A state is taken for positive if it, or an output that is nothing but it, is read on a logarithmic or square root scale;
or if neither its equation nor its noise moves it where it is zero (growth in proportion to itself, with noise in
proportion to itself). What is known of it as mean and sd is then shown as a log-normal band of the same sd in
proportion, mean exp(+-q sd / mean), which keeps above zero. Of all others nothing of the kind is known: their bands are
mean +- q sd, which may go below zero although no value ever does. Quantiles of draws need no such rule.
"""

from __future__ import annotations

import numpy as np

from fmepy.filtering.statespace import StateSpace
from fmepy.fimlof.outputs import outputs_of
from fmepy.fimlof.specification import Specification
from fmepy.language.equations import symbol
from fmepy.language.nodes import ZERO, Symbol
from fmepy.types import Matrix


def positive_names(spec: Specification) -> set[str]:
    """Return the states and outputs that cannot be negative, see the module's text."""
    read = {name for name, how in zip(spec.variables, spec.transforms, strict=True) if how in ("log", "sqrt")}
    outputs = outputs_of(spec)
    plain = {name: e.name for name, e in outputs if isinstance(e, Symbol) and e.name in spec.space.states}
    out = read | {plain[name] for name in read if name in plain}
    if isinstance(spec.space, StateSpace):
        out |= _kept_by_equations(spec.space)
    return out | {name for name, state in plain.items() if state in out}


def _kept_by_equations(space: StateSpace) -> set[str]:
    found = set()
    for i, name in enumerate(space.states):
        at_zero = {symbol(name): ZERO}
        moves = [space.rates[i], *(e for row, _, e in space.gains if row == i)]
        if all(symbol(name) in e.free_symbols and e.subs(at_zero) is ZERO for e in moves):
            found.add(name)
    return found


def band(mean: Matrix, sd: Matrix, q: float, positive: bool) -> tuple[Matrix, Matrix]:
    """Return the lower and upper end of q sds around a mean."""
    lower, upper = mean - q * sd, mean + q * sd
    if positive:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            width = np.exp(q * sd / mean)
            lower, upper = np.where(mean > 0, mean / width, lower), np.where(mean > 0, mean * width, upper)
    return lower, upper
