"""What is told while a calibration works: lines in a log, a bar in a terminal, warnings once."""

from __future__ import annotations

import logging
import sys
import warnings

import pytest

from fmepy.errors import ArgumentError, InterruptedWarning
from fmepy.workflow import display as display_module
from fmepy.workflow.display import Display, collected_warnings


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that goes as far as it is told."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(display_module.time, "monotonic", lambda: Clock.now)
    return Clock


def test_a_log_has_a_line_at_most_every_ten_seconds(clock, capsys):
    shown = Display(True, aloud=True)
    shown.begins("sample", "2 chains", 3.5, "iteration")
    for second in range(41):
        clock.now = 100.0 + second
        shown.progress(25 * second, 2000)
    shown.say("sample", "done in 41 s.")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "sample: 2 chains"
    assert lines[-1] == "sample: done in 41 s."
    assert lines[1] == "sample: 250 of 2000 iterations (12 %), 25 a second, 1 min 10 s left, best 3.5"
    assert len(lines) == 6


def test_what_was_done_before_does_not_count_as_quick(clock, capsys):
    shown = Display(True, aloud=True)
    shown.begins("sample", "2 chains, from the last checkpoint", None, "iteration")
    shown(1000, 2000)
    clock.now += 10
    shown(1100, 2000)
    assert "1100 of 2000 iterations (55 %), 10 a second, 1 min 30 s left" not in capsys.readouterr().err.splitlines()[0]
    shown.close()


def test_a_search_of_open_length_tells_its_iterations_and_the_best(clock, capsys):
    shown = Display(True, aloud=True)
    shown.begins("fit", "1 search", 7.0, "iteration")
    shown(1, 0)
    clock.now += 20
    shown(21, 0)
    assert capsys.readouterr().err.splitlines()[-1] == "fit: 21 iterations, 1 a second, best 7"


def test_a_terminal_has_a_bar_with_step_runs_rate_time_left_and_best(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = Display(True, aloud=True)
    shown.begins("multistart", "8 starts", 2.5)
    for done in range(9):
        shown(done, 8)
    shown.tell("warning: one start failed")
    shown.say("multistart", "done.")
    told = capsys.readouterr().err
    assert "multistart" in told
    assert "starts" in told
    assert "8 starts" in told
    assert "warning: one start failed\n" in told
    assert told.rstrip().endswith("multistart: done.")


def test_what_goes_back_is_not_told(capsys):
    seen = []
    shown = Display(lambda done, total: seen.append(done), aloud=False)
    shown.begins("sample", "2 chains", None)
    for done in (100, 50, 200):
        shown(done, 400)
    assert seen == [100, 200]
    assert capsys.readouterr().err == ""


def test_progress_is_a_truth_or_a_callable():
    assert Display(False, aloud=False).progress is False
    with pytest.raises(ArgumentError, match="progress"):
        Display("no", aloud=False)


def test_warnings_and_logs_are_heard_once_each_and_interruptions_are_not():
    told = []
    with collected_warnings(told.append) as found:
        for _ in range(3):
            warnings.warn("the wind\nturns", stacklevel=1)
        warnings.warn("stopped", InterruptedWarning, stacklevel=1)
        logging.getLogger("fmepy.parallel").warning("a worker died")
    assert found == ["the wind turns", "a worker died"]
    assert told == ["warning: the wind turns", "warning: a worker died"]
    with pytest.warns(UserWarning, match="after"):
        warnings.warn("after", stacklevel=1)
