"""An item of a data base: a constant, a vector or a time series, with its unit and interpolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.dmi.statements import MAX_ELEMENTS, Shape, element_name, indices_of
from fmepy.errors import DataError, check_choice
from fmepy.models.definition.arguments import check_increasing
from fmepy.models.running.forcings import Forcing
from fmepy.types import Matrix, Vector

INTERPOLATIONS = ("linear", "constant")
Index = tuple[int | str, ...]
"""Numbers counted from 0, or the names of elements of a range."""


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One item of a data base, see `item`.

    Attributes
    ----------
    name : str
    elements : mapping of tuple of int to float or Forcing
        A number or a series by element; the one element of a scalar is ``()``. Arrays may lack some.
    unit : str
        Compared with equations, and not used otherwise.
    interpolation : {"linear", "constant"}
        Of series: a straight line between two data, or the value of the last one passed.
    extrapolate : bool
        Whether a series is held at its ends outside its range; an error otherwise.
    source : str
        The file or object that it was read from.
    whole : bool
        Whether the source has it as a whole; else element by element.
    lower, upper : float
        Its limits, for information only.
    comment : str
        The comment of the source.

    Examples
    --------
    >>> from fmepy.dmi.database import Database
    >>> tax = Database({"tax": ([0, 10], [0.0, 5.0])}).items.loc["tax"]
    >>> tax["kind"]
    'series'
    """

    name: str
    elements: Mapping[Index, float | Forcing]
    unit: str = ""
    interpolation: str = "linear"
    extrapolate: bool = False
    source: str = ""
    whole: bool = True
    lower: float = -np.inf
    upper: float = np.inf
    comment: str = ""

    @property
    def is_series(self) -> bool:
        """Whether it changes with time."""
        return isinstance(next(iter(self.elements.values())), Forcing)

    @property
    def shape(self) -> Shape:
        """Its dimensions; () of a scalar."""
        axes = zip(*self.elements, strict=True)
        return tuple(max(i if isinstance(i, int) else -1 for i in a) + 1 or len(set(a)) for a in axes)

    @property
    def kind(self) -> str:
        """One of "constant", "vector" (arrays of more dimensions too), "series"."""
        return "series" if self.is_series else "vector" if self.shape else "constant"

    @property
    def times(self) -> Vector:
        """All times of data; empty for constants."""
        series = [f.times for f in self.elements.values() if isinstance(f, Forcing)]
        return np.unique(np.concatenate(series)) if series else np.empty(0)

    @property
    def range(self) -> tuple[float, float]:
        """First and last time at which every element is known; NaN of constants."""
        series = [f.times for f in self.elements.values() if isinstance(f, Forcing)]
        return (float(max(t[0] for t in series)), float(min(t[-1] for t in series))) if series else (np.nan, np.nan)

    @property
    def numbers(self) -> dict[str, float]:
        """Values of a constant or vector by the names of parameters: ``SEM``, ``D[0]``, ``A[0,1]``."""
        return {element_name(self.name, k): v for k, v in self.elements.items() if not isinstance(v, Forcing)}

    def sampled(self, times: Vector, indices: Sequence[Index]) -> Matrix:
        """Return a series at `times`, shape (n_time, n_index); constants are repeated.

        Raises
        ------
        DataError
            A time lies outside the range of the data, and the item is not to be extrapolated.
        """
        out = np.empty((len(times), len(indices)))
        for i, index in enumerate(indices):
            element = self.elements[index]
            if isinstance(element, Forcing):
                if not self.extrapolate:
                    self._check_range(element, times)
                out[:, i] = element.at(times)
            else:
                out[:, i] = element
        return out

    def _check_range(self, series: Forcing, times: Vector) -> None:
        first, last = series.times[0], series.times[-1]
        near = 1e-9 * max(abs(first), abs(last), last - first)  # the grid of a run is a product, rounded
        outside = times[(times < first - near) | (times > last + near)]
        if len(outside):
            where = f" ({self.source})" if self.source else ""
            raise DataError(
                f"The series {series.name!r}{where} is known from {first:g} to {last:g}; the run asks for it at time "
                f"{outside[0]:g}. Add data, shorten the run, or hold it at its ends by extrapolate=True."
            )


