"""The summary of a filter on one page: what was done, what agrees, what to look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import counted
from fmepy.parameters.names import split_local
from fmepy.results.tables import Part, Shown, bullets, heading, table
from fmepy.tables.sheet import calendar_of, time_text

if TYPE_CHECKING:
    from fmepy.fimlof.result import FilterResult

_DOUBT = 0.01
"""Probability below which a test is reported as a disagreement."""
_STRONG = 3.5
"""Standard deviations beyond which a single correlation is reported, whatever the joint test says."""
_BIAS = 3.5
"""Standard errors beyond which a mean is reported."""
_MOST = 8
"""Findings that are written out; the others are counted."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FilterSummary(Shown):
    """A filter on one page.

    Attributes
    ----------
    title : str
    sections : dict of str to list of str
        Sentences by heading.
    frame : DataFrame
        By variable: n, mean_square (1 for a right model), rho, limit, time_constant, p_normal.
    agrees : bool
        True if size, whiteness and normality of the innovations give no reason for doubt.
    """

    title: str
    sections: dict[str, list[str]]
    frame: pd.DataFrame
    agrees: bool

    def shown(self) -> list[str | Part]:
        """Return the sentences under their headings, and the table by variable."""
        parts: list[str | Part] = [heading(self.title)]
        for title, sentences in self.sections.items():
            parts += ["", heading(title), *bullets(sentences)]
        return [*parts, "", "By variable", table(self.frame, "{:.3g}")] if len(self.frame) else parts


def summary_of(flt: FilterResult, estimated: Any = None) -> FilterSummary:
    """Return the page of a filter; see ``FilterResult.summary``."""
    if flt.failure is not None:
        sentences = [flt.failure, "Tables hold what came before; there is no likelihood at these parameters."]
        return FilterSummary(_title(flt), {"The filter broke down": sentences}, pd.DataFrame(), False)
    correlations, normality = flt.correlations(estimated=estimated), flt.normality()
    constants = correlations.time_constants
    frame = pd.DataFrame(
        {
            "n": flt.contributions["n"].reindex(flt.variables),
            "mean_square": flt.contributions["mean_square"].reindex(flt.variables),
            "rho": constants["rho"],
            "limit": constants["limit"],
            "time_constant": constants["time_constant"],
            "p_normal": normality["p"],
        }
    )
    size, size_ok = _size(flt, estimated)
    white, white_ok = _whiteness(correlations.p_value, correlations.df, constants)
    normal, normal_ok = _normality(normality.frame)
    sections = {
        "What was filtered": _what(flt),
        "Do model and data agree?": [*size, *white, *normal],
        "Suspected data": _suspected(flt),
        "Jumps of states": _jumps(flt),
        "Weak spots": _weak(flt, frame, normality.frame) or ["None that these tables show."],
    }
    return FilterSummary(_title(flt), sections, frame, size_ok and white_ok and normal_ok)


def _title(flt: FilterResult) -> str:
    names = ", ".join(flt.variables[:4]) + (f" and {len(flt.variables) - 4} more" if len(flt.variables) > 4 else "")
    if flt.failure is not None:
        return f"Filter of {names}: broke down"
    return f"Filter of {names}: log-likelihood {flt.loglik:.7g} of {counted(flt.nobs, 'datum', 'data')}"


def _what(flt: FilterResult) -> list[str]:
    facts = flt.facts
    times = flt.residuals["x"]
    count = len(flt.entities)
    of = f" of {count} entities" if count > 1 else ""
    start = {"data": "from the first data", "diffuse": "unknown"}.get(facts.initial, facts.initial)
    if facts.initial == "known" and facts.start:
        start = f"known with uncertainty ({', '.join(facts.start)})"
    out = [
        f"{counted(len(flt.variables), 'variable')}, {counted(len(times), 'reading')}{of}, {_at(flt, times.min())} "
        f"to {time_text(times.max(), calendar_of(flt.cost))}; {counted(len(facts.states), 'state')}, "
        f"{counted(facts.n_noise, 'noise input')}; the start is {start}."
    ]
    limits = sum(map(bool, flt.residuals.get("censored", ())))
    if limits:
        out.append(f"{counted(limits, 'reading')} of them {'is a limit' if limits == 1 else 'are limits'}.")
    used = len(times) - flt.nobs
    if used:
        what = "an unknown start" if facts.n_free else "the start"
        out.append(f"{counted(used, 'datum', 'data')} went into {what} and {'does' if used == 1 else 'do'} not count.")
    if any(how is not None for how in facts.transforms):
        text = ", ".join(
            f"{how} {v}" for v, how in zip(flt.variables, facts.transforms, strict=True) if how is not None
        )
        out.append(
            f"Compared on the scale of {text}; add log_jacobian = {flt.log_jacobian:.6g} to compare with others."
        )
    return out


