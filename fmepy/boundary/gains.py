"""What a gain is to `fit_boundary`: the cost of a model that its data correct, and which of the unknowns are gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fmepy.boundary.unknowns import definition_of, used_elsewhere
from fmepy.costs.observer_gain import STATIONARY, names_of_gain, names_taken
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, did_you_mean
from fmepy.parameters.entities import split_local
from fmepy.parameters.named import as_parameters, check_names


def check_noise_of_gain(gain: Any, noise: Mapping[str, Any]) -> None:
    """Refuse words of noise without the gain that follows from it."""
    said = [argument for argument, value in noise.items() if value is not None]
    if said and not (isinstance(gain, str) and gain == STATIONARY):
        own = f"gain={gain!r} is your own.{did_you_mean(gain, [STATIONARY])}" if isinstance(gain, str) else ""
        raise ArgumentError(
            f"`{said[0]}` is what gain='stationary' follows from; "
            f"{own or ('there is no gain here.' if gain is None else 'a gain of your own needs none.')} Errors of the "
            "observations are given by `err` or `weight`; modFit of a SimulationCost or FimlofCost estimates noise."
        )


def further_names(model: Any, gain: Any) -> tuple[str, ...]:
    """Return the names in a gain that the model does not have as parameters: unknowns of their own."""
    own = set(map(str, model.parms.index))
    return tuple(name for name in names_of_gain(gain) if name not in own)


def corrected_cost(
    model: Any, obs: Any, gain: Any, given: Mapping[str, Any], noise: Mapping[str, Any], **words: Any
) -> SimulationCost:
    """Return model and observations as a cost of the model that they correct.

    Parameters
    ----------
    given : mapping of str to float or None
        The unknowns and their first guesses, of several experiments by the names of all of them.
    noise : mapping
        ``process_noise``, ``measurement_noise``, ``operating_point``.
    **words
        Of `PredictionErrorCost`.

    Raises
    ------
    ParameterError
        A name that neither the model nor the gain has.
    ArgumentError
        A gain without a first guess; what else `PredictionErrorCost` refuses.
    """
    further = further_names(model, gain)
    of_model = list(map(str, model.parms.index))
    check_names(dict.fromkeys(split_local(k)[0] for k in given), [*of_model, *further], argument="p")
    own = {k: v for k, v in given.items() if split_local(k)[0] in further}
    as_parameters({k: v for k, v in own.items() if v is not None} or {"none": 0.0}, argument="p")
    for name in set(further) - set(names_taken(model)):
        told = {k: v for k, v in own.items() if split_local(k)[0] == name} or {name: None}
        if missing := [k for k, v in told.items() if v is None]:
            raise ArgumentError(
                f"`gain` uses {name!r}, which the model does not have, so that it is unknown and needs a first guess: "
                f"add {{{missing[0]!r}: 0.0}} to `p`, with the guesses of the other unknowns, or write a number."
            )
    return PredictionErrorCost(model, obs, gain=gain, parms=own, **noise, **words).as_squares()


def gains_among(names: Sequence[str], model: Any, gain: Any) -> tuple[int, ...]:
    """Return which unknowns are in the gain, and in nothing else of the model."""
    found = set(names_of_gain(gain)) - used_elsewhere(definition_of(model))
    return tuple(i for i, name in enumerate(names) if split_local(name)[0] in found)
