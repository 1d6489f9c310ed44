"""The base class of steps: all that the file, the run and the report need of a step.

A step gets a task (a model and a cost, ready), its arguments as the file gives them, and the results of the steps
before it. It calls one of fmepy's functions and returns what that returns, or a small `Saved` dataclass around it, so
that the same object is there whether the step ran now or its result was reused.

A new step is a file with a class, and a line in `fmepy.workflow.steps.registry`; from outside
``STEPS["name"] = MyStep()``. What a file may hold, the schema, the order, the stored results, the attributes of
`Calibration` and the page follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.fitting.result import ModFit
from fmepy.parameters.entities import entity_text
from fmepy.workflow.file.observations import read_table_file
from fmepy.workflow.file.signatures import Key
from fmepy.workflow.file.toml import Place, TomlTable
from fmepy.workflow.report.words import environment

if TYPE_CHECKING:
    from fmepy.workflow.file.case import Case
    from fmepy.workflow.report.findings import Findings

Results = Mapping[str, Any]
"""What the steps before gave, by name."""
Tables = dict[str, pd.DataFrame]
"""What is written, by the name of the file."""

FITS = ("fit", "multistart")
"""Steps that give a fit; what needs one takes the best of those that are there."""
_TIE = 1e-4  # in -2 log L: of two fits that near the one that converged is taken, and then the first


@dataclass(frozen=True, eq=False)
class CalibrationTask:
    """Data, model, cost and parameters of a file.

    Attributes
    ----------
    case : Case
        What the file says.
    data : DataFrame
        The observations as read, numbers as numbers.
    notes : tuple of str
        What reading found (separator, encoding, decimal comma, replicates ...), for stderr and the report.
    model : Model or callable or None
        On the natural scale; None where the file names a Python function that is a cost already.
    cost : Cost or callable
        On the natural scale: a SimulationCost, PredictionErrorCost, FimlofCost, or the file's function ``f(p)``.
    scale : mapping of str to str
        The fitted parameters that are fitted on another scale: "log" or "logit" by name.
    scaled_cost
        `fmepy.transformed` of it; the same object where `scale` is empty.
    start, lower, upper : Series
        Of the fitted parameters, on the scale on which they are fitted.
    fit_prior : mapping of str to callable or distribution, or None
        For `modFit(prior=)`: densities of the natural values, at the scaled ones.
    chain_prior : mapping or callable, or None
        For `modMCMC(prior=)`: with the Jacobian of the scale, so that the prior is that of the natural value.
    inputs : mapping of str to str
        ``model``, ``data``, ``cost``, ``parameters``: the sha256 of what each part says and of the files that it
        names. Titles, descriptions and units are in none of them.
    written : mapping of str to str
        By "model" or "cost" the object of a Python file that it is, as ``file.py:object``.
    x_unit : str
        Of the times, with the origin where they are dates: "days since 2001-01-01".
    """

    case: Case
    data: pd.DataFrame
    notes: tuple[str, ...]
    model: Any
    cost: Any
    scale: Mapping[str, str]
    scaled_cost: Any
    start: pd.Series[float]
    lower: pd.Series[float]
    upper: pd.Series[float]
    fit_prior: Mapping[str, Any] | Callable[..., float] | None
    chain_prior: Mapping[str, Any] | Callable[..., float] | None
    inputs: Mapping[str, str]
    written: Mapping[str, str] = field(default_factory=dict)
    x_unit: str = ""

    @property
    def models(self) -> tuple[str | None, dict[str, Any]]:
        """The column of the entities, and the model as each of them has it, on its own scale; "" without any."""
        of_entities = getattr(self.cost, "experiments", None)
        if of_entities is None:
            return None, {"": self.model}
        labels = of_entities.column.labels
        return str(self.cost.entity), {entity_text(label): self.cost.model_of(label) for label in labels}

    def error(self, key: str | Place, message: str) -> ArgumentError:
        """Return the error about a key of the file, with its line."""
        return self.case.section.error(key, message)

    def table(self, key: Place, file: str) -> pd.DataFrame:
        """Return the table of a file that a key names, read as the data are."""
        return read_table_file(self.case.section, key, file).frame.reset_index(drop=True)


@dataclass(frozen=True, slots=True, eq=False)
class RunOptions:
    """How a step is run; only the seed changes the result.

    Attributes
    ----------
    seed : int
    executor : int or None
    checkpoint : Path
        A folder, or the place of one, in which the step may keep what is done of it; where an unfinished run is to go
        on it holds that.
    every : int
        Iterations of a chain between checkpoints.
    progress : callable of (done, total), or False
    remember : callable of str
        Tells the user a sentence, if it is one, now and in the report.
    """

    seed: int
    executor: Any
    checkpoint: Path
    every: int
    progress: Any
    remember: Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Requirement:
    """What ``[require]`` may demand of the result of a step.

    Attributes
    ----------
    key : Key
        Of the file.
    value : callable of the result
        The number that is compared.
    says : str
        With ``{:.4g}`` for that number: "the largest R-hat is {:.4g}".
    at_least : bool
        Whether the number must be as large as what the file says, rather than as small.
    """

    key: Key
    value: Callable[[Any], float]
    says: str
    at_least: bool = False


class CalibrationStep:
    """A step of a calibration; the base of every step.

    Attributes
    ----------
    name : str
        The section of the file, the attribute of `Calibration`, the section of the report.
    says : str
        A sentence on it, for editors and the schema.
    purpose : str
        What it is for, in the report's first table.
    title : str
        Of its section in the report.
    template : str
        The words of that section, in Jinja2: a file of ``report/templates``, or the text itself; without it the file
        of the step's name there, else ``step.html``, which shows verdict and tables. They get `facts`, and
        ``result``, ``step`` (its record), ``tables``; for what else, see `fmepy.workflow.report.page`.
    keys : mapping of str to Key
        What its section of the file may hold.
    requirements : mapping of str to Requirement
        What ``[require]`` may demand of it.
    takes : tuple of str
        The steps whose results it needs; "fit" is any of `FITS`.
    welcomes : tuple of str
        The steps whose results it takes where they are there, and can do without.
    unit : str
        What its progress counts.
    advice : str
        What to do where most of its runs fail.
    """

    name: str
    says: str
    purpose = ""
    title = ""
    template = ""
    takes: tuple[str, ...] = ()
    welcomes: tuple[str, ...] = ()
    unit = "run"
    advice = "Begin where the model runs, and keep out the rest by bounds"
    keys: ClassVar[Mapping[str, Key]] = {}
    requirements: ClassVar[Mapping[str, Requirement]] = {}

    def read(self, section: TomlTable, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check and complete the arguments by themselves; ArgumentError with the line."""
        return arguments

    def needs(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the steps whose results it needs, where that depends on its arguments; by default `takes`."""
        return self.takes

    def files(self, arguments: Mapping[str, Any]) -> Sequence[str]:
        """Return the files that its arguments name, which count from where the TOML file is."""
        return ()

    def size(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> str:
        """Return the amount of work in words for ``fmepy check``, such as "8 starts"; ours are in ``sizes.txt``."""
        return self._render_sentence("sizes.txt", task, arguments)

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        """Refuse what the model or the cost cannot do, before anything runs; ArgumentError with the line."""

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> Any:
        """Return the result: something with ``save``."""
        raise NotImplementedError

    def tables(self, task: CalibrationTask, result: Any) -> Tables:
        """Return the tables to write, by the name of the file."""
        return {}

    def verdict(self, task: CalibrationTask, result: Any) -> str:
        """Return the outcome in a sentence or two, for run.json and the report; ours are in ``verdicts.txt``."""
        return self._render_sentence("verdicts.txt", result)

    def _render_sentence(self, file: str, *arguments: Any) -> str:
        sentence = getattr(environment().get_template(file).module, self.name, None)
        return "" if sentence is None else str(sentence(*arguments, self))

    def failed_runs(self, result: Any) -> tuple[int, int, str]:
        """Return how many of its runs failed, of how many, and the message of one of them."""
        return 0, 0, ""

    def facts(self, findings: Findings, result: Any) -> Mapping[str, Any]:
        """Return what the template of its section needs: numbers, names, tables, functions that draw a picture."""
        return {}


def best_fit(done: Results) -> ModFit:
    """Return the fit that later steps start from: the better one of ``fit`` and ``multistart``."""
    fits: list[ModFit] = [done[name] for name in FITS if done.get(name) is not None]
    least = min(fits, key=lambda fit: fit.minimised)
    near = [fit for fit in fits if _above(fit, least) <= _TIE]
    return next((fit for fit in near if fit.converged), near[0])


def _above(fit: ModFit, least: ModFit) -> float:
    """Return by how much a fit is above the best, in units of -2 log L."""
    if fit.is_scalar or fit.with_prior:
        return fit.minimised - least.minimised
    if fit.minimised <= least.minimised:
        return 0.0
    return float(fit.nobs * np.log(fit.minimised / least.minimised)) if least.minimised > 0 else np.inf


Step = CalibrationStep
"""Its name before."""
