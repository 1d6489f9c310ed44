"""Why a compiled run did not come to its end, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.compiled import status
from fmepy.errors import SimulationError

MOST_STEPS = 100_000
"""Steps of one segment, rejected ones included, before a run is given back."""

_WHY = {
    status.STEP_TOO_SMALL: "the step became too small",
    status.STIFF: "the model is stiff here (the run is held to the explicit method, or has no Jacobian that compiles)",
    status.NO_RATES: "the rates are not finite",
    status.EXPLODED: "a state runs to infinity",
}


def failure_of(
    ended: float, reached: float, states: Sequence[Any], most_steps: int, worst: Sequence[float] = ()
) -> SimulationError:
    """Return the error of a run that ended so, `worst` being the state it ended for, its value, and its rate."""
    if ended == status.NOT_FINITE:
        return SimulationError("a state became NaN or infinite", time=reached)
    if ended == status.NO_VALUE:
        return SimulationError("an initial or event value is not finite", time=reached)
    why = _WHY.get(int(ended), f"more than {most_steps} steps")
    if worst:
        state, value, rate = states[int(worst[0])], *worst[1:]
        changes = f"changes by {rate:.3g} a unit of time" if np.isfinite(rate) else "has a rate that is not finite"
        why += f" ({state} = {value:.6g} {changes})"
    exploded = ended == status.EXPLODED
    return SimulationError(f"the compiled solver gave up: {why}", time=reached, exploded=exploded)
