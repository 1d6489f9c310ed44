"""The steps of a calibration in the order in which they run, a line each."""

from __future__ import annotations

from fmepy.workflow.steps.base import CalibrationStep
from fmepy.workflow.steps.design import DesignStep
from fmepy.workflow.steps.filter import FilterStep
from fmepy.workflow.steps.fit import FitStep
from fmepy.workflow.steps.multistart import MultistartStep
from fmepy.workflow.steps.profile import ProfileStep
from fmepy.workflow.steps.ranges import RangesStep
from fmepy.workflow.steps.sample import SampleStep
from fmepy.workflow.steps.scenarios import ScenariosStep
from fmepy.workflow.steps.screen import ScreenStep

STEPS: dict[str, CalibrationStep] = {
    "screen": ScreenStep(),
    "fit": FitStep(),
    "multistart": MultistartStep(),
    "profile": ProfileStep(),
    "sample": SampleStep(),
    "ranges": RangesStep(),
    "scenarios": ScenariosStep(),
    "filter": FilterStep(),
    "design": DesignStep(),
}
"""By name. From outside: ``STEPS["name"] = MyStep()`` runs after these."""
