"""Checks at the door: whole numbers, positive numbers, levels and seeds, refused in the same words everywhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fmepy.errors import ArgumentError, FmepyError, check_known, shortened
from fmepy.parameters.names import normal_name
from fmepy.types import Seed


def changed_arguments(
    given: Mapping[str, Any], changes: Mapping[str, Any], merged: Sequence[str], kind: str
) -> dict[str, Any]:
    """Return the arguments of a constructor with some of them changed: what ``replace`` of models and costs does.

    Those named in `merged` that are dicts or Series by name are merged with what was given before.

    Raises
    ------
    ArgumentError
        There is no such argument of a `kind`.

    Examples
    --------
    >>> changed_arguments({"times": [0, 1], "parms": {"a": 1, "b": 2}}, {"parms": {"b": 3}}, ["parms"], "OdeModel")
    {'times': [0, 1], 'parms': {'a': 1, 'b': 3}}
    """
    out = dict(given)
    for name, value in changes.items():
        check_known(name, given, f"`replace`: {kind} has no argument {name!r}.")
        parts = [v for v in (given[name], value) if isinstance(v, (Mapping, pd.Series))]
        merges = name in merged and parts and parts[-1] is value
        named = ((normal_name(k) if isinstance(k, str) else k, v) for part in parts for k, v in dict(part).items())
        out[name] = dict(named) if merges else value
    return out


def copied(value: Any) -> Any:
    """Return an argument as it is now: arrays and tables, and lists and dicts of such, are copied.

    What is made of it later, by ``replace``, does not change when the caller writes into them.

    Examples
    --------
    >>> state = {"x": np.array([1.0, 2.0])}
    >>> own = copied(state)
    >>> state["x"][0] = 5.0
    >>> own["x"].tolist()
    [1.0, 2.0]
    """
    if isinstance(value, (np.ndarray, pd.Series, pd.DataFrame)):
        return value.copy()
    if type(value) is dict:
        return {k: copied(v) for k, v in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def whole_number(value: Any, argument: str, least: int = 0, most: int | None = None, hint: str = "") -> int:
    """Return a count, given as an int or as a float without a fraction (1e4).

    Raises
    ------
    ArgumentError
        It is no whole number, or one outside `least` to `most`; `hint` ends the sentence.

    Examples
    --------
    >>> whole_number(1e3, "niter", 1)
    1000
    """
    number = as_number(value)
    if number.is_integer() and least <= number and (most is None or number <= most):
        return int(value)
    limits = f"at least {least}" if most is None else f"from {least} to {most}"
    raise ArgumentError(f"`{argument}={value!r}` must be a whole number, {limits}{hint}.")


def positive_number(
    value: Any, argument: str, hint: str = "", *, finite: bool = True, error: type[ArgumentError] = ArgumentError
) -> float:
    """Return a number above zero.

    Raises
    ------
    ArgumentError
        It is something else; `hint` ends the sentence.
    """
    number = as_number(value)
    if number > 0 and (np.isfinite(number) or not finite):
        return number
    raise error(f"`{argument}={value!r}` must be a positive{' and finite' if number == np.inf else ''} number{hint}.")


def between_0_and_1(value: Any, argument: str, hint: str = ", such as 0.95") -> float:
    """Return a number above 0 and below 1: a level, a probability, a relative step.

    Raises
    ------
    ArgumentError
        It is something else; `hint` ends the sentence.
    """
    number = as_number(value)
    if 0 < number < 1:
        return number
    raise ArgumentError(f"`{argument}={value!r}` must lie between 0 and 1{hint}.")


def as_number(value: Any) -> float:
    """Return a float, NaN for what is no number (a truth value is none)."""
    if isinstance(value, (bool, np.bool_, str, np.complexfloating)) or np.ndim(value) != 0:
        return np.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def finite_number(value: Any, argument: str, error: type[FmepyError] = ArgumentError) -> float:
    """Return a float that is finite; raise an error, of a kind, for everything else."""
    number = as_number(value)
    if np.isfinite(number):
        return number
    raise error(f"`{argument}={shortened(value)}` must be a finite number.")


def as_list(value: Any, argument: str, error: type[FmepyError] = ArgumentError, of: str = "names") -> list[Any]:
    """Return one thing, a text or a whole number, or a collection of such, as a list.

    Raises
    ------
    FmepyError
        (of the kind) It is neither; what is in a list is not looked at.

    Examples
    --------
    >>> as_list("a", "which"), as_list(("a", 1), "which")
    (['a'], ['a', 1])
    """
    if isinstance(value, (str, int, np.integer)):
        return [value]
    is_flat = getattr(value, "ndim", 1) <= 1
    try:
        if is_flat:
            return list(value)
    except TypeError:
        pass
    raise error(f"`{argument}={shortened(value)}` must be a {'' if is_flat else 'flat '}list of {of}.")


def as_numbers(value: Any, argument: str, error: type[FmepyError] = ArgumentError) -> NDArray[np.float64]:
    """Return an array of floats, NaN and infinity among them; raise an error, of a kind, for what is no number."""
    try:
        if value is not None and not np.iscomplexobj(value):
            return np.asarray(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise error(f"`{argument}={shortened(value)}` must hold numbers.")


def as_path(value: Any, argument: str = "path", such_as: str = "") -> Path:
    """Return the path of a file or folder, with ~ written out; raise an ArgumentError for what is no path."""
    if isinstance(value, (str, os.PathLike)) and str(value):
        return Path(value).expanduser()
    example = f", such as {such_as!r}" if such_as else ""
    raise ArgumentError(f"`{argument}={shortened(value)}` must be the name of a file or folder{example}.")


def as_rng(seed: Seed) -> np.random.Generator:
    """Return the generator of a seed: an int >= 0, a Generator (used as it is), or None (a new one each time)."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed_sequence(seed))


def seed_sequence(seed: Seed) -> Any:
    """Return what streams of random numbers are spawned from.

    Of a Generator it is its own, whose spawning counts on, so that a second call draws anew.
    """
    if isinstance(seed, np.random.Generator):
        return seed.bit_generator.seed_seq
    if seed is None:
        return np.random.SeedSequence()
    if as_number(seed).is_integer() and isinstance(seed, (int, np.integer)) and seed >= 0:
        return np.random.SeedSequence(int(seed))
    raise ArgumentError(f"`seed={seed!r}` must be a whole number >= 0, a numpy Generator, or None.")
