"""`SteppedModel`: difference equations of a system of modules, whose rows are counted in its steps."""

from __future__ import annotations

from typing import Any

from fmepy.models.difference import DifferenceModel


class SteppedModel(DifferenceModel):
    """Difference equations whose step n is the time ``start + n step`` of the system that they come from.

    The first column of its table is ``step``, and costs want that column: data by the system's times would be held
    against other steps. Where both are the same it is ``time``.

    Parameters
    ----------
    *args, **kwargs
        Of `DifferenceModel`.
    clock : tuple of float
        Start and step in the system's time.
    """

    def __init__(self, *args: Any, clock: tuple[float, float] = (0.0, 1.0), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arguments["clock"] = clock
        start, step = clock
        if clock != (0.0, 1.0):
            self.x_name = "step"
            less = f"(obs['time'] - {start:g})" if start else "obs['time']"
            self.x_note = (
                f"the rows of these difference equations are steps of {step:g}, counted from 0 at the time {start:g}. "
                f"Give the observations a column of steps in place of their times, obs.assign(step={less} / {step:g})"
                ".drop(columns='time'), and pass x='step'."
            )
