"""y' = -k y(t - tau), y = 1 until 0, by the method of steps: a model written with the public contract alone."""

import numpy as np
from scipy.integrate import solve_ivp

from fmepy.models.simulated import SimulatedModel


class DelayModel(SimulatedModel):
    relative_step = 1e-4  # a run is right to about 1e-10

    def run(self, p, times):
        tau, pieces = p["tau"], []

        def past(t):
            return pieces[min(int(t // tau), len(pieces) - 1)](t)[0] if t > 0 and pieces else 1.0

        while tau * len(pieces) < times[-1] or not pieces:
            start, y = tau * len(pieces), pieces[-1](tau * len(pieces)) if pieces else [1.0]
            piece = solve_ivp(lambda t, y: [-p["k"] * past(t - tau)], (start, start + tau), y, "DOP853",
                              rtol=1e-10, atol=1e-12, dense_output=True)  # fmt: skip
            pieces.append(piece.sol)
        return np.array([[past(t)] for t in times])
