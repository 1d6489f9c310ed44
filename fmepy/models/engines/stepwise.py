"""Stretches of engines that step in Python: rows inside steps, and the first crossing of what is watched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from fmepy.compiled.crossings import NEVER, PLACES, bisected, first_crossing, has_crossed
from fmepy.compiled.status import SEEN
from fmepy.errors import FmepyError, SimulationError
from fmepy.types import Matrix, Vector

Step = tuple[float, float, Vector, Callable[[Vector], Matrix]]
"""Its beginning and its end, z there, and a function: z at times within it, one a row."""


@contextmanager
def as_failures(reached: Sequence[float] = ()) -> Iterator[None]:
    """Make a failed run of whatever a user's function raises; `reached` holds the time, where it is known."""
    try:
        yield
    except FmepyError:  # ours are ValueErrors too
        raise
    except Exception as error:
        why = f"the model's function failed: {type(error).__name__}: {error}"
        raise SimulationError(why, time=reached[0] if reached else None) from error


def carried(
    steps: Iterable[Step], watch: Callable[[float, Vector], Any], n_watched: int, start: float, z: Vector, times: Vector
) -> tuple[Vector, Matrix]:
    """Return (times reached, z at them) along steps, up to the first crossing; see `engines.base`.

    Parameters
    ----------
    steps : iterable of Step
        From `start` to the last of `times`.
    watch : callable
        ``watch(t, z)`` returns what must not cross zero, `n_watched` numbers.
    """
    out, row, room = np.empty((len(times), len(z))), 0, np.empty(len(z))
    if times[0] == start:
        out[0], row = z, 1
    seen = np.empty((SEEN, n_watched))
    if n_watched:
        seen[0] = watch(start, z)

    def dense(s: float, z: Vector, step: Any, place: Vector) -> None:
        t, h, within, ahead = step
        place[:] = ahead[s] if s in ahead else within(np.array([t + s * h]))[0]

    def look(t: float, z: Vector, model: Any, place: Vector) -> None:
        place[:] = watch(t, z)

    for t, end, z_end, within in steps:
        h, upto = end - t, int(np.searchsorted(times, end, side="right"))
        if row < upto:
            out[row:upto] = within(times[row:upto])
        if n_watched:
            ahead = dict(zip(PLACES, within(t + h * np.array(PLACES)), strict=True))  # one call takes less than three
            seen[1], step = watch(end, z_end), (t, h, within, ahead)
            s = first_crossing(dense, look, None, t, h, z, step, seen, room)
            for k in range(row, upto):
                if times[k] >= t + s * h:
                    break
                seen[2] = watch(times[k], out[k])
                if has_crossed(seen[0], seen[2]):
                    s = bisected(dense, look, None, t, h, z, step, 0.0, (times[k] - t) / h, seen, room)
            if s != NEVER:
                at = min(t + s * h, end)
                before = times < at
                return np.append(times[before], at), np.vstack([out[: before.sum()], within(np.array([at]))])
            np.copyto(seen[0], seen[1], where=~np.isnan(seen[1]))  # one without a value stays on its side
        row = upto
    return times, out
