"""Where a gain makes a predictor unstable: errors of the state grow from sample to sample, of the linearised model.

From one sample to the next Phi (I - K H) carries an error of the state, exp((F - K H) h) in an observer, Phi without
corrections. The gain is to blame where the spectral radius of the first is beyond one, and beyond that without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import SimulationError
from fmepy.language.equations import symbols
from fmepy.models.entity import EntityModel
from fmepy.models.linearised import linearised
from fmepy.models.observer_model import Entry, Samples
from fmepy.numerics.stationary import sampled
from fmepy.types import Matrix, Vector

BEYOND = 1e4
"""Predictions of so many times the largest reading are looked into."""
_LOOKS = 100


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """What looks into runs of a corrected model that broke down.

    Attributes
    ----------
    model, predictor : Model
        As the user gave it; corrected, which may be that of an entity.
    samples : Samples
    gain : sequence of (state, variable, number or expression)
    form : str
    largest : float
        Size of the largest reading.
    """

    model: Any
    predictor: Any
    samples: Samples
    gain: Sequence[Entry]
    form: str
    largest: float

    def check(self, mod: Vector, x: Vector, parms: Mapping[str, float]) -> None:
        """Raise a SimulationError where predictions run away and the gain is to blame."""
        size = np.abs(mod)
        if not size.max(initial=0.0) > BEYOND * self.largest:
            return
        time = float(x[size > BEYOND * self.largest].min())
        if told := self._told(time, parms):
            raise SimulationError(
                f"The predictions go beyond {BEYOND:g} times the largest reading at time {time:g}. {told}",
                parameters=dict(parms), time=time, exploded=True,
            )  # fmt: skip

    def explained(self, error: SimulationError, parms: Mapping[str, float]) -> SimulationError:
        """Return a failure, with what the gain has to do with it."""
        told = self._told(np.inf if error.time is None else error.time, parms)
        if not told:
            return error
        return SimulationError(f"{error} {told}", parameters=error.parameters, time=error.time, exploded=error.exploded)

    def _told(self, until: float, parms: Mapping[str, float]) -> str:
        """Return where the gain makes the predictor unstable before a time, "" where it does not."""
        times = self.samples.times[self.samples.times < until]
        if not len(times):
            return ""
        own = {k: v for k, v in parms.items() if k in self.predictor.parms.index}
        d, values = self.model.definition, self._values({**self.predictor.parms.to_dict(), **own})
        K, variables = self._matrix(values)
        p = np.array([values[k] for k in d.parameters])
        try:
            run = self.predictor(own or None, times)
        except SimulationError:
            times = times[:1]
            run = self.predictor(own or None, times)
        states = run[list(d.states)].to_numpy(dtype=float)
        for i in np.unique(np.linspace(0, len(times) - 1, min(len(times), _LOOKS)).astype(int)):
            h = float(np.diff(self.samples.times[i : i + 2]).sum())
            near = linearised(d, states[i], p, float(times[i]), variables)
            if not (np.isfinite(near.F).all() and np.isfinite(near.H).all()):
                break
            plain, corrected = self._radii(near.F, K @ near.H, h)
            if corrected > max(1.0, plain) * (1 + 1e-9):
                gains = ", ".join(f"{K[a, b]:g} ({s!r} by {v!r})" for a, s in enumerate(d.states)
                                  for b, v in enumerate(variables) if K[a, b] != 0)  # fmt: skip
                return (
                    f"The gain makes the predictor unstable: at time {times[i]:g} an error of the state is multiplied "
                    f"by {corrected:.3g} from one sample to the next (spectral radius of the linearised predictor; "
                    f"{plain:.3g} without corrections). It is {gains}; take a smaller one."
                )
        return ""

    def _values(self, given: dict[str, float]) -> dict[str, float]:
        """Return all parameters of the corrected model; of an entity from those of the whole."""
        if not isinstance(self.predictor, EntityModel):
            return given
        names = list(self.predictor.inner.parms.index)
        own = self.predictor.parameters.map(self.predictor.k, tuple(given), names)
        return dict(zip(names, own.full(np.array(list(given.values()))).tolist(), strict=True))

    def _radii(self, F: Matrix, KH: Matrix, h: float) -> tuple[float, float]:
        """Return the spectral radii without corrections and with them."""
        eye, none = np.eye(len(F)), np.zeros_like(F)
        if self.form == "observer":
            both = [sampled(A, none, h)[0] for A in (F, F - KH)]
        else:
            is_ode = self.model.definition.kind == "ode"
            Phi = sampled(F, none, h)[0] if is_ode else np.linalg.matrix_power(F, max(round(h), 1))
            both = [Phi, Phi @ (eye - KH)]
        plain, corrected = (float(np.abs(np.linalg.eigvals(A)).max()) for A in both)
        return plain, corrected

    def _matrix(self, values: Mapping[str, float]) -> tuple[Matrix, list[str]]:
        """Return K, and the variables of its columns."""
        states, variables = self.model.definition.states, list(dict.fromkeys(v for _, v, _ in self.gain))
        K = np.zeros((len(states), len(variables)))
        for state, variable, value in self.gain:
            if not isinstance(value, float):
                value = scalar_function(symbols(tuple(values)), [value])(list(values.values()))[0]
            K[states.index(state), variables.index(variable)] += value
        return K, variables
