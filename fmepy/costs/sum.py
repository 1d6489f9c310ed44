"""Sums of costs: ``a + b``, ``sum([...])``.

A sum evaluates its parts in the order written. Parts that hold the same model object against different data are
evaluated together, so that a shared model is solved once per parameter set, also when the times differ. Parts need
only satisfy the contract of `fmepy.costs.base`; if one of them gives -2 log L alone, so does the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fmepy.costs.base import Cost
from fmepy.costs.data_identity import ObservedData, joined
from fmepy.costs.modcost import ModCost, joined_costs
from fmepy.costs.observations import warn_of_copy
from fmepy.errors import ArgumentError
from fmepy.models.base import bound_to, keep_within, runs_word, tightened
from fmepy.parameters.named import DIFFERING, as_parameters, merge_parameters, values_by_name
from fmepy.parameters.scales import marked
from fmepy.types import BoolVector, IntVector, Matrix, UserParameters, Vector

__all__ = ["AddableCost", "BoundSum", "SumCost"]


class AddableCost:
    """What makes a cost addable; a new kind of cost inherits from it.

    A kind whose parts can share the runs of a model overrides `shared_run` and `bind_together`.
    """

    def __add__(self, other: object) -> SumCost:
        return SumCost((self, other)) if isinstance(other, Cost) else NotImplemented

    def __radd__(self, other: object) -> Any:
        if isinstance(other, int) and other == 0:  # the start of sum([...])
            return self
        return SumCost((other, self)) if isinstance(other, Cost) else NotImplemented

    def repeats(self, other: object) -> bool:
        """Tell whether another cost holds the same model against the same data."""
        return self is other

    def shared_run(self) -> object | None:
        """Return the object whose runs serve several parts of a sum; None if there is nothing to share."""
        return None

    @classmethod
    def bind_together(
        cls, parts: Sequence[Any], names: Sequence[str], *, hold_engine: bool = False, runs: int = 1
    ) -> Any:
        """Return the bound cost of parts with the same `shared_run`: their residuals one after the other.

        It has `pieces` (constants of every part) and ``modcosts(theta)`` (a list of `ModCost`, one per part).
        """
        raise NotImplementedError


class _Constants(Protocol):
    """What is fixed at preparation, see `fmepy.costs.base.BoundCost`."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def x(self) -> Vector: ...
    @property
    def weights(self) -> Vector: ...
    @property
    def groups(self) -> IntVector: ...
    @property
    def scales(self) -> Vector: ...
    @property
    def group_names(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Parts of a sum that are evaluated together.

    Attributes
    ----------
    bound : bound cost
        Gives the residuals of the parts, one after the other.
    parts : tuple of int
        Their positions in the sum.
    costs : tuple of cost
        The parts themselves.
    take : ndarray of int
        Positions in the sum's theta of the parameters of `bound`.
    held : ndarray or None
        Parameters of `bound` if none of the sum's concerns it.
    pieces : tuple
        The constants of every part.
    rows : ndarray of int
        Positions of its residuals in those of the sum.
    """

    bound: Any  # a BoundCost, or one of several parts with `pieces` and `modcosts`
    parts: tuple[int, ...]
    costs: tuple[Any, ...]
    take: IntVector
    held: Vector | None
    pieces: tuple[_Constants, ...]
    rows: IntVector

    def theta(self, theta: Vector) -> Vector:
        return theta[self.take] if self.held is None else self.held

    def modcosts(self, theta: Vector) -> list[ModCost]:
        mine = self.theta(theta)
        if hasattr(self.bound, "modcosts"):
            return list(self.bound.modcosts(mine))
        if hasattr(self.bound, "modcost"):
            return [self.bound.modcost(mine)]
        return [self.costs[0](dict(zip(self.bound.parameter_names, map(float, mine), strict=True)))]


class BoundSum:
    """A sum of costs as a function of a plain vector; see `fmepy.costs.base.BoundCost` for what it offers."""

    def __init__(self, blocks: Sequence[_Block], names: tuple[str, ...], theta0: Vector, lower: Vector, upper: Vector):
        self.parameter_names = names
        self.theta0, self.lower, self.upper = theta0, lower, upper
        self.is_scalar = any(b.bound.is_scalar for b in blocks)
        self.has_jacobian = not self.is_scalar and all(b.bound.has_jacobian for b in blocks)
        pieces = [] if self.is_scalar else _in_order(blocks)
        first_group = np.cumsum([0, *(len(p.group_names) for p in pieces)])
        self.names: tuple[str, ...] = tuple(chain.from_iterable(p.names for p in pieces))
        self.x: Vector = _joined([p.x for p in pieces])
        self.weights: Vector = _joined([p.weights for p in pieces])
        self.groups: IntVector = _joined(
            [p.groups + k for p, k in zip(pieces, first_group, strict=False)], dtype=np.intp
        )
        self.scales: Vector = _joined([p.scales for p in pieces])
        self.group_names: tuple[str, ...] = names_by_part([p.group_names for p in pieces])
        self._blocks = tuple(blocks)
        in_order = len(blocks) == 1 and np.array_equal(blocks[0].rows, np.arange(len(self.names)))
        self._only = blocks[0] if in_order else None  # one run gives everything, in the order of the parts

    @property
    def exact(self) -> bool | None:
        """True if all Jacobians are of exact sensitivities; None where a part does not say."""
        told = [getattr(b.bound, "exact", None) for b in self._blocks if b.held is None]
        return None if None in told else all(told)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return sum(b.bound.retries for b in self._blocks)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        for b in self._blocks:
            if b.held is None:
                keep_within(b.bound, lower[b.take], upper[b.take])

    def tightened(self) -> BoundSum | None:
        """Return the same at smaller tolerances where a part has any, see `fmepy.models.base.tightened`."""
        found = [tightened(b.bound) for b in self._blocks]
        if all(f is None for f in found):
            return None
        blocks = [b if f is None else replace(b, bound=f) for b, f in zip(self._blocks, found, strict=True)]
        return type(self)(blocks, self.parameter_names, self.theta0, self.lower, self.upper)

    @property
    def data(self) -> ObservedData | None:
        """Which data the likelihood is of; None if a part does not say."""
        return joined([getattr(piece, "data", None) for piece in _in_order(self._blocks)])

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled, in the order of the parts."""
        self._need_residuals("residuals")
        if self._only is not None:
            r: Vector = self._only.bound.residuals(self._only.theta(theta))
            return r
        out = np.empty(len(self.names))
        for b in self._blocks:
            out[b.rows] = b.bound.residuals(b.theta(theta))
        return out

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""
        self._need_residuals("a Jacobian")
        out = np.zeros((len(self.names), len(self.parameter_names)))
        for b in self._blocks:
            if b.held is None:
                out[np.ix_(b.rows, b.take)] = b.bound.jacobian(b.theta(theta))
        return out

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L, the sum of that of the parts."""
        return float(sum(b.bound.minus2loglik(b.theta(theta)) for b in self._blocks))

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta, the rows in the order of the parts."""
        self._need_residuals("a ModCost")
        found: dict[int, ModCost] = {}
        for b in self._blocks:
            found.update(zip(b.parts, b.modcosts(theta), strict=True))
        return joined_costs([found[k] for k in sorted(found)], self.group_names)

    @property
    def nobs(self) -> float:
        """Scalar data that count, of all parts; NaN if a part does not say."""
        own = [b.bound.nobs if b.bound.is_scalar and hasattr(b.bound, "nobs") else np.nan for b in self._blocks]
        return float(
            sum(len(b.bound.names) if not b.bound.is_scalar else n for b, n in zip(self._blocks, own, strict=True))
        )

    def _need_residuals(self, what: str) -> None:
        if self.is_scalar:
            raise ArgumentError(
                f"This sum has no {what}: a part of it gives -2 log L alone. Use minus2loglik, or a scalar method."
            )


class BoundScoredSum(BoundSum):
    """A sum whose likelihood has a score and an expected information; see `fmepy.costs.base`.

    Parts with residuals r of known errors have the score - J'r and the information J'J.
    """

    def score(self, theta: Vector, rough: bool = False) -> Vector:
        """Return d log L / d theta, shape (n_par,)."""
        out = np.zeros(len(self.parameter_names))
        for b in self._moving():
            mine = b.theta(theta)
            out[b.take] += (
                b.bound.score(mine, rough) if b.bound.is_scalar else -b.bound.jacobian(mine).T @ b.bound.residuals(mine)
            )
        return out

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of theta, shape (n_par, n_par)."""
        out = np.zeros((len(self.parameter_names),) * 2)
        for b in self._moving():
            mine = b.theta(theta)
            J = None if b.bound.is_scalar else b.bound.jacobian(mine)
            out[np.ix_(b.take, b.take)] += b.bound.information(mine, rough) if J is None else J.T @ J
        return out

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, x and row of what the expected information is made of."""
        names: list[str] = []
        x, rows = [], []
        for b in self._moving():
            mine = b.theta(theta)
            if b.bound.is_scalar:
                labels, at, own = b.bound.sensitivity_rows(mine)
            else:
                labels, at, own = list(b.bound.names), b.bound.x, b.bound.jacobian(mine)
            wide = np.zeros((len(own), len(self.parameter_names)))
            wide[:, b.take] = own
            names += labels
            x.append(at)
            rows.append(wide)
        return names, np.concatenate(x), np.concatenate(rows)

    @property
    def scale_parameters(self) -> BoolVector:
        """Parameters that scale noise in every part that has them."""
        out = np.zeros(len(self.parameter_names), dtype=bool)
        not_everywhere = np.zeros(len(self.parameter_names), dtype=bool)
        for b in self._moving():
            mine = b.bound.scale_parameters if b.bound.is_scalar else np.zeros(len(b.take), dtype=bool)
            out[b.take] |= mine
            not_everywhere[b.take] |= ~mine
        return np.asarray(out & ~not_everywhere)

    def inflated(self, factor: float) -> BoundScoredSum | None:
        """Return the same with the process noise of all parts inflated; None if there is none."""
        found = [b.bound.inflated(factor) if b.bound.is_scalar else None for b in self._blocks]
        if all(f is None for f in found):
            return None
        blocks = [b if f is None else replace(b, bound=f) for b, f in zip(self._blocks, found, strict=True)]
        return BoundScoredSum(blocks, self.parameter_names, self.theta0, self.lower, self.upper)

    def _moving(self) -> list[_Block]:
        return [b for b in self._blocks if b.held is None]


def _is_scored(bound: Any) -> bool:
    return not bound.is_scalar or (callable(getattr(bound, "score", None)) and hasattr(bound, "information"))


def _joined(arrays: list[Any], dtype: Any = np.float64) -> Any:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=dtype)


