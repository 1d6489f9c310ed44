"""Where model and data agree and where they do not: deviations reading by reading, and what they say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from fmepy.types import Vector
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn_each

SUSPICIOUS = 3.0
"""Standard deviations from which a reading is told."""
_FEWEST = 8  # readings of which something can be said together
_PATTERN = 2.5  # standard errors of a correlation of neighbours that is told
_RARE, _NOTED = 0.01, 0.05  # probability of the runs of signs below which the misfit has a pattern, and is noted
_AT_END = 4  # readings of one sign at the end that are noted, whatever their probability
_FOLLOWS = 0.5


@dataclass(frozen=True, eq=False)
class Agreement:
    """Deviations of the readings from a fit.

    Attributes
    ----------
    rows : DataFrame
        One a reading: name, x, obs, mod (as compared), deviation in sds (`z`), entity.
    kinds : dict of str to str
        The transform by variable, of those that have one.
    given : bool
        Whether the errors of the readings were given or are part of the model; else `z` is in units of the spread of
        the variable's other deviations.
    n_beyond : int
        Readings beyond a limit, which have no deviation and are not among the rows.
    """

    rows: pd.DataFrame
    kinds: dict[str, str]
    given: bool
    n_beyond: int

    @property
    def suspicious(self) -> pd.DataFrame:
        """The readings beyond three sds, the worst first."""
        rows = self.rows[self.rows["z"].abs() > SUSPICIOUS]
        return rows.iloc[np.argsort(-rows["z"].abs().to_numpy(), kind="stable")]


def agreement_of(found: Findings) -> Agreement | None:
    """Return the deviations at the fit; None of costs that have no residuals of single readings."""
    fit = found.fit
    table = getattr(None if fit is None else fit.cost, "residuals", None)
    if fit is None or not isinstance(table, pd.DataFrame) or not {"name", "obs", "mod", "res"} <= set(table.columns):
        return None
    is_beyond = table["censored"].to_numpy() != "" if "censored" in table else np.zeros(len(table), dtype=bool)
    table = table[~is_beyond]
    rows = pd.DataFrame({k: table[k].to_numpy() for k in ("name", "x", "obs", "mod")})
    rows["entity"] = [str(e) for e in table["entity"]] if "entity" in table else None
    rows["x"] = rows["x"].fillna(0.0) if rows["x"].isna().all() else rows["x"]
    cost = found.task.cost
    given = bool(getattr(fit.cost, "is_likelihood", False)) or getattr(cost, "err", None) is not None
    z = table["res"].to_numpy(dtype=float, copy=True)
    if not given:
        share = 1 - len(fit.names) / max(len(z), len(fit.names) + 1)
        for _, own in rows.groupby("name", sort=False):
            z[own.index] = _deleted(z[own.index], len(own) * share)
    rows["z"] = -z  # how far the reading is above the model
    data = fit.data
    kinds = {} if data is None else {str(n): k for n, k in zip(data.names, data.kinds, strict=True) if k}
    return Agreement(rows, kinds, given, int(is_beyond.sum()))


def _deleted(gaps: Vector, df: float) -> Vector:
    """Return deviations in units of the spread of the others: of few readings one wrong one would hide in its own."""
    squares = float(gaps @ gaps)
    rest = np.maximum(squares - gaps**2, 1e-12 * squares)
    return gaps * np.sqrt(max(df - 1, 1.0) / rest) if squares > 0 else gaps


def agreement_facts(found: Findings, agreement: Agreement) -> dict[str, Any]:
    """Return what the words on agreement need: each variable, the readings far off, tables and pictures."""
    rows, suspicious = agreement.rows, agreement.suspicious
    variables = [_of_variable(str(name), own, agreement) for name, own in rows.groupby("name", sort=False)]
    compared = " (as compared)" if agreement.kinds else ""
    heads = {
        "name": "variable", "entity": "entity", "x": found.x_name, "obs": f"read{compared}", "mod": f"model{compared}",
        "z": "deviation, sd",
    }  # fmt: skip
    if suspicious["entity"].isna().all():
        del heads["entity"]
    return {
        "variables": variables, "given": agreement.given, "n": len(rows), "far": len(suspicious),
        "beyond": agreement.n_beyond,
        "table": pd.DataFrame([v["row"] for v in variables]), "suspicious": suspicious[list(heads)], "heads": heads,
        "pictures": partial(residual_pictures, found, agreement),
    }  # fmt: skip


def _of_variable(name: str, own: pd.DataFrame, agreement: Agreement) -> dict[str, Any]:
    """Return a row of the table, and what is worth a sentence."""
    n, gap = len(own), (own["obs"] - own["mod"]).to_numpy(dtype=float)
    spread = float(np.sum((own["obs"] - own["obs"].mean()) ** 2))
    explained = 1 - float(np.sum(gap**2)) / spread if spread > 0 else np.nan
    typical, kind = float(np.sqrt(np.mean(gap**2))), agreement.kinds.get(name)
    neighbours, limit = _neighbours(own)
    runs = runs_of_signs([part["z"].to_numpy(dtype=float) for part in _series(own)])
    row = {
        "variable": name, "readings": n, "explained, %": 100 * explained, "typical deviation": typical,
        "mean deviation": float(gap.mean()) if abs(gap.mean()) > 1e-6 * typical else 0.0,  # what a fit makes zero
        "correlation of neighbours": neighbours,
        "runs of one sign": runs.count, "p, runs": runs.p_few,
        "beyond 3 sd": int((own["z"].abs() > SUSPICIOUS).sum()),
    }  # fmt: skip
    on_log = typical * {"log": 1.0, "log10": np.log(10.0)}.get(kind or "", np.inf)  # as one of natural logarithms
    return {
        "row": row, "name": name, "is_told": n >= 3 and bool(np.isfinite(explained)), "explained": explained,
        "follows": explained >= _FOLLOWS, "neighbours": neighbours,
        "typical": typical, "relative": float(np.expm1(on_log)) if on_log < 3 else None, "kind": kind,
        "has_pattern": n >= _FEWEST and limit > 0 and neighbours > limit,
        "runs": runs, "is_run": n >= _FEWEST and runs.p < _RARE,
        "is_noted": n >= _FEWEST and (runs.p < _NOTED or runs.at_end >= _AT_END), "at_end": runs.at_end >= _AT_END,
    }  # fmt: skip


def _neighbours(own: pd.DataFrame) -> tuple[float, float]:
    """Return the correlation of successive deviations, and beyond what it is more than chance."""
    pairs, squares, n = 0.0, 0.0, 0
    for series in _series(own):
        z = series["z"].to_numpy(dtype=float)
        pairs, squares, n = pairs + float(z[1:] @ z[:-1]), squares + float(z @ z), n + max(len(z) - 1, 0)
    return (pairs / squares if squares > 0 else np.nan), (_PATTERN / np.sqrt(n) if n else np.nan)


def _series(own: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the readings of a variable entity by entity, in the order of x."""
    return [part.sort_values("x", kind="stable") for _, part in own.groupby(own["entity"].fillna(""), sort=False)]


