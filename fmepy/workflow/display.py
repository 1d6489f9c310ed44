"""Progress of a calibration: a bar in a terminal, plain lines in a log, calls of a function, or nothing.

In a terminal a bar shows step, runs done, rate, time left and the best cost so far. In a log every step has a line at
its start and one at its end, and between them one at most every ten seconds, without colour or carriage return.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fmepy.errors import ArgumentError, InterruptedWarning
from fmepy.workflow.report.words import duration

_PAUSE = 10.0  # seconds between lines of a log
_BAR = "{desc} {percentage:3.0f}%|{bar:24}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


class Display:
    """Show the progress of a calibration.

    Parameters
    ----------
    progress : bool or callable of (done, total)
        True: a bar or lines on stderr. False: nothing.
    aloud : bool
        Whether sentences (warnings) go to stderr.
    """

    def __init__(self, progress: Any, *, aloud: bool) -> None:
        if not callable(progress) and not isinstance(progress, bool):
            raise ArgumentError(f"`progress={progress!r}` must be True, False, or a callable of (done, total).")
        self._callback: Callable[[int, int], object] | None = progress if callable(progress) else None
        self._shows, self._aloud = progress is True, aloud
        self._in_terminal = self._shows and sys.stderr.isatty()
        self._bar: Any = None

    def begins(self, step: str, size: str, best: float | None, unit: str = "run") -> None:
        """Announce a step; `best` is the best cost so far, if there is one, `unit` what progress counts."""
        self._step, self._unit, self._best = step, unit, "" if best is None else f"best {best:.6g}"
        self._line_at, self._done = time.monotonic(), 0
        self._first: tuple[float, int] | None = None
        self.say(step, size)

    def say(self, step: str, sentence: str) -> None:
        """Print what a step will do, or its result."""
        self.close()
        if self._shows:
            self._print(f"{step}: {sentence}")

    def tell(self, sentence: str) -> None:
        """Print a sentence whether or not progress is shown."""
        if self._aloud:
            self._print(sentence)

    @property
    def progress(self) -> Any:
        """The `progress` that steps receive: a callable, or False."""
        return self if self._shows or self._callback is not None else False

    def __call__(self, done: int, total: int) -> None:
        """Show how much of the step is done."""
        if done < self._done:  # two report it: a chain that has ended, and the parts of all
            return
        self._done = done
        if self._callback is not None:
            self._callback(done, total)
        if self._in_terminal:
            self._draw(done, total)
        elif self._shows:
            self._line(done, total)

    def _draw(self, done: int, total: int) -> None:
        if self._bar is None:
            from tqdm import tqdm

            self._bar = tqdm(
                total=total or None, initial=done, desc=self._step, unit=f" {self._unit}s", leave=False,
                bar_format=_BAR if total else None, file=sys.stderr, dynamic_ncols=True, postfix=self._best,
            )  # fmt: skip
        self._bar.total = total or None
        self._bar.update(done - self._bar.n)

    def _line(self, done: int, total: int) -> None:
        now = time.monotonic()
        self._first = self._first or (now, done)  # what an earlier run has done counts as done, not as quick
        if now - self._line_at < _PAUSE or done == total:
            return
        self._line_at, (began, before) = now, self._first
        rate = (done - before) / max(now - began, 1e-9)
        of, share = (f" of {total}", f" ({100 * done / total:.0f} %)") if total else ("", "")
        parts = [f"{done}{of} {self._unit}s{share}", f"{rate:{'.0f' if rate >= 100 else '.3g'}} a second"]
        if rate > 0 and total:
            parts.append(f"{duration((total - done) / rate)} left")
        self._print(f"{self._step}: {', '.join([*parts, *([self._best] if self._best else [])])}")

    def _print(self, text: str) -> None:
        if self._bar is not None:
            self._bar.write(text, file=sys.stderr)
        else:
            to_stderr(text)

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def to_stderr(text: str) -> None:
    """Print a sentence on stderr."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def collected_warnings(tell: Callable[[str], object] = to_stderr) -> Iterator[list[str]]:
    """Yield the list of warnings raised inside, each once; `tell` gets each as it comes."""
    sentences: list[str] = []

    def add(sentence: str) -> None:
        if sentence not in sentences:
            sentences.append(sentence)
            tell(f"warning: {sentence}")

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, InterruptedWarning):
            add(" ".join(str(message).split()))

    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: add(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("fmepy")
    logger.addHandler(handler)
    passes_on, logger.propagate = logger.propagate, False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            yield sentences
    finally:
        logger.removeHandler(handler)
        logger.propagate = passes_on
