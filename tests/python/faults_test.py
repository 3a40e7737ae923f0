#!/usr/bin/env python3
"""Faults that come from the machine: no files, no reader of the log, no room on the disk, a clock that jumps, signals.
docs/faults.md lists them all."""
import asyncio
import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import serving
import timing
from serving import Server, Skip
from streaming import completion, request_bytes, streams

server = None

# Dates are anything within an hour of the truth; durations are left alone.
JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* out) {
  static unsigned calls;
  const int code = (int)syscall(SYS_clock_gettime, clock, out);
  if (clock == CLOCK_REALTIME) out->tv_sec += (long)(++calls * 7919u % 7201u) - 3600;
  return code;
}
time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"""


@contextlib.contextmanager
def full_pipe():
    """The writing end of a pipe that is full and that nobody reads."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    try:
        yield writing
    finally:
        os.close(reading)
        os.close(writing)


def test_nobody_reads_the_log():
    with full_pipe() as log, Server(stderr=log) as silent:
        text = silent.complete("Hello", 4)
        for _ in range(30):
            assert silent.complete("Hello", 4) == text
        assert silent.stop() == 0


def test_the_log_has_no_room():
    with open("/dev/full", "w") as full, Server(stderr=full) as silent:
        assert silent.complete("Hello", 4)
        assert silent.stop() == 0


def test_the_log_has_a_line_for_what_users_ask():
    asked = {"on": ["/v1/models"], "all": ["/v1/models", "/health", "/metrics"], "off": []}
    for access_log, logged in asked.items():
        with Server("--access-log", access_log) as quiet:
            for path in ("/health", "/v1/models", "/metrics"):
                quiet.request("GET", path)
            assert quiet.stop() == 0
            routes = re.findall(r"request id=.* route=(\S+)", quiet.text())
            assert set(logged) == set(routes) - {"/ready"}, (access_log, routes)
            assert ("/ready" in routes) == (access_log == "all"), (access_log, routes)


def test_connections_wait_for_files():
    """Where the process may open no more files, who is connected is served, others wait, and nothing spins."""
    with Server() as crowded:
        kept = http.client.HTTPConnection("127.0.0.1", crowded.port, timeout=60)
        kept.request("GET", "/health")
        kept.getresponse().read()
        files = crowded.descriptors() + 3
        resource.prlimit(crowded.process.pid, resource.RLIMIT_NOFILE, (files, files))
        others = [socket.create_connection(("127.0.0.1", crowded.port)) for _ in range(12)]
        crowded.wait_for_line("connections have to wait")

        def spend():
            before = crowded.cpu_seconds()
            time.sleep(1)
            return crowded.cpu_seconds() - before

        spent = timing.least(spend, 0.3)
        kept.request("GET", "/health")
        assert kept.getresponse().read()
        for one in others:
            one.close()
        assert crowded.get("/health")["status"] == "ok"
        assert spent < 0.3, f"waiting took {spent:.2f} s of a processor"
        assert crowded.metrics()['sluice_http_trouble_total{reason="connections"}'] > 0
        kept.close()


@timing.repeated()
def flood():
    with Server("--shutdown-timeout", 10) as attacked, contextlib.ExitStack() as silent:
        for _ in range(4200):
            silent.enter_context(socket.create_connection(("127.0.0.1", attacked.port), source_address=("127.0.0.66", 0)))
        body = json.dumps({"prompt": "Hello", "max_tokens": 1})
        asked = time.monotonic()
        other = http.client.HTTPConnection("127.0.0.1", attacked.port, timeout=60, source_address=("127.0.0.7", 0))
        with contextlib.closing(other):
            other.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = other.getresponse()
            took = time.monotonic() - asked
            assert answer.status == 200 and json.loads(answer.read())["usage"]["completion_tokens"] == 1
            told = time.monotonic()
            assert attacked.stop() == 0
            ended = time.monotonic() - told
    timing.in_time(took, 2, "one token beside the flood")
    timing.in_time(ended, 10, "SIGTERM beside the flood")


