"""The exceptions of fmepy, and the words they are made of.

The family::

    FmepyError
    ├── ArgumentError        (ValueError)    an argument that cannot be: wrong choice, shape, sign
    │   ├── UnknownArgumentError             a keyword that a function does not have (a TypeError, too)
    │   ├── ParameterError                   a parameter's name, value or bound
    │   ├── DataError                        a table of observations
    │   └── ModelError                       the definition of a model
    │       ├── ModelTextError               ... written as text: carries line, column and a caret
    │       └── TracingError                 ... a Python function that cannot be turned into equations
    ├── SimulationError      (RuntimeError)  a run that failed: carries the parameters and the time reached
    │   ├── EndedRunError                    a run that a root event ended before its last row: carries the run up to it
    │   └── NoSteadyStateError               a search for a steady state that did not arrive: carries where it stood
    └── ConvergenceError     (RuntimeError)  an iteration that did not arrive: carries where it stood

    InterruptedWarning       (UserWarning)   Ctrl-C ended a verb, which returns what there is

Every message says what was wrong, what was given, and what to do.
"""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any


class FmepyError(Exception):
    """Base of all errors that fmepy raises on purpose; they reach other processes with their evidence."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ArgumentError(FmepyError, ValueError):
    """An invalid argument: a wrong choice, shape, sign or type."""


class UnknownArgumentError(ArgumentError, TypeError):
    """A keyword that a function does not have; the message names ours of the same meaning."""


class ParameterError(ArgumentError):
    """A parameter's name, value or bound is wrong."""


class TooLargeError(ArgumentError):
    """A result is larger than what `load` reads."""


class DataError(ArgumentError):
    """A table of observations cannot be used as it is."""


class ModelError(ArgumentError):
    """The definition of a model is wrong."""


