"""The first section and the last: what to be warned of, and how to make the same again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.page import Code, Draft, Facts, Section
from fmepy.workflow.report.tables import table_of
from fmepy.workflow.report.words import count, duration

_MOST_LETTERS = 100_000
_NAMED = {
    "file", "output", "command", "title", "description", "asked", "require", "versions", "hashes", "steps", "demands",
    "warnings", "ok", "exit", "started", "ended", "seconds", "seed", "workers", "system",
}  # fmt: skip


def warnings_section(found: Findings, warnings: Sequence[str]) -> Section:
    """Return what a reader must know before anything else."""
    draft = Draft()
    demands = list(found.record.get("demands") or [])
    missed = [d for d in demands if d.get("met") is False]
    told, doubts = list(dict.fromkeys(map(str, warnings))), found.doubts
    steps = found.record.get("steps") or {}
    failed = [n for n, step in steps.items() if step.get("state") in ("failed", "interrupted")]
    left = [n for n, step in steps.items() if step.get("state") == "not run"]
    if told or failed or left or doubts:
        draft.list(told)
        said = []
        if failed:
            said.append(f"Failed or not finished: {', '.join(failed)}.")
        if left:
            said.append(f"Asked for, but not run: {', '.join(left)}.")
        draft.say(*said)
        if doubts:
            draft.say("The results themselves say:" if not told else "Beside these, the results themselves say:")
            draft.links(doubts)
        n = len(told) + len(doubts) + (0 if told else len(failed))
        title = f"Before you rely on this: {count(max(n, 1), 'warning')}"
    else:
        title = "No warnings"
        draft.say(
            "All steps that were asked for came to their end, and none of them gave a reason for doubt. What "
            "each of them "
            "found, and how surely, stands below."
        )
    if demands:
        met = sum(bool(d.get("met")) for d in demands)
        draft.say(f"Of {count(len(demands), 'demand')} that the file makes (require), {met} "
            f"{'is' if met == 1 else 'are'} met.",
                  tone="bad" if missed else "")  # fmt: skip
        met_words = {None: "not judged", True: "yes", False: "no"}
        rows = [
            {"demand": str(d.get("demand")), "wanted": _plain(d.get("wanted")), "found": _plain(d.get("found")),
             "met": met_words[d.get("met")]} for d in demands
        ]  # fmt: skip
        draft.add(
            table_of(
                pd.DataFrame(rows),
                "Demands of the file",
                tone=lambda row, c: "bad" if c == "met" and row["met"] == "no" else "",
            )
        )
    return Section("warnings", title, tuple(draft.blocks), tone="bad" if told or failed or left or doubts else "good")


def _plain(value: Any) -> str:
    from fmepy.workflow.report.words import number

    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, (int, float)) else "–" if value is None else str(value)


def unfinished_section(name: str, title: str, step: Mapping[str, Any]) -> Section:
    """Return the section of a step that began and gave no result."""
    draft = Draft()
    state = "was interrupted" if step.get("state") == "interrupted" else "failed"
    draft.say(f"This step {state}.", tone="bad")
    if step.get("error"):
        draft.say(*str(step["error"]).splitlines(), tone="bad")
    draft.list(map(str, step.get("warnings") or []))
    return Section(name, title, tuple(draft.blocks))


def reproduce_section(found: Findings) -> Section:
    """Return how to make the same again, and what it was made with."""
    draft, record = Draft(), found.record
    draft.say("The same file, data and seed give the same numbers again, whatever the number of workers.")
    if record.get("command"):
        draft.add(Code(str(record["command"]), "Type this:"))
    pairs = {
        "File": record.get("file"), "Results in": record.get("output"), "Seed": record.get("seed"),
        "Workers": record.get("workers"), "Begun": _time(record.get("started")), "Ended": _time(record.get("ended")),
        "Took": duration(record["seconds"]) if isinstance(record.get("seconds"), (int, float)) else None,
        "System": record.get("system"),
    }  # fmt: skip
    draft.add(_facts({k: str(v) for k, v in pairs.items() if v not in (None, "")}))
    versions = record.get("versions") or {}
    if versions:
        draft.add(_facts({"Versions": ", ".join(f"{k} {v}" for k, v in versions.items())}))
    steps = _steps(record.get("steps") or {})
    if steps is not None:
        draft.add(table_of(steps, "Steps: when they ran, how long, and what they wrote"))
    hashes = record.get("hashes") or {}
    if hashes:
        frame = pd.DataFrame({"what": [str(k) for k in hashes], "sha256": [str(v) for v in hashes.values()]})
        draft.fold(
            "Fingerprints of what went in", [table_of(frame, "SHA-256: equal if, and only if, the input is the same")]
        )
    other = {str(k): str(v) for k, v in record.items() if k not in _NAMED and v not in (None, "", [], {})}
    draft.add(_facts(other))
    draft.fold("The file, as it was", [Code(_cut(found.task.case.section.text))])
    return Section("reproduce", "How to make the same again", tuple(draft.blocks))


def _facts(pairs: Mapping[str, str]) -> Facts | None:
    return Facts(tuple(pairs.items())) if pairs else None


def _steps(steps: Mapping[str, Any]) -> pd.DataFrame | None:
    rows = []
    for name, step in steps.items():
        seconds = step.get("seconds")
        rows.append({
            "step": str(name), "state": f"{step.get('state', 'done')}{', kept' if step.get('kept') else ''}",
            "begun": _time(step.get("started")) or "–",
            "took": duration(seconds) if isinstance(seconds, (int, float)) else "–",
            "files": ", ".join(map(str, step.get("files") or [])),
        })  # fmt: skip
    return pd.DataFrame(rows) if rows else None


def _time(told: Any) -> str:
    """Return a time as people write it."""
    return str(told or "").replace("T", " ", 1).replace("+00:00", " UTC")


def _cut(text: str) -> str:
    """Return a text, of a very long one its beginning."""
    return text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + "\n… (the rest stands in the file)"
