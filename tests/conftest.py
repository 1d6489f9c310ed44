"""What every test runs under: no display, no figure left open, one place for reference data."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ["MPLBACKEND"] = "Agg"

# A busy machine is no failure: no deadlines. The same examples each time; `make test-all` looks further.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("fixed")

ROOT = Path(__file__).resolve().parent.parent

# Compiled models are kept beside pytest's own cache, not in the user's
os.environ["XDG_CACHE_HOME"] = str(ROOT / ".pytest_cache" / "xdg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    """Close what a test has drawn; matplotlib is not imported for tests that do not draw."""
    yield
    if (plt := sys.modules.get("matplotlib.pyplot")) is not None:
        plt.close("all")


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def reference() -> Path:
    """Return the folder of the numbers that came from real runs of R's FME."""
    return ROOT / "tests" / "reference"
