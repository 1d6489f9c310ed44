"""The header of a checkpoint: the arguments of a chain, written at its start and read when it continues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError
from fmepy.journal.folder import seed_of, seed_table
from fmepy.journal.records import check_question
from fmepy.mcmc.checkpoint import ChainJournal
from fmepy.mcmc.proposals import JumpFunction
from fmepy.mcmc.runner import ChainSpec, ChainTask, Plan
from fmepy.mcmc.target import Point, Target, Variances
from fmepy.types import Matrix, Vector


def header_of(
    settings: Mapping[str, Any], task: ChainTask, jump: Matrix | JumpFunction, starts: Matrix, specs: list[ChainSpec]
) -> dict[str, Any]:
    """Return the header of a new chain as JSON values."""
    target, plan, objective, var = task.target, task.plan, task.target.objective, task.target.variances
    parameters = objective.parameters.lmfit
    if parameters is not None and len(parameters) > len(objective.parameters):
        raise ArgumentError(
            "`checkpoint` cannot keep lmfit parameters that are fixed or tied (their expressions are code). Give the "
            "free ones as a dict, and fix the others in the model."
        )
    point = target.evaluate(starts[0])
    assert point is not None
    return {
        "names": list(target.names),
        "positional": objective.parameters.positional,
        "starts": starts.tolist(),
        "lower": target.lower.tolist(),
        "upper": target.upper.tolist(),
        "has_prior": target.prior is not None,
        "variances": None
        if var is None
        else asdict(var) | {name: getattr(var, name).tolist() for name in _BY_VARIANCE},
        "problem": objective.identity,
        "at_start": _values(point),
        "jump": None if isinstance(jump, JumpFunction) else jump.tolist(),
        "settings": dict(settings),
        "niter": plan.niter,
        "burninlength": plan.burninlength,
        "interval": plan.interval,
        "every": task.every,
        "jobs": [
            {"number": s.number, **seed_table(s.seed), "starts": s.starts.tolist(), "dispersed": s.dispersed}
            for s in specs
        ],
    }


_BY_VARIANCE = ("var0", "n0", "N")
_AT_START = {"SS": "sum of squares (or -2 log L) at the start", "prior": "-2 log prior at the start"}


@dataclass(frozen=True, slots=True, eq=False)
class ChainHeader:
    """A header as read: `table` is all of it, unchanged; `jump` is None for a function."""

    table: dict[str, Any]
    names: tuple[str, ...]
    starts: Matrix
    lower: Vector
    upper: Vector
    variances: Variances | None
    jump: Matrix | None
    plan: Plan
    specs: list[ChainSpec]

    @classmethod
    def of(cls, folder: ChainJournal) -> Self:
        """Return the header of a folder.

        Raises
        ------
        ArgumentError
            An entry is missing or invalid, as in a header that was edited by hand.
        """
        table = folder.read_header()
        try:
            var, own = table["variances"], table["jobs"]
            return cls(
                table=table,
                names=tuple(table["names"]),
                starts=np.array(table["starts"], dtype=float),
                lower=np.array(table["lower"], dtype=float),
                upper=np.array(table["upper"], dtype=float),
                variances=None if var is None else _variances(var),
                jump=None if table["jump"] is None else np.array(table["jump"], dtype=float),
                plan=Plan(table["niter"], table["burninlength"], table["interval"]),
                specs=[ChainSpec(k["number"], seed_of(k), np.array(k["starts"]), k["dispersed"]) for k in own],
            )
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ArgumentError(
                f"`checkpoint`: the header in {str(folder.path)!r} is damaged: {what}. Put back a copy of header.json, "
                "or begin a new chain in another folder."
            ) from error

    def check_problem(self, objective: Objective) -> None:
        """Raise an ArgumentError if `objective` is another problem, by its parameters, its kind, its data."""
        check_question(self.table["problem"], objective.identity, "the chain")

    def check_values(self, target: Target) -> None:
        """Raise an ArgumentError if the problem has other values at the start."""
        point, at_start = target.evaluate(self.starts[0]), self.table["at_start"]
        now = {"SS": "of zero probability", "prior": 0.0} if point is None else _values(point)
        before, new = ({name: at[key] for key, name in _AT_START.items()} for at in (at_start, now))
        check_question(before, new, "the chain")


def _values(point: Point) -> dict[str, Any]:
    return {"SS": point.SS.tolist(), "prior": float(point.prior)}


def _variances(table: Mapping[str, Any]) -> Variances:
    arrays = {name: np.array(table[name], dtype=float) for name in _BY_VARIANCE}
    return Variances(labels=tuple(table["labels"]), sampled=table["sampled"], grouping=table["grouping"], **arrays)
