"""Which engine and method run a model of differential equations: `choose_engine`."""

from __future__ import annotations

from fmepy.errors import ModelError, check_choice
from fmepy.models.definition.definition import Definition
from fmepy.models.engines.diffsol import METHODS as DIFFSOL_METHODS
from fmepy.models.engines.diffsol import NotCompilableError, diffsl_code, is_available
from fmepy.models.engines.explicit import METHODS as EXPLICIT_METHODS
from fmepy.models.engines.explicit import NotWritableError, rates_source
from fmepy.models.engines.fixed import METHODS as FIXED_METHODS
from fmepy.models.engines.scipy_steppers import IVP_METHODS
from fmepy.models.running.system import build_system

__all__ = ["SCIPY_METHODS", "choose_engine", "why_not_compiled", "why_not_explicit"]

SCIPY_METHODS = ("lsoda", *IVP_METHODS)


def choose_engine(engine: str, method: str | None, definition: Definition, limited: bool) -> tuple[str, str, str]:
    """Return engine, method, and why not the compiled engine (or an empty string); `limited`: its steps are."""
    every = (*DIFFSOL_METHODS, *EXPLICIT_METHODS, *SCIPY_METHODS, *FIXED_METHODS)
    if method is not None:
        check_choice(method, every, "method")
        own = "diffsol" if method in DIFFSOL_METHODS else "numba" if method in EXPLICIT_METHODS else "scipy"
        if engine == "auto":
            engine = own
        elif engine != own:
            raise ModelError(f"`method={method!r}` belongs to the engine {own!r}, not to {engine!r}.")
        if limited and method in FIXED_METHODS:
            raise ModelError(f"`max_step` is for solvers that choose their steps; method={method!r} takes `dt`.")
        if own == "scipy":
            return "scipy", method, ""
    elif engine == "scipy":
        return "scipy", "lsoda", ""
    if engine == "numba":
        if why := why_not_explicit(definition):
            raise ModelError(f"The model cannot run on numba: {why}. Leave engine='auto' to run it on what it can.")
        return "numba", "dopri5", ""
    if limited and (method is not None or engine == "diffsol"):
        raise ModelError(
            f"`max_step` cannot limit the steps of the compiled solver diffsol (method={method or 'bdf'!r}): it has no "
            "largest step. Leave engine='auto' (which takes LSODA), or pass engine='numba' or method='BDF'."
        )
    why = why_not_compiled(definition)
    if limited and not why:
        why = "`max_step` is given, and the compiled solver has no largest step"
    if not why:
        return "diffsol", method or "bdf", ""
    if engine == "diffsol":
        raise ModelError(f"The model cannot be compiled: {why}. Leave engine='auto' to run it on scipy.")
    return "scipy", "lsoda", why


def why_not_compiled(definition: Definition) -> str:
    """Return why diffsol cannot run a model, or an empty string."""
    if definition.equations is None:
        return definition.note
    if not is_available():
        return "pydiffsol is not installed (it has no wheel for this platform)"
    try:
        diffsl_code(build_system(definition.equations, (), True))
    except NotCompilableError as error:
        return f"the compiled engine does not have {error}"
    return ""


def why_not_explicit(definition: Definition) -> str:
    """Return why the explicit engine cannot run a model, or an empty string."""
    if definition.equations is None:
        return definition.note
    try:
        rates_source(build_system(definition.equations, (), True))
    except NotWritableError as error:
        return f"it does not have {error}"
    return ""
