"""Models whose states are profiles on a grid, as the flat states that `OdeModel` runs: species after species.

The state of species s in cell i, counted from 1, is called ``s[i]``, and so is an output that is a profile.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, ModelError, counted, did_you_mean, listed
from fmepy.language.equations import names_in, symbol
from fmepy.language.nodes import Node
from fmepy.language.text import read_value
from fmepy.models.definition.arguments import ModelArguments, as_parms, check_profile_names
from fmepy.models.definition.function import read_signature, warn_of_order
from fmepy.models.dynamic import DynamicModel
from fmepy.models.running.forcings import as_forcings
from fmepy.models.running.tolerances import scaled_tolerances
from fmepy.models.steady import SteadyModel
from fmepy.models.steady_rates import told_shapes
from fmepy.models.transport import Grid1D
from fmepy.parameters.named import check_names
from fmepy.parameters.names import normal_name
from fmepy.tables.cells import Cells
from fmepy.types import Matrix, UserParameters, Vector
from fmepy.vocabulary import own_words


class ProfileFunction:
    """A function of profiles as a function of all their cells, ``f(t, y, p)``.

    Parameters
    ----------
    function : callable
        ``f(t, <profiles>, *, <parameters>, <forcings>)``, or ``f(t, y, p)``.
    state : mapping of str to start
    grid : Grid1D
    parms, forcings : as of `OdeModel`
    at_rest : sequence of str
        Parameters that the start depends on, of a steady state.

    Attributes
    ----------
    species : tuple of str
    parms : dict of str to float
        Of the function's defaults too.
    """

    def __init__(
        self, function: Any, state: Mapping[str, Any], grid: Any, parms: Any, forcings: Any, at_rest: Sequence[str] = ()
    ) -> None:
        check_grid(grid)
        if not callable(function):
            raise ModelError(
                "With a grid, a model is a function that gets profiles as arrays; text and equations have no word for "
                "transport."
            )
        self.function, self.grid, self.species = function, grid, tuple(state)
        given = ModelArguments(
            kind="ode", initial=dict(state), parms=as_parms(parms), forcings=as_forcings(forcings), outputs={},
            start=0.0, trace=True, most_states=0, is_copy=False, algebraic=(),
        )  # fmt: skip
        self._rates, self.parms, _ = read_signature(function, given)
        check_profile_names(self.species)
        for name in self.species:
            if name in given.parms:
                raise ModelError(f"{name!r} is both a state and a parameter; give one of them another name.")
        if self._rates.form == "named":
            starts = [read_value(v, "state") for v in state.values() if isinstance(v, str | Node)]
            used = [*self._rates.positional, *self._rates.keywords, *sorted(names_in(starts)), *at_rest]
            used = [k for k in dict.fromkeys(used) if k != "x"]
            for name in given.forcing_names:
                if name not in used:
                    raise ModelError(f"The forcing {name!r} is used nowhere in the model.{did_you_mean(name, used)}")
            check_names(
                given.parms, [k for k in used if k not in (*self.species, *given.forcing_names)], argument="parms"
            )
            if unread := [k for k in self.species if k not in (*self._rates.positional, *self._rates.keywords)]:
                raise ModelError(f"`state` names {listed(unread)}, which the function does not take; leave it out.")

    def __call__(self, t: Any, y: Any, p: Any) -> tuple[Any, dict[str, Any]]:
        """Return the rates of all cells, and the outputs beside them."""
        rates, n = self._rates, len(self.grid)
        states = y if rates.form == "vector" else y.reshape(len(self.species), n)
        given = rates.returned(t, states, [p[k] for k in rates.parameters], [p[k] for k in rates.forcings])
        result, extra = rates.split(given)
        return self._flat(result), dict(self._by_cell(extra))

    def with_function(self, change: Callable[[Any], Any]) -> ProfileFunction:
        """Return it with another function of the user's in its place."""
        out = copy(self)
        out.function = change(self.function)
        out._rates = replace(self._rates, function=out.function)
        return out

    def _flat(self, result: Any) -> Any:
        n, many = len(self.grid), len(self.species)
        if isinstance(result, np.ndarray) and result.shape in ((many * n,), (many, n)):
            return result.reshape(-1)
        parts = result if isinstance(result, tuple | list) else ()
        if [np.shape(part) for part in parts] != [(n,)] * many:
            raise ModelError(
                f"The function must return the rates of {listed(self.species)} in {n} cells: an array of {n} numbers a "
                f"species, in that order. It returned {told_shapes(result)}."
            )
        return np.concatenate(list(parts))

    def _by_cell(self, extra: Mapping[str, Any]) -> Any:
        """Return outputs of one number each."""
        n = len(self.grid)
        check_profile_names(extra)
        for name, value in extra.items():
            if np.ndim(value) == 0:
                yield name, value
            elif np.shape(value) == (n,):
                yield from zip(in_cells(name, n), value, strict=True)
            else:
                raise ModelError(
                    f"The function's output {name!r} must be one number, or {n}, one a cell; it has the shape "
                    f"{np.shape(value)}. Of a flux at every edge give the one that is meant, such as flow.flux[0], or "
                    "flow.flux_mid, its profile."
                )

    def warn_of_order(self, t: float, y: Vector, p: Any, u: Any) -> None:
        """Warn where arguments and `state` name the profiles in two orders, see `warn_of_order`."""
        states = y if self._rates.form == "vector" else y.reshape(len(self.species), -1)
        warn_of_order(self._rates, t, states, p, u)

    def alike(self, other: ProfileFunction) -> bool:
        """Tell whether another one gets the same by name."""
        one, two = ((f.species, f._rates.parameters, f._rates.forcings) for f in (self, other))
        return one == two

    def in_all_cells(self, atol: Vector, starts: Vector, trial: Callable[[Vector], Matrix]) -> Vector:
        """Return tolerances of all cells by the scale of their species, of those that are NaN where nobody says."""
        n, many = len(self.grid), len(self.species)

        def largest(Y: Matrix) -> Any:
            return np.abs(Y).reshape(-1, many, n).max(axis=2)

        (begins,), free = largest(starts), np.full(many, np.nan)
        by_scale = scaled_tolerances(free, begins, lambda a: largest(trial(np.repeat(a, n))))
        return np.where(np.isnan(atol), np.repeat(by_scale, n), atol)

    def profiles(self, var_names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of what is a profile among a model's variables: species, then outputs."""
        n = len(self.grid)
        return tuple(v.removesuffix("[1]") for v in var_names if v.endswith("[1]") and f"{v[:-3]}[{n}]" in var_names)


def profiles_of(model: Any) -> ProfileFunction | None:
    """Return what a model, or the one that it is made of, is on its grid; None without one."""
    while getattr(model, "on_grid", None) is None and hasattr(model, "inner"):
        model = model.inner
    found: ProfileFunction | None = getattr(model, "on_grid", None)
    return found


def cells_of_model(model: Any) -> Cells | None:
    """Return which variables of a model are cells of profiles, and where; None without a grid."""
    on_grid = profiles_of(model)
    if on_grid is None:
        return None
    mid = on_grid.grid.mid.tolist()
    profiles = [(name, in_cells(name, len(mid))) for name in on_grid.profiles(model.var_names)]
    return {cell: (name, x) for name, cells in profiles for cell, x in zip(cells, mid, strict=True)}


def profiles_at_rest(thing: Any) -> tuple[str, ...]:
    """Return the profiles of a steady state on a grid, whose x is a depth, of a model or cost; none of others."""
    if isinstance(thing, SteadyModel):
        return thing.profiles
    behind = [*getattr(thing, "parts", ()), *(getattr(thing, k) for k in ("inner", "predictor") if hasattr(thing, k))]
    return tuple(dict.fromkeys(name for one in behind for name in profiles_at_rest(one)))


def in_cells(name: str, n: int) -> list[str]:
    """Return what a profile is called in each of n cells."""
    return [f"{name}[{i}]" for i in range(1, n + 1)]


def check_grid(grid: Any) -> None:
    """Refuse what is no grid."""
    if not isinstance(grid, Grid1D):
        raise ModelError(f"`grid` must be a Grid1D, such as Grid1D(np.linspace(0, 5, 101)); got {grid!r}.")


def starts_by_name(state: Any, function: Callable[..., Any], grid: Grid1D) -> dict[str, Any]:
    """Return the starts of profiles by species; of a table, or a SteadyModel, those that the function names."""
    check_grid(grid)
    if isinstance(state, SteadyModel | pd.DataFrame):
        table = state() if isinstance(state, SteadyModel) else state
        known = [str(c) for c in table if c != "x"]
        named = [k for k in inspect.signature(function).parameters if k in known] or known
        of_cells = state if isinstance(state, SteadyModel) else _rows_of_cells(table, grid)
        state = {k: of_cells if isinstance(of_cells, SteadyModel) else of_cells[k].to_numpy(dtype=float) for k in named}
    if not isinstance(state, dict | pd.Series) or not len(state):
        raise ModelError("With a grid, `state` must name its species: a dict such as state={'O2': 100.0}.")
    for name in (str(k) for k in state if re.fullmatch(r".*\[\d+\]", str(k))):
        profile = name[: name.rindex("[")]
        raise ModelError(
            f"`state`: {name!r} is one cell of {profile!r}; starts are of profiles. Give all its cells, such as "
            f"state={{{profile!r}: values}} with {len(grid)} numbers, one number, or an expression of x."
        )
    return {normal_name(k): v for k, v in state.items()}


def _rows_of_cells(table: pd.DataFrame, grid: Grid1D) -> pd.DataFrame:
    """Return a table whose rows are the cells of the grid; refuse another."""
    if "x" not in table or len(table) != len(grid) or not np.allclose(table["x"], grid.mid, rtol=1e-9):
        raise ModelError(
            f"`state` is a table whose rows are not the cells of the grid: a column x with its {len(grid)} middles "
            "is needed, as in the result of a SteadyModel on that grid."
        )
    return table


def in_numbers(state: Mapping[str, Any], grid: Grid1D) -> tuple[dict[str, Any], SteadyModel | None]:
    """Return starts with numbers for those at rest, and the model at rest; None if there is none."""
    models = [v for v in state.values() if isinstance(v, SteadyModel)]
    if not models:
        return dict(state), None
    rest = models[0]
    if any(model is not rest for model in models):
        raise ModelError("`state` starts from two SteadyModels; one of them is possible, and numbers of others.")
    table = _rows_of_cells(rest(), grid)
    check_names([k for k, v in state.items() if v is rest], [str(c) for c in table], argument="state")
    return {k: table[k].to_numpy(dtype=float) if v is rest else v for k, v in state.items()}, rest


def flat_state(state: Mapping[str, Any], grid: Grid1D, parameters: Sequence[str]) -> dict[str, Any]:
    """Return the starts of all cells by name; ModelError for a profile of another length."""
    if "x" in parameters and any(isinstance(v, str | Node) for v in state.values()):
        raise ModelError("`x` is the place in the grid in starts of profiles; the parameter 'x' needs another name.")
    return dict(
        pair for name, value in state.items()
        for pair in zip(in_cells(name, len(grid)), _in_all_cells(name, value, grid), strict=True)
    )  # fmt: skip


def _in_all_cells(name: str, value: Any, grid: Grid1D) -> Sequence[Any]:
    n = len(grid)
    if np.ndim(value) == 0:
        start = read_value(value, f"state[{name!r}]")
        at = [start] * n if isinstance(start, float) else [start.subs({symbol("x"): x}) for x in grid.mid.tolist()]
        return [a if getattr(a, "free_symbols", None) else float(a) for a in at]
    try:
        profile: Vector = np.array(value, dtype=float)
    except (TypeError, ValueError):
        profile = np.empty(0)
    if profile.shape != (n,) or not np.isfinite(profile).all():
        bad = np.flatnonzero(~np.isfinite(profile) & (profile.shape == (n,)))
        what = f"{profile[bad[0]]:g} in cell {bad[0] + 1}" if len(bad) else f"an array of shape {np.shape(value)}"
        raise ModelError(
            f"`state[{name!r}]` must be one number, or {n} finite ones, one a cell, or an expression of x and "
            f"parameters; got {what}."
        )
    return list(profile.tolist())


def by_species(atol: Any, species: Sequence[str], n: int) -> Any:
    """Return tolerances of all cells, of those that were given by species."""
    if isinstance(atol, Mapping | pd.Series):
        return {cell: a for name, a in atol.items() for cell in (in_cells(str(name), n) if name in species else [name])}
    return (
        np.repeat(np.asarray(atol, dtype=object), n).tolist() if np.ndim(atol) and len(atol) == len(species) else atol
    )


def long_table(
    Y: Any, rows: pd.Series, var_names: Sequence[str], profiles: Sequence[str], grid: Grid1D
) -> pd.DataFrame:
    """Return time, x and a column a profile: a row a time and cell, times before cells."""
    n, place = len(grid), {name: k for k, name in enumerate(var_names)}
    table = {rows.name: np.repeat(rows.to_numpy(), n), "x": np.tile(grid.mid, len(rows))}
    return pd.DataFrame(table | {k: Y[:, [place[c] for c in in_cells(k, n)]].ravel() for k in profiles})


@dataclass(frozen=True, slots=True, eq=False)
class AtRest:
    """The start of a run: a steady state, of some of its species.

    Attributes
    ----------
    model : SteadyModel
    species : dict of str to slice
        Those that start from it, with their cells among the run's states.
    """

    model: SteadyModel
    species: dict[str, slice]

    def check_values(self, parms: pd.Series) -> None:
        """Refuse parameters that are another number at rest than in the run: they are one and the same."""
        at_rest = self.model.parms
        for name in (k for k in at_rest.index if k in parms and at_rest[k] != parms[k]):
            raise ModelError(
                f"`state`: {name!r} is {at_rest[name]:g} in the SteadyModel and {parms[name]:g} in the run, which "
                "starts from the steady state at its own parameters. Give both the same number; to start from another "
                "steady state call the parameter differently there, or give its table (state=steady(), numbers)."
            )

    def table(self, others: Any, parameters: Sequence[str], names: Sequence[str] = ()) -> StartTable:
        """Return the starts, of which those not at rest are `others`, with derivatives to `names`."""
        return StartTable(self, others, parameters, names)


class StartTable:
    """Starts of all cells with their derivatives, as a `ValueTable` has them; what the run has as forcing is held."""

    def __init__(self, rest: AtRest, others: Any, parameters: Sequence[str], names: Sequence[str]) -> None:
        self._bound, self._others = rest.model.bind([k for k in rest.model.parms.index if k in parameters]), others
        self._take = [list(parameters).index(k) for k in self._bound.names]
        self._cells = [(self._bound.var_names.index(s), cells) for s, cells in rest.species.items()]
        self._own = [self._bound.names.index(k) if k in self._bound.names else -1 for k in names]

    def value(self, p: Sequence[float]) -> Vector:
        """Return the starts, shape (n_state,); SimulationError where there is no steady state."""
        return self._with(self._others.value(p), self._bound.simulate(np.asarray(p, dtype=float)[self._take]))

    def slope(self, p: Sequence[float]) -> Matrix:
        """Return the derivatives, shape (n_state, n_names)."""
        S = self._bound.sensitivities(np.asarray(p, dtype=float)[self._take])[1]
        S = np.concatenate([S, np.zeros((*S.shape[:2], 1))], axis=2)  # of what the steady state does not depend on
        return self._with(self._others.slope(p), S[:, :, self._own])

    def _with(self, others: Matrix, profiles: Matrix) -> Matrix:
        out: Matrix = others.copy()
        for column, cells in self._cells:
            out[cells] = profiles[:, column]
        return out


class ProfileModel(DynamicModel):
    """Base of models that may have profiles as states.

    Attributes
    ----------
    on_grid : ProfileFunction or None
        What the model is on its grid; None without one.
    """

    on_grid: ProfileFunction | None = None
    method: str

    def _flatten(self, given: dict[str, Any]) -> dict[str, Any]:
        """Make the function and starts of all cells from those of profiles; returns the starts by species."""
        for word in ("outputs", "events", "history", "algebraic"):
            if given[word] is not None:
                raise ModelError(
                    f"`{word}` is not for models on a grid. Further variables are returned by the function, as rates, "
                    "{'name': value}, and what changes in time comes in `forcings`."
                )
        rhs, grid, like = given["rhs"], given["grid"], self._like
        state = starts_by_name(given["state"], rhs, grid)
        numbers, rest = in_numbers(state, grid)
        parms, known = given["parms"], None if like is None else like.on_grid
        at_rest = () if rest is None else tuple(rest.parms.index)
        if rest is not None:
            elsewhere = {*inspect.signature(rhs).parameters, *(f.name for f in as_forcings(given["forcings"]))}
            parms = {**{k: v for k, v in rest.parms.items() if k not in elsewhere}, **as_parms(parms)}
        made = ProfileFunction(rhs, numbers, grid, parms, given["forcings"], at_rest)
        same = known is not None and known.function is rhs and known.grid == grid and known.alike(made)
        self.on_grid = known if same else made  # what was compiled belongs to it
        self._flat_words = {"state": flat_state(numbers, grid, tuple(made.parms)), "parms": made.parms}
        return state

    def _from_grid(self) -> None:
        """Make the start a steady state if it is one; refuse rates that are no finite numbers there."""
        assert self.on_grid is not None, "asked with a grid"
        start, n = self._arguments["state"], len(self.on_grid.grid)
        cells = {k: slice(j * n, (j + 1) * n) for j, k in enumerate(start) if isinstance(start[k], SteadyModel)}
        if cells:
            rest = AtRest(start[next(iter(cells))], cells)
            if self._like is None:
                rest.check_values(self._parms)
            self.definition = replace(self.definition, at_rest=rest)
        d, t = self.definition, float(self.times[0])
        assert d.function is not None, "a function of profiles"
        p, u = d.parms.to_numpy(dtype=float), [float(u.at(t)) for u in d.forcings]
        y = d.starts().value(p.tolist())
        with np.errstate(all="ignore"):
            f = d.function(t, y, p, u)
            self.on_grid.warn_of_order(t, y, p.tolist(), u)
        if len(bad := np.flatnonzero(~np.isfinite(f))):
            raise ModelError(
                f"The rate of {d.states[bad[0]]!r} is {f[bad[0]]:g} at the start (of {counted(len(bad), 'cell')} it is "
                "no finite number): a coefficient, or a profile at the start, is none."
            )

    @own_words
    def __call__(
        self, parms: UserParameters = None, times: Any = None, *, entity: Any = None, wide: bool = False
    ) -> pd.DataFrame:
        """Run the model.

        Parameters
        ----------
        parms : dict, Series, table row or lmfit.Parameters, optional
            Values by name; a subset leaves the rest as it is.
        times : array_like, optional
            Times of the rows, increasing; default the model's own. The run starts at ``model.times[0]`` all the same.
        entity : str or number, optional
            For whom, where events or forcings belong to entities.
        wide : bool
            On a grid: a row a time with a column a cell (``O2[1]``, ``O2[2]``, ...), and what is one number of the run.

        Returns
        -------
        DataFrame
            Column ``time``, then states, then outputs. On a grid ``time``, ``x`` and a column a profile: a row a time
            and cell, times before cells.

        Raises
        ------
        SimulationError
            The run failed; carries the parameters and the time reached.
        ParameterError, ModelError
            Unknown names; times that do not increase or lie before the start.
        """
        table = super().__call__(parms, times, entity=entity)
        if self.on_grid is None or wide:
            return table
        names = self.on_grid.profiles(self.var_names)
        return long_table(
            table.to_numpy(dtype=float)[:, 1:], table[self.x_name], self.var_names, names, self.on_grid.grid
        )

    def __repr__(self) -> str:
        if self.on_grid is None:
            return super().__repr__()
        species = f"{counted(len(self.on_grid.species), 'profile')} ({', '.join(self.on_grid.species)})"
        parts = f"{len(self.on_grid.grid)} cells, {counted(len(self._parms), 'parameter')}"
        return f"OdeModel of {species} in {parts}; engine {self.engine}, method {self.method}"

    def image(
        self,
        name: str | None = None,
        parms: UserParameters = None,
        *,
        times: Any = None,
        unit: str = "",
        ax: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Draw a profile in time: time to the right, depth downwards, its values as colours.

        Parameters
        ----------
        name : str
            A species, or an output that is a profile; may be left out where there is but one.
        parms, times
            As in a call.
        unit : str
            Of the values, for the colour bar.
        ax : Axes, optional
        **kwargs
            Of ``Axes.pcolormesh`` (``cmap``, ``vmin``, ...), ``xlabel``, ``ylabel``, ``title``.

        Returns
        -------
        Axes

        Raises
        ------
        ModelError, ParameterError
            A model without grid; an unknown name, with the nearest.

        Examples
        --------
        >>> from fmepy import Grid1D, OdeModel, transport_1d
        >>> grid = Grid1D(np.linspace(0, 5, 26))
        >>> def sediment(t, O2, *, D=1.0, k=0.4):
        ...     return transport_1d(O2, grid, D=D, up=300.0).rate - k * O2
        >>> ax = OdeModel(sediment, state={"O2": 0.0}, grid=grid, times=[0, 1, 2, 5]).image("O2", unit="mmol/m3")
        >>> ax.get_xlabel(), ax.get_ylabel(), bool(ax.yaxis_inverted())
        ('time', 'depth', True)
        """
        from fmepy.plotting.profiles_in_time import plot_image

        if self.on_grid is None:
            raise ModelError("`image` is for an OdeModel with grid=; of others plot_model(model()) draws lines.")
        have = self.on_grid.profiles(self.var_names)
        if name is None and (len(have) > 1 or "which" in kwargs):
            raise ArgumentError(
                f"`image` draws one profile, named first: image({have[0]!r}). There are {listed(have)}."
            )
        name = have[0] if name is None else name
        (name,) = check_names([name], have, argument="name", what="profile")
        return plot_image(self(parms, times), self.on_grid.grid.edges, name, unit=unit, ax=ax, **kwargs)
