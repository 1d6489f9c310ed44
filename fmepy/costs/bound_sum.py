"""Sums of bound costs: parts that are evaluated together, their residuals and likelihoods put together.

Parts need only satisfy the contract of `fmepy.costs.base`; if one of them gives -2 log L alone, so does the sum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from fmepy.costs.base import (
    CostData,
    KnownData,
    OfData,
    OfSeveral,
    cost_data,
    gives_modcost,
    joined_data,
    log_densities,
    minus2loglik_many,
    modcost_at,
    nobs_of,
    residuals_many,
)
from fmepy.costs.bound_mapped import mapped
from fmepy.costs.data_fingerprint import joined
from fmepy.costs.modcost import ModCost, joined_costs
from fmepy.errors import ArgumentError
from fmepy.models.base import keep_within, tightened
from fmepy.parameters.maps import Selected
from fmepy.types import BoolVector, IntVector, Matrix, Vector


@dataclass(frozen=True, eq=False)  # no slots: `mapped` is made when it is first asked for
class BoundParts:
    """Parts of a sum that are evaluated together.

    Attributes
    ----------
    bound : BoundCost
        Gives the residuals of the parts, one after the other.
    map : Selected
        From the sum's theta to that of `bound`; what is not among the sum's parameters is held.
    parts, costs, pieces : tuple
        Positions in the sum, the costs there, and their data.
    """

    bound: Any
    map: Selected
    parts: tuple[int, ...]
    costs: tuple[Any, ...]
    pieces: tuple[CostData, ...]

    @cached_property
    def mapped(self) -> Any:
        """The bound cost as a function of the sum's theta."""
        return self.bound if self.map.is_identity else mapped(self.bound, self.map, self.costs[0])

    def modcosts(self, theta: Vector) -> list[ModCost]:
        """Return the `ModCost` of every part at the sum's theta."""
        full = self.map.full(theta)
        if hasattr(self.bound, "modcosts"):
            return list(self.bound.modcosts(full))
        return [modcost_at(self.costs[0], self.bound, full)]


class BoundSum(OfSeveral, OfData):
    """A sum of costs as a function of a plain vector; see `fmepy.costs.base.BoundCost` for what it offers."""

    def __init__(
        self, blocks: Sequence[BoundParts], names: tuple[str, ...], theta0: Vector, lower: Vector, upper: Vector
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

    @property
    def has_pull(self) -> bool:
        """True if `with_pull` takes less time than the Jacobian."""
        return self.has_jacobian and all(getattr(b.mapped, "has_pull", False) for b in self._moving)

    def with_pull(self, theta: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Return r, and ``pull(dL/dr)``, which returns dL/dtheta of a number L."""
        r, pulls = np.empty(len(self.data)), []
        for b, rows in zip(self._blocks, self._rows, strict=True):
            if b in self._moving:
                r[rows], pull = b.mapped.with_pull(theta)
                pulls.append((pull, rows))
            else:
                r[rows] = b.mapped.residuals(theta)
        return r, lambda of_r: np.sum([pull(of_r[rows]) for pull, rows in pulls], axis=0)

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L, the sum of that of the parts."""
        return float(sum(b.mapped.minus2loglik(theta) for b in self._blocks))

    def log_densities(self, theta: Vector) -> Vector | None:
        """Return the log densities of all readings, see `fmepy.costs.base.log_densities`; None if a part has none."""
        found = [log_densities(b.mapped, theta) for b in self._blocks]
        known = [own for own in found if own is not None]
        return np.concatenate(known) if len(known) == len(found) else None

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
        both = zip(self._blocks, bounds, strict=True)
        blocks = [b if bound is None else replace(b, bound=bound) for b, bound in both]
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
        names, x, rows = zip(
            *(
                part.sensitivity_rows(theta) if part.is_scalar else (part.names, part.x, part.jacobian(theta))
                for part in (b.mapped for b in self._moving)
            ),
            strict=True,
        )
        return list(chain.from_iterable(names)), np.concatenate(x), np.concatenate(rows)

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

    @property
    def has_kinks(self) -> bool:
        """Whether the likelihood of a part has kinks."""
        return any(getattr(b.bound, "has_kinks", False) for b in self._blocks)

    def inflated(self, factor: float) -> Any:
        """Return the same with the process noise of all parts inflated; None if there is none."""
        return self._of([b.bound.inflated(factor) if b.bound.is_scalar else None for b in self._blocks])


def names_by_part(variables: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return a name for every variable of every part: its own, with the part's number where several parts have it.

    Examples
    --------
    >>> names_by_part([["A", "B"], ["C"], ["A"]])
    ('A[0]', 'B', 'C', 'A[2]')
    """
    seen = Counter(chain.from_iterable(variables))
    return tuple(f"{v}[{k}]" if seen[v] > 1 else v for k, own in enumerate(variables) for v in own)
