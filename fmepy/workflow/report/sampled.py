"""The sections on what is plausible: the chain, the spread of the model's curves, and scenarios."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.mcmc.result import ModMCMC
from fmepy.montecarlo.ranges import PREDICTION, RangeSummary
from fmepy.workflow.report.findings import Findings, attempt, first_few
from fmepy.workflow.report.page import Draft, Pictures, Section
from fmepy.workflow.report.pictures import MOST_PANELS, PANEL, drawn
from fmepy.workflow.report.tables import table_of
from fmepy.workflow.report.words import count, names, percent, short
from fmepy.workflow.steps.scale import natural_chain

_MOST_DRAWN = 400  # draws of a chain in the picture of its course
_MOST_CORRELATED = 20
_ALIKE = 0.95
_BAND = 0.9
_ADVICE = (
    ", drop the beginning (burninlength, or remove here), or start from a fit and jump with its covariance (p=fit.par, "
    "jump=fit.cov_scaled)."
)  # which it does
_ADVICE_HERE = " or drop more of the beginning (burninlength)."


def sample_section(found: Findings, result: Any) -> Section:
    """Return which parameters are plausible, and whether the chains can be trusted."""
    draft, chain = Draft(), natural_chain(found.task, result)
    n = len(chain.chains)
    draft.say(
        "A chain wanders through the parameters and stays longer where they agree better with the data, so that its "
        "points are a sample of what is plausible: no straight lines and no symmetry are assumed."
        + (f" {n} chains that began apart must come to the same." if n > 1 else "")
    )
    rate = chain.acceptance_rate
    accepted = (
        percent(float(rate.mean()))
        if len(rate) == 1
        else f"{percent(float(rate.min()))} to {percent(float(rate.max()))}"
    )
    draft.say(
        f"{count(n, 'chain')} of {int(chain.iterations.max()):,} iterations, {chain.burninlength:,} of them "
        f"thrown away; "
        f"{count(len(chain.pars), 'draw')} were kept. Accepted were {accepted} of the moves."
    )
    if chain.message:
        draft.say(chain.message, tone="bad" if chain.interrupted else "")
    summary = chain.summary()
    if summary.advice:
        draft.say("Do not rely on the sample yet:", tone="bad")
        advice = [sentence.replace(_ADVICE, _ADVICE_HERE) for sentence in summary.advice]
        draft.list(advice, tone="bad")
        found.doubt("sample", f"The sample is not to be relied on yet: {advice[0]}")
    else:
        draft.say("Nothing speaks against the sample: the chains agree, and they are long enough.", tone="good")
    draft.list(_on_pairs(chain))
    table = _summary(found, summary)
    draft.add(
        table_of(
            table,
            "Plausible values, and how well the sample tells them",
            file="sample_summary.csv",
            most=200,
            tone=_tone,
        )
    )
    told = [str(c) for c in chain.pars.columns]
    shown, said = first_few(told, MOST_PANELS, "sample.csv")
    texts = [f"Distribution of {name} in the sample." for name in shown]
    attempt(draft, "The picture of the sample", lambda: drawn(
        "sample", lambda axes: chain.hist(which=shown, axes=axes), texts,
        finish=lambda ax, k: ax.set_xlabel(found.label(shown[k])), size=(3.4, 2.3),
        caption=f"How often each value was drawn: the wider, the less the data say of the parameter. {said}",
    ))  # fmt: skip
    draft.fold("The course of the chains", [_courses(found, chain, shown)])
    if 1 < len(told) <= _MOST_CORRELATED:
        frame = chain.pars.corr().round(3)
        frame = frame.set_axis(told, axis=1).reset_index(drop=True)
        frame.insert(0, "parameter", told, allow_duplicates=True)
        draft.fold("Correlations in the sample", [table_of(frame, "Correlations of the draws")])
    return Section("sample", "Which values are plausible", tuple(draft.blocks))


def _summary(found: Findings, summary: Any) -> pd.DataFrame:
    wide, trust = summary.frame.T, summary.diagnostics
    out = pd.DataFrame({"parameter": [str(n) for n in wide.index]})
    units = [found.task.units.get(n) or found.task.units.get(n.split("[")[0], "") for n in out["parameter"]]
    if any(units):
        out["unit"] = units
    for column, head in (("mean", "mean"), ("sd", "sd"), ("2.5%", "2.5 %"), ("50%", "median"), ("97.5%", "97.5 %")):
        out[head] = wide[column].to_numpy(dtype=float)
    for column, head in (("rhat", "R-hat"), ("ess_bulk", "effective draws")):
        if column in trust:
            out[head] = trust[column].to_numpy(dtype=float)
    if "effective draws" in out:
        out["effective draws"] = out["effective draws"].round()
    return out


def _tone(row: Any, column: str) -> str:
    bad = (column == "R-hat" and not row["R-hat"] <= 1.01) or (column == "effective draws" and not row[column] >= 400)
    return "bad" if bad else ""


def _on_pairs(chain: ModMCMC) -> list[str]:
    if chain.pars.shape[1] < 2 or len(chain.pars) < 3:
        return []
    with np.errstate(invalid="ignore", divide="ignore"):
        R = np.corrcoef(chain.pars.to_numpy(dtype=float), rowvar=False)
    told = [str(c) for c in chain.pars.columns]
    pairs = sorted(
        ((abs(R[i, j]), j, i) for i in range(len(R)) for j in range(i) if abs(R[i, j]) > _ALIKE), reverse=True
    )
    if not pairs:
        return []
    said = names([f"{told[j]} and {told[i]} (correlation {R[i, j]:.2f})" for _, j, i in pairs], 5)
    return [f"Plausible only together: {said}. Each of them alone is uncertain, their combination is less so."]


def _courses(found: Findings, chain: ModMCMC, shown: list[str]) -> Pictures | None:
    step = max(1, -(-chain.n_draw // _MOST_DRAWN))
    place = chain.pars.groupby(level=0, sort=False).cumcount().to_numpy()
    few = place % step == 0
    thin = replace(
        chain, pars=chain.pars[few], SS=chain.SS[few], sig=None if chain.sig is None else chain.sig[few],
        prior=chain.prior[few], log_posterior=chain.log_posterior[few],
    )  # fmt: skip
    texts = [f"Values of {name} along each chain." for name in shown]
    said = f" One draw in {step} is drawn." if step > 1 else ""
    try:
        return drawn(
            "sample-course", lambda axes: thin.plot(which=shown, axes=axes), texts, size=(PANEL[0], 2.4),
            finish=lambda ax, k: ax.set_ylabel(found.label(shown[k])),
            caption=f"Chains that can be trusted look alike, and like noise without a trend.{said}",
        )  # fmt: skip
    except Exception:  # of a picture that few will open
        return None


def ranges_section(found: Findings, result: Any) -> Section:
    """Return how far the model's curves spread over what is plausible."""
    draft = Draft()
    kinds = {part.kind for part in result.parts.values()}
    source = (
        "parameter values from the chain"
        if result.source == "the chain"
        else "parameter values from the ranges of the file"
    )
    draft.say(
        f"The model was run at {result.num:,} {source}. Half of its curves lie within the dark band, nine of "
        f"ten within "
        "the light one; the line is the median."
    )
    if PREDICTION in kinds:
        noisy = list(dict.fromkeys(name for part in result.parts.values() for name in part.predicted))
        others = any(name not in noisy for part in result.parts.values() for name in part.var)
        which = f"The bands of {names(noisy, 12)}" if others else "The bands"
        draft.say(
            f"{which} contain the errors of reading, too: they say where a new reading will be."
            + (" The others say where the curve is." if others else "")
        )
        coverage, is_low = _coverage(found, result)
        draft.list([coverage])
        if is_low:
            found.doubt("ranges", coverage)
    else:
        draft.say(
            "They say where the true curve may be, not where a reading may be: readings scatter around it, and may lie "
            "outside."
        )
    if result.failures:
        draft.say(
            f"{count(result.failures, 'run')} of the model failed, and "
            f"{'is' if result.failures == 1 else 'are'} left out.",
            tone="bad",
        )
    if result.interrupted:
        draft.say("This step was interrupted: the bands are of the runs that were done.", tone="bad")
    many = len(result.parts) > 1
    panels = [(label, part, name) for label, part in result.parts.items() for name in part.var]
    drawn_panels, said = first_few(panels, MOST_PANELS, "ranges.csv")
    titles = [f"{result.by} {label}: {name}" if many else name for label, _, name in drawn_panels]
    texts = [f"Bands of {t} over {found.x_name}, with the readings as points." for t in titles]

    def draw(axes: Any) -> None:
        for k, (ax, (label, part, name)) in enumerate(zip(axes, drawn_panels, strict=False)):
            seen = _readings(found, label if many else None, name, part)
            part.plot(which=[name], quant=True, obs=seen, axes=[ax], legpos="above" if k == 0 else None)
            if len(part.frame[part.frame["var"] == name]) > 1:
                ax.set_xlabel(found.x_name)

    attempt(draft, "The picture of the bands", lambda: drawn(
        "ranges", draw, texts, captions=titles if many else [], caption=said))  # fmt: skip
    table = found.tables.get("ranges.csv")
    if table is not None:
        draft.fold(
            "The bands in numbers",
            [table_of(table, "Bands: mean, sd, extremes and quantiles of the curves", file="ranges.csv")],
        )
    return Section("ranges", "How far the model's curves spread", tuple(draft.blocks))


