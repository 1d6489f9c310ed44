"""The steps of a calibration in the order in which they run."""

from __future__ import annotations

from fmepy.workflow.steps.base import CalibrationStep
from fmepy.workflow.steps.design import DesignStep
from fmepy.workflow.steps.filter import FilterStep
from fmepy.workflow.steps.fit import FitStep, MultistartStep
from fmepy.workflow.steps.profile import ProfileStep
from fmepy.workflow.steps.ranges import RangesStep
from fmepy.workflow.steps.sample import SampleStep
from fmepy.workflow.steps.scenarios import ScenariosStep
from fmepy.workflow.steps.screen import ScreenStep

_IN_ORDER = (
    ScreenStep, FitStep, MultistartStep, ProfileStep, SampleStep, RangesStep, ScenariosStep, FilterStep, DesignStep,
)  # fmt: skip
STEPS: dict[str, CalibrationStep] = {step.name: step() for step in _IN_ORDER}
"""By name. From outside: ``STEPS["name"] = MyStep()`` runs after these."""
