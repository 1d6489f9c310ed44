"""The header of a checkpoint: what a chain was asked for, written at its birth and read back with suspicion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError
from fmepy.mcmc.checkpoint import Folder
from fmepy.mcmc.kernels.base import Settings
from fmepy.mcmc.proposals import JumpFunction
from fmepy.mcmc.runner import Job, Plan
from fmepy.mcmc.target import Target, Variances
from fmepy.types import Matrix, Vector

_ONE_LOOP = {"numba", "explicit", "compiled"}  # names of the compiled loop, old and new; its values are checked too
_AGREE = 1e-9  # relative; the cost at the start must be the one that the checkpoint keeps


def header_of(
    settings: Mapping[str, Any],
    target: Target,
    plan: Plan,
    proposal: Matrix | JumpFunction,
    starts: Matrix,
    jobs: list[Job],
    every: int,
) -> dict[str, Any]:
    """Return the header of a new chain, as JSON keeps it."""
    objective, var = target.objective, target.variances
    given = objective.parameters.lmfit
    if given is not None and len(given) > len(objective.parameters):
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
        else {
            "labels": list(var.labels),
            "var0": var.var0.tolist(),
            "n0": var.n0.tolist(),
            "N": var.N.tolist(),
            "sampled": var.sampled,
            "grouping": var.grouping,
        },
        "problem": objective.identity,
        "at_start": {"SS": point.SS.tolist(), "prior": point.prior},
        "jump": None if isinstance(proposal, JumpFunction) else proposal.tolist(),
        "settings": dict(settings),
        "niter": plan.niter,
        "burninlength": plan.burninlength,
        "interval": plan.interval,
        "every": every,
        "jobs": [
            {
                "number": j.number,
                "entropy": _plain_entropy(j.seed.entropy),
                "spawn_key": [int(k) for k in j.seed.spawn_key],
                "pool_size": j.seed.pool_size,
                "starts": j.starts.tolist(),
                "dispersed": j.dispersed,
            }
            for j in jobs
        ],
    }


def _plain_entropy(entropy: Any) -> Any:
    return int(entropy) if isinstance(entropy, (int, np.integer)) else [int(e) for e in entropy]


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What a header holds, checked: `header` is all of it, as it stands there; `jump` is None for a function."""

    header: dict[str, Any]
    names: tuple[str, ...]
    positional: bool
    starts: Matrix
    lower: Vector
    upper: Vector
    has_prior: bool
    variances: Variances | None
    problem: dict[str, Any]
    SS: Vector
    prior: float
    jump: Matrix | None
    settings: dict[str, Any]
    plan: Plan
    every: int
    jobs: list[Job]

    @classmethod
    def of(cls, folder: Folder, methods: Iterable[str]) -> Self:
        """Return the header of a folder.

        Raises
        ------
        ArgumentError
            Something is missing in it, or cannot be.
        """
        header = folder.read_header()
        try:
            return cls._read(header, methods)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise ArgumentError(
                f"`checkpoint`: the header in {str(folder.path)!r} is damaged: {what}. Put back a copy of header.json, "
                "or begin a new chain in another folder."
            ) from error

    @classmethod
    def _read(cls, header: dict[str, Any], methods: Iterable[str]) -> Self:
        names = tuple(_get(header, "names", list))
        n = len(names)
        if not n or not all(isinstance(name, str) for name in names):
            raise ValueError(f"names is {list(names)!r}")
        settings = _get(header, "settings", dict)
        _check_settings(settings, methods)
        at_start = _get(header, "at_start", dict)
        plan = Plan(_number(header, "niter", 1), _number(header, "burninlength", 0), _number(header, "interval", 1))
        if plan.burninlength >= plan.niter:
            raise ValueError(f"burninlength is {plan.burninlength}, niter {plan.niter}")
        jobs = [_job(j, n) for j in _get(header, "jobs", list)]
        if sorted(job.number for job in jobs) != list(range(len(jobs))) or not jobs:
            raise ValueError("the chains are not numbered from 0")
        return cls(
            header=header,
            names=names,
            positional=_get(header, "positional", bool),
            starts=_array(header, "starts", (-1, n)),
            lower=_array(header, "lower", (n,), finite=False),
            upper=_array(header, "upper", (n,), finite=False),
            has_prior=_get(header, "has_prior", bool),
            variances=None if header["variances"] is None else _variances(_get(header, "variances", dict)),
            problem=_get(header, "problem", dict),
            SS=_array(at_start, "SS", (-1,)),
            prior=float(_array(at_start, "prior", ())),
            jump=None if header["jump"] is None else _array(header, "jump", (n, n)),
            settings=settings,
            plan=plan,
            every=_number(header, "every", 1),
            jobs=jobs,
        )

    def check_problem(self, objective: Objective) -> None:
        """Raise an ArgumentError if `objective` is another problem, by its parameters, its kind, its data."""
        now = objective.identity
        for name, value in self.problem.items():
            if value != now.get(name) and not {value, now.get(name)} <= _ONE_LOOP:
                raise ArgumentError(
                    f"The checkpoint is of another problem: its {name} is {value!r}, that of `f` is {now.get(name)!r}. "
                    "Give the same `f` (and args, kwargs), or begin a new chain in another folder."
                )

    def check_values(self, target: Target) -> None:
        """Raise an ArgumentError if the problem has other values at the start."""
        point = target.evaluate(self.starts[0])
        SS = self.SS
        if point is None or point.SS.shape != SS.shape or not np.allclose(point.SS, SS, rtol=_AGREE, atol=1e-300):
            have = "zero probability" if point is None else point.SS.tolist()
            raise ArgumentError(
                "The checkpoint is of another problem: at its start the sums of squares (or -2 log L) were "
                f"{SS.tolist()}, `f` gives {have}. Give the same `f`, data and args."
            )
        if not np.isclose(point.prior, self.prior, rtol=_AGREE, atol=1e-12):
            raise ArgumentError(
                f"The checkpoint is of another prior: -2 log prior at its start was {self.prior:.10g}, it is now "
                f"{point.prior:.10g}. Give the same `prior`."
            )


