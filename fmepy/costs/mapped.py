"""Costs as functions of other parameters than their own, and `transformed`, which makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pandas as pd

from fmepy.costs.base import Cost
from fmepy.costs.bound_mapped import BoundMapped, mapped
from fmepy.costs.noise import SaidNoise, said_noise
from fmepy.costs.sum import AddableCost
from fmepy.errors import ArgumentError
from fmepy.models.base import Model
from fmepy.models.mapped import MappedModel
from fmepy.parameters.functions import TransformedFunction
from fmepy.parameters.mapped import HeldValues, Mapped, Transforms, transforms_of
from fmepy.tables.sheet import calendar_of
from fmepy.types import UserParameters
from fmepy.vocabulary import by_name, own_words


class MappedCost(Mapped, AddableCost):
    """A cost as a function of transformed parameters, or with other values of its own; made by `transformed`."""

    elsewhere: ClassVar = by_name({"plot run simulate readings filter": "of `inner`, the cost on its own scale"})

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.lower  # what has no bounds is told here

    @property
    def lower(self) -> pd.Series:
        """Lower bounds, mapped."""
        return self._bounds()[0]

    @property
    def upper(self) -> pd.Series:
        """Upper bounds, mapped."""
        return self._bounds()[1]

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return what the inner cost returns, at mapped parameters."""
        return self.inner(self.inner_parms(parms))

    def bind(self, names: Sequence[str] | None = None, **words: Any) -> BoundMapped:
        """Return the cost as a function of the mapped parameters `names` (None: all)."""
        map = self.map(self.checked_names(names))
        return mapped(self.inner.bind(map.full_names, **words), map, self.inner)

    @property
    def calendar(self) -> Any:
        """What the dates of the data were, see `fmepy.tables.sheet.with_times`."""
        return calendar_of(self.inner)

    @property
    def to_estimate(self) -> tuple[str, ...]:
        """That of the inner cost, where none of its parameters is held."""
        return () if isinstance(self.how, HeldValues) else getattr(self.inner, "to_estimate", ())

    @property
    def said_noise(self) -> SaidNoise | None:
        """What is said of the noise, see `fmepy.costs.noise`."""
        said = said_noise(self.inner)
        return None if said is None else said.mapped(self.how.kinds, {str(k): v for k, v in self.parms.items()})

    def repeats(self, other: object) -> bool:
        """Tell whether another cost compares the same model with the same data."""
        inner = getattr(self.inner, "repeats", None)
        return isinstance(other, MappedCost) and inner is not None and bool(inner(other.inner))

    def _bounds(self) -> tuple[pd.Series, pd.Series]:
        own = self.inner.lower, self.inner.upper
        low, high = self.map().bounds(*(ends.to_numpy(dtype=float) for ends in own))
        return pd.Series(low, index=own[0].index), pd.Series(high, index=own[1].index)


@own_words
def transformed(f: Any, how: str | Mapping[str, str], *, names: Sequence[str] | None = None) -> Any:
    """Return the same model, cost or function, as a function of transformed parameters.

    Parameters
    ----------
    f : Model, Cost or callable
        A fmepy model or cost gives one again, whose `parms` are the transformed values (names stay) and whose fast
        path follows the chain rule. Any other callable ``f(p)`` gives a callable that takes back what it is given
        (dict, Series or array; the type is kept) and calls `f`.
    how : {"log", "log10", "logit"}, or mapping of parameter to one of these
        A word transforms all parameters (or those of `names`).
    names : sequence of str, optional
        Transform these alone. Positional parameters of a plain callable are called p1, p2, ...

    Returns
    -------
    Model, Cost or callable
        Of the kind of `f`. Parameters that are not transformed, or not bound, stay as they are. It pickles if `f` does.

    Raises
    ------
    ParameterError
        An unknown name, or a parameter that cannot be transformed, such as the logarithm of zero.
    ArgumentError
        An unknown `how`, or an `f` that cannot be called.

    Notes
    -----
    Estimates, covariances and chains are then on the transformed scale, and a chain's flat prior is flat there. Values
    that give no finite parameter, such as exp(1000), are a failed run (`SimulationError`). Bounds of a cost are
    transformed too; those beyond the ends of a transform, such as a lower bound of zero under the logarithm, vanish.

    **Differs from FME**: there, users write ``exp(p)`` into their objective functions.

    Examples
    --------
    >>> import numpy as np
    >>> f = transformed(lambda p: p["a"] + p["b"], {"a": "log10"})
    >>> float(f({"a": 2.0, "b": 1.0}))
    101.0
    >>> g = transformed(lambda p: p, "log")
    >>> g(np.zeros(2))
    array([1., 1.])
    """
    if not callable(f):
        raise ArgumentError(f"`f` must be a model, a cost or a function; got {type(f).__name__}.")
    if isinstance(f, (Model, Cost)):
        kinds = Transforms(transforms_of(how, names, [str(n) for n in f.parms.index]))
        return MappedModel(f, kinds) if isinstance(f, Model) else MappedCost(f, kinds)
    transforms_of(how, names, None)
    chosen = None if names is None else (names,) if isinstance(names, str) else tuple(map(str, names))
    return TransformedFunction(f, dict(how) if isinstance(how, Mapping) else how, chosen)
