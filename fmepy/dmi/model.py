"""`ModularModel`: modules and a data base as a Model, which is costed, fitted, screened and sampled like any other.

The constants of the data base are its parameters. The system of modules (`dmi.variables`), the diagnostics of modules
and data (`dmi.diagnostics`) and the compiled program (`dmi.compiled_program`) are built separately, so that a changed
copy rebuilds only the parts that its change affects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pandas as pd

from fmepy.checks import copied, whole_number
from fmepy.dmi.compiled_program import ModularProgram, Rules, loop_notes
from fmepy.dmi.database import Database, as_database
from fmepy.dmi.diagnostics import Diagnostic, diagnose, diagnostics_table, refuse_missing, warn_of, with_lower_orders
from fmepy.dmi.equations import as_model
from fmepy.dmi.feedback import feedback_loops
from fmepy.dmi.inputs import Inputs, inputs_of
from fmepy.dmi.modular_run import BoundModular
from fmepy.dmi.modules import AnyModule, changed_modules
from fmepy.dmi.stateful_functions import random_series
from fmepy.dmi.statements import noise_of
from fmepy.dmi.units import units_of
from fmepy.dmi.variables import ModuleSystem, checked_modules, output_columns, system_of, with_tables
from fmepy.dmi.writing import write_model
from fmepy.errors import ModelError, check_choice, counted
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from fmepy.models.simulated import SimulatedModel
from fmepy.parameters.named import merge_parameters
from fmepy.types import Axes, IntVector, Matrix, UserParameters, Vector
from fmepy.vocabulary import with_own_words

logger = logging.getLogger(__name__)


@with_own_words
class ModularModel(SimulatedModel):
    """A model of modules and a data base.

    ``model(parms)`` runs it and returns a table; it is a Model like any other: costs, fits, sensitivities, ranges,
    chains and scenarios take it.

    Parameters
    ----------
    modules : sequence of Module
        In any order; see `Module`, `module` and `read_modules`.
    data : Database, a source of one, or a list of sources
        Constants, vectors and time series by the names of the variables they feed; None: nothing.
    times : array_like
        Times of the rows, increasing, on the grid of `dt`; the run starts at the first.
    dt : float
        The elementary step. Modules are active at integer multiples of it.
    method : {"euler", "rk4"}
        How levels advance: the rectangle rule, or Runge-Kutta's of order four (equal steps of all modules, and no lag,
        rate or pulse).
    outputs : sequence of str, optional
        Variables, or elements of arrays, that become columns; by default the declared ``output`` of modules, else every
        endogenous variable.
    strict : bool
        Whether diagnostics are errors.
    tol : float
        A loop has settled when no variable in it moves by more, relative to its size (or to 1, where it is smaller).
    max_iterations : int
        Executions of a loop after which it counts as not settled.
    order : {"sorted", "written"}
        Whether statements are evaluated in the order of their dependencies, or repeatedly in the written order.
    unsettled : {"minimise", "error", "keep"}
        What happens with a loop that has not settled: its movement is minimised; the run fails; it goes on.
    seed : int
        Seed of random numbers in the text, one stream a variable: runs with the same seed have the same numbers.

    Attributes
    ----------
    parms : Series
        The constants of the data base that modules use; elements of vectors as ``D[0]``.
    states, var_names : tuple of str
        The levels among the columns; all columns.
    units : Series
        By variable: as given in the modules or the data base, else derived from equations.
    modules : tuple of Module
    data : Database
    dt : float
    processed : tuple of str
        Names of the modules that were read for this copy; all of them in a model that is no copy.
    engine, engine_note : str
        "llvm", and why not all of it is compiled, if so.

    Raises
    ------
    ModelError
        Modules, times or outputs are wrong; with `strict`, the diagnostics. When run: data are missing.
    DataError
        A source of the data base cannot be read; when run: a series is needed outside its range.
    SimulationError
        When run: a level that is not finite, a loop that does not settle, a smooth or delay shorter than the step.

    Notes
    -----
    **A step.** The exogenous series of the active modules are interpolated, their statements are evaluated in the order
    of their dependencies, and their levels advance by their rates; a row holds the values evaluated at its time.
    Statements that depend on one another in a circle are executed repeatedly from the last step's values until none
    moves; ``out.attrs["convergence"]`` counts the executions.

    **Sensitivities** are exact where the steps are equations of their time alone (`compiled`); with loops, lags and
    Python modules that cannot be traced they are central differences of runs.

    References
    ----------
    F. Drepper (1978), A data-model interface for modular dynamic simulation, Winter Simulation Conference.

    Examples
    --------
    >>> import fmepy as fme
    >>> rabbits = fme.dmi.Module("rabbits", "d(N)/dt = births - N / life")
    >>> births = fme.dmi.Module("births", "births = fertility * N * table(N / space, [0, 1], [1, 0])")
    >>> data = {"N": 10.0, "fertility": 0.5, "life": 4.0, "space": 100.0}
    >>> model = fme.dmi.ModularModel([rabbits, births], data, times=[0, 10, 20], dt=0.5)
    >>> model().round(3)
       time       N  births
    0     0  10.000   4.500
    1    10  37.540  11.724
    2    20  48.836  12.493
    >>> model.variable_map["births"].to_dict()
    {'N': 'exogenous', 'births': 'endogenous', 'life': '-', 'fertility': 'exogenous', 'space': 'exogenous'}
    >>> model.parms.to_dict()
    {'N': 10.0, 'fertility': 0.5, 'life': 4.0, 'space': 100.0}
    """

    engine = "llvm"
    equations_hint = 'The equations of its modules are one: model.compiled("difference").'
    _arguments: dict[str, Any]

    def __init__(
        self, modules: Iterable[AnyModule], data: Any = None, *, times: Any, dt: float, method: str = "euler",
        outputs: Sequence[str] | None = None, strict: bool = False, tol: float = 1e-9, max_iterations: int = 10,
        order: str = "sorted", unsettled: str = "minimise", seed: int = 0,
    ) -> None:  # fmt: skip
        self._arguments = {k: copied(v) for k, v in locals().items() if k not in ("self", "__class__")}
        before = self._like
        self._set_times(times)
        self.rules = Rules(dt, method, order, tol, max_iterations, unsettled)
        self.dt, self.seed = self.rules.dt, whole_number(seed, "seed", 0)
        if strict not in (True, False):
            raise ModelError(f"`strict={strict!r}` must be True or False.")
        self.data: Database = as_database(data)
        valid = checked_modules(modules)
        self._arguments |= {"modules": valid, "data": self.data}  # read once, whatever copies follow
        self.system: ModuleSystem = system_of(with_tables(valid, self.data), None if before is None else before.system)
        self.modules = self.system.modules
        known = frozenset(() if before is None else before.modules)
        self.processed = tuple(m.name for m in self.modules if m not in known)
        self.steps_of(self.times)
        self.inputs: Inputs = inputs_of(self.system, self.data, written=order == "written")
        self.system, short = with_lower_orders(self.system, self.inputs.parameters, self.dt)
        units, misfits = units_of(self.system, self.inputs.by_element)
        self.units = pd.Series(units, dtype=object, name="unit")
        self._diagnostics = (
            *diagnose(self.system, self.inputs.by_element, self.inputs.guesses),
            *short,
            *(loop_notes(self.system) if self.inputs.has_loops and order == "sorted" else ()),
            *(Diagnostic("replaced", r.name, file=r.later, message=r.message) for r in self.data.replaced),
            *misfits,
        )
        self._parms = pd.Series(self.inputs.parameters, dtype=float)
        self._outputs, self.var_names = output_columns(self.system, outputs)
        levels = {e for v in self.system.variables.values() if v.level for e in v.elements}
        self.states = tuple(n for n in self.var_names if n in levels)
        warn_of(self._diagnostics, bool(strict), () if before is None else before._diagnostics)

    @cached_property
    def program(self) -> ModularProgram:
        """The compiled program; built at its first use."""
        refuse_missing(self._diagnostics)
        program = ModularProgram(self.system, self.rules, self._outputs, self.inputs.series)
        if program.note and self._like is None:
            logger.info("Not all of the model is compiled: %s", program.note)
        return program

    @property
    def engine_note(self) -> str:  # type: ignore[override]    # found when the program is built
        """Why not all of it is compiled, or an empty string."""
        return self.program.note

    @property
    def relative_step(self) -> float:  # type: ignore[override]    # a number for all there, of this model's loops here
        """The relative step of differences: the cube root of the noise, which is the tolerance of loops."""
        exact = SimulatedModel.relative_step
        return max(exact, self.rules.tol ** (1 / 3)) if self.inputs.has_loops else exact

    @property
    def n_steps(self) -> int:
        """Number of elementary steps of a run."""
        return int(self.steps_of(self.times)[-1])

    def compiled(self, kind: Literal["difference", "ode"] = "difference") -> DifferenceModel | OdeModel:
        """Return the equations of the modules as a model of its own.

        Parameters
        ----------
        kind : {"difference", "ode"}
            A DifferenceModel with the fixed step `dt`, at the times of the system. Or an OdeModel, whose levels move
            continuously, whatever `dt` is. Both have exact sensitivities.

        Raises
        ------
        ModelError
            Equations cannot be formed: a Python module cannot be traced, there is a lag, modules have different steps,
            or data are missing.
        """
        model: DifferenceModel | OdeModel = self._equations_of(kind)
        return model

    def _equations_of(self, kind: Literal["difference", "ode"], noisy: Collection[str] = ()) -> Any:
        check_choice(kind, ("difference", "ode"), "kind")
        parms = {str(name): float(value) for name, value in self._parms.items()}
        grid = self.times[0] + self.dt * np.arange(self.n_steps + 1)
        refuse_missing(self._diagnostics)
        return as_model(
            self.system, kind, parms=self.inputs.starts(float(self.times[0])) | parms,
            series=self.inputs.grids(self.times) | random_series(self.program.flat.draws, self.seed, grid),
            times=self.times, dt=self.dt, outputs=self._outputs, method=self.rules.method, noisy=noisy,
        )  # fmt: skip

    def followed(self, noise: Any = None) -> tuple[DifferenceModel, Any]:
        """Return the difference equations of the steps, and the process noise of a filter that runs them.

        Parameters
        ----------
        noise : mapping or DataFrame, optional
            Of levels, of constants, or of elements of assigned variables, as `FimlofCost` takes its `process_noise`.

        Returns
        -------
        model : DifferenceModel
            With a constant ``x_noise`` of 0 that is added to each assigned variable x with noise.
        noise
            The same noise, with these constants in place of the variables.

        Raises
        ------
        ModelError
            As `compiled` does.
        """
        keys = list(noise.keys()) if isinstance(noise, Mapping | pd.DataFrame) else []
        variables = self.system.variables.values()
        noisy = [e for v in variables if v.endogenous and not v.level for e in v.elements if e in keys]
        new = {e: noise_of(e) for e in noisy}
        if isinstance(noise, pd.DataFrame):
            noise = noise.rename(index=new, columns=new)
        elif isinstance(noise, Mapping):
            noise = {new.get(k, k): value for k, value in noise.items()}
        return self._equations_of("difference", noisy), noise

    def steps_of(self, times: Any) -> IntVector:
        """Return the number of the elementary step at each time.

        Raises
        ------
        ModelError
            A time is not on the grid.
        """
        steps = (np.asarray(times, dtype=float) - self.times[0]) / self.dt
        whole = np.round(steps)
        off = np.flatnonzero(np.abs(steps - whole) > 1e-6 * np.maximum(1.0, 1e-3 * np.abs(steps)))
        if len(off):
            time, near = float(np.asarray(times)[off[0]]), self.times[0] + self.dt * whole[off[0]]
            raise ModelError(
                f"`times`: {time:g} does not lie on the grid of dt={self.dt:g} from {self.times[0]:g}; the nearest "
                f"step is at {near:g}. Choose such times, or a smaller dt (in a cost: interpolate='grid')."
            )
        return np.asarray(whole, dtype=np.intp)

    def bind(self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False) -> BoundModular:
        """Return the model as a function of a plain vector of the parameters `names` (None: all of them, in order).

        Parameters
        ----------
        names : sequence of str, optional
        times : array_like, optional
            Rows, on the grid of `dt`; default the model's own.
        hold_engine
            Has no effect here: there is one engine.

        Raises
        ------
        ModelError
            Data are missing, a time is not on the grid.
        DataError
            A series is needed outside its range.
        """
        return BoundModular(self, *self._asked(names, times))

    def __call__(self, parms: UserParameters = None, times: Any = None, *, entity: Any = None) -> pd.DataFrame:
        """Run the model and return its table; ``table.attrs["convergence"]`` says how its loops settled.

        Parameters
        ----------
        parms : dict, Series, table row or lmfit.Parameters, optional
            Values by name; a subset leaves the rest as it is.
        times : array_like, optional
            Times of the rows, increasing, on the grid of `dt`; default the model's own.

        Returns
        -------
        DataFrame
            Column ``time``, then the variables.

        Raises
        ------
        ModelError, DataError, ParameterError
            Missing data, a series outside its range, unknown names, times that are not on the grid.
        SimulationError
            The run failed; carries the parameters and the time reached.
        """
        if entity is not None:
            return self.of_entity(entity)(parms, times)
        return self.run_with_progress(None, parms, times)

    def run_with_progress(
        self, report: Callable[[int], None] | None, parms: UserParameters = None, times: Any = None
    ) -> pd.DataFrame:
        """Run the model as a call does, and call `report` now and then with the number of steps done."""
        if times is None and self._bound is None:
            self._bound = self.bind()
        bound = self._bound if times is None else self.bind(times=times)
        run = bound.run(merge_parameters(self._parms, parms).to_numpy(dtype=float), report)
        table = pd.DataFrame(run.rows[:, bound.columns], columns=list(self.var_names))
        rows = bound.times
        table.insert(0, "time", rows.astype(int) if np.equal(np.mod(rows, 1), 0).all() else rows)
        table.attrs["convergence"] = run.convergence
        for note in run.notes:
            logger.warning(note)
        return table

    def replace(self, **arguments: Any) -> Self:
        """Return a changed copy.

        Parameters
        ----------
        parms : dict or Series
            Values of some parameters.
        modules : mapping of str to (Module or None), or sequence
            By name: changed, appended where there was none, taken out where None. A sequence replaces all.
        **arguments
            Any other argument of the constructor. With other `data`, parameters have its values.
        """
        parms = arguments.pop("parms", None)
        if not arguments:
            out = copy(self)
            out._parms, out.processed = merge_parameters(self._parms, parms), ()
            out._bound = None
            return out
        if isinstance(arguments.get("modules"), Mapping):
            arguments["modules"] = changed_modules(self._arguments["modules"], arguments["modules"])
        new = self._remade(arguments, ())
        if "data" not in arguments:  # values that were changed in a copy stay what they are
            own = self._parms[self._parms.ne(pd.Series(self.inputs.parameters, dtype=float))]
            new._parms.update(own[own.index.isin(new._parms.index)])
        new._parms = merge_parameters(new._parms, parms)
        return new

    def run(self, p: dict[str, float], times: Vector) -> Matrix:
        """Return the values of all variables at `times`, shape (n_time, n_var), from all parameters by name."""
        names = tuple(self._parms.index)
        return BoundModular(self, names, times).simulate(np.array([p[k] for k in names], dtype=float))

    run_told = run_with_progress  # the name in earlier versions

    # --- tables and pictures of the system

    @property
    def given(self) -> tuple[AnyModule, ...]:
        """The modules as the user gave them: their tables do not have the dims of the data base yet."""
        return tuple(self._arguments["modules"])

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return dict(self._arguments)

    def write(self, folder: str | Path) -> Path:
        """Write the model into a folder, from which it is read to the same numbers.

        Parameters
        ----------
        folder : str or Path
            Created if it does not exist. Existing files are not overwritten.

        Returns
        -------
        Path
            ``model.toml``, for ``fmepy run``; beside it a file ``.fme`` for each module, and in the folder ``data`` the
            data base, with the values that the parameters of this model have.

        Raises
        ------
        ModelError
            A file with one of these names exists; a module is a Python function.

        Examples
        --------
        >>> import pathlib, tempfile
        >>> import fmepy as fme
        >>> model = fme.dmi.ModularModel([fme.dmi.Module("m", "y = k * t")], {"k": 2.0}, times=[0, 1], dt=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     print(model.write(folder).read_text())
        ...     print(pathlib.Path(folder, "data", "constants.csv").read_text())
        modules = ["m.fme"]
        data = ["data/"]
        times = { start = 0.0, stop = 1.0, step = 1.0 }
        dt = 1.0
        <BLANKLINE>
        name,value
        k,2.0
        <BLANKLINE>
        """
        return write_model(self, folder)

    @property
    def variable_map(self) -> pd.DataFrame:
        """The global variable map: a row a variable, its dimensions, its unit where any is known, a column a module."""
        out = self.system.variable_map
        if len(self.units):
            out.insert(1, "unit", [self.units.get(name, "") for name in out.index])
        return out

    @property
    def element_map(self) -> pd.DataFrame:
        """The map by element of arrays."""
        return self.system.element_map

    @property
    def diagnostics(self) -> pd.DataFrame:
        """Problems found between modules and data: kind level variable modules file line message."""
        return diagnostics_table(self._diagnostics)

    def plot_map(self, *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the variable map: modules as boxes, variables as arrows; return the Axes."""
        from fmepy.plotting.dmi import plot_map

        return plot_map(self.system, ax=ax, **kwargs)

    def feedback_loops(self, most: int = 100) -> pd.DataFrame:
        r"""Return the shortest feedback loops, a row each: loop, length, kind.

        Parameters
        ----------
        most : int
            Largest number of loops, the shortest first.

        Returns
        -------
        DataFrame
            ``loop``: its variables as a text, ``a → b → a``, from a level on; smooths and delays are passed, not named.
            ``length``: how many variables. ``kind``: "reinforcing" where a push comes back larger, "balancing" where it
            comes back turned round, by the derivatives of its links along a run; "changing" where these change sign,
            "inactive" where they are zero, "unknown" where they cannot be had (Python modules, a model that does not
            run).

        Notes
        -----
        The loops are the shortest ones through each link, not all there are, which can be more than anybody counts
        (compare the shortest independent loops of R. Oliva 2004, System Dynamics Review 20).

        Examples
        --------
        >>> import fmepy as fme
        >>> rabbits = fme.dmi.Module("rabbits", "d(N)/dt = births - N / 4\nbirths = 0.5 * N * (1 - N / 100)\nN(0) = 10")
        >>> fme.dmi.ModularModel([rabbits], times=[0, 10, 20], dt=0.5).feedback_loops()
                     loop  length         kind
        0           N → N       1    balancing
        1  N → births → N       2  reinforcing
        """
        return feedback_loops(self, whole_number(most, "most", 1))

    def __repr__(self) -> str:
        n = len(self.system.variables)
        levels = sum(len(v.elements) for v in self.system.variables.values() if v.level)
        return (
            f"ModularModel of {len(self.modules)} modules ({', '.join(m.name for m in self.modules[:8])}"
            f"{', ...' * (len(self.modules) > 8)}), {counted(n, 'variable')}, {counted(levels, 'level')}, "
            f"{counted(len(self._parms), 'parameter')}; dt {self.dt:g}, {self.rules.method}"
        )