def _size(flt: FilterResult, estimated: Any) -> tuple[list[str], bool]:
    test = flt.sumsq_test(estimated)
    text = f"sum of squares {test.sumsq:.4g}, expected {test.expected} with sd {test.sd:.3g}"
    if test.scale_estimated:
        return [
            f"Size: the scale of all noise was estimated, so the sum of squares ({test.sumsq:.4g} for {test.expected}) "
            "must fit and says nothing."
        ], True
    if not np.isfinite(test.p_value):
        return ["Size: there are not enough data to tell."], True
    if test.p_value >= _DOUBT:
        return [f"Size: the innovations are as large as the model says ({text})."], True
    ratio = (test.sumsq / test.expected) ** 0.5
    if test.z > 0:
        return [
            f"Size: the innovations are {ratio:.3g} times as large as the model says ({text}): noise is understated, "
            "or the equations or parameters are wrong."
        ], False
    return [
        f"Size: the innovations are only {ratio:.3g} times as large as the model says ({text}): noise is overstated."
    ], False


def _whiteness(p: float, df: int, constants: pd.DataFrame) -> tuple[list[str], bool]:
    if not np.isfinite(p):
        return ["Whiteness: there are not enough data to tell."], True
    strong = constants[constants["rho"].abs() > _STRONG / 2 * constants["limit"]]
    if p >= _DOUBT and not len(strong):
        return [f"Whiteness: no correlation is left in the innovations (portmanteau p = {p:.3g})."], True
    out = [
        f"Whiteness: the innovations are correlated (portmanteau p = {p:.2g} on {df} degrees of freedom): what is left "
        "could be predicted, the structure lacks something."
    ]
    shown = constants[constants["significant"]] if p < _DOUBT else strong
    if p >= _DOUBT:
        out = [
            f"Whiteness: all together nothing stands out (portmanteau p = {p:.3g}), but single variables are "
            f"correlated beyond {_STRONG:g} sd."
        ]
    for name, row in shown[shown["time_constant"].notna()].head(_MOST).iterrows():
        out.append(
            f"{name}: serial correlation {row['rho']:.2f}, as of a first-order lag with the time constant "
            f"{row['time_constant']:.3g} that the model does not have."
        )
    negative = shown.index[shown["rho"] < 0]
    if len(negative):
        out.append(
            f"{', '.join(map(str, negative))}: neighbours have opposite signs; errors of measurement may be taken for "
            "noise of the system."
        )
    return out, False


def _normality(frame: pd.DataFrame) -> tuple[list[str], bool]:
    tested = frame[frame["p"].notna()]
    doubtful = tested[tested["p"] * len(tested) < _DOUBT]  # Bonferroni's correction
    if not len(tested):
        return ["Normality: there are not enough data to tell."], True
    if not len(doubtful):
        return [f"Normality: nothing speaks against it (smallest p = {tested['p'].min():.3g})."], True
    text = ", ".join(
        f"{name} (skewness {row['skewness']:.2g}, excess kurtosis {row['kurtosis']:.2g}, p = {row['p']:.1g})"
        for name, row in doubtful.head(_MOST).iterrows()
    )
    return [
        f"Normality: the innovations of {text} are not normal; look for wrong data, for a transform, or for equations "
        "that bend within the noise."
    ], False


