"""What the tables, tests and pages of a filter's result need to know of its model, in names and numbers.

A result that is there has it from its bound cost; one that was loaded from a file, where models cannot be, from there.
"""

from __future__ import annotations

from dataclasses import dataclass

from fmepy.fimlof.bands import positive_names
from fmepy.fimlof.outputs import names_of_sums, outputs_of
from fmepy.fimlof.specification import Specification
from fmepy.results.encoding import Stored
from fmepy.types import Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Facts(Stored):
    """Names and settings of a filtered model.

    Attributes
    ----------
    states, outputs : tuple of str
    transforms : tuple of (str or None)
        By observed variable.
    initial : {"known", "data", "diffuse"}
    start : tuple of str
        States whose start is uncertain by a given sd.
    n_free, n_noise : int
        States of whose start nothing is known; noise inputs.
    scales, parameters : tuple of str
        Parameters that scale noise and do nothing else; those of the model.
    sums : dict of str to str
        By variable what is shown of one that was read as a sum or mean.
    positive : set of str
        States and outputs that cannot be negative.
    measured : dict of str to str
        States that are read directly under the name of an output.
    """

    states: tuple[str, ...]
    outputs: tuple[str, ...]
    transforms: tuple[str | None, ...]
    initial: str
    start: tuple[str, ...]
    n_free: int
    n_noise: int
    scales: tuple[str, ...]
    parameters: tuple[str, ...]
    sums: dict[str, str]
    positive: set[str]
    measured: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class OutputValues(Stored):
    """Outputs of one entity, shape (n_time, n_output) each, in the rows of a table of states; and their sds."""

    values: Matrix
    sds: Matrix


def facts_of(spec: Specification) -> Facts:
    """Return what is to be known of a specification."""
    outputs = outputs_of(spec)
    return Facts(
        states=tuple(spec.space.states),
        outputs=tuple(name for name, _ in outputs),
        transforms=tuple(spec.transforms),
        initial=spec.initial,
        start=tuple(spec.start.keys),
        n_free=len(spec.free_states),
        n_noise=int(spec.space.n_noise),
        scales=tuple(spec.scales),
        parameters=tuple(map(str, spec.definition.parameters)),
        sums=names_of_sums(spec),
        positive=set(positive_names(spec)),
        measured={e.name: name for name, e in outputs if getattr(e, "is_Symbol", False)},
    )
