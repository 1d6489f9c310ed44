"""The steps of a calibration, one a file, in the order in which they run."""

from __future__ import annotations

from fmepy.workflow.steps import filter, fit, multistart, profile, ranges, sample, scenarios, screen
from fmepy.workflow.steps.base import Step

STEPS: dict[str, Step] = {
    step.NAME: step for step in (screen, fit, multistart, profile, sample, ranges, scenarios, filter)
}
"""By name."""
