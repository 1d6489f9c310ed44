"""Sums of costs: ``a + b``, ``sum([...])``.

A sum evaluates its parts in the order written. Parts that hold the same model object against different data are
evaluated together, so that a shared model is solved once per parameter set, also when the times differ. Parts need
only satisfy the contract of `fmepy.costs.base`; if one of them gives -2 log L alone, so does the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, combinations
from typing import Any, ClassVar

import pandas as pd

from fmepy.costs.base import Cost, cost_data, errors_unknown, is_scored
from fmepy.costs.bound_sum import BoundParts, BoundScoredSum, BoundSum
from fmepy.costs.noise import SaidNoise, joined_noise, said_noise
from fmepy.costs.observations import warn_of_copy
from fmepy.errors import ArgumentError
from fmepy.parameters.maps import Selected
from fmepy.parameters.named import DIFFERING, as_parameters, merge_parameters, values_by_name
from fmepy.parameters.scales import mark
from fmepy.results.notebook import InNotebook
from fmepy.tables.sheet import calendar_of, one_calendar, warn_of_calendars
from fmepy.types import UserParameters
from fmepy.vocabulary import AnswersInOwnWords, by_name, with_own_words


class AddableCost(AnswersInOwnWords, InNotebook):
    """What makes a cost addable; a new kind of cost inherits from it.

    A kind whose parts can share the runs of a model overrides `shared_run` and `bind_together`.
    """

    def __add__(self, other: object) -> Any:
        return SumCost((self, other)) if isinstance(other, (AddableCost, Cost)) else NotImplemented

    def __radd__(self, other: object) -> Any:
        if isinstance(other, int) and other == 0:  # the start of sum([...])
            return self
        return SumCost((other, self)) if isinstance(other, (AddableCost, Cost)) else NotImplemented

    def repeats(self, other: object) -> bool:
        """Tell whether another cost compares the same model with the same data."""
        return self is other

    def shared_run(self) -> object | None:
        """Return the object whose runs serve several parts of a sum; None if there is nothing to share."""
        return None

    @classmethod
    def bind_together(cls, parts: Sequence[Any], names: Sequence[str], *, hold_engine: bool = False) -> Any:
        """Return the bound cost of parts with the same `shared_run`: their residuals one after the other.

        It has `pieces` (the `CostData` of every part) and ``modcosts(theta)`` (a list of `ModCost`, one per part).
        """
        raise NotImplementedError


@with_own_words
@dataclass(frozen=True, eq=False, repr=False)
class SumCost(AddableCost):
    """A sum of costs, as ``a + b`` or ``sum([...])`` write it.

    Parameters
    ----------
    parts : sequence of costs
        Anything that satisfies the contract of a cost; sums among them are taken apart.

    Attributes
    ----------
    parts : tuple of costs
        In the order written.
    parms, lower, upper : Series
        The parameters of all parts, in order of first appearance; bounds as the parts declare them, the tighter.

    Notes
    -----
    The same name in two parts is the same parameter. A parameter whose own value *differs* between parts, such as the
    dose of each of several experiments (``model.replace(parms={"dose": 10})``), is a constant of every part: each
    keeps its own value, and it is not among the parameters of the sum. Whoever asks for it, by its name or by asking
    for all parameters, is refused. To fit it as one, give the models the same value. Sds of noise that are to be
    estimated have no value of their own: parts of one variable share ``sd_v_<variable>``.

    Parts keep apart: `residuals` have a column ``part``, which counts from 0 in the order written. A variable that
    several parts observe is called ``name[part]``, such as ``A[0]`` and ``A[2]``, in `var`, in ``fit.var_ms`` and
    the like, and in the variances of a chain (``var_A[0]``); one that a single part observes keeps its name.

    The value is a `ModCost`, or, if a part gives -2 log L alone, the sum of -2 log L (a float). Where some parts are
    likelihoods (noise said in words, a filter) the sum is one, too: parts without noise count with the errors of their
    tables, and are refused if they have none.

    Examples
    --------
    >>> import fmepy as fme
    >>> model = fme.OdeModel("d(A)/dt = -k*A", state={"A": 2.0}, times=[0, 1, 2], parms={"k": 0.5})
    >>> first, second = ({"time": [1, 2], "A": readings} for readings in ([1.2, 0.7], [1.3, 0.8]))
    >>> both = fme.SimulationCost(model, first) + fme.SimulationCost(model, second)
    >>> both().var[["name", "N", "SSR"]].round(4)
       name  N     SSR
    0  A[0]  2  0.0014
    1  A[1]  2  0.0117
    """

    parts: tuple[Any, ...]
    elsewhere: ClassVar = by_name({"plot run simulate readings": "of its parts, such as cost.parts[0].plot()"})
    parms: pd.Series = field(init=False)
    lower: pd.Series = field(init=False)
    upper: pd.Series = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.parts, (AddableCost, Cost)):
            raise ArgumentError(
                f"A sum takes its parts as a list, SumCost([a, b]), or say a + b; got one {type(self.parts).__name__}."
            )
        parts = tuple(chain.from_iterable(p.parts if isinstance(p, SumCost) else (p,) for p in self.parts))
        if not parts:
            raise ArgumentError("A sum of costs needs at least one.")
        for part in parts:
            if not isinstance(part, (AddableCost, Cost)):
                raise ArgumentError(f"Only fmepy costs can be added; got {type(part).__name__}.")
        _check_transforms(parts)
        for a, b in combinations(parts, 2):
            if a is b or (isinstance(a, AddableCost) and a.repeats(b)):
                warn_of_copy(repr(a))
        warn_of_calendars(map(calendar_of, parts))
        parts = _with_one_guess(parts)
        values, lower, upper = _common_parameters(parts)
        mark(values, _transforms(parts))
        vars(self).update(parts=parts, parms=values, lower=lower, upper=upper)

    @property
    def calendar(self) -> Any:
        """What the dates of all parts were, see `fmepy.tables.sheet.with_times`; None where they differ."""
        return one_calendar(map(calendar_of, self.parts))

    @property
    def to_estimate(self) -> tuple[str, ...]:
        """Those of the parts."""
        return tuple(dict.fromkeys(name for part in self.parts for name in getattr(part, "to_estimate", ())))

    @property
    def said_noise(self) -> SaidNoise | None:
        """Descriptions of the parts' noise, see `fmepy.costs.noise`."""
        return joined_noise(said_noise(part) for part in self.parts)

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return the `ModCost`, or -2 log L (a float) if a part gives nothing else.

        Parameters
        ----------
        parms : dict, Series, ...
            Some or all of the parameters; the others stay at the parts' own values.
        """
        theta = merge_parameters(self.parms, parms).to_numpy(dtype=float)
        return self._bound.modcost(theta) if self._bound.gives_modcost else self._bound.minus2loglik(theta)

    def bind(self, names: Sequence[str] | None = None, **words: Any) -> BoundSum:
        """Return the sum as a function of the parameters `names` (None: all)."""
        names = as_parameters(names if names is None else [str(n) for n in names], self.parms, argument="names").names
        return self._bind(names, **words)

    def _bind(self, names: tuple[str, ...], **words: Any) -> BoundSum:
        blocks = []
        for members in self._shared_runs():
            part, costs = self.parts[members[0]], tuple(self.parts[k] for k in members)
            known = list(dict.fromkeys(chain.from_iterable(self.parts[k].parms.index for k in members)))
            mine = [n for n in names if n in known]
            # A part without any of these parameters is run at its own values; an empty theta is not asked of a model.
            asked = mine or known[:1]
            if part_shares_runs(part):
                bind = type(part).bind_together
                bound = bind(costs, asked, **words)
                pieces = tuple(bound.pieces)
            else:
                bound = part.bind(asked, **words)
                pieces = (cost_data(bound),)
            selected = Selected.by_name(names, {n: n for n in mine}, dict(zip(asked, bound.theta0, strict=True)))
            blocks.append(BoundParts(bound, selected, members, costs, pieces))
        scored = any(b.bound.is_scalar for b in blocks) and all(
            not b.bound.is_scalar or is_scored(b.bound) for b in blocks
        )
        for b in blocks if scored else ():
            if not b.bound.is_scalar and (unknown := errors_unknown(cost_data(b.bound))) is not None:
                raise unknown
        return (BoundScoredSum if scored else BoundSum)(
            blocks, names, *(values_by_name(own, names) for own in (self.parms, self.lower, self.upper))
        )

    @property
    def transforms(self) -> dict[str, str]:
        """How parameters are transformed, by name, where the parts are of transformed ones."""
        return {k: v for k, v in _transforms(self.parts).items() if k in self.parms.index}

    def filter(self, parms: UserParameters = None, *, smooth: bool = True) -> tuple[Any, ...]:
        """Return the filter results of all parts, in order; for sums of `FimlofCost`, see there.

        Parameters
        ----------
        parms : dict, Series, ...
            As in a call.
        smooth : bool
            False leaves out what needs the data that come later.

        Raises
        ------
        ArgumentError
            A part that has no filter.
        """
        values = merge_parameters(self.parms, parms)
        for part in self.parts:
            if not callable(getattr(part, "filter", None)):
                raise ArgumentError(f"Only a FimlofCost has a filter; a part of this sum is {part!r}.")
        return tuple(
            part.filter({k: v for k, v in values.items() if k in part.parms.index} or None, smooth=smooth)
            for part in self.parts
        )

    def replace(self, **arguments: Any) -> SumCost:
        """Return a copy in which every part has these arguments changed (or with other ``parts=``)."""
        if set(arguments) == {"parts"}:
            return SumCost(tuple(arguments["parts"]))
        if "obs" in arguments:
            raise ArgumentError("A sum holds several tables; replace `obs` in its parts: SumCost(parts).")
        return SumCost(tuple(part.replace(**arguments) for part in self.parts))

    def __repr__(self) -> str:
        return "Sum of costs:\n" + "\n".join(f"  {part!r}" for part in self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_bound"}

    @cached_property
    def _bound(self) -> BoundSum:
        return self._bind(tuple(self.parms.index))

    def _shared_runs(self) -> list[tuple[int, ...]]:
        """Return positions of the parts, those that share their runs together."""
        together: dict[object, list[int]] = {}
        for k, part in enumerate(self.parts):
            key = (type(part), id(part.shared_run())) if part_shares_runs(part) else k
            together.setdefault(key, []).append(k)
        return [tuple(members) for members in together.values()]


def part_shares_runs(part: object) -> bool:
    """Tell whether a part of a sum has runs that other parts may share."""
    return isinstance(part, AddableCost) and part.shared_run() is not None


def _with_one_guess(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the parts with one guess of a parameter that several of them guess, or that one of them knows."""
    known: dict[str, float] = {}
    for wants_guess in (False, True):  # what is given goes before what is guessed
        for part in parts:
            guesses = getattr(part, "guesses", ())
            for name, value in part.parms.items():
                if (name in guesses) == wants_guess:
                    known.setdefault(name, float(value))
    return tuple(
        part.with_guesses({k: known[k] for k in part.guesses}) if getattr(part, "guesses", ()) else part
        for part in parts
    )