def _readings(found: Findings, label: str | None, name: str, part: RangeSummary) -> pd.DataFrame | None:
    seen = found.readings
    if seen is None or len(part.frame[part.frame["var"] == name]) < 2:
        return None
    mine = seen[(seen["name"].map(str) == name) & (True if label is None else seen["entity"].map(str) == label)]
    if not len(mine):
        return None
    return pd.DataFrame(
        {"name": mine["name"].map(str).to_numpy(), "x": mine["x"].to_numpy(), "obs": mine["obs"].to_numpy()}
    )


def _coverage(found: Findings, result: Any) -> tuple[str, bool]:
    """Return how many of the readings lie within the band that nine of ten should lie in, and whether too few do."""
    inside = total = 0
    for label, part in result.parts.items():
        for name in part.predicted:
            seen = _readings(found, label or None, name, part)
            rows = part.frame[part.frame["var"] == name].sort_values("x")
            x = rows["x"].to_numpy(dtype=float)
            if seen is None or len(x) < 2:
                continue
            at = seen["x"].to_numpy(dtype=float)
            slack = 1e-9 * max(abs(x[0]), abs(x[-1]))
            own, obs = (at >= x[0] - slack) & (at <= x[-1] + slack), seen["obs"].to_numpy(dtype=float)
            low, high = (np.interp(at, x, rows[q].to_numpy(dtype=float)) for q in ("q05", "q95"))
            inside += int(((obs >= low) & (obs <= high))[own].sum())
            total += int(own.sum())
    if not total:
        return "", False
    share, spread = inside / total, np.sqrt(_BAND * (1 - _BAND) / total)
    told = (
        f"{inside} of {count(total, 'reading')} ({percent(share)}) lie within the light band, which should "
        f"hold {percent(_BAND)}"
    )
    if share < _BAND - 3 * spread:
        return f"{told}: fewer than chance allows. The bands are too narrow, or the model misfits.", True
    verdict = "as it should be" if share <= _BAND + 3 * spread else "more than needed; the errors may be overstated"
    return f"{told}: {verdict}.", False


