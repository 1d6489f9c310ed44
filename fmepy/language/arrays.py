"""Computations with whole arrays, as a list of steps: a vector function, not written out cell by cell.

A step gives an array of numbers, flat, in one of these ways:

* ``input``: the time ``t``, the states ``y``, the parameters ``p``, the forcings ``u``;
* ``constant``: numbers;
* ``each``: a function of numbers, applied to as many entries of other arrays;
* ``fold``, ``running``: sums (or extremes) over stretches of equal length; all partial sums;
* ``join``: entries of other arrays, one after the other.

What a step reads of others is a list of `StridedRun`, entries at equal distances. So slices, mirror images and
repetitions of an array are no steps of their own. The computation is of finite length and has no loops but those over
the entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy  # its rooms are loaded where they are asked for: `import fmepy` needs none of them

from fmepy.language.derivatives import gradients
from fmepy.language.functions import holds_jumps, numpy_function
from fmepy.language.interpolants import Series
from fmepy.language.nodes import HALF, ONE, ZERO, Mode, Node, Symbol, call, choose_above, power
from fmepy.types import IntVector, Vector

COMPARISONS = ("less", "less_equal", "greater", "greater_equal")
TRUTHS = (*COMPARISONS, "logical_and", "logical_or", "logical_not", "isfinite", "isnan")
"""Functions whose value is true or false, 1 or 0."""
_SLOTS = tuple(Symbol(f"entry {i}") for i in range(20))
_TRUE = tuple(Mode(f"entry {i}") for i in range(3))


@dataclass(frozen=True, slots=True, eq=False)
class Formula:
    """The operation of a step on entries of others, as an expression.

    Attributes
    ----------
    value : Node
    slots : tuple of Symbol
        The symbols of the entries.
    slopes : dict of Symbol to Node
        The derivatives that are not zero everywhere.
    curves : dict of (Symbol, Symbol) to Node
        The second derivatives that are not.
    """

    value: Node
    slots: tuple[Symbol, ...]
    slopes: dict[Symbol, Node]
    curves: dict[tuple[Symbol, Symbol], Node]


@lru_cache(maxsize=1024)
def formula(word: str, n: int, number: int = 0) -> Formula | None:
    """Return the formula of a function of n entries, by numpy's name; None if the language does not have it."""
    x: tuple[Symbol, ...] = _SLOTS[:n]
    if word in COMPARISONS:
        a, b = x if word.startswith("greater") else x[::-1]
        value = choose_above(a, b, ONE, ZERO) if not word.endswith("equal") else choose_above(b, a, ZERO, ONE)
    elif word in ("logical_and", "logical_or", "logical_not"):
        x = _TRUE[:n]
        other = choose_above(x[-1], HALF, ONE, ZERO)
        yes, no = {"logical_and": (other, ZERO), "logical_or": (ONE, other), "logical_not": (ZERO, ONE)}[word]
        value = choose_above(x[0], HALF, yes, no)
    elif word == "where":
        x = (_TRUE[0], *x[1:])
        value = choose_above(x[0], HALF, x[1], x[2])
    elif word == "whole_power":
        value = power(x[0], float(number))
    else:
        function = numpy_function(word)
        if function is None or not function.least <= n <= function.most:
            return None
        value = call(function.name, *x)
    (slopes,) = gradients([value], x)
    second = gradients(list(slopes.values()), x)
    return Formula(value, x, slopes, {(a, b): e for a, g in zip(slopes, second, strict=True) for b, e in g.items()})


class StridedRun(NamedTuple):
    """Entries of a step: `length` of them from `start` on, each `stride` after the one before."""

    step: int
    start: int
    stride: int
    length: int

    @property
    def places(self) -> IntVector:
        """Which entries they are."""
        return self.start + self.stride * np.arange(self.length)


