"""Which distribution the errors of readings have, by a word: normal or Laplace, of the reading or of its logarithm.

With T the logarithm that the word names (identity if none), s the noise and r = (T(mod) - T(obs)) / s, the log density
of the reading itself is::

    normal      -log(s sqrt(2 pi)) - r^2 / 2 + log T'(obs)        s: the sd of T(obs)
    Laplace     -log(2 s) - |r| + log T'(obs)                     s: the scale of T(obs), whose sd is sqrt(2) s

A `transform` alone leaves log T' out: its density is of the transformed reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fmepy.costs.observation_scale import transforms_by_variable, words_of_variables
from fmepy.costs.observations import Comparison
from fmepy.errors import ArgumentError

_LAPLACE = "laplace"
_SCALES = {"": None, "log-": "log", "log10-": "log10"}
LIKELIHOODS = {s + d: (kind, d == _LAPLACE) for d in ("normal", _LAPLACE) for s, kind in _SCALES.items()}
"""By word the logarithm that has such errors (None: the reading itself), and whether they are Laplace's."""

COUNTS = ("poisson", "negative-binomial")
"""Words of likelihoods that have no errors (`fmepy.costs.counts`); a cost has one of them for all its readings."""


def is_of_counts(likelihood: Any) -> bool:
    """Tell whether a likelihood is one of counts, by its word."""
    return isinstance(likelihood, str) and likelihood in COUNTS


def is_word(likelihood: Any) -> bool:
    """Tell whether words name the distribution of errors, for all variables or some."""
    return isinstance(likelihood, str | Mapping) and not is_of_counts(likelihood)


def words_by_variable(likelihood: Any, variables: Iterable[str]) -> dict[str, str]:
    """Return the word of every variable that has one.

    Raises
    ------
    ArgumentError
        An unknown word.
    DataError
        A variable that is not observed.
    """
    if not is_word(likelihood):
        return {}
    if isinstance(likelihood, str):
        return words_of_variables(likelihood, list(variables), [*LIKELIHOODS, *COUNTS], "likelihood")
    for name, word in likelihood.items():
        if word in COUNTS:
            raise ArgumentError(
                f"likelihood={word!r} is of all readings of a cost. Put those of {name!r} into a cost of their own, "
                "and add the two."
            )
    return words_of_variables(likelihood, list(variables), list(LIKELIHOODS), "likelihood")


def transforms_of(transform: Any, words: Mapping[str, str], variables: Iterable[str]) -> dict[str, str | None]:
    """Return the transform of every variable: what is said of it, or the logarithm in the word of its errors."""
    out = transforms_by_variable(transform, variables)
    for name, word in words.items():
        kind = LIKELIHOODS[word][0]
        if kind is not None and out[name] is not None:
            raise ArgumentError(
                f"{name!r} has transform={out[name]!r} and likelihood={word!r}, which is of the logarithm already. "
                "Leave one of them out."
            )
        out[name] = kind or out[name]
    return out


def with_errors_of(c: Comparison, words: Mapping[str, str]) -> Comparison:
    """Return a comparison that knows which errors its readings have.

    Raises
    ------
    ArgumentError
        Readings beyond a limit with Laplace errors.
    """
    if not words:
        return c
    kinds = [LIKELIHOODS[words[name]] if name in words else (None, False) for name in c.names]
    own, laplace = np.array([k is not None for k, _ in kinds]), np.array([is_laplace for _, is_laplace in kinds])
    if c.marks is not None and laplace.any():
        name = c.names[int(np.argmax(laplace))]
        raise ArgumentError(
            f"`censored` is for normal errors, and the errors of {name!r} are Laplace's. Put the two into costs of "
            "their own, and add these; or say likelihood='normal' or 'log-normal'."
        )
    return replace(c, own_scale=own if own.any() else None, laplace=laplace if laplace.any() else None)
