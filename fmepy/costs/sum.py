"""Sums of costs: ``a + b``, ``sum([...])``.

A sum evaluates its parts in the order written. Parts that hold the same model object against different data are
evaluated together, so that a shared model is solved once per parameter set, also when the times differ. Parts need
only satisfy the contract of `fmepy.costs.base`; if one of them gives -2 log L alone, so does the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import (
    AddableCost,
    Cost,
    CostData,
    KnownData,
    OfData,
    OfSeveral,
    cost_data,
    errors_unknown,
    gives_modcost,
    is_scored,
    joined_data,
    minus2loglik_many,
    modcost_at,
    nobs_of,
    residuals_many,
)
from fmepy.costs.data_fingerprint import joined
from fmepy.costs.mapped import mapped
from fmepy.costs.modcost import ModCost, joined_costs
from fmepy.costs.noise import SaidNoise, joined_noise, said_noise
from fmepy.costs.observations import warn_of_copy
from fmepy.errors import ArgumentError
from fmepy.models.base import keep_within, tightened
from fmepy.parameters.maps import Selected
from fmepy.parameters.named import DIFFERING, as_parameters, merge_parameters, values_by_name
from fmepy.parameters.scales import marked
from fmepy.types import BoolVector, IntVector, Matrix, UserParameters, Vector


class _Block:
    """Parts of a sum that are evaluated together.

    `bound` gives the residuals of the parts, one after the other; `map` goes from the sum's theta to that of `bound`
    (what is not among the sum's parameters is held); `mapped` is both together. `parts` are positions in the sum.
    """

    def __init__(
        self, bound: Any, map: Selected, parts: tuple[int, ...], costs: tuple[Any, ...], pieces: tuple[CostData, ...]
    ) -> None:
        self.bound, self.map, self.parts, self.costs, self.pieces = bound, map, parts, costs, pieces
        self.mapped: Any = bound if map.is_identity else mapped(bound, map, costs[0])

    def of(self, bound: Any) -> _Block:
        return self if bound is None else _Block(bound, self.map, self.parts, self.costs, self.pieces)

    def modcosts(self, theta: Vector) -> list[ModCost]:
        full = self.map.full(theta)
        if hasattr(self.bound, "modcosts"):
            return list(self.bound.modcosts(full))
        return [modcost_at(self.costs[0], self.bound, full)]


class BoundSum(OfSeveral, OfData):
    """A sum of costs as a function of a plain vector; see `fmepy.costs.base.BoundCost` for what it offers."""

    def __init__(
        self, blocks: Sequence[_Block], names: tuple[str, ...], theta0: Vector, lower: Vector, upper: Vector
    ) -> None:
        self.parameter_names = names
        self.theta0, self.lower, self.upper = theta0, lower, upper
        self.is_scalar = any(b.bound.is_scalar for b in blocks)
        self.has_jacobian = not self.is_scalar and all(b.bound.has_jacobian for b in blocks)
        self.gives_modcost = all(gives_modcost(b.bound) for b in blocks)
        self._blocks = tuple(blocks)
        self._moving = tuple(b for b in blocks if b.map.moves.any())  # the others are constants
        self.parts = tuple(b.bound for b in blocks)
        pieces = {k: piece for b in blocks for k, piece in zip(b.parts, b.pieces, strict=True)}
        self._pieces = [pieces[k] for k in sorted(pieces)]
        in_order = len(blocks) == 1 and blocks[0].parts == tuple(range(len(self._pieces)))
        self._only = blocks[0].mapped if in_order else None  # one run gives everything, in the order of the parts

    @cached_property
    def _rows(self) -> list[IntVector]:
        """The rows of every block among all."""
        ends = np.cumsum([0, *(len(p) for p in self._pieces)])
        return [np.concatenate([np.arange(ends[k], ends[k + 1]) for k in b.parts]) for b in self._blocks]

    @cached_property
    def data(self) -> CostData:
        """What is fixed of the data; which they are is not known if a part does not say."""
        group_names = names_by_part([p.group_names for p in self._pieces])
        if self._only is not None and not self.is_scalar:
            return replace(cost_data(self._only), group_names=group_names)
        observed = joined([p.observed for p in self._pieces])
        if self.is_scalar:
            return KnownData.of_number(observed)
        return KnownData(**joined_data(self._pieces) | {"group_names": group_names}, observed=observed)

    @property
    def exact(self) -> bool | None:
        """True if all Jacobians are of exact sensitivities; None where a part does not say."""
        each = [getattr(b.bound, "exact", None) for b in self._moving]
        return None if None in each else all(each)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        for b in self._moving:
            keep_within(b.mapped, lower, upper)

    def tightened(self) -> Any:
        """Return the same at smaller tolerances where a part has any, see `fmepy.models.base.tightened`."""
        return self._of([tightened(b.bound) for b in self._blocks])

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled, in the order of the parts."""
        self._need_residuals("residuals")
        if self._only is not None:
            return np.asarray(self._only.residuals(theta))
        out = np.empty(len(self.data))
        for b, rows in zip(self._blocks, self._rows, strict=True):
            out[rows] = b.mapped.residuals(theta)
        return out

    def residuals_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return r of many theta, and why they failed, see `fmepy.costs.base.residuals_many`."""
        self._need_residuals("residuals")
        R, why = np.empty((len(Theta), len(self.data))), np.full(len(Theta), "", dtype=object)
        for b, rows in zip(self._blocks, self._rows, strict=True):
            R[:, rows], told = residuals_many(b.mapped, Theta)
            why = np.where(why == "", told, why)
        return R, why

    def minus2loglik_many(self, Theta: Matrix) -> tuple[Vector, Any]:
        """Return -2 log L of many theta, and why they failed, see `fmepy.costs.base.minus2loglik_many`."""
        each = [minus2loglik_many(b.mapped, Theta) for b in self._blocks]
        why = np.array([next(filter(None, of), "") for of in zip(*(w for _, w in each), strict=True)], dtype=object)
        return np.sum([own for own, _ in each], axis=0), why

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par)."""
        self._need_residuals("a Jacobian")
        out = np.zeros((len(self.data), len(self.parameter_names)))
        for b, rows in zip(self._blocks, self._rows, strict=True):
            if b in self._moving:
                out[rows] = b.mapped.jacobian(theta)
        return out

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L, the sum of that of the parts."""
        return float(sum(b.mapped.minus2loglik(theta) for b in self._blocks))

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta, the rows in the order of the parts."""
        if not self.gives_modcost:
            self._need_residuals("a ModCost")
        found: dict[int, ModCost] = {}
        for b in self._blocks:
            found.update(zip(b.parts, b.modcosts(theta), strict=True))
        costs = [found[k] for k in sorted(found)]
        of_parts = names_by_part([cost.variables for cost in costs]) if self.is_scalar else self.group_names
        return joined_costs(costs, of_parts)

    @property
    def nobs(self) -> float:
        """Scalar data that count, of all parts; NaN if a part does not say."""
        return sum(nobs_of(part) for part in self.parts)

    def _of(self, bounds: Sequence[Any]) -> Any:
        """Return the same with other bound costs, where there are any; None if there is none."""
        if all(bound is None for bound in bounds):
            return None
        blocks = [b.of(bound) for b, bound in zip(self._blocks, bounds, strict=True)]
        return type(self)(blocks, self.parameter_names, self.theta0, self.lower, self.upper)

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
        for part in (b.mapped for b in self._moving):
            out += part.score(theta, rough) if part.is_scalar else -part.jacobian(theta).T @ part.residuals(theta)
        return out

    def information(self, theta: Vector, rough: bool = False) -> Matrix:
        """Return the expected information of theta, shape (n_par, n_par)."""
        out = np.zeros((len(self.parameter_names),) * 2)
        for part in (b.mapped for b in self._moving):
            J = None if part.is_scalar else part.jacobian(theta)
            out += part.information(theta, rough) if J is None else J.T @ J
        return out

    def sensitivity_rows(self, theta: Vector) -> tuple[list[str], Vector, Matrix]:
        """Return variable, x and row of what the expected information is made of."""
        names: list[str] = []
        x, rows = [], []
        for part in (b.mapped for b in self._moving):
            of_part = part.sensitivity_rows if part.is_scalar else lambda at, p=part: (p.names, p.x, p.jacobian(at))
            labels, at, own = of_part(theta)
            names += labels
            x.append(at)
            rows.append(own)
        return names, np.concatenate(x), np.concatenate(rows)

    @property
    def scale_parameters(self) -> BoolVector:
        """Parameters that scale noise in every part that has them."""
        out = np.zeros(len(self.parameter_names), dtype=bool)
        elsewhere = np.zeros(len(self.parameter_names), dtype=bool)
        for b in self._moving:
            mine = b.mapped.scale_parameters if b.bound.is_scalar else np.zeros(out.size, dtype=bool)
            out |= mine
            elsewhere |= b.map.moves & ~mine
        return np.asarray(out & ~elsewhere)

    def inflated(self, factor: float) -> Any:
        """Return the same with the process noise of all parts inflated; None if there is none."""
        return self._of([b.bound.inflated(factor) if b.bound.is_scalar else None for b in self._blocks])


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
    parms: pd.Series = field(init=False)
    lower: pd.Series = field(init=False)
    upper: pd.Series = field(init=False)

    def __post_init__(self) -> None:
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
        parts = _with_one_guess(parts)
        values, lower, upper = _common_parameters(parts)
        marked(values, _transforms(parts))
        vars(self).update(parts=parts, parms=values, lower=lower, upper=upper)

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
            blocks.append(_Block(bound, selected, members, costs, pieces))
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


def names_by_part(variables: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return a name for every variable of every part: its own, with the part's number where several parts have it.

    Examples
    --------
    >>> names_by_part([["A", "B"], ["C"], ["A"]])
    ('A[0]', 'B', 'C', 'A[2]')
    """
    seen = Counter(chain.from_iterable(variables))
    return tuple(f"{v}[{k}]" if seen[v] > 1 else v for k, own in enumerate(variables) for v in own)


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
