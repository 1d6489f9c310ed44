"""Functions of a Python file: a cost of the file's parameters, or a model whose tables are compared with data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any

import pandas as pd

from fmepy.costs.modcost import ModCost, modCost
from fmepy.errors import ArgumentError, FmepyError, SimulationError
from fmepy.workflow.file.parsed import Case
from fmepy.workflow.file.python_file import is_own

OF_TABLES = ("weight", "scaleVar", "outside")
"""What a section ``cost`` may say of a function: the arguments of `modCost`."""


@dataclass(frozen=True, eq=False)
class WithFixed:
    """A user's function of parameters, of which some are fixed; what it raises bears its file and line.

    Attributes
    ----------
    function : callable
        ``f(p)``, of a dict.
    fixed : mapping of str to float
    folder : Path
        That of its file.
    """

    function: Callable[[dict[str, float]], Any]
    fixed: Mapping[str, float]
    folder: Path

    def __call__(self, p: Mapping[str, float]) -> Any:
        """Return ``f`` of the fixed parameters and of those given."""
        try:
            return self.function({**self.fixed, **p})
        except FmepyError:
            raise
        except Exception as error:
            where = line_of(error, self.folder)
            raise SimulationError(f"{where}{': ' if where else ''}{type(error).__name__}: {error}") from error


def line_of(error: BaseException, folder: Path) -> str:
    """Return file and line of a user's code in which an error, or what caused it, was raised; "" if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        own = [f for f in extract_tb(cause.__traceback__) if is_own(f.filename, folder.resolve())]
        if own:
            return f"{own[-1].filename}:{own[-1].lineno}"
        cause = cause.__cause__ or cause.__context__
    return ""


@dataclass(frozen=True, eq=False)
class FunctionModel(WithFixed):
    """A user's function of parameters that returns a table; `fixed` holds all of the file's, where none is given."""

    @property
    def parms(self) -> pd.Series[float]:
        """The parameters of the file."""
        return pd.Series(self.fixed, dtype=float)


@dataclass(frozen=True, eq=False)
class TableCost:
    """A function's table compared with data.

    Attributes
    ----------
    model : FunctionModel
    obs : DataFrame
    words : mapping
        The other arguments of `modCost`.
    """

    model: FunctionModel
    obs: pd.DataFrame
    words: Mapping[str, Any]

    def __call__(self, p: Mapping[str, float]) -> ModCost:
        """Return the cost of a run."""
        table = self.model(p)
        if not isinstance(table, pd.DataFrame | Mapping):
            raise ArgumentError(
                f"the function must return a table, a column {self.words['x']!r} and one for each variable, as the "
                f"section [cost] holds it against the data; it returned {type(table).__name__}. A function that "
                "returns a cost needs no [cost]."
            )
        return modCost(table, self.obs, **self.words)


def table_cost(case: Case, model: FunctionModel, obs: pd.DataFrame, words: Mapping[str, Any]) -> TableCost:
    """Return the cost of a function that is a model.

    Raises
    ------
    ArgumentError
        With the line: the sections ``cost`` and ``data`` say what only models of fmepy can do; nothing is fitted.
    """
    said = case.content["cost"]
    wrong = [("cost", k) for k in said if k not in ("kind", *OF_TABLES)]
    wrong += [("cost", "kind")] if said.get("kind", "simulation") != "simulation" else []
    wrong += [("data", k) for k in ("entity", "censored") if k in words]
    for place in wrong:
        raise case.section.error(
            place,
            f"`{place[1]}` is for a Model; {case.content['model']['python']!r} is a function, whose table is compared "
            f"as `modCost` does: [cost] may hold {', '.join(OF_TABLES)}.",
        )
    if not case.fitted:
        raise case.section.error("parameters", "[parameters] must say what the function is given, and where the search "
                                 "begins: name = { start = 1.0 }.")  # fmt: skip
    how = {k: v for k, v in said.items() if k in OF_TABLES}
    return TableCost(model, obs, {**how, **words})
