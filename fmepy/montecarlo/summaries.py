"""Means and quantiles over the runs of an ensemble, from memory or from a scratch file.

Every statistic is of one output over all runs that succeeded: mean, standard deviation with divisor N - 1, the
extremes, and quantiles of type 7 (Hyndman and Fan 1996: linear between order statistics, ``h = (N - 1) q``), R's and
numpy's default.

For ensembles that do not fit into memory, a `Scratch` file on disk holds the values. A second pass then reads a few
outputs at a time, all their runs, and computes the very same statistics: nothing is approximated, and memory holds one
chunk of runs or a few outputs, whichever is more.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from fmepy.parallel.runs import INTERRUPTED, counted_failures
from fmepy.types import BoolVector, Matrix

QUANTILES = {"q05": 0.05, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q95": 0.95}
STATISTICS = ("Mean", "Sd", "Min", "Max", *QUANTILES, "N")
GROUP_BYTES = 2_000_000  # of values held at a time by the second pass


def statistics(columns: Matrix) -> Matrix:
    """Return the statistics of every row of `columns`, shape (n_output, n_run), in the order of STATISTICS.

    Without runs all are NaN but N; with one run Sd is NaN.

    Examples
    --------
    >>> statistics(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]))[0].round(3).tolist()
    [3.0, 1.581, 1.0, 5.0, 1.2, 2.0, 3.0, 4.0, 4.8, 5.0]
    """
    n_output, n = columns.shape
    out = np.full((n_output, len(STATISTICS)), np.nan)
    out[:, -1] = n
    if n == 0:
        return out
    first = columns[:, :1]
    deviations = columns - first  # from the first run: what does not vary has a spread of exactly 0
    out[:, 0] = first[:, 0] + deviations.mean(axis=1)
    if n > 1:
        out[:, 1] = deviations.std(axis=1, ddof=1)
    out[:, 2], out[:, 3] = columns.min(axis=1), columns.max(axis=1)
    out[:, 4:-1] = np.quantile(columns, list(QUANTILES.values()), axis=1).T
    return out


def counted_runs(runs: Any) -> str:
    """Return how many runs a result holds, how many of them failed, and how many Ctrl-C left out."""
    return ", ".join([f"{len(runs.pars)} runs", *counted_failures(runs.failures, "of them ")])


def completed(result: Any) -> str:
    """Return how many runs of an ensemble (or of scenarios) were done, for the warning that it was interrupted."""
    missing = int((result.failures["error"] == INTERRUPTED[0]).sum())
    total = len(result.pars) * len(getattr(result, "names", ("",)))
    return f"{total - missing} of {total} runs were done, the others are NaN."


def column_groups(values: Matrix, ok: BoolVector) -> Iterator[Matrix]:
    """Yield the outputs of the runs that are `ok`, a few outputs at a time, each group of shape (n, n_run)."""
    rows, n_output = values.shape
    step = _group(rows, n_output)
    for first in range(0, n_output, step):
        yield np.ascontiguousarray(values[:, first : first + step].T)[:, ok]


def _group(rows: int, n_output: int) -> int:
    """Return how many outputs of `rows` runs make a group."""
    return max(1, min(n_output, GROUP_BYTES // (8 * max(rows, 1))))


class Scratch:
    """Values of an ensemble on disk: written as the runs come, read back output by output; gone when closed.

    A chunk of runs is one block of the file, outputs outermost, so that reading some outputs is one piece a chunk. The
    file is without a name (or removed at once) in the folder that `tempfile` chooses (TMPDIR).
    """

    def __init__(self, n_output: int) -> None:
        self.n_output = n_output
        self.chunks: list[int] = []  # rows of each
        self.file = tempfile.TemporaryFile(prefix="fmepy-")  # noqa: SIM115    # closed by close()

    def write(self, values: Matrix) -> None:
        """Write a chunk, shape (n, n_output)."""
        self.file.write(np.ascontiguousarray(values.T, dtype=np.float64).data)
        self.chunks.append(len(values))

    def column_groups(self) -> Iterator[Matrix]:
        """Yield the outputs of the runs that succeeded, a few outputs at a time."""
        rows = sum(self.chunks)
        step = _group(rows, self.n_output)
        for first in range(0, self.n_output, step):
            n = min(step, self.n_output - first)
            group = np.empty((n, rows))
            done = 0
            for length in self.chunks:
                self.file.seek(8 * (done * self.n_output + first * length))
                block = np.frombuffer(self.file.read(8 * n * length), dtype=np.float64)
                group[:, done : done + length] = block.reshape(n, length)
                done += length
            yield group[:, ~np.isnan(group).all(axis=0)]  # a failed run is NaN in all its outputs

    def close(self) -> None:
        """Delete the file."""
        self.file.close()