def _common_parameters(parts: Sequence[Any]) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Return values and bounds, the narrower ones, of the parameters of all parts, in order of first appearance.

    Those whose values differ between parts are not among them: these values stand in the attributes of the values.
    """
    values, lower, upper = (
        pd.concat([getattr(part, what).astype(float) for part in parts]).groupby(level=0, sort=False)
        for what in ("parms", "lower", "upper")
    )
    differs = values.nunique() > 1
    names = differs.index[~differs]
    own = values.first()[names]
    own.attrs[DIFFERING] = {n: tuple(values.get_group(n).tolist()) for n in differs.index[differs]}
    return own, lower.max()[names], upper.min()[names]


def _transforms(parts: Sequence[Any]) -> dict[str, str]:
    return {k: v for part in parts for k, v in getattr(part, "transforms", {}).items()}


def _check_transforms(parts: Sequence[Any]) -> None:
    """Refuse a name that stands for a parameter in one part and for its logarithm in another."""
    seen: dict[str, str | None] = {}
    for part in parts:
        transforms = getattr(part, "transforms", {})
        for name in part.parms.index:
            if seen.setdefault(name, transforms.get(name)) != transforms.get(name):
                raise ArgumentError(
                    f"Parameter {name!r} is transformed in one part of the sum and not (or otherwise) in another. "
                    "Transform the sum instead: transformed(a + b, how)."
                )
