"""Methods of steps and their settings, checked against cost and priors before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fmepy.costs.base import Cost
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError
from fmepy.fitting.control import filled
from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.modfit import method_for
from fmepy.mcmc.arguments import as_control
from fmepy.parameters.named import as_prior

if TYPE_CHECKING:
    from fmepy.workflow.task import Task


def check_settings(task: Task) -> None:
    """Refuse methods that do not suit the cost or the priors, and settings that a method does not know.

    What a function f(p) returns is not known before it is called; of such a cost the settings alone are looked at.

    Raises
    ------
    ArgumentError
        With the line of the step's ``method`` or ``control``.
    """
    steps = task.case.steps
    for step in ("fit", "multistart", "profile"):
        if step in steps:
            method = _method(task, step, steps[step])
            if "control" in steps[step]:
                words = METHODS[method]
                _placed(task, step, "control", filled, steps[step]["control"], words.control, words.aliases, method)
            if METHODS[method].box:
                _check_box(task, step, method)
    if "control" in (sample := steps.get("sample", {})):
        method = sample.get("method", "dram")
        _placed(task, "sample", "control", as_control, sample["control"], method, len(task.start))


def _method(task: Task, step: str, arguments: Mapping[str, Any]) -> str:
    """Return the method of a step, one that suits."""
    method = arguments.get("method")
    if not isinstance(task.scaled_cost, Cost):
        return method or "Marq"
    objective = as_objective(task.scaled_cost, task.start)
    known = as_prior(task.fit_prior, objective.parameters)
    found: str = _placed(task, step, "method", method_for, method, objective, known)
    return found


def _check_box(task: Task, step: str, method: str) -> None:
    """Refuse a search of a box without its sides."""
    for name in task.start.index:
        if not (abs(task.lower[name]) < float("inf") and abs(task.upper[name]) < float("inf")):
            raise task.case.section.error(
                (step, "method"), f"the method {method!r} searches a box; {name!r} needs `lower` and `upper`."
            )


def _placed(task: Task, step: str, key: str, check: Any, *given: Any) -> Any:
    try:
        return check(*given)
    except ArgumentError as error:
        raise task.case.section.error((step, key), str(error)) from None