class ModelTextError(ModelError):
    """A model written as text cannot be read.

    Attributes
    ----------
    line, column : int
        Where, counted from 1.
    """

    def __init__(self, message: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class TracingError(ModelError):
    """A Python function cannot be turned into equations; the message says where and what would help."""


class SimulationError(FmepyError, RuntimeError):
    """A run of a model failed.

    Attributes
    ----------
    parameters : dict of str to float
        The parameters of the run that failed.
    time : float or None
        The time that was reached, where it is known.
    exploded : bool
        Whether a state ran to infinity there, so that no other solver gets further.
    """

    def __init__(
        self,
        message: str,
        *,
        parameters: Mapping[str, float] | None = None,
        time: float | None = None,
        exploded: bool = False,
    ) -> None:
        super().__init__(message)
        self.parameters = dict(parameters or {})
        self.time = time
        self.exploded = exploded


class EndedRunError(SimulationError):
    """A terminal root event ended a run before its last row.

    Attributes
    ----------
    time : float
        Of the event.
    rows : ndarray
        The run up to it: its rows before it, and the one at it.
    """

    rows: Any = None


class NoSteadyStateError(SimulationError):
    """No steady state was found.

    Attributes
    ----------
    last : SteadyState
        Where the search stood.
    """

    def __init__(self, message: str, *, last: Any = None, **evidence: Any) -> None:
        super().__init__(message, **evidence)
        self.last = last


class ConvergenceError(FmepyError, RuntimeError):
    """An iteration did not converge; the message says where it stopped and what to try."""


class InterruptedWarning(UserWarning):
    """Ctrl-C ended a function; its result holds what was done until then, and says ``interrupted``."""


def _rebuild(kind: type[FmepyError], args: tuple[Any, ...], state: dict[str, Any]) -> FmepyError:
    """Build an exception again in another process, evidence included."""
    error = kind(*args)
    error.__dict__.update(state)
    return error


def warn(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's that called fmepy, however deep inside this is noticed."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "fmepy":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """Return " Did you mean 'x'?" for the known name nearest to `name`, or an empty string.

    A difference of case alone, the commonest slip of all, comes first; then what shares most of its letters and is at
    most half of them (one, at least) away; then two letters in the wrong order, which in a short name leaves nothing
    that is shared.

    Examples
    --------
    >>> did_you_mean("kk2", ["k2", "r"]), did_you_mean("Ka", ["Ka1", "ka"]), did_you_mean("2k", ["r", "k2"])
    (" Did you mean 'k2'?", " Did you mean 'ka'?", " Did you mean 'k2'?")
    """
    wrong, names = str(name), [str(k) for k in known]
    close = [k for k in names if k.lower() == wrong.lower()]
    near = [k for k in difflib.get_close_matches(wrong, names, n=3, cutoff=0.6) if _is_near(wrong, k)]
    close = close or near
    close = close or [k for k in names if sorted(k.lower()) == sorted(wrong.lower())]
    return f" Did you mean {close[0]!r}?" if close else ""


def check_known(name: object, known: Collection[object], wrong: str, kind: Any = None, are: str = "There are") -> None:
    """Raise an error, of a kind, for a name that is not known: what is wrong, the nearest that is known, and all.

    Examples
    --------
    >>> check_known("kk", ["k", "r"], "`p`: 'kk' is not a parameter.")
    Traceback (most recent call last):
    fmepy.errors.ArgumentError: `p`: 'kk' is not a parameter. Did you mean 'k'? There are 'k', 'r'.
    """
    if name not in known:
        there = f" {are} {listed(known)}." if len(known) else ""
        raise (kind or ArgumentError)(f"{wrong}{did_you_mean(name, known)}{there}")


def _is_near(a: str, b: str) -> bool:
    """Tell whether a name becomes another by few letters put in, left out or changed, or is a part of it.

    Examples
    --------
    >>> _is_near("kk2", "k2"), _is_near("paramters", "parameters"), _is_near("init", "niter")
    (True, True, False)
    """
    a, b = a.lower(), b.lower()
    most = max(1, min(len(a), len(b)) // 2)
    if min(len(a), len(b)) > 2 and (a in b or b in a):
        return True
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1] <= most


def counted(n: int, one: str, many: str = "") -> str:
    """Return how many things there are, in words.

    Examples
    --------
    >>> counted(1, "state"), counted(2, "state"), counted(2, "datum", "data")
    ('1 state', '2 states', '2 data')
    """
    return f"{n} {one if n == 1 else many or one + 's'}"


def listed(names: Iterable[object], most: int = 12) -> str:
    """Return names for a message: quoted, comma separated, cut after `most`."""
    items = [repr(str(n)) for n in names]
    if not items:
        return "none"
    return ", ".join(items[:most]) + (f", ... ({len(items)} in all)" if len(items) > most else "")


def shortened(value: object, most: int = 60) -> str:
    """Return how a value prints, on one line of a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def sentence(message: object) -> str:
    """Return a message of whatever failed with a full stop at its end, for another sentence to follow.

    Examples
    --------
    >>> sentence("m.py:3: ValueError: k is too large")
    'm.py:3: ValueError: k is too large.'
    """
    text = str(message).rstrip()
    return text if text.endswith((".", "!", "?")) or not text else f"{text}."


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once, sorted.

    Examples
    --------
    >>> repeated(["b", "a", "b"])
    ['b']
    """
    return sorted(name for name, n in Counter(names).items() if n > 1)


_NEIGHBOURS = {
    "Marq": "leastsq least_squares lm trf dogbox nls nls.lm", "Nelder-Mead": "nelder simplex fmin",
    "Port": "nlminb slsqp tnc", "bobyqa": "powell cobyla", "Pseudo": "differential_evolution de brute shgo",
    "SANN": "basinhopping dual_annealing", "lsoda": "lsode lsodes lsodar vode daspk adams impadams impadams_d odeint",
    "RK45": "ode45 rk34f rk45f rk45ck rk45e rk45dp6 rk45dp7", "RK23": "ode23 rk23 rk23bs", "BDF": "bdf_d",
    "DOP853": "rk78dp rk78f", "Radau": "irk3r irk5r irk4hh irk6kb irk4l irk6l", "rk4": "rk2", "latin": "lhs",
    "dram": "metropolis mh am", "emcee": "stretch ensemble", "L-BFGS-B": "lbfgsb lbfgs",
    "unscented": "ukf sigma_points", "ekf": "kalman kf",
}  # fmt: skip
"""What methods of other tools are nearest to ours."""


def check_choice(value: object, choices: Iterable[str], argument: str) -> str:
    """Return `value` if it is one of `choices`, else raise an ArgumentError that names the nearest."""
    choices = list(choices)
    if isinstance(value, str) and value in choices:
        return value
    ours = [own for own, theirs in _NEIGHBOURS.items() if own in choices and str(value).lower() in theirs.split()]
    hint = f" Did you mean {ours[0]!r}?" if ours else did_you_mean(value, choices)
    if str(value) == "iteration" and "euler" in choices:  # deSolve's word
        hint = " A function that gives the next state is a DifferenceModel's."
    raise ArgumentError(f"`{argument}={value!r}` is not known. Choose one of {listed(choices)}.{hint}")


def __dir__() -> list[str]:
    kinds = (FmepyError, InterruptedWarning)  # what completion offers
    return sorted(n for n, thing in globals().items() if isinstance(thing, type) and issubclass(thing, kinds))
