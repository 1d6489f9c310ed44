"""What a file asks for, in lines: data, model, parameters, and the steps with how much there is to run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fmepy.errors import listed
from fmepy.workflow.file.functions import FunctionModel, TableCost
from fmepy.workflow.file.prepared import Task
from fmepy.workflow.steps.registry import STEPS

MOST_PARAMETERS = 40


def described(task: Task, steps: Sequence[str] | None = None) -> list[str]:
    """Return the lines that ``fmepy check`` prints.

    Parameters
    ----------
    task : Task
    steps : sequence of str, optional
        Those of the file's that are meant; default all.
    """
    case, data = task.case, task.data
    lines = [str(case.file) + (f": {case.title}" if case.title else "")]
    if "data" in case.said:
        lines.append(
            f"data        {case.said['data']['file']}: {len(data)} rows; columns {', '.join(map(str, data.columns))}"
        )
    lines.append(f"model       {_told(task, 'model')}")
    lines.append(f"cost        {_told(task, 'cost')}")
    fixed = [f"{p.name} = {p.start:g}" for p in case.parameters.values() if not p.fitted]
    lines.append(f"parameters  {len(task.start)} fitted, {len(fixed)} fixed" + (f" ({', '.join(fixed[:12])}"
                 + (", ..." if len(fixed) > 12 else "") + ")" if fixed else ""))  # fmt: skip
    lines += [f"  {line}" for line in _parameters(task)]
    chosen = list(case.steps) if steps is None else list(steps)
    lines.append(f"steps       {', '.join(chosen) if chosen else 'none: this checks the file, and no more'}")
    lines += [f"  {name:<10} {STEPS[name].size(task, case.steps[name])}" for name in chosen]
    if case.require:
        lines.append(f"require     {', '.join(f'{k} = {str(v).lower()}' for k, v in case.require.items())}")
    return lines


def _told(task: Task, part: str) -> str:
    """Return what the model or the cost is, and which object of which Python file."""
    of = getattr(task, part)
    if isinstance(of, FunctionModel):
        what = "a function that returns a table"
    elif isinstance(of, TableCost):
        what = "its table held against the data, by modCost"
    elif hasattr(of, "parms"):
        what = str(of).splitlines()[0]
    else:
        what = "a function of Python"
    return f"{task.written[part]}: {what}" if part in task.written else what


def _parameters(task: Task) -> list[str]:
    """Return a line a fitted parameter: start, bounds, scale and prior, on the natural scale."""
    from fmepy.workflow.steps.scale import natural

    names = list(task.start.index)
    start, lower, upper = (natural(task, values) for values in (task.start, task.lower, task.upper))
    table = pd.DataFrame({"start": start, "lower": lower[task.lower > -np.inf], "upper": upper[task.upper < np.inf]})
    lines = []
    for name in names[:MOST_PARAMETERS]:
        p = task.case.parameters.get(name) or task.case.parameters.get(name.partition("[")[0])
        row = table.loc[name]
        bounds = [
            f"{word} {value:g}" for word, value in (("from", row["lower"]), ("to", row["upper"])) if np.isfinite(value)
        ]
        said = [f"{row['start']:g}", " ".join(bounds)]
        if p is not None:
            said += [f"scale {p.scale}" if p.scale else "", f"prior {p.prior['dist']}" if p.prior else "", p.unit]
        said = [part for part in said if part]
        lines.append(f"{name:<10} {'; '.join(said)}")
    more = names[MOST_PARAMETERS:]
    return lines + ([f"... and {len(more)} more: {listed(more, 3)}"] if more else [])
