"""``profile``: what the data say of each parameter, the others fitted again at every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from fmepy.fitting.profile_result import Profile
from fmepy.fitting.profiles import profile
from fmepy.workflow.steps.base import Doing, Results, Tables, best_fit
from fmepy.workflow.steps.scale import check_named, natural

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "profile"
_HEAD = ["parameter", "value", "cost", "ratio", "root"]


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fit."""
    return ("fit",)


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    which = arguments.get("which", list(task.start.index))
    n = 1 if isinstance(which, str) else len(which)
    return f"{n} {'profile' if n == 1 else 'profiles'}"


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse parameters that are not fitted."""
    check_named(task, NAME, "which", arguments.get("which"), task.start.index)


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> Profile:
    """Return the profiles, on the scale of the task."""
    words = dict(arguments)
    if (asked := words.get("prediction")) is not None:  # TOML has no tuples
        words["prediction"] = [tuple(a) for a in asked] if isinstance(asked[0], list) else tuple(asked)
    found = profile(
        task.scaled_cost, best_fit(done), **words, prior=task.fit_prior, executor=doing.executor,
        progress=doing.progress, checkpoint=doing.checkpoint,
    )  # fmt: skip
    if found.message:
        doing.remember(found.message)
    return found


def tables(task: Task, result: Profile) -> Tables:
    """Return profile.csv, a row a value, and intervals.csv, a row a parameter."""
    frame = result.frame.copy()
    names = [str(n) for n in result.par.index]
    frame = frame.set_axis([*_HEAD, *(n if n not in _HEAD else f"{n}_" for n in names)], axis=1)
    values = natural(task, frame.iloc[:, len(_HEAD) :].set_axis(names, axis=1))
    frame = pd.concat([frame.iloc[:, : len(_HEAD)], values.set_axis(frame.columns[len(_HEAD) :], axis=1)], axis=1)
    for name in frame["parameter"].unique():
        mine = frame["parameter"] == name
        frame.loc[mine, "value"] = natural(task, frame.loc[mine, ["value"]].set_axis([name], axis=1)).iloc[:, 0]
    return {"profile.csv": frame, "intervals.csv": intervals(task, result)}


def intervals(task: Task, result: Profile) -> pd.DataFrame:
    """Return the intervals on the parameters' own scale: parameter, estimate, lower, upper, level."""
    out = result.intervals.rename_axis("parameter").reset_index()
    for column in ("estimate", "lower", "upper"):
        out[column] = natural(task, result.intervals[column]).to_numpy()
    return out


def sentences(task: Task, result: Profile) -> dict[str, str]:
    """Return the sentence on every parameter, its numbers on the parameter's own scale."""
    own = intervals(task, result).to_dict("records")
    out = {}
    for row, (name, said) in zip(own, result.verdicts.items(), strict=True):
        word = str(said).split(":")[0]
        ends = f"{row['estimate']:.5g}, {100 * row['level']:g} % between {row['lower']:.5g} and {row['upper']:.5g}"
        out[str(name)] = f"{word}: {ends}." if task.scale.get(str(name)) else str(said)
    return out


def verdict(task: Task, result: Profile) -> str:
    """Return which parameters have an interval."""
    words = result.verdicts.map(lambda said: str(said).split(":")[0])
    groups = [f"{word} ({', '.join(map(str, words.index[words == word]))})" for word in dict.fromkeys(words)]
    return f"{len(words)} {'profile' if len(words) == 1 else 'profiles'}: {'; '.join(groups)}."


def failed_runs(result: Profile) -> tuple[int, int, str]:
    """Return how many fits at other values failed, of how many, and the first one's message."""
    n = len(result.failures)
    return n, n + len(result.frame), str(result.failures["message"].iloc[0]) if n else ""
