"""``screen``: what the data can tell of the parameters, before any fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.costs.modcost import ModCost
from fmepy.costs.user_function import is_ours
from fmepy.errors import ArgumentError
from fmepy.sensitivity.collin import collin
from fmepy.sensitivity.sensfun import sensFun
from fmepy.workflow.steps.base import Doing, Results, Tables
from fmepy.workflow.steps.results import Screened
from fmepy.workflow.steps.scale import check_named, natural

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "screen"
_OF_COLLIN = ("parset", "N", "which", "maxcomb")
_HIGH = 20.0  # above, a set of parameters is held to be unidentifiable (5 to 20 in the literature)


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return nothing: it looks at the start."""
    return ()


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    return f"sensitivities to {len(task.start)} parameters"


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse unknown parameters, and what a cost decides by itself."""
    for key in ("sensvar", "map"):
        if key in arguments and is_ours(task.cost):
            raise task.case.section.error(
                (NAME, key), f"`{key}` chooses columns of a model; the cost has its own, the data's. Leave it out."
            )
    for key in ("senspar", "parset"):
        check_named(task, NAME, key, arguments.get(key), task.start.index)


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> Screened:
    """Return sensitivities at the start, and the collinearity of sets of parameters."""
    words = {k: v for k, v in arguments.items() if k != "collin" and k not in _OF_COLLIN}
    own = natural(task, task.start)
    start, f = dict(zip(map(str, own.index), own.tolist(), strict=True)), task.cost
    if not is_ours(f):
        f, words = _as_table(f, start, words)
    low, high = natural(task, task.lower).to_dict(), natural(task, task.upper).to_dict()
    sens = sensFun(f, start, lower=low, upper=high, executor=doing.executor, progress=doing.progress, **words)
    names = list(sens.names)
    together = collin(sens, names).value if len(names) > 1 else 1.0
    sets = None
    if arguments.get("collin", True) and len(names) > 1:
        sets = collin(sens, **{k: arguments[k] for k in _OF_COLLIN if k in arguments})
    return Screened(sens, sets, together)


def _as_table(f: Any, start: dict[str, float], words: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a function of the user's that gives residuals as one of a table; what is relative to them says nothing."""
    first = f(dict(start))
    if np.ndim(first) == 0 and not isinstance(first, ModCost):
        raise ArgumentError(
            "`screen` looks at what the model gives for every datum, and the function gives one number. Return the "
            "residuals, or leave `screen` out."
        )
    if isinstance(first, ModCost) or np.ndim(first) != 1 or hasattr(first, "columns"):
        return f, words
    x = np.arange(1.0, len(first) + 1)
    return (lambda p: {"x": x, "residual": np.asarray(f(p), dtype=float)}), {"varscale": 1.0, **words}


def tables(task: Task, result: Screened) -> Tables:
    """Return screen.csv, a row a parameter, and collin.csv, a row a set of them."""
    ranks = result.sensitivities.summary().frame.rename_axis("parameter").reset_index()
    return {"screen.csv": ranks} | ({} if result.collinearity is None else {"collin.csv": result.collinearity.frame})


def verdict(task: Task, result: Screened) -> str:
    """Return whether the data can tell the parameters apart."""
    ranks = result.sensitivities.summary().frame
    silent = [str(name) for name in ranks.index[ranks["L2"].to_numpy(dtype=float) == 0]]
    if silent:
        return f"The data do not respond to {', '.join(silent)} at the start: no fit can find it."
    n, g = len(ranks), result.together
    if n == 1:
        return "One parameter is fitted, to which the data respond."
    size = f"a collinearity of {g:.3g}" if np.isfinite(g) else "an infinite collinearity"
    said = "these data cannot tell them apart" if g > _HIGH else "these data can tell them apart"
    return f"The {n} fitted parameters together have {size} (to be estimated together, at most {_HIGH:g}): {said}."


def failed_runs(result: Screened) -> tuple[int, int, str]:
    """Return that none failed: there is no sensitivity without its runs."""
    return 0, 0, ""
