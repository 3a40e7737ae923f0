#!/usr/bin/env python3
"""How soon the program says its first token and the server is ready, and what they take: memory, and a processor when idle."""
import os
import subprocess
import sys
import time

import serving
import timing
from serving import BINARY, DEFAULT_MODEL, Server

PROMPT = "The capital of France is"


@timing.repeated()
def test_run_is_quick_and_small():
    serving.need_model()
    command = [BINARY, "run", "-m", str(DEFAULT_MODEL), "--raw", "-p", PROMPT, "-n", "8", "--temp", "0", "--ctx-size", "2048"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    subprocess.run(command, check=True, **quiet)  # warms the page cache
    best = 1e9
    for _ in range(3):
        started = time.monotonic()
        child = subprocess.Popen(command, **quiet)
        child.stdout.read(1)
        best = min(best, time.monotonic() - started)
        child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
    kv = 2048 * 30 * 2 * 3 * 64 * 2  # positions, layers, k and v, heads, dim, bytes
    peak, limit = usage.ru_maxrss * 1024, 2 * DEFAULT_MODEL.stat().st_size + kv
    assert peak < limit, f"peak memory {peak:,} bytes, limit {limit:,}"
    print(f"  first token after {best:.2f} s, peak memory {peak / 2**20:.0f} MiB of {limit / 2**20:.0f}")
    timing.in_time(best, 1, "until the first token")


def share_of_a_core(server, seconds=3):
    before = server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - before) / seconds


@timing.repeated()
def test_the_server_is_ready_soon_and_idle_when_idle():
    serving.need_model()
    with Server() as server:
        server.complete("Hello", 4)
        share = timing.least(lambda: share_of_a_core(server), 0.01)
        print(f"  ready after {server.ready_after:.2f} s, idle {100 * share:.2f} % of a core")
        assert share < 0.01
        assert server.stop() == 0
        timing.in_time(server.ready_after, 1, "until ready")


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
