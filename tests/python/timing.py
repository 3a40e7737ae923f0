"""Limits of time that hold on a machine whose processors others use as well.

A measurement that breaks its limit is repeated: what is slow by itself is slow every time, what others disturbed is not.
Limits in seconds grow with the share of the processors that others took, as a spinning loop measures it afterwards."""
import functools
import os
import time

SPIN = 0.1  # seconds of processor time that each spinning process takes
MOST_SLOWNESS = 5.0


class Disturbed(AssertionError):
    """A limit that another process may have broken."""


def slowness():
    """How many times as long work on every processor takes as on an idle machine: 1, or more while others work, up to
    MOST_SLOWNESS. What the caller runs itself must be idle."""
    started = time.monotonic()
    children = []
    for _ in os.sched_getaffinity(0):
        child = os.fork()
        if child == 0:
            end = time.process_time() + SPIN
            while time.process_time() < end and time.monotonic() < started + MOST_SLOWNESS * SPIN:
                pass
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return min(MOST_SLOWNESS, max(1.0, (time.monotonic() - started) / SPIN))


def calm_down(seconds=15):
    """Waits until others leave most of the processors, for so long at the most."""
    deadline = time.monotonic() + seconds
    while slowness() > 1.3 and time.monotonic() < deadline:
        time.sleep(1)


def expect(holds, message):
    if not holds:
        raise Disturbed(message)


def in_time(seconds, limit, what):
    """Something took so many seconds; on an idle machine it may take `limit`."""
    if seconds > limit:
        factor = slowness()
        expect(seconds <= limit * factor, f"{what}: {seconds:.2f} s; the limit is {limit} s, times {factor:.1f} for what others run")


def least(measure, limit, tries=3):
    """The smallest of up to `tries` measurements; the first one below the limit is enough."""
    best = measure()
    for _ in range(tries - 1):
        if best < limit:
            break
        calm_down()
        best = min(best, measure())
    return best


def repeated(tries=3):
    """A function whose limits are broken only where each of so many calls breaks one. Any other failure counts at once."""
    def decorate(function):
        @functools.wraps(function)
        def call(*arguments):
            for _ in range(tries - 1):
                try:
                    return function(*arguments)
                except Disturbed as reason:
                    print(f"  once more, {reason}", flush=True)
                    calm_down()
            return function(*arguments)
        return call
    return decorate