def _in_order(blocks: Iterable[_Block]) -> list[_Constants]:
    found: dict[int, _Constants] = {}
    for b in blocks:
        found.update(zip(b.parts, b.pieces, strict=True))
    return [found[k] for k in sorted(found)]


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
    for all parameters, is refused. To fit it as one, give the models the same value.

    Parts keep apart: `residuals` have a column ``part``, which counts from 0 in the order written. A variable that
    several parts observe is called ``name[part]``, such as ``A[0]`` and ``A[2]``, in `var`, in ``fit.var_ms`` and
    the like, and in the variances of a chain (``var_A[0]``); one that a single part observes keeps its name.

    The value is a `ModCost`, or, if a part gives -2 log L alone, the sum of -2 log L (a float).
    """

    parts: tuple[Any, ...]
    parms: pd.Series = field(init=False)
    lower: pd.Series = field(init=False)
    upper: pd.Series = field(init=False)

    def __post_init__(self) -> None:
        parts = tuple(chain.from_iterable(p.parts if isinstance(p, SumCost) else (p,) for p in self.parts))
        if not parts:
            raise ArgumentError("A sum of costs needs at least one.")
        for part in parts:
            if not isinstance(part, Cost):
                raise ArgumentError(f"Only fmepy costs can be added; got {type(part).__name__}.")
        _check_transforms(parts)
        for a, b in combinations(parts, 2):
            if a is b or (isinstance(a, AddableCost) and a.repeats(b)):
                warn_of_copy(repr(a))
        values, lower, upper, differing = _common_parameters(parts)
        object.__setattr__(self, "parts", parts)
        own = pd.Series(values, dtype=float)
        own.attrs[DIFFERING] = differing
        marked(own, _transforms(parts))
        object.__setattr__(self, "parms", own)
        object.__setattr__(self, "lower", pd.Series(lower, dtype=float))
        object.__setattr__(self, "upper", pd.Series(upper, dtype=float))

    def __call__(self, parms: UserParameters = None) -> Any:
        """Return the `ModCost`, or -2 log L (a float) if a part gives nothing else.

        Parameters
        ----------
        parms : dict, Series, ...
            Some or all of the parameters; the others stay at the parts' own values.
        """
        theta = merge_parameters(self.parms, parms).to_numpy(dtype=float)
        return self._bound.minus2loglik(theta) if self._bound.is_scalar else self._bound.modcost(theta)

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False, runs: int = 1) -> BoundSum:
        """Return the sum as a function of the parameters `names` (None: all)."""
        names = as_parameters(names if names is None else [str(n) for n in names], self.parms, argument="names").names
        return self._bind(names, hold_engine, runs)

    def _bind(self, names: tuple[str, ...], hold_engine: bool = False, runs: int = 1) -> BoundSum:
        sizes: list[int] = [0] * len(self.parts)
        bound = []
        for members in self._shared_runs():
            part = self.parts[members[0]]
            known = list(part.parms.index)
            mine = [n for n in names if n in known]
            # A part without any of these parameters is run at its own values; an empty theta is not asked of a model.
            asked = mine or known[:1]
            if part_shares_runs(part):
                shared, bind = [self.parts[k] for k in members], type(part).bind_together
                block = bind(shared, asked, hold_engine=hold_engine, **runs_word(bind, runs))
                pieces = tuple(block.pieces)
            else:
                block = bound_to(part, asked, runs=runs, hold_engine=hold_engine)
                pieces = (block,)
            for k, piece in zip(members, pieces, strict=True):
                sizes[k] = len(piece.names)
            bound.append((block, members, mine, pieces))
        starts = np.cumsum([0, *sizes])
        blocks = [
            _Block(
                block,
                members,
                tuple(self.parts[k] for k in members),
                np.array([names.index(n) for n in mine], dtype=np.intp),
                None if mine else np.array(block.theta0),
                pieces,
                np.concatenate([np.arange(starts[k], starts[k + 1]) for k in members]),
            )
            for block, members, mine, pieces in bound
        ]
        scored = any(b.bound.is_scalar for b in blocks) and all(_is_scored(b.bound) for b in blocks)
        return (BoundScoredSum if scored else BoundSum)(
            blocks,
            names,
            *(values_by_name(own, names) for own in (self.parms, self.lower, self.upper)),
        )

    @property
    def transforms(self) -> dict[str, str]:
        """How parameters are transformed, by name, where the parts are of transformed ones."""
        return {k: v for k, v in _transforms(self.parts).items() if k in self.parms.index}

    def filter(self, parms: UserParameters = None, *, smooth: bool = True) -> tuple[Any, ...]:
        """Return what the filter of every part gives, in order; for sums of `FimlofCost`, see there.

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