# --- values that somebody may have changed


def _get(table: Any, name: str, kind: type) -> Any:
    if not isinstance(table, dict):
        raise TypeError(f"where {name!r} should stand there is {table!r:.60}")
    value = table[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{name!r} is {value!r:.60}")
    return value


def _number(table: Any, name: str, least: int) -> int:
    value: int = _get(table, name, int)
    if value < least:
        raise ValueError(f"{name!r} is {value}")
    return value


def _array(table: Any, name: str, shape: tuple[int, ...], *, finite: bool = True) -> Any:
    value = np.array(_get(table, name, object), dtype=float)
    fits = value.ndim == len(shape) and all(b in (-1, a) for a, b in zip(value.shape, shape, strict=True))
    if not fits or not value.size or np.isnan(value).any() or (finite and not np.isfinite(value).all()):
        raise ValueError(f"{name!r} does not hold numbers of shape {shape}")
    return value


def _check_settings(settings: dict[str, Any], methods: Iterable[str]) -> None:
    if set(settings) != {f.name for f in fields(Settings)}:
        raise ValueError(f"'settings' holds {sorted(settings)}")
    if settings["method"] not in methods:
        raise ValueError(f"'method' is {settings['method']!r}")
    _number(settings, "updatecov", 0)
    _number(settings, "adapt_until", 1)
    drscale = _get(settings, "drscale", (list, tuple))  # type: ignore[arg-type]
    if not all(np.isfinite(float(v)) and float(v) > 0 for v in (_get(settings, "covscale", (int, float)), *drscale)):  # type: ignore[arg-type]
        raise ValueError("'covscale' and 'drscale' are not positive")
    _get(settings, "control", dict)


def _variances(table: dict[str, Any]) -> Variances:
    labels = tuple(_get(table, "labels", list))
    shape = (len(labels),)
    return Variances(
        labels, _array(table, "var0", shape), _array(table, "n0", shape), _array(table, "N", shape),
        _get(table, "sampled", bool), _get(table, "grouping", str),
    )  # fmt: skip


def _job(table: Any, n_par: int) -> Job:
    entropy = table["entropy"] if isinstance(table, dict) else None
    key = tuple(_get(table, "spawn_key", list))
    seed = np.random.SeedSequence(entropy, spawn_key=key, pool_size=_number(table, "pool_size", 4))
    if entropy is None:
        raise ValueError("a chain without its seed")
    return Job(_number(table, "number", 0), seed, _array(table, "starts", (-1, n_par)), _get(table, "dispersed", bool))
