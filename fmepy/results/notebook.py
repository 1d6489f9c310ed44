"""Models and costs in a notebook: equations, parameters and data, one below another."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from fmepy.results.tables import Part, as_html, bullets, heading, long_table

_ONE_BY_ONE = 30  # equations that are shown; LaTeX of more takes long, and nobody reads it


class InNotebook:
    """Base of models and costs: in a notebook they show what they consist of."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        first, *others = repr(self).split("\n")
        parts = [] if hasattr(self, "equations") else bullets(line.strip() for line in others)  # of a sum
        shown = (*_equations(self), *_parameters(self), *_data(getattr(self, "obs", None)))
        return as_html([heading(first), *parts, *shown])


def _equations(thing: Any) -> list[Part]:
    """Return the equations of a model, or of a cost's one model: typeset where sympy is installed."""
    equations = getattr(thing, "equations", None) or getattr(getattr(thing, "model", None), "equations", None)
    if equations is None:
        return []
    text = str(equations)
    latex = equations._repr_latex_() if text.count("\n") < _ONE_BY_ONE else None
    return [Part(text, f"<pre>{escape(text)}</pre>" if latex is None else f"<p>{escape(latex)}</p>")]


def _parameters(thing: Any) -> list[Part]:
    """Return the table of parameters, with bounds where a cost has some."""
    parms: pd.Series = thing.parms
    columns: dict[str, Any] = {"value": parms.to_numpy(dtype=float)}
    for side, free in (("lower", -np.inf), ("upper", np.inf)):
        bound = getattr(thing, side, None)
        if isinstance(bound, (Mapping, pd.Series)):
            bound = pd.Series(dict(bound), dtype=float).reindex(parms.index).fillna(free)
        if bound is not None and np.shape(bound) == parms.shape and np.any(np.asarray(bound) != free):
            columns[side] = np.asarray(bound, dtype=float)
    return [long_table(pd.DataFrame(columns, index=parms.index.rename("parameter")))] if len(parms) else []


def _data(obs: Any) -> list[Part]:
    """Return the ends of the observations."""
    return [heading("Observations"), long_table(obs)] if isinstance(obs, pd.DataFrame) else []
