"""What a file demands of the results, so that a nightly run fails loudly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fmepy.errors import sentence
from fmepy.workflow.file.task import Case
from fmepy.workflow.steps.base import FITS, Requirement, Results, best_fit
from fmepy.workflow.steps.registry import STEPS

MOST_FAILURES = 0.5
"""Of a step's runs, where the file does not say."""


def _of(demand: str) -> tuple[Sequence[str], Requirement | None]:
    """Return the steps that answer a demand, one of which must be there, and how one does."""
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
    """Return why a result counts as none, by the demand that is missed: of every step, said in the file or not."""
    why = {}
    n, of, first = STEPS[name].failed_runs(result)
    if n > case.require.get("failures", MOST_FAILURES) * of:
        why["failures"] = (
            f"{n} of {of} runs failed; {'the last' if name == 'sample' else 'the first'}: {sentence(first)} "
            f"{STEPS[name].advice} (to let that pass: [require] failures = 1)."
        )
    if name in FITS and case.require.get("converged", True) and not result.converged:
        why["converged"] = f"it did not converge (to let that pass: [require] converged = false). {result.message}"
    return why


def judged(case: Case, done: Results) -> list[dict[str, Any]]:
    """Return what was demanded and found, and whether that is met; None where the step was not asked for."""
    out = []
    for demand, wanted in case.require.items():
        found, met, said = None, None, f"{demand}: not judged, as its step was not run."
        if any(done.get(step) is not None for step in _of(demand)[0]):
            found, met, said = _judged(demand, wanted, done)
        out.append({"demand": demand, "wanted": wanted, "found": found, "met": met, "said": said})
    return out


def _judged(demand: str, wanted: Any, done: Results) -> tuple[Any, bool, str]:
    """Return what was found, whether it is met (NaN never is), and that in a sentence."""
    (step, *_), requirement = _of(demand)
    found: Any
    if demand == "converged":
        found = bool(best_fit(done).converged)
        met, said = found or not wanted, f"the fit {'converged' if found else 'did not converge'}"
    elif requirement is None:
        counts = [STEPS[name].failed_runs(result) for name, result in done.items() if result is not None]
        found = max(n / max(of, 1) for n, of, _ in counts)
        met, said = found <= wanted, f"{100 * found:.3g} % of the runs of a step failed, at most {wanted:g} is demanded"
    else:
        found, least = requirement.value(done[step]), requirement.at_least
        met = bool(found >= wanted if least else found <= wanted)
        said = f"{requirement.says.format(found)}, {'at least' if least else 'at most'} {wanted:g} is demanded"
    return found, met, f"{said}{'' if met else ': the demand is missed'}."