Read: TypeAlias = tuple[StridedRun, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ArrayStep:
    """One step; see the module's text.

    Attributes
    ----------
    kind : {"input", "constant", "each", "fold", "running", "join"}
    word : str
        Which input; which function.
    size : int
    reads : tuple of Read
        Its arguments.
    number : int
        Entries of a stretch (fold, running); the exponent of "whole_power".
    values : ndarray or None
        Those of constants.
    is_smooth : bool
        A condition that chooses between two forms of one smooth function.
    """

    kind: str
    word: str
    size: int
    reads: tuple[Read, ...] = ()
    number: int = 0
    values: Vector | None = None
    is_smooth: bool = False

    @property
    def formula(self) -> Formula:
        """What a step of the kind "each" computes."""
        found = formula(self.word, len(self.reads), self.number)
        assert found is not None, f"{self.word} was traced"
        return found

    @property
    def moves(self) -> bool:
        """Whether it has derivatives that are not zero everywhere."""
        return self.kind != "each" or bool(self.formula.slopes)

    @property
    def jumps(self) -> bool:
        """Whether it may jump where what it reads does not; what a condition chooses is the choice of its reader."""
        return self.kind == "each" and self.word != "where" and not self.is_smooth and holds_jumps([self.formula.value])


def runs_of(steps: Sequence[int], places: Sequence[int]) -> Read:
    """Return entries, given by their steps and places there, as runs."""
    out: list[StridedRun] = []
    i, n = 0, len(steps)
    while i < n:
        step, start = steps[i], places[i]
        stride = places[i + 1] - start if i + 1 < n and steps[i + 1] == step else 0
        end, expected = i + 1, start + stride
        while end < n and steps[end] == step and places[end] == expected:
            end, expected = end + 1, expected + stride
        if end == i + 2 and stride not in (0, 1) and end < n and steps[end] == step:
            end, stride = i + 1, 0  # two that happen to be apart: the second may begin a longer run
        out.append(StridedRun(step, start, stride if end > i + 1 else 0, end - i))
        i = end
    return tuple(out)


@dataclass(frozen=True, eq=False)
class ArrayProgram:
    """Rates as a computation with arrays.

    Attributes
    ----------
    steps : tuple of ArrayStep
        Each reads earlier ones.
    rates : int
        The step that gives the rates.
    extras : tuple of StridedRun
        Where further outputs stand.
    checks : tuple of StridedRun
        Entries that must not be zero: where one is, the function itself is called (it raises an error).
    n_states, n_parameters, n_forcings : int
    series : tuple of Series
        Those that the function looks up by the time, the last of the forcings.
    """

    steps: tuple[ArrayStep, ...]
    rates: int
    extras: tuple[StridedRun, ...]
    checks: tuple[StridedRun, ...]
    n_states: int
    n_parameters: int
    n_forcings: int
    series: tuple[Series, ...] = ()

    @cached_property
    def inputs(self) -> tuple[frozenset[str], ...]:
        """Which of "t", "y", "p", "u" each step depends on."""
        out: list[frozenset[str]] = []
        for step in self.steps:
            own = {step.word} if step.kind == "input" else set()
            out.append(frozenset(own.union(*(out[run.step] for read in step.reads for run in read))))
        return tuple(out)

    @cached_property
    def jumps(self) -> bool:
        """Whether rates may jump where a state does something, or at a time that a parameter moves.

        There the sensitivities jump too, which the equations of their rates do not show.
        """
        return any(
            step.jumps and ("y" in used or (len(used) > 1 and "p" in used))
            for step, used in zip(self.steps, self.inputs, strict=True)
        )

    @cached_property
    def reached(self) -> Any:
        """Which rates have a derivative to which states: a sparse matrix of truth values, shape (n_state, n_state)."""
        found: list[Any] = []
        for step in self.steps:
            if step.kind == "input" and step.word == "y":
                found.append(scipy.sparse.eye_array(step.size, dtype=bool, format="csr"))
            elif not step.moves or step.kind in ("input", "constant"):
                found.append(scipy.sparse.csr_array((step.size, self.n_states), dtype=bool))
            else:
                reads = step.reads[1:] if step.word == "where" else step.reads
                found.append(_together(step, [_entries(read, found) for read in reads]))
        return found[self.rates]


def _entries(read: Read, found: Sequence[Any]) -> Any:
    parts = [found[run.step][run.places] for run in read]
    return parts[0] if len(parts) == 1 else scipy.sparse.vstack(parts, format="csr")


def _together(step: ArrayStep, reads: Iterable[Any]) -> Any:
    total = None
    for entries in reads:
        total = entries if total is None else total + entries
    if step.kind in ("each", "join"):
        return scipy.sparse.csr_array(total)
    length = step.number
    pattern = np.ones((1, length)) if step.kind == "fold" else np.tril(np.ones((length, length)))
    stretches = step.size // len(pattern)
    sums = scipy.sparse.kron(scipy.sparse.eye_array(stretches), pattern, format="csr").astype(bool)
    return scipy.sparse.csr_array(sums @ total)
