"""The scale of parameters (natural, logarithm, logit): a mark on estimates and draws.

pandas hands the ``attrs`` of a table on to whatever is made of it: to rows, columns and samples, but to
``np.exp(table)`` too, whose numbers are on another scale. So a mark holds the numbers that it was set for, and counts
for those alone: transformed, shifted or averaged numbers are unmarked, like numbers typed by hand. A false alarm would
be worse than silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from fmepy.errors import ParameterError, listed

Kinds = Mapping[str, str | None]
Labelled = TypeVar("Labelled", pd.Series, pd.DataFrame)
_KEY, _SAMPLED = "fmepy_scale", "fmepy_sampled"
_BACK = {"log": "np.exp(x)", "log10": "10**x", "logit": "1 / (1 + np.exp(-x))"}


class Mark(dict[str, str | None]):
    """Kind of transform by parameter (None: as it is), and the numbers for which that holds.

    A dict, so that tables with it can be written by those who keep ``attrs`` as JSON.
    """

    def __init__(self, kinds: Kinds, numbers: Any) -> None:
        super().__init__(kinds)
        self.numbers = numbers  # by parameter: its values in order; of a covariance: the table

    def __deepcopy__(self, memo: Any) -> Mark:
        return self  # pandas copies `attrs` with every operation; marks are not changed

    def __reduce__(self) -> tuple[Any, ...]:
        return Mark, (dict(self), self.numbers)


def mark(table: Labelled, kinds: Kinds | None) -> Labelled:
    """Return a Series of parameters, or a table with one column each, with its scale; `kinds` None: it is not known."""
    if kinds is not None:
        names = [str(k) for k in (table.index if isinstance(table, pd.Series) else table.columns)]
        values = np.atleast_2d(table.to_numpy(dtype=float))
        table.attrs[_KEY] = Mark(
            {n: kinds.get(n) for n in names}, {n: np.unique(values[:, j]) for j, n in enumerate(names)}
        )
    return table


def mark_sampled(draws: pd.DataFrame) -> pd.DataFrame:
    """Return draws of a chain marked with the parameters of the sampled cost: a model need not have them all."""
    draws.attrs[_SAMPLED] = [str(k) for k in draws.columns]
    return draws


def foreign_columns(draws: Any, known: Iterable[str]) -> list[str]:
    """Return the columns that a model with the parameters `known` does not have, but the cost that was sampled has."""
    own = set(draws.attrs.get(_SAMPLED, ())) if isinstance(draws, pd.DataFrame | pd.Series) else set()
    return [name for name in own - set(known)]


def mark_covariance(table: pd.DataFrame, kinds: Kinds | None) -> pd.DataFrame:
    """Return a covariance with the scale of its parameters."""
    if kinds is not None:
        names = [str(k) for k in table.columns]
        plain = pd.DataFrame(table.to_numpy(dtype=float, copy=True), index=names, columns=names)
        table.attrs[_KEY] = Mark({n: kinds.get(n) for n in names}, plain)
    return table


def scale_of(given: Any) -> dict[str, str | None]:
    """Return the scale of parameters, draws or a covariance, as far as a mark on them still holds.

    Examples
    --------
    >>> par = mark(pd.Series({"k": -0.7, "A": 2.0}), {"k": "log"})
    >>> scale_of(par), scale_of(np.exp(par)), scale_of(par[["k"]])
    ({'k': 'log', 'A': None}, {}, {'k': 'log'})
    """
    mark = given.attrs.get(_KEY) if isinstance(given, (pd.Series, pd.DataFrame)) else None
    if not isinstance(mark, Mark):
        return {}
    if isinstance(mark.numbers, pd.DataFrame):
        return _scale_of_covariance(given, mark)
    labels = given.index if isinstance(given, pd.Series) else given.columns
    values = np.atleast_2d(given.to_numpy(dtype=float)) if len(labels) else np.empty((0, 0))
    names = [str(k) for k in labels]
    return {n: mark[n] for j, n in enumerate(names) if n in mark and _all_in(values[:, j], mark.numbers[n])}


def _all_in(values: Any, known: Any) -> bool:
    """Tell whether all values are among the `known`, which are in order."""
    place = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return bool(len(values)) and bool(np.array_equal(known[place], values))


def _scale_of_covariance(given: pd.DataFrame, mark: Mark) -> dict[str, str | None]:
    """Return the scale where the covariance is still the one that was marked, or a multiple of it."""
    if not isinstance(given, pd.DataFrame) or list(given.index) != list(given.columns):
        return {}
    names = [str(k) for k in given.columns]
    if not set(names) <= set(mark):
        return {}
    C, known = given.to_numpy(dtype=float), mark.numbers.loc[names, names].to_numpy()
    there = np.isfinite(known)
    if not there.any() or not known[there].any():
        return {}
    factor = float((C[there] @ known[there]) / (known[there] @ known[there]))
    if not (factor > 0 and np.allclose(C[there], factor * known[there], rtol=1e-9, atol=0)):
        return {}
    return {n: mark[n] for n in names}


def expected_scale(f: Any, names: Iterable[str]) -> dict[str, str | None] | None:
    """Return the scale on which a model, a cost or a function expects its parameters; None if unknown."""
    names = [str(n) for n in names]
    if callable(getattr(f, "bind", None)):
        kinds = getattr(f, "transforms", {})
        return {n: kinds.get(n) for n in names}
    return f.kinds_of(names) if callable(getattr(f, "kinds_of", None)) else None


def check_scale(given: Any, expected: Kinds | pd.Series | None, argument: str) -> None:
    """Raise an error for parameters, draws or a covariance on another scale than the expected one.

    Parameters
    ----------
    given : any
        The user's argument; without a mark its scale is not checked.
    expected : mapping, Series or None
        Kinds by name; or the parameters of a model or cost, which bear theirs; None: not known.
    argument : str
        Its name in the message.

    Raises
    ------
    ParameterError
    """
    if expected is None:
        return
    kinds: Kinds = expected.attrs.get(_KEY, {}) if isinstance(expected, pd.Series) else expected
    known = set(map(str, expected.index)) if isinstance(expected, pd.Series) else set(expected)
    wrong = {n: k for n, k in scale_of(given).items() if n in known and k != kinds.get(n)}
    if not wrong:
        return
    have = listed(f"{k}({n})" if k else n for n, k in wrong.items())
    need = listed(f"{kinds[n]}({n})" if kinds.get(n) else n for n in wrong)
    back = {k for k in wrong.values() if k}
    if len(back) == 1 and not any(kinds.get(n) for n in wrong):
        (kind,) = back
        advice = (
            f"Take them back ({_BACK[kind]} of estimates and draws, chain.transform(lambda x: {_BACK[kind]}) of a "
            f"chain), or use transformed(model, {kind!r}), transformed(cost, {kind!r}) here."
        )
    else:
        advice = "Transform them, or use the model or cost on their scale: transformed(f, how)."
    raise ParameterError(
        f"`{argument}` holds {have} (of a fit or chain of such parameters); needed is {need}. {advice}"
    )


def check_prior_scale(prior: Any, expected: Kinds | None) -> None:
    """Raise an error for priors on the natural scale, of a cost with parameters on another scale."""
    given = prior if isinstance(prior, Mapping) else {}
    wrong = {n: k for n, k in (expected or {}).items() if k and getattr(given.get(n), "is_natural", False)}
    if wrong:
        raise ParameterError(
            f"`prior`: those of {listed(wrong)} are densities of the parameters as they are; the cost takes "
            f"{listed(f'{k}({n})' for n, k in wrong.items())}. Use the one that takes them as they are: of a PEtab "
            "problem problem.cost, with problem.start, lower=problem.lower, upper=problem.upper."
        )
