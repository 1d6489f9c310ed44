"""The sections on what the data can and cannot identify: sensitivities with collinearity, and profiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fmepy.sensitivity.identifiability import identifiability
from fmepy.workflow.report.findings import Findings, attempt, first_few
from fmepy.workflow.report.page import Draft, Pictures, Section
from fmepy.workflow.report.pictures import MOST_PANELS, SINGLE, drawn
from fmepy.workflow.report.tables import table_of
from fmepy.workflow.report.words import count, have, names, number, percent, short
from fmepy.workflow.steps.scale import at_natural_end

APART, DOUBTFUL = 20.0, 10.0
"""Collinearity above which parameters cannot be told apart, and from which that is doubtful (Brun et al. 2001)."""
_MOST_LINES = 12
_MOST_BARS = 40
_KINDS = {
    "identifiable": "well determined", "one-sided": "bounded on one side only", "flat": "not determined by the data",
    "at a bound": "cut off by a bound", "better optimum": "a better fit was met on the way", "unfinished": "unfinished",
}  # fmt: skip


def screen_section(found: Findings, result: Any) -> Section:
    """Return how strongly the data respond to the parameters, and which of them they tell apart."""
    draft, sens = Draft(), result.sensitivities
    draft.say(
        "Before anything is fitted: how much do the readings change when a parameter changes, and could a "
        "change of one "
        "parameter be made up for by changes of others? This holds at the start values, and near them."
    )
    summary = sens.summary().frame
    strength = pd.Series(summary["L2"].to_numpy(dtype=float), index=[str(n) for n in sens.names])
    dead = [str(n) for n in strength.index[~(strength > 0)]]
    if dead:
        found.doubt("screen", f"The readings do not depend on {names(dead)}.")
    if not result.together < APART:
        found.doubt("screen", "The data cannot tell all of the parameters apart.")
    draft.list([*_on_strength(strength, dead), *_on_collinearity(result, sens)])
    texts = [f"Bars: the importance of {names(strength.index)} for the readings, the largest on top."]
    if len(strength) <= _MOST_BARS:
        attempt(draft, "The picture of importance", lambda: _importance(sens, texts))
    readings = found.readings
    if len(strength) <= _MOST_LINES and (readings is None or not readings["entity"].notna().any()):
        attempt(draft, "The picture of sensitivities", lambda: _courses(sens, found.x_name))
    table = pd.DataFrame({"parameter": strength.index, "importance": strength.to_numpy()})
    table = table.sort_values("importance", ascending=False, kind="stable")
    draft.add(
        table_of(
            table, "Importance of each parameter: the mean relative response of the readings (L2)", file="screen.csv"
        )
    )
    if result.collinearity is not None:
        tables = _collinearity_tables(result.collinearity.frame)
        draft.fold("Pairs and sets of parameters: which can be told apart", tables)
    return Section("screen", "What the data can tell apart", tuple(draft.blocks))


def _on_strength(strength: pd.Series, dead: list[str]) -> list[str]:
    out = []
    if dead:
        out.append(
            f"The readings do not depend on {names(dead)} at all: nothing in the data can say anything of "
            f"{have(dead, 'it', 'them')}."
        )
    live = strength[strength > 0]
    if len(live) > 1:
        first, last = str(live.idxmax()), str(live.idxmin())
        out.append(
            f"The readings respond most to {first}, and least to {last}: {number(live.max() / live.min(), 2)} "
            f"times less "
            "for the same relative change."
        )
    return out


def _on_collinearity(result: Any, sens: Any) -> list[str]:
    gamma, n = float(result.together), len(sens.names)
    if n < 2:
        return []
    told = f"All {n} parameters together have a collinearity index of {number(gamma, 3)}"
    if gamma < DOUBTFUL:
        return [f"{told}. Below about {DOUBTFUL:g} the data can tell all of them apart."]
    if gamma < APART:
        return [
            f"{told}. Between {DOUBTFUL:g} and {APART:g} they can be estimated together, but only loosely: a "
            f"change of one is "
            f"made up for by others to within {percent(1 / gamma)}."
        ]
    out = [
        f"{told}, above {APART:g}: the data cannot tell all of them apart. A change of one parameter can be "
        f"made up for by "
        f"changes of the others to within {percent(1 / gamma) if np.isfinite(gamma) else 'nothing'} of its effect, so "
        "that estimates of all of them will be uncertain together. Fix some, or measure something else."
    ]
    try:
        found = identifiability(sens)
    except Exception:  # a report needs it not
        return out
    out += [f"Not determined is this combination: {text}." for text in found.told()[:3]]
    if found.largest:
        size, sets = len(found.largest[0]), found.largest
        out.append(
            f"At most {size} of them can be told apart together, such as {names(sets[0], 12)}"
            f"{f' ({len(sets)} such sets were found)' if len(sets) > 1 else ''}."
        )
    return out


def _importance(sens: Any, texts: list[str]) -> Pictures:
    from fmepy.plotting.sensitivity import plot_ranking

    height = 1.3 + 0.26 * len(sens.names)
    return drawn(
        "screen-importance", lambda axes: plot_ranking(sens, ax=axes[0], xlabel="importance (L2)"), texts,
        size=(SINGLE[0], height),
        caption="Importance: how strongly the readings respond to a relative change of the parameter.",
    )  # fmt: skip


def _courses(sens: Any, x: str) -> Pictures:
    shown, said = first_few(list(sens.var), MOST_PANELS)
    texts = [f"Sensitivity of {name} to each parameter over {x}." for name in shown]
    return drawn(
        "screen", lambda axes: sens.plot(shown, axes=axes), texts,
        finish=lambda ax, k: ax.set_xlabel(x),
        caption="Relative change of a variable for a relative change of each parameter. Lines of the same shape belong "
        f"to parameters that cannot be told apart there. {said}",
    )  # fmt: skip


def _collinearity_tables(frame: pd.DataFrame) -> list[Any]:
    parameters = frame.columns[:-2]
    sets = [", ".join(str(p) for p in parameters[row]) for row in frame[parameters].to_numpy(dtype=bool)]
    table = pd.DataFrame({"parameters": sets, "how many": frame.iloc[:, -2], "collinearity": frame.iloc[:, -1]})

    def tone(row: Any, column: str) -> str:
        return "bad" if column == "collinearity" and not row["collinearity"] < APART else ""

    pairs = table[table["how many"] == 2].sort_values("collinearity", ascending=False, kind="stable")
    out = []
    if len(pairs):
        caption = "Pairs of parameters, those that are hardest to tell apart first"
        out.append(table_of(pairs.drop(columns="how many"), caption, file="collin.csv", most=12, tone=tone))
    good = table[table["collinearity"] < APART].sort_values(
        ["how many", "collinearity"], ascending=[False, True], kind="stable"
    )
    if len(good) and len(parameters) > 2:
        caption = f"Largest sets that can be told apart (collinearity below {APART:g})"
        out.append(table_of(good, caption, file="collin.csv", most=12))
    return out


def profile_section(found: Findings, result: Any) -> Section:
    """Return how well each parameter is determined."""
    draft, profile = Draft(), found.natural_profile(result)
    told = [str(n) for n in profile.intervals.index]
    what = "prediction" if profile.predicted is not None else "parameter"
    draft.say(
        f"Each {what} was moved away from its best value while all the others were fitted again. Where the fit becomes "
        f"clearly worse, the {what} ends being plausible: that gives an interval of {100 * profile.level:g} %, which "
        "needs no assumption that the model is nearly linear. A profile that stays flat belongs to a "
        f"{what} that the data do not determine."
    )
    kinds = {name: _kind(str(profile.verdicts[name])) for name in told}
    groups: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        groups.setdefault(kind, []).append(name)
    by_kind = {k: f"{_KINDS.get(k, k).capitalize()}: {names(members, 20)}." for k, members in groups.items()}
    draft.list(by_kind.values())
    natural_ends = set() if found.fit is None else set(at_natural_end(found.task, found.fit))
    for kind, sentence in by_kind.items():
        if kind != "identifiable" and not (kind == "at a bound" and natural_ends.issuperset(groups[kind])):
            found.doubt("profile", sentence)
    if profile.message:
        draft.say(profile.message)
    if len(profile.failures):
        draft.say(f"{count(len(profile.failures), 'fit')} along the profiles came to nothing.", tone="bad")
    frame = profile.intervals.reset_index(names="parameter")
    frame["parameter"] = frame["parameter"].map(str)
    frame["verdict"] = [_KINDS.get(kinds[n], kinds[n]) for n in frame["parameter"]]
    units = [found.task.units.get(n, "") for n in frame["parameter"]]
    if any(units):
        frame.insert(1, "unit", units)

    def tone(row: Any, column: str) -> str:
        return "bad" if column == "verdict" and row["verdict"] != _KINDS["identifiable"] else ""

    draft.add(
        table_of(
            frame.drop(columns="level"), f"Intervals of {100 * profile.level:g} %", file="intervals.csv", tone=tone
        )
    )
    shown, said = first_few(told, MOST_PANELS, "profile.csv")
    texts = [
        f"Profile of {n}: how much worse the best fit becomes as {n} is held at other values; it is "
        f"{_KINDS.get(kinds[n], kinds[n])}."
        for n in shown
    ]
    attempt(
        draft, "The picture of the profiles",
        lambda: drawn(
            "profile", lambda axes: profile.plot(shown, axes=axes, legpos=None), texts,
            finish=lambda ax, k: ax.set_xlabel(found.label(shown[k])),
            caption="The lower the line with points, the better the fit; the dot is the best one. Where the line "
            "crosses the dashed one the interval ends (red); where it does not reach it, the interval is open. Grey: "
            f"what the curvature at the best fit alone would say. {said}",
        ),
    )  # fmt: skip
    draft.fold("What is to be said of each of them", [_sentences(profile, told)])
    return Section("profile", "How well each parameter is determined", tuple(draft.blocks))


def _kind(verdict: str) -> str:
    return next((kind for kind in _KINDS if verdict.startswith(kind)), short(verdict.split(":")[0].split(",")[0], 60))


def _sentences(profile: Any, told: list[str]) -> Any:
    part = Draft()
    part.list(f"{name}: {profile.verdicts[name]}" for name in told)
    return part.blocks[0] if part.blocks else None