def item(
    values: Any, *, times: Any = None, interpolation: str = "linear", extrapolate: bool = False, unit: str = "",
    lower: float = -np.inf, upper: float = np.inf, comment: str = "",
) -> Item:  # fmt: skip
    """Return an item for a `Database`: a constant, a vector, or a time series on a grid of its own.

    Parameters
    ----------
    values : number or array_like
        Without `times` a constant or an array; with them one value, or one row of an array, a time.
    times : array_like, shape (n_time,), optional
        Increasing; equidistant or not.
    interpolation : {"linear", "constant"}
        Between two data: a straight line, or the value of the last one passed.
    extrapolate : bool
        Hold the series at its ends outside its range. Otherwise a run that asks for it there is an error.
    unit : str
        Shown in tables, as the following are.
    lower, upper : float
        Its limits.
    comment : str
        A description, a source.

    Raises
    ------
    DataError, ArgumentError
        Values that are no finite numbers, times that do not increase or are not as many, an unknown interpolation.

    Examples
    --------
    >>> price = item([1.0, 2.0, 4.0], times=[0, 10, 50], interpolation="constant", extrapolate=True, unit="t/a")
    >>> price.kind, price.range
    ('series', (0.0, 50.0))
    >>> price.sampled(np.array([9.0, 10.0, 60.0]), [()])[:, 0].tolist()
    [1.0, 2.0, 4.0]
    >>> item([1, 2, 3]).shape
    (3,)
    """
    method = check_choice(interpolation, INTERPOLATIONS, "interpolation")
    if not isinstance(extrapolate, (bool, np.bool_)):
        raise DataError(f"`extrapolate={extrapolate!r}` must be True or False.")
    words = {"unit": str(unit), "lower": float(lower), "upper": float(upper), "comment": str(comment)}
    return as_item("values", values, times, interpolation=method, extrapolate=bool(extrapolate), **words)


def as_item(name: str, values: Any, times: Any = None, **words: Any) -> Item:
    """Return an item of Python values; see `item`."""
    array = finite_array(values, name)
    if times is None:
        numbers: dict[Index, float] = {index: float(array[index]) for index in _indices(array.shape, name)}
        return Item(name, numbers, **words)
    grid = finite_array(times, f"{name} (its times)")
    if not grid.size:
        raise DataError(f"The series {name!r} has no times; it needs one at least.")
    if grid.ndim != 1 or array.ndim == 0 or len(array) != len(grid):
        raise DataError(
            f"The series {name!r} has {array.shape[0] if array.ndim else 1} values and {grid.size} times; it needs one "
            "value (or one row of values) a time."
        )
    check_increasing(grid, f"times of {name}", DataError, " Sort them, and keep one value a time.")
    method = words.get("interpolation", "linear")
    columns = array.reshape(len(grid), -1).T
    pairs = zip(_indices(array.shape[1:], name), columns, strict=True)
    return Item(name, {k: Forcing(element_name(name, k), grid, column, method) for k, column in pairs}, **words)


def _indices(shape: Shape, name: str) -> list[Shape]:
    """Return the indices of all elements of an array, by rows."""
    if 0 in shape:
        raise DataError(f"{name!r} is an empty array; at least one number is needed.")
    if np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise DataError(f"{name!r} has more than {MAX_ELEMENTS} elements.")
    return indices_of(shape)


def finite_array(values: Any, name: str) -> Vector:
    """Return numbers as an array; raise a DataError if they are not finite numbers."""
    try:
        raw = np.asarray(values)
        if raw.dtype.kind in "bcUSMm" or (raw.dtype == object and any(isinstance(v, (str, bool)) for v in raw.flat)):
            raise TypeError
        array: Vector = np.array(raw, dtype=float)
    except (TypeError, ValueError, OverflowError):
        shown = repr(values)
        raise DataError(
            f"{name!r} must hold numbers, in rows of equal length; got {shown[:60]}{'...' * (len(shown) > 60)}."
        ) from None
    if not np.isfinite(array).all():
        where = f" (position {int(np.flatnonzero(~np.isfinite(array))[0])})" if array.ndim else ""
        raise DataError(f"{name!r} holds NaN or infinite numbers{where}; drop or fill them.")
    return array