def _suspected(flt: FilterResult) -> list[str]:
    return _flagged(
        flt, "residuals", "AUXM" if flt.smooth else "NUMR",
        lambda row, sds: f"{row['name']} at {_at(flt, row['x'])}: read {row['obs']:.5g}, "
        f"{abs(sds):.1f} sd {'above' if sds > 0 else 'below'} what {_data(flt)} say of it",
        "Nothing was deleted; screen_bad_data(cost) sets them missing one by one. They alone may explain what else "
        "this page finds.",
    )  # fmt: skip


def _jumps(flt: FilterResult) -> list[str]:
    return _flagged(
        flt, "shocks", "AUXS" if flt.smooth else "NUSR",
        lambda row, sds: f"{row['state']} before {_at(flt, row['time'])}: {_data(flt, 'all data')} ask for a jump "
        f"{'upwards' if sds > 0 else 'downwards'}, {abs(sds):.1f} sd from none",
        "An input that is missing there, or an equation that was wrong for once.",
    )  # fmt: skip


def _data(flt: FilterResult, smoothed: str = "all other data") -> str:
    return smoothed if flt.smooth else "the data until then"


def _flagged(flt: FilterResult, table: str, column: str, text: Callable[[Any, float], str], end: str) -> list[str]:
    """Return sentences on the worst of the flagged rows of a table, and what to make of them."""
    rows = getattr(flt, table)
    rows = rows[rows["flag"].astype(bool)].sort_values(column, key=abs, ascending=False)
    if not len(rows):
        return [f"None beyond {flt.threshold:g} sd."]
    out = [f"{_who(flt, row)}{text(row, row[column])}." for _, row in rows.head(_MOST).iterrows()]
    if len(rows) > _MOST:
        out.append(f"... and {len(rows) - _MOST} more, see {table}.query('flag').")
    return [*out, end]


def _at(flt: FilterResult, time: float) -> str:
    return f"{flt.xlabel} {time_text(time, calendar_of(flt.cost))}"


def _who(flt: FilterResult, row: Any) -> str:
    return "" if flt.entity_column is None else f"{flt.entity_column} {row[flt.entity_column]}, "


def _weak(flt: FilterResult, frame: pd.DataFrame, moments: pd.DataFrame) -> list[str]:
    out = []
    few = frame.index[frame["n"] < 10]
    if len(few):
        out.append(f"Fewer than 10 data that count: {', '.join(map(str, few))}; tests of them say little.")
    off = frame[(frame["mean_square"] - 1).abs() > 3 * np.sqrt(2 / frame["n"].clip(lower=1))]
    for name, row in off.head(_MOST).iterrows():
        out.append(
            f"{name}: mean square {row['mean_square']:.2f} instead of 1; its noise is "
            f"{'understated' if row['mean_square'] > 1 else 'overstated'}, or that of what drives it."
        )
    biased = moments[moments["mean"].abs() > _BIAS / np.sqrt(moments["n"].clip(lower=1))]
    for name, row in biased.head(_MOST).iterrows():
        side = "above" if row["mean"] > 0 else "below"
        out.append(
            f"{name}: read on average {abs(row['mean']):.2g} sd {side} its prediction; something that is constant is "
            "missing."
        )
    if flt.smooth:
        seen = flt.shocks.groupby("state", sort=False)["AUXS"].apply(lambda s: bool(s.notna().any()))
        blind = [str(name) for name in seen.index[~seen.astype(bool)]]
        if blind:
            out.append(f"The data say nothing of {', '.join(blind)}: those states are the equations' own.")
    zero = [k for k, v in flt.parms.items() if split_local(str(k))[0] in flt.facts.scales and abs(v) < 1e-8]
    if zero:
        out.append(f"Without noise: {', '.join(map(str, zero))} = 0; those equations are taken as exact.")
    strange = flt.samples[flt.samples["p"] * max(len(flt.samples), 1) < 1e-3]
    if len(strange):
        row = strange.to_dict("records")[int(np.argmin(strange["p"]))]
        out.append(
            f"{counted(len(strange), 'sample')} all but impossible under the model (p below 0.001 by Bonferroni), the "
            f"worst at {_who(flt, row)}{_at(flt, row['time'])}: chi-squared {row['chi2']:.4g} on "
            f"{counted(row['n'], 'degree')} of freedom. If the model is not linear, the filter may have lost it there."
        )
    return out
