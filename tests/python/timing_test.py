#!/usr/bin/env python3
"""The limits of timing.py: what is slow every time fails, what was disturbed once passes."""
import os
import subprocess
import sys
import time
from unittest import mock

import serving
import timing


def outcome_of(*results):
    """How a repeated function ends that gives these results in turn, and how many it gave."""
    function = mock.Mock(side_effect=results, __name__="function")
    with mock.patch.object(timing, "calm_down"):
        try:
            return timing.repeated(3)(function)(), function.call_count
        except AssertionError as error:
            return str(error), function.call_count


def test_a_limit_is_broken_where_every_try_breaks_it():
    slow = timing.Disturbed("slow")
    assert outcome_of("fine") == ("fine", 1)
    assert outcome_of(slow, slow, "fine") == ("fine", 3)
    assert outcome_of(slow, slow, slow, "fine") == ("slow", 3)
    assert outcome_of(AssertionError("wrong"), "fine") == ("wrong", 1), "only limits of time are tried again"


def test_seconds_beyond_any_slowness_are_too_many():
    timing.in_time(1.0, 1, "it")
    try:
        timing.in_time(1.01 * timing.MOST_SLOWNESS, 1, "it")
    except timing.Disturbed:
        return
    raise AssertionError("five times the limit is in time")


def test_the_least_is_measured_until_it_is_below_its_limit():
    with mock.patch.object(timing, "calm_down"):
        assert timing.least(mock.Mock(side_effect=[5, 1, 0]), 2) == 1
        assert timing.least(mock.Mock(side_effect=[5, 3, 4]), 2) == 3


def test_what_others_run_makes_the_machine_slow():
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        deadline = time.monotonic() + 60
        while timing.slowness() <= 1.5:  # until they have started
            assert time.monotonic() < deadline
    finally:
        for process in spinning:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
