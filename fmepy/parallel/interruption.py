"""Ctrl-C, the same way in every verb.

What is done comes back as a result whose ``interrupted`` is True, with an `InterruptedWarning`. **Only the outermost
verb does so**: a modFit inside a function that sensRange runs passes Ctrl-C on, for half a fit is no output of a model.
A second Ctrl-C, while the result of the first is made up, raises KeyboardInterrupt as ever.

Who writes a verb decorates it with `interruptible`. Where its work is done it catches KeyboardInterrupt, if it is the
`outermost()`, and makes a result of what there is. A piece of work on its own (a chain, a fit from one start) raises
`Stopped` with what it has. Work in a worker, which no Ctrl-C reaches, is told by `check_stop`, called at every
evaluation of a cost.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from fmepy.errors import InterruptedWarning, warn
from fmepy.vocabulary import own_words

_LOOK = 0.05  # seconds between looks at whether work shall stop


class Stopped(KeyboardInterrupt):
    """Ctrl-C that brings along what was done until then.

    Attributes
    ----------
    partial : object
        What stands for the result.
    """

    def __init__(self, partial: Any) -> None:
        super().__init__()
        self.partial = partial


class _Here(threading.local):
    """What holds in this thread: verbs inside each other, and who tells it to stop."""

    depth = 0
    stop: Callable[[], bool] | None = None
    looked = 0.0


_here = _Here()


class _Result(Protocol):
    @property
    def interrupted(self) -> bool: ...


P = ParamSpec("P")
R = TypeVar("R", bound=_Result)


def interruptible(told: Callable[[Any], str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return the decorator of a public verb; `told(result)` says in a sentence what an interrupted result holds."""

    def decorated(verb: Callable[P, R]) -> Callable[P, R]:
        hands_on = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(verb).parameters.values())
        checked = verb if hands_on else own_words(verb)  # one that hands words on checks them itself

        @functools.wraps(verb)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            with passing_on():
                result = checked(*args, **kwargs)
            if result.interrupted:
                message = f"{verb.__name__} was interrupted (Ctrl-C) and returns what there is. {told(result)}"
                warn(message.rstrip(), InterruptedWarning)
            return result

        return wrapper

    return decorated


@contextmanager
def passing_on() -> Iterator[None]:
    """Count one verb more: those inside pass Ctrl-C on."""
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def outermost() -> bool:
    """Tell whether no verb is around the one that runs."""
    return _here.depth <= 1


@contextmanager
def working(stop: Callable[[], bool]) -> Iterator[None]:
    """Run somebody else's work in this thread, as inside a verb, until `stop()` is true."""
    before = _here.depth, _here.stop
    _here.depth, _here.stop, _here.looked = 1, stop, 0.0
    try:
        yield
    finally:
        _here.depth, _here.stop = before


def check_stop() -> None:
    """Raise KeyboardInterrupt, once, if the work of this thread shall stop."""
    stop = _here.stop
    if stop is None:
        return
    now = time.monotonic()
    if now - _here.looked < _LOOK:
        return
    _here.looked = now
    if stop():
        _here.stop = None  # what is done is now made up, undisturbed
        raise KeyboardInterrupt