@dataclass(frozen=True)
class RunsOfSigns:
    """Runs of successive deviations of one sign, and how probable they are of independent signs.

    Attributes
    ----------
    count : int
        Runs; `expected` of independent signs.
    expected : float
    p_few : float
        Of so few runs or fewer: the test of Wald and Wolfowitz, normal approximation with continuity correction.
    longest : int
        Readings in the longest run; `p_long` of one as long or longer, both signs being equally probable.
    p_long : float
    at_end : int
        Readings in the last run, of a single series; 0 of several.
    sign : str
        "positive" or "negative", of the last run.
    n : int
    """

    count: int
    expected: float
    p_few: float
    longest: int
    p_long: float
    at_end: int
    sign: str
    n: int

    @property
    def p(self) -> float:
        """The smaller of both probabilities."""
        return min(self.p_few, self.p_long)


def runs_of_signs(series: Sequence[Vector]) -> RunsOfSigns:
    """Return the runs of one sign of the deviations of one or several series; zeros have none."""
    from scipy.special import ndtr

    signs = [np.sign(z[np.isfinite(z) & (z != 0)]) for z in series]
    lengths = [np.diff(np.flatnonzero(np.r_[True, s[1:] != s[:-1], True])) for s in signs if len(s)]
    expected = variance = 0.0
    for s in signs:  # given how many of each sign there are
        n, mixed = len(s), 2.0 * float((s > 0).sum()) * float((s < 0).sum())
        expected += 1 + mixed / n if n else 0.0
        variance += mixed * (mixed - n) / (n * n * (n - 1)) if n > 1 else 0.0
    count, longest = sum(map(len, lengths)), max((int(own.max()) for own in lengths), default=0)
    p_few = float(ndtr((count + 0.5 - expected) / np.sqrt(variance))) if variance > 0 else 1.0
    p_long = 1 - float(np.prod([_all_shorter(len(s), longest) for s in signs if len(s)]))
    one = len(lengths) == 1
    sign = "positive" if one and signs[0][-1] > 0 else "negative"
    return RunsOfSigns(count, expected, p_few, longest, p_long, int(lengths[0][-1]) if one else 0, sign,
                       sum(map(len, signs)))  # fmt: skip


def _all_shorter(n: int, length: int) -> float:
    """Return the probability that all runs of n fair signs are shorter than a length."""
    share = [1.0]  # of the series of so many signs, up to that of the first
    for m in range(1, n + 1):
        share.append(sum(share[m - j] * 0.5**j for j in range(1, min(length - 1, m) + 1)))
    return 2 * share[n] if n else 1.0


def residual_pictures(found: Findings, agreement: Agreement, **words: Any) -> Pictures:
    """Return the deviations of each variable over x, those beyond three sds ringed."""
    groups = [(str(n), own) for n, own in agreement.rows.groupby("name", sort=False)]

    def draw(_: Sequence[str], axes: Sequence[Any]) -> None:
        for ax, (name, own) in zip(axes, groups, strict=False):
            for level in (-SUSPICIOUS, SUSPICIOUS):
                ax.axhline(level, color="0.5", linestyle="--", linewidth=0.8)
            ax.axhline(0.0, color="0.7", linewidth=0.8)
            for k, (_, part) in enumerate(own.groupby(own["entity"].fillna(""), sort=False)):
                ax.plot(part["x"], part["z"], "o", markersize=3.5, color=f"C{k}")
            far = own[own["z"].abs() > SUSPICIOUS]
            ax.plot(far["x"], far["z"], "o", markersize=9, markerfacecolor="none", markeredgecolor="C3")
            top = max(SUSPICIOUS + 0.6, 1.1 * float(own["z"].abs().max()))
            ax.set(xlabel=found.x_name, ylabel="deviation, sd", ylim=(-top, top), title=name)
            ax.title.set_fontsize("medium")

    return drawn_each([n for n, _ in groups], draw, **words)
