"""A model or a cost with mapped parameters: transformed ones, or fixed at other values than its own.

`Mapped` is the base of both; see `fmepy.models.mapped` and `fmepy.costs.mapped`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd

from fmepy.checks import as_list
from fmepy.errors import ParameterError, check_choice
from fmepy.parameters.maps import TRANSFORM_NAMES, Elementwise, Map, Selected
from fmepy.parameters.named import as_parameters, by_parameter, check_names, merge_parameters
from fmepy.parameters.scales import mark
from fmepy.types import UserParameters


@dataclass(frozen=True, slots=True, eq=False)
class Transforms:
    """Transforms of parameters, by name; becomes an `Elementwise` map when a model or cost is bound."""

    kinds: dict[str, str]

    def over(self, own: pd.Series, names: Sequence[str]) -> Elementwise:
        """Return the map to the parameters `names` of a model or cost whose own values are `own`."""
        return Elementwise(tuple(names), {n: k for n, k in self.kinds.items() if n in names})

    def __str__(self) -> str:
        return "as a function of " + ", ".join(f"{kind}({name})" for name, kind in self.kinds.items())


@dataclass(frozen=True, slots=True, eq=False)
class HeldValues:
    """Values of some parameters that replace a model's or cost's own."""

    values: pd.Series
    kinds: dict[str, str] = field(init=False, default_factory=dict)

    def over(self, own: pd.Series, names: Sequence[str]) -> Selected:
        """Return the map to the parameters `names`, and to those that are held elsewhere than at their `own` values."""
        whole = merge_parameters(own, self.values)
        moved = [str(n) for n in self.values.index if n not in names and self.values[n] != own[n]]
        return Selected.by_name(names, {n: n for n in names}, whole[[*names, *moved]])

    def __str__(self) -> str:
        return "with " + ", ".join(f"{name} = {value:g}" for name, value in self.values.items())


@dataclass(frozen=True, eq=False, repr=False)
class Mapped:
    """A model or a cost as a function of other parameters than its own; base of the two.

    Attributes
    ----------
    inner : Model or Cost
        The model or cost itself.
    how : Transforms or HeldValues
        The map of its parameters.
    """

    inner: Any
    how: Transforms | HeldValues

    def __post_init__(self) -> None:
        _ = self.parms  # raises an error if it cannot be mapped

    @property
    def transforms(self) -> dict[str, str]:
        """How parameters are transformed, by name."""
        return {**getattr(self.inner, "transforms", {}), **self.how.kinds}

    @property
    def parms(self) -> pd.Series:
        """All parameters, mapped."""
        return self._parms.copy()

    @cached_property
    def _parms(self) -> pd.Series:
        own = self.inner.parms
        out = pd.Series(self.map().start(own.to_numpy(dtype=float)), index=own.index)
        out.attrs.update(own.attrs)  # of a sum: which values differ between its parts
        return mark(out, self.transforms)

    def map(self, names: Sequence[str] | None = None) -> Map:
        """Return the map to the parameters `names` (None: all) and to others that change."""
        own = self.inner.parms
        return self.how.over(own, [str(n) for n in own.index] if names is None else names)

    def checked_names(self, names: Sequence[str] | None) -> tuple[str, ...]:
        """Return the names of parameters to be bound, as they are spelled here."""
        return as_parameters(names if names is None else [str(n) for n in names], self._parms, argument="names").names

    def inner_parms(self, parms: UserParameters) -> dict[str, float]:
        """Return the parameters of the model or cost itself, from a user's mapped ones."""
        map = self.map()
        full = map.full(merge_parameters(self._parms, parms).to_numpy(dtype=float))
        return dict(zip(map.full_names, full.tolist(), strict=True))

    def replace(self, **arguments: Any) -> Any:
        """Return a copy with some arguments of the inner model or cost changed."""
        return type(self)(self.inner.replace(**arguments), self.how)

    def __repr__(self) -> str:
        return f"{self.inner!r}, {self.how}"


def transforms_of(how: Any, names: Sequence[str] | str | None, known: Sequence[str] | None) -> dict[str, str]:
    """Return the transform by parameter, from the arguments of `transformed`; `known` None: only those named."""
    some = None if names is None else [str(n) for n in as_list(names, "names", ParameterError)]
    if isinstance(how, Mapping):
        kinds = {str(k): check_choice(v, TRANSFORM_NAMES, "how") for k, v in how.items()}
        if some is not None:
            kinds = {k: kinds[k] for k in check_names(some, kinds, argument="names")}
    else:
        kind = check_choice(how, TRANSFORM_NAMES, "how")
        kinds = dict.fromkeys(some if some is not None else known or [], kind)
    if known is not None:
        argument = "names" if some is not None and not isinstance(how, Mapping) else "how"
        kinds = by_parameter(kinds, known, argument)
    return kinds
