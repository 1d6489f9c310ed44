"""How far a long work is: told to nobody, by a bar, or to a callable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np

from fmepy.errors import ArgumentError


class Progress:
    """Tell how much of `total` is done.

    Parameters
    ----------
    progress : bool, None, or callable of (done, total)
    total : int
    unit : str
        What is counted, for the bar.
    """

    def __init__(self, progress: Any, total: int, unit: str = "run") -> None:
        if not callable(progress) and not isinstance(progress, (bool, np.bool_)) and progress is not None:
            raise ArgumentError(f"`progress={progress!r}` must be True, False, or a callable of (done, total).")
        self.total, self.bar, self.callback = total, None, progress if callable(progress) else None
        if self.callback is None and progress:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit=unit)

    def __call__(self, done: int) -> None:
        """Tell how much is done."""
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        if self.callback is not None:
            self.callback(done, self.total)

    def after(self, earlier: int) -> Callable[..., None] | None:
        """Return what tells the progress of a part, (done, ...), `earlier` being done before it; None for nobody."""
        if self.bar is None and self.callback is None:
            return None
        return lambda done, *_: self(earlier + done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
