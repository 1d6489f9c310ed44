"""What went wrong in a pass of the filter, in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.filtering.job import VARIANCE_NOT_POSITIVE
from fmepy.filtering.likelihood import Likelihood, unknown_part
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import Schedule
from fmepy.fimlof.specification import Specification
from fmepy.types import Vector

_WHY = {
    1: "a predicted state became NaN or infinite",
    VARIANCE_NOT_POSITIVE: "the variance of an innovation is not positive",
    3: "the covariance of a predicted state became NaN or infinite",
}


def undetermined(spec: Specification, likelihood: Likelihood) -> str:
    """Return the sentence for a likelihood that is not finite, with the part of the start that it does not know."""
    if not spec.free_states:
        return "The likelihood is not finite."
    states = [spec.definition.states[i] for i in spec.free_states]
    return (
        f"The likelihood is not finite: the data say nothing of {unknown_part(likelihood.A, states)} at the start, "
        "which initial='diffuse' leaves to them. Give its sd in `initial_sd`, or measure more."
    )


def broken(spec: Specification, label: Any, run: Pass, schedule: Schedule, p: Vector) -> SimulationError:
    """Return the error of a pass that broke down: where, and why.

    Parameters
    ----------
    spec : Specification
    label : any
        The entity; None if there is but one.
    run : Pass
    schedule : Schedule
    p : ndarray
        Its parameters.
    """
    time = float(schedule.times[run.node])
    who = "" if label is None else f" of entity {label!r}"
    what = ""
    if run.reason == VARIANCE_NOT_POSITIVE:
        what = f" ({spec.variables[schedule.readings.variables[run.row]]!r})"
    sample = int(np.sum(np.unique(schedule.readings.times) <= time))
    return SimulationError(
        f"The filter{who} broke down at time {time:.6g} (sample {sample}): {_WHY[run.reason]}{what}.",
        parameters=dict(zip(spec.parameters, p.tolist(), strict=True)),
        time=time,
    )