def scenarios_section(found: Findings, result: Any) -> Section:
    """Return what the model says under other assumptions."""
    draft = Draft()
    one = next(iter(result.parts.values()))
    scenarios = list(dict.fromkeys(str(name) for part in result.parts.values() for name in part.names))
    n = len(one.pars)
    draft.say(
        f"The model was run under {count(len(scenarios), 'assumption')}: {names(scenarios, 12)}. "
        + (
            f"Each was run at the same {n:,} parameter sets (from {result.source}), so that they can be "
                f"compared set by "
            "set: lines are medians, bands hold nine of ten curves."
            if n > 1 else "Each was run at the estimates alone: how uncertain they are is not in it."
        )
    )  # fmt: skip
    failed = sum(len(part.failures) for part in result.parts.values())
    if failed:
        draft.say(f"{count(failed, 'run')} failed, and {'is' if failed == 1 else 'are'} left out.", tone="bad")
    panels = [(label, part.summary(), name) for label, part in result.parts.items() for name in part.var]
    shown, said = first_few(panels, MOST_PANELS, "scenarios.csv")
    titles = [f"{result.by} {label}: {name}" if len(result.parts) > 1 else name for label, _, name in shown]
    texts = [f"{t} in each scenario." for t in titles]

    def draw(axes: Any) -> None:
        for ax, (_, summary, name) in zip(axes, shown, strict=False):
            summary.plot(which=[name], axes=[ax])

    attempt(draft, "The picture of the scenarios", lambda: drawn(
        "scenarios", draw, texts,
        captions=titles if len(result.parts) > 1 else [], caption=said))  # fmt: skip
    for label, part in list(result.parts.items())[:12]:
        of = f", {result.by} {short(label)}" if len(result.parts) > 1 else ""
        draft.add(
            table_of(
                _ends(part.summary()),
                f"At the end of the runs{of}: median, and what nine of ten runs lie between",
                file="scenarios.csv",
            )
        )
        if len(part.names) > 1:
            base = part.names[0]
            table = _ends(part.difference(base).summary())
            draft.add(
                table_of(table, f"More than in “{short(str(base))}”{of}, at the end of the runs", file="scenarios.csv")
            )
    return Section("scenarios", "What if", tuple(draft.blocks))


def _ends(summary: Any) -> pd.DataFrame:
    """Return the last point of each variable in each scenario."""
    last = summary.frame.groupby(["scenario", "var"], sort=False).tail(1)
    columns = {
        "scenario": last["scenario"].map(str),
        "variable": last["var"],
        summary.x_name: last["x"],
        "median": last["q50"],
    }
    table = pd.DataFrame({k: v.to_numpy() for k, v in columns.items()})
    if (last["N"] > 1).any():
        table["5 %"], table["95 %"] = last["q05"].to_numpy(), last["q95"].to_numpy()
    return table
