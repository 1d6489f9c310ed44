"""What a calibration file says, checked: nothing of it is run or imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fmepy.workflow.toml import Section


@dataclass(frozen=True)
class Parameter:
    """A parameter of the file.

    Attributes
    ----------
    name : str
    start : float
        Its value where it is fixed, else where the search begins; of the natural scale, as are the bounds.
    fitted : bool
        A table in the file is fitted, a plain number is fixed.
    lower, upper : float
        Bounds; minus and plus infinity where there is none.
    scale : {"", "log", "logit"}
        The scale on which it is fitted and sampled; "" is its own.
    prior : mapping or None
        ``dist`` and the arguments of that distribution of scipy.stats, of the natural value.
    description, unit : str
        Of the report alone.
    """

    name: str
    start: float
    fitted: bool
    lower: float = -float("inf")
    upper: float = float("inf")
    scale: str = ""
    prior: Mapping[str, Any] | None = None
    description: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Case:
    """A calibration file, checked against what a file may hold (`keys`).

    Attributes
    ----------
    section : Section
        The file with the lines of its keys; ``case.section.error(("fit", "method"), "...")`` makes the message
        ``file.toml:7: ...``.
    title, description : str
        Of the report alone.
    parameters : mapping of str to Parameter
        In the order of the file.
    steps : mapping of str to mapping
        The sections of steps that are in the file, in the order in which steps run; each holds the arguments that
        the file gives, by the names of the functions that they go to.
    require : mapping
        ``converged``, ``rhat``, ``max_collinearity``, ``ess``: those that the file demands.
    run : mapping
        ``seed``, ``executor``, ``output``, ``checkpoint_every``: those that the file gives.
    """

    section: Section
    title: str
    description: str
    parameters: Mapping[str, Parameter]
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    require: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The TOML file."""
        return self.section.file

    @property
    def fitted(self) -> list[str]:
        """Names of the parameters that are fitted, in the order of the file."""
        return [p.name for p in self.parameters.values() if p.fitted]
