"""Which steps run, which results they need, when a result is out of date, and the demands of a file."""

from __future__ import annotations

import hashlib
import inspect
import json
import linecache
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from fmepy import __version__
from fmepy.errors import ArgumentError, check_known, listed, sentence
from fmepy.workflow.file.case import Case
from fmepy.workflow.steps.base import FITS, CalibrationStep, Requirement, Results, best_fit
from fmepy.workflow.steps.registry import STEPS

_PACKAGES = ("numpy", "scipy", "pandas", "llvmlite", "nlopt", "lmfit", "emcee", "matplotlib")


@cache
def versions() -> dict[str, str]:
    """Return the versions of the packages that compute."""
    own = {"fmepy": __version__, "python": platform.python_version()}
    return own | {package: version(package) for package in _PACKAGES}


def selected_steps(case: Case, requested: Iterable[str] | None) -> list[str]:
    """Return the steps to run or reuse, in order: those requested, and those of the file that they need.

    Raises
    ------
    ArgumentError
        A step that there is not, or that the file does not have.
    """
    names = list(case.steps) if requested is None else [str(name).strip() for name in requested]
    if requested is not None and not any(names):
        raise ArgumentError(f"no step is named; the steps of {case.file} are {listed(case.steps)}.")
    for name in names:
        check_known(name, STEPS, f"there is no step {name!r}.", are="Steps are")
        if name not in case.steps:
            raise ArgumentError(
                f"{case.file} has no step {name!r}; it has {listed(case.steps)}. Add a line `{name} = {{}}` to it."
            )
    wanted = set(names)
    for name in reversed(STEPS):  # a step needs earlier ones only
        if name in wanted:
            for need in STEPS[name].needs(case.steps[name]):
                alternatives = _alternatives(need)
                if not wanted & set(alternatives):
                    wanted |= set([way for way in alternatives if way in case.steps][:1])
    return [name for name in STEPS if name in wanted]


def _alternatives(need: str) -> Sequence[str]:
    return FITS if need == "fit" else (need,)


def providers(case: Case, name: str, arguments: Mapping[str, Any], is_available: Callable[[str], bool]) -> list[str]:
    """Return the steps whose results a step takes, of those available.

    A result of a step that the file does not have is taken only where the file has none that would do.

    Raises
    ------
    ArgumentError
        One that it needs is not there.
    """
    out = []
    for need in STEPS[name].needs(arguments):
        alternatives = _alternatives(need)
        available = [w for w in alternatives if w in case.steps and is_available(w)]
        available = available or [w for w in alternatives if w not in case.steps and is_available(w)]
        if not available:
            raise case.section.error(
                name,
                f"the step {name!r} needs the step {need!r}, which is neither in the file nor done. Add a line "
                f"`{need} = {{}}` to the file.",
            )
        out += available
    welcome = [w for w in STEPS[name].welcomes if w in case.steps and w not in out]
    return out + [w for w in welcome if is_available(w)]


def code_of(step: CalibrationStep) -> list[str]:
    """Return the source code of a user's own step, an input of its result; fmepy's own changes with the version."""
    outside = [c for c in type(step).__mro__ if c.__module__.partition(".")[0] not in ("fmepy", "builtins")]
    functions = [f for c in outside for f in vars(c).values() if inspect.isfunction(f)]
    files = sorted({f.__code__.co_filename for f in functions})
    for file in files:
        linecache.checkcache(file)
    return ["".join(linecache.getlines(file)) for file in files]


def digest(value: Any) -> str:
    """Return the sha256 of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


# --- what a file demands of the results, so that a nightly run fails loudly

MOST_FAILURES = 0.5
"""Of a step's runs, where the file does not say."""


def _of(demand: str) -> tuple[Sequence[str], Requirement | None]:
    """Return the steps that can answer a demand, of which one is needed, and the requirement."""
    if demand in ("converged", "failures"):
        return (FITS if demand == "converged" else tuple(STEPS)), None
    return next(((n,), step.requirements[demand]) for n, step in STEPS.items() if demand in step.requirements)


def check_demands(case: Case) -> None:
    """Refuse a demand whose step is not in the file."""
    for demand in case.require:
        steps, _ = _of(demand)
        if not any(step in case.steps for step in steps):
            raise case.section.error(
                ("require", demand),
                f"`{demand}` is demanded of the step {' or '.join(steps)}, which is not in the file. Add a line "
                f"`{steps[0]} = {{}}`, or leave the demand out.",
            )


def unmet(case: Case, name: str, result: Any) -> dict[str, str]:
    """Return why a result counts as failed, by the demand that it misses, whether the file states it or not."""
    reasons = {}
    n, of, first = STEPS[name].failed_runs(result)
    if n > case.require.get("failures", MOST_FAILURES) * of:
        reasons["failures"] = (
            f"{n} of {of} runs failed; {'the last' if name == 'sample' else 'the first'}: {sentence(first)} "
            f"{STEPS[name].advice} (to let that pass: [require] failures = 1)."
        )
    if name in FITS and case.require.get("converged", True) and not result.converged:
        reasons["converged"] = f"it did not converge (to let that pass: [require] converged = false). {result.message}"
    return reasons


def judge_demands(case: Case, results: Results) -> list[dict[str, Any]]:
    """Return each demand, the value found, and whether it is met (None if the step was not run)."""
    out = []
    for demand, wanted in case.require.items():
        value, met, text = None, None, f"{demand}: not judged, as its step was not run."
        if any(results.get(step) is not None for step in _of(demand)[0]):
            value, met, text = _judge_demand(demand, wanted, results)
        out.append({"demand": demand, "wanted": wanted, "found": value, "met": met, "said": text})
    return out


def _judge_demand(demand: str, wanted: Any, results: Results) -> tuple[Any, bool, str]:
    """Return the value found, whether the demand is met (by NaN never), and a sentence."""
    (step, *_), requirement = _of(demand)
    value: Any
    if demand == "converged":
        value = bool(best_fit(results).converged)
        met, text = value or not wanted, f"the fit {'converged' if value else 'did not converge'}"
    elif requirement is None:
        counts = [STEPS[name].failed_runs(result) for name, result in results.items() if result is not None]
        value = max(n / max(of, 1) for n, of, _ in counts)
        met, text = value <= wanted, f"{100 * value:.3g} % of the runs of a step failed, at most {wanted:g} is demanded"
    else:
        value, least = requirement.value(results[step]), requirement.at_least
        met = bool(value >= wanted if least else value <= wanted)
        text = f"{requirement.says.format(value)}, {'at least' if least else 'at most'} {wanted:g} is demanded"
    return value, met, f"{text}{'' if met else ': the demand is missed'}."
