"""What ``run.json`` holds: what was asked, with what, and what came of it.

Dates, durations, paths and the number of workers stand nowhere else but in the report::

    {
      "file": "/home/me/lynx.toml",  "output": "/home/me/lynx_report",
      "command": "fmepy calibrate /home/me/lynx.toml --out ...",        # makes the same again
      "title": "...", "description": "...",
      "asked": {"fit": {"method": "Marq"}, ...},                        # steps in order, with their arguments
      "require": {"converged": true},
      "seed": 1, "workers": 4,
      "versions": {"fmepy": "0.1.0", "python": "3.12.3", "numpy": ...},
      "system": "Linux-6.1-x86_64",
      "hashes": {"file": sha256, "model": ..., "data": ..., "cost": ..., "parameters": ...},
      "started": "2026-01-31T02:00:00+00:00", "ended": ..., "seconds": 12.3,
      "steps": {
        "fit": {
          "state": "done",              # done, failed, interrupted, not run
          "kept": false,                # true: from an earlier run, as its inputs are the same
          "inputs": sha256,             # of all that the result depends on
          "started": ..., "seconds": 1.2,                               # of when it ran
          "verdict": "The fit converged; ...", "warnings": ["..."],
          "files": ["estimates.csv", ...],
          "error": "..."                # where it failed; with a verdict: why its result counts as none
        }, ...
      },
      "demands": [{"demand": "converged", "wanted": true, "found": true, "met": true, "said": "..."}],
      "warnings": ["..."],              # all of them, demands that were missed first
      "ok": true, "exit": 0
    }
"""
