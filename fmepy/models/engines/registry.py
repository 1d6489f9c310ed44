"""The engines there are: a new one is one file and one line here.

`OdeModel` asks this list and nothing else which engines and methods exist, which of them can run a model, and which
takes over a run that another could not finish. An engine of your own joins by ``ENGINES.append(engine)``; see
`models.engines.base` for what it must provide.
"""

from __future__ import annotations

from fmepy.errors import ModelError, check_choice
from fmepy.language.functions import holds_choices
from fmepy.models.definition.definition import Definition
from fmepy.models.engines import explicit, fixed, scipy_steppers
from fmepy.models.engines.base import Engine

ENGINES: list[Engine] = [explicit.ENGINE, explicit.EXPLICIT, explicit.STIFF, scipy_steppers.ENGINE, fixed.ENGINE]
ALIASES = {"numba": explicit.EXPLICIT.name, "diffsol": explicit.ENGINE.name}
"""Older names of engines."""


def engine_names() -> list[str]:
    """Return what may be typed as ``engine=``, beside "auto"."""
    return list(dict.fromkeys(e.name for e in ENGINES))


def methods() -> list[str]:
    """Return what may be typed as ``method=``."""
    return [m for e in ENGINES for m in e.methods]


def asks_for_equations(name: str) -> bool:
    """Tell whether somebody who types ``engine=name`` wants equations at any price."""
    return any(e.needs_equations for e in ENGINES if e.name == name)


def choose_engine(name: str, method: str | None, definition: Definition, limited: bool) -> tuple[Engine, str, str]:
    """Return the engine, its method, and why "auto" did not take a better one (or an empty string).

    Parameters
    ----------
    name : str
        "auto", or one of `engine_names()`.
    limited : bool
        Whether the length of steps is.

    Raises
    ------
    ModelError
        The engine or method asked for cannot run the model; the message says why.
    """
    if method is not None:
        check_choice(method, methods(), "method")
        own = next(e for e in ENGINES if method in e.methods)
        if name not in ("auto", own.name):
            raise ModelError(f"`method={method!r}` belongs to the engine {own.name!r}, not to {name!r}.")
        if limited and own.steps:
            raise ModelError(f"`max_step` is for solvers that choose their steps; method={method!r} takes `dt`.")
        return own, method, _checked(own, definition, limited)
    if name != "auto":
        own = next(e for e in ENGINES if e.name == name)
        return own, own.methods[0], _checked(own, definition, limited)
    notes: list[str] = []
    for engine in sorted((e for e in ENGINES if e.rank is not None), key=lambda e: e.rank or 0.0):
        why = engine.why_not(definition, limited)
        if not why:
            return engine, engine.methods[0], notes[0] if notes else ""
        notes.append(why)
    raise ModelError(f"No engine can run the model: {'; '.join(notes)}.")


def _checked(engine: Engine, definition: Definition, limited: bool) -> str:
    """Return an empty string if an engine that was asked for can run the model."""
    if why := engine.why_not(definition, limited):
        raise ModelError(f"The model cannot run on {engine.name}: {why}. Leave engine='auto' to run it on what it can.")
    return ""


def heirs(engine: Engine, definition: Definition) -> list[Engine]:
    """Return what takes over the runs that `engine` could not finish: LSODA, unless it would do the same again.

    Before it, where there are root events, the stiff method alone: beside a root each crossing begins again with the
    explicit one, whose errors in a stiff state may carry the root to and fro without end.
    """
    has_conditions = definition.equations is not None and holds_choices(definition.equations.rates)
    same = engine.name == scipy_steppers.ENGINE.name and not has_conditions
    is_stiff_left = (
        engine.name == explicit.ENGINE.name and definition.roots and not explicit.STIFF.why_not(definition, False)
    )
    before = [explicit.STIFF] if is_stiff_left else []
    return [] if engine.steps or definition.has_delays or same else [*before, scipy_steppers.RETRY]
