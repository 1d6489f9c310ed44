"""What steps give that is more than one result of fmepy, by the name that it had before each step was one file."""

from fmepy.workflow.steps.filter import Filtering
from fmepy.workflow.steps.ranges import Bands
from fmepy.workflow.steps.scenarios import WhatIf
from fmepy.workflow.steps.screen import Screened

__all__ = ["Bands", "Filtering", "Screened", "WhatIf"]
