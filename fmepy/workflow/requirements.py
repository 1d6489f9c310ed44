"""What a file demands of the results, so that a nightly run fails loudly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fmepy.errors import sentence
from fmepy.workflow.file.parsed import Case
from fmepy.workflow.steps import STEPS
from fmepy.workflow.steps.base import FITS, Results, best_fit
from fmepy.workflow.steps.sample import worst

STEPS_OF: dict[str, Sequence[str]] = {
    "converged": FITS, "failures": tuple(STEPS), "max_collinearity": ("screen",), "rhat": ("sample",),
    "ess": ("sample",),
}  # fmt: skip
"""By demand the steps that answer it, one of which must be there."""
MOST_FAILURES = 0.5
"""Of a step's runs, where the file does not say."""
_BOUNDS = "Begin where the model runs, and keep out the rest by bounds"
_ADVICE = {
    "ranges": "Take narrower ranges of the parameters",
    "scenarios": "Take scenarios in which the model runs",
    "filter": "Take other parameters",
}
"""What to do about runs that fail, by step."""


def check_demands(case: Case) -> None:
    """Refuse a demand whose step is not in the file."""
    for demand in case.require:
        steps = STEPS_OF[demand]
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
            f"{_ADVICE.get(name, _BOUNDS)} (to let that pass: [require] failures = 1)."
        )
    if name in FITS and case.require.get("converged", True) and not result.converged:
        why["converged"] = f"it did not converge (to let that pass: [require] converged = false). {result.message}"
    return why


def judged(case: Case, done: Results) -> list[dict[str, Any]]:
    """Return what was demanded and found, and whether that is met; None where the step was not asked for."""
    out = []
    for demand, wanted in case.require.items():
        if not any(done.get(step) is not None for step in STEPS_OF[demand]):
            found, met, said = None, None, f"{demand}: not judged, as its step was not run."
        else:
            found = _found(demand, done)
            met = _met(demand, found, wanted)
            said = _said(demand, found, wanted, met)
        shown = found if not isinstance(found, float) or np.isfinite(found) else str(found)
        out.append({"demand": demand, "wanted": wanted, "found": shown, "met": met, "said": said})
    return out


def _found(demand: str, done: Results) -> Any:
    if demand == "converged":
        return bool(best_fit(done).converged)
    if demand == "failures":
        counts = [STEPS[step].failed_runs(result) for step, result in done.items() if result is not None]
        return max(n / max(of, 1) for n, of, _ in counts)
    if demand == "max_collinearity":
        return float(done["screen"].together)
    return worst(done["sample"].diagnostics(), "rhat" if demand == "rhat" else "ess_bulk")


def _met(demand: str, found: Any, wanted: Any) -> bool:
    if demand == "converged":
        return bool(found or not wanted)
    return bool(found >= wanted if demand == "ess" else found <= wanted)  # NaN is never met


def _said(demand: str, found: Any, wanted: Any, met: bool) -> str:
    words: Mapping[str, str] = {
        "failures": f"{100 * found:.3g} % of the runs of a step failed",
        "converged": f"the fit {'converged' if found else 'did not converge'}",
        "max_collinearity": f"the fitted parameters together have a collinearity of {found:.4g}",
        "rhat": f"the largest R-hat is {found:.4g}",
        "ess": f"the least effective sample is {found:.4g}",
    }
    limit = "" if demand == "converged" else f", {'at least' if demand == 'ess' else 'at most'} {wanted:g} is demanded"
    return f"{words[demand]}{limit}{'' if met else ': the demand is missed'}."