def test_silent_connections_stop_nobody():
    """While one address holds 4,200 connections that say nothing, another one is answered, and SIGTERM ends the server in time."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 8192:
        raise Skip("this process may not open 8,192 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        flood()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def answers(target):
    with contextlib.suppress(OSError, http.client.HTTPException):  # sent away
        return target.request("GET", "/v1/models")[0] == 200
    return False


def test_few_files_from_the_start():
    """With 64 files there is room for a few connections; others are sent away or wait."""
    with Server(files=64) as small:
        others = [socket.create_connection(("127.0.0.1", small.port)) for _ in range(80)]
        time.sleep(0.2)
        for one in others:
            one.close()
        deadline = time.monotonic() + 60
        while not answers(small):  # until it has seen that they went
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert small.complete("Hello", 4)
        assert small.stop() == 0


def test_the_clock_jumps():
    """Dates may be anything; times, limits and metrics stay what they are."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Skip("no C compiler on this machine")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "clock.c", Path(folder) / "clock.so"
        source.write_text(JUMPING_CLOCK)
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
        with Server("--request-timeout", 600, environment={"LD_PRELOAD": str(library)}) as jumping:
            expected = server.complete("Hello", 24)
            dates = []
            for _ in range(6):
                body = {"prompt": "Hello", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
                answer = jumping.post("/v1/completions", body)
                assert answer["choices"][0]["text"] == expected
                dates.append(answer["created"])
            assert max(abs(date - time.time()) for date in dates) > 60, f"the clock did not jump: {dates}"
            metrics = jumping.metrics()
            assert all(value >= 0 for value in metrics.values()), [key for key, value in metrics.items() if value < 0]
            seconds = {key: value for key, value in metrics.items() if key.partition("{")[0].endswith("_seconds_sum")}
            assert seconds and all(value < 300 for value in seconds.values()), seconds
            assert metrics["sluice_uptime_seconds"] < 300
            assert jumping.stop() == 0


def listening(pid):
    """Local ports that a process listens on, and all its UDP ports."""
    inodes = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{entry}").removeprefix("socket:[").rstrip("]"))
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and (fields[3] == "0A" or table.startswith("udp")):
                found.append((table, int(fields[1].rpartition(":")[2], 16)))
    return found


def test_one_port_is_open():
    assert listening(server.process.pid) == [("tcp", server.port)], listening(server.process.pid)


def test_prompts_that_cannot_fit_are_not_read():
    """30 MB of text are refused for their bytes, in the words that clients know, and cost next to nothing."""
    text = "word " * 6_000_000
    before = server.cpu_seconds()
    for path, body in (("/v1/completions", {"prompt": text}), ("/v1/embeddings", {"input": text}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})):
        error = server.post(path, body, status=400)["error"]
        assert error["code"] == "context_length_exceeded" and "not counted" in error["message"], error
        assert "maximum context length is" in error["message"], error
    error = server.post("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": text}]}, status=400)["error"]
    assert error["message"].startswith("prompt is too long: "), error
    print(f"  four of them took {server.cpu_seconds() - before:.2f} s of a processor")
    assert len(server.post("/tokenize", {"prompt": text[:100_000]})["tokens"]) > 8192, "what is only counted may be long"


def test_waits_and_answers_have_limits():
    with Server("--max-seqs", 1, "--max-queue-time", 0.5, "--max-output-tokens", 48) as limited:
        open_end = {"messages": [{"role": "user", "content": "Go on."}], "ignore_eos": True, "temperature": 0}
        answer = limited.post("/v1/chat/completions", open_end)
        assert answer["usage"]["completion_tokens"] == 48 and answer["choices"][0]["finish_reason"] == "length", answer
        results = asyncio.run(streams(limited.port, [completion(f"{number} bottles", 48) for number in range(60)]))
        late = [one for one in results if one.status == 503]
        assert late and all(one.complete for one in results if one.status == 200), [one.status for one in results]
        assert any(one.status == 200 for one in results)
        assert all(one.error["code"] == "server_is_overloaded" and int(one.headers["retry-after"]) > 0 for one in late)
        assert limited.metric("sluice_requests_expired_total") == len(late)


def test_the_list_names_tests_that_exist():
    everything = "\n".join(path.read_text() for path in (serving.ROOT / "tests").rglob("*_test.*")
                           if path.suffix in (".cpp", ".py"))
    cases = {f"{suite}.{case}" for suite, case in re.findall(r"TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", everything)}
    page = (serving.ROOT / "docs/faults.md").read_text()
    named = re.findall(r"`([A-Z]\w+\.[\w*…]+)`", page)
    missing = [name for name in named if not any(re.fullmatch(re.sub(r"[*…]", r"\\w*", name), case) for case in cases)]
    scripts = [name for name in re.findall(r"`(test_\w+)`", page) if f"def {name}(" not in everything]
    assert len(named) > 40 and not missing and not scripts, (missing, scripts)


def test_second_signal_beside_a_live_view():
    with Server("--shutdown-timeout", 120) as ending:
        live = socket.create_connection(("127.0.0.1", ending.port))
        live.sendall(b"GET /api/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        busy = socket.create_connection(("127.0.0.1", ending.port))
        busy.sendall(request_bytes("/v1/completions", completion("Hello", 4000)))
        assert busy.recv(100) and live.recv(100)
        ending.process.send_signal(signal.SIGTERM)
        ending.wait_for_line("draining: ")
        assert ending.process.poll() is None
        started = time.monotonic()
        ending.process.send_signal(signal.SIGTERM)
        assert ending.process.wait(60) == 0
        print(f"  ended {time.monotonic() - started:.2f} s after the second signal")
        live.close()
        busy.close()


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