def names_by_part(variables: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return a name for every variable of every part: its own, with the part's number where several parts have it.

    Examples
    --------
    >>> names_by_part([["A", "B"], ["C"], ["A"]])
    ('A[0]', 'B', 'C', 'A[2]')
    """
    seen = Counter(chain.from_iterable(variables))
    return tuple(f"{v}[{k}]" if seen[v] > 1 else v for k, own in enumerate(variables) for v in own)


_Values = dict[str, float]


def _common_parameters(parts: Sequence[Any]) -> tuple[_Values, _Values, _Values, dict[str, tuple[float, ...]]]:
    """Return values and bounds of the parameters of all parts, and the values of those that differ between parts.

    The latter are not among the former.
    """
    values: dict[str, float] = {}
    lower: dict[str, float] = {}
    upper: dict[str, float] = {}
    differing = set()
    for part in parts:
        for name, value in part.parms.items():
            if values.setdefault(name, value) != value:
                differing.add(name)
            lower[name] = max(lower.get(name, -np.inf), part.lower[name])
            upper[name] = min(upper.get(name, np.inf), part.upper[name])
    own = {n: tuple(float(p.parms[n]) for p in parts if n in p.parms.index) for n in values if n in differing}
    return _without(values, differing), _without(lower, differing), _without(upper, differing), own


def _without(items: Mapping[str, float], names: set[str]) -> dict[str, float]:
    return {k: float(v) for k, v in items.items() if k not in names}


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
