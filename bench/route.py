#!/usr/bin/env python3
"""A multi-turn trace over four replicas, chosen by turns, by HAProxy's consistent hashing, and by `sluice route`.

  bench/route.py [--conversations 24] [--turns 4] [--replicas 4] [--concurrency 8] [--skew 1.2] [--ways NAMES] [--model FILE]
  bench/route.py --streams 2000

Conversations share the system prompts of a few groups, whose sizes follow Zipf's law: hashing by the first 512 bytes sends
a whole group to one replica, as far as HAProxy's limit of 1.5 times the mean load lets it. HAProxy runs with
deploy/haproxy/haproxy.cfg where it is installed (Debian's package haproxy), else a ring with the same limit stands for it.
Printed for each way: tokens that were prefilled, TTFT p50 and p99, and the imbalance, which is the largest share of requests
of a replica over the mean. The last lines are what the router adds to a request, and how many times its tokens hashing
prefills. All processes share this machine: compare the rows, not the times with those of other machines.

With --streams, so many streams run at once through a router that has one core, from a replica that invents an event of each
stream every second; printed are the router's processor time and how late events were."""
import argparse
import asyncio
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
from route_test import Router  # noqa: E402
from serving import BINARY, DEFAULT_MODEL, ROOT, Server  # noqa: E402


def trace(options):
    """Conversations: (system prompt, questions)."""
    rng = random.Random(7)
    groups = 6
    weights = [1 / (rank + 1) ** options.skew for rank in range(groups)]
    for number in range(options.conversations):
        group = rng.choices(range(groups), weights)[0]
        system = f"You are assistant {group}. " + " ".join(f"Rule {group}-{i}: be brief." for i in range(40))
        yield system, [f"Conversation {number}, question {turn}: tell me about {rng.randrange(1000)} things."
                       for turn in range(options.turns)]


def ask(port, body):
    """Seconds to the first token, text and usage of a streamed chat."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    start, first, text, usage = time.monotonic(), None, "", {}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        first = first or time.monotonic() - start
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
    connection.close()
    return first, text, usage


def run(options, pick, model):
    """Plays the trace, each conversation by itself and so many at once; `pick` gives the port for a body."""
    waiting = iter(list(trace(options)))
    lock, times, totals = threading.Lock(), [], {"prompt": 0, "cached": 0}

    def play():
        while True:
            with lock:
                item = next(waiting, None)
            if item is None:
                return
            messages = [{"role": "system", "content": item[0]}]
            for question in item[1]:
                messages.append({"role": "user", "content": question})
                body = {"messages": messages, "model": model, "max_tokens": 16, "temperature": 0, "stream": True,
                        "stream_options": {"include_usage": True}}
                with pick(json.dumps(body)) as port:
                    first, text, usage = ask(port, body)
                messages.append({"role": "assistant", "content": text})
                with lock:
                    times.append(first)
                    totals["prompt"] += usage["prompt_tokens"]
                    totals["cached"] += usage["prompt_tokens_details"]["cached_tokens"]
                time.sleep(options.think)

    threads = [threading.Thread(target=play) for _ in range(options.concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, totals


def always(choose):
    """A pick that has nothing to do when the request is over."""
    @contextlib.contextmanager
    def pick(body):
        yield choose(body)
    return pick


def ring(ports):
    """A ring with 100 points a replica, by the first 512 bytes; a replica with over 1.5 times the mean load is passed."""
    points = sorted((int(hashlib.sha256(f"{port}-{i}".encode()).hexdigest()[:8], 16), port) for port in ports for i in range(100))
    running, lock = dict.fromkeys(ports, 0), threading.Lock()

    @contextlib.contextmanager
    def pick(body):
        at = int(hashlib.sha256(body[:512].encode()).hexdigest()[:8], 16)
        with lock:
            most = 1.5 * (sum(running.values()) + 1) / len(ports)
            order = [port for point, port in points if point >= at] + [port for _, port in points]
            port = next((port for port in order if running[port] + 1 <= most), order[0])
            running[port] += 1
        try:
            yield port
        finally:
            with lock:
                running[port] -= 1
    return pick


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextlib.contextmanager
def hashing(ports):
    """HAProxy with the configuration of deploy/, in front of these; a ring where there is none."""
    if not shutil.which("haproxy"):
        print("haproxy is not installed: a ring stands for it", flush=True)
        yield ring(ports)
        return
    config = (ROOT / "deploy/haproxy/haproxy.cfg").read_text()
    front = free_port()
    config = config.replace("bind :8080", f"bind 127.0.0.1:{front}").replace("log stdout format raw local0 info", "")
    config = re.sub(r"frontend status.*", "", config, flags=re.S)
    config = re.sub(r"    server replica\d .*\n", "", config)
    config = config.rstrip() + "\n" + "".join(f"    server r{i} 127.0.0.1:{port}\n" for i, port in enumerate(ports))
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(config)
        file.flush()
        process = subprocess.Popen(["haproxy", "-db", "-f", file.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(2.5)  # for its first checks
            yield always(lambda _: front)
        finally:
            process.terminate()
            process.wait()


def overhead(router, server):
    """Milliseconds that the router adds to a small request, p50 of pairs."""
    def once(port):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        samples = []
        for _ in range(200):
            start = time.perf_counter()
            connection.request("GET", "/version")
            connection.getresponse().read()
            samples.append(time.perf_counter() - start)
        connection.close()
        return statistics.median(samples) * 1e3
    direct, routed = once(server.port), once(router.port)
    return direct, routed


async def serve_events(reader, writer, seconds):
    """A replica without a model: an event a second for so many seconds, each with the time it was sent."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if "content-length" not in head:
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        else:
            await reader.readexactly(int(re.search(r"content-length: (\d+)", head).group(1)))
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            await asyncio.sleep(random.random())
            for _ in range(seconds):
                event = f"data: {time.monotonic():.6f}\n\n".encode()
                writer.write(b"%x\r\n%s\r\n" % (len(event), event))
                await asyncio.sleep(1)
            writer.write(b"0\r\n\r\n")
        await writer.drain()
    writer.close()


async def read_events(port, late, gate):
    async with gate:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b'POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n'
                 b'content-length: 2\r\n\r\n{}')
    while line := await reader.readline():
        if line.startswith(b"data: "):
            late.append(time.monotonic() - float(line[6:]))
        if line == b"0\r\n":
            break
    else:
        raise RuntimeError("a stream was cut")
    writer.close()


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def many_streams(count, seconds=20):
    """Streams at once through a router on a core of its own; the replica and the clients share another."""
    cores = sorted(os.sched_getaffinity(0))
    replica = free_port()
    if os.fork() == 0:
        os.sched_setaffinity(0, cores[-1:])

        async def run_replica():
            server = await asyncio.start_server(lambda r, w: serve_events(r, w, seconds), "127.0.0.1", replica, backlog=4096)
            async with server:
                await asyncio.sleep(seconds + 40)
        asyncio.run(run_replica())
        os._exit(0)
    router_port = free_port()
    command = ["taskset", "-c", str(cores[0]), BINARY, "route", "--port", str(router_port), "--replica",
               f"http://127.0.0.1:{replica}", "--max-running", "100000"]
    router = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    os.sched_setaffinity(0, cores[-1:])
    time.sleep(2)
    late = []

    async def run_clients():
        gate = asyncio.Semaphore(200)
        await asyncio.gather(*(read_events(router_port, late, gate) for _ in range(count)))
    before, start = cpu_seconds(router.pid), time.monotonic()
    asyncio.run(run_clients())
    used, wall = cpu_seconds(router.pid) - before, time.monotonic() - start
    router.terminate()
    late.sort()
    print(f"{count} streams, {len(late)} events in {wall:.1f} s, all complete: the router used {100 * used / wall:.0f} % of a core; "
          f"events were {late[len(late) // 2] * 1e3:.2f} ms late (p50), {late[int(len(late) * 0.99)] * 1e3:.1f} ms (p99)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("conversations", 24), ("turns", 4), ("replicas", 4), ("concurrency", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--skew", type=float, default=1.2)
    parser.add_argument("--think", type=float, default=0.1, help="seconds between an answer and the next question")
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    parser.add_argument("--ways", default="round robin,hashing,router")
    parser.add_argument("--streams", type=int, default=0, help="hold so many streams instead")
    options = parser.parse_args()
    if options.streams:
        return many_streams(options.streams)
    flags = ("-m", options.model, "--ctx-size", 2048, "--kv-tokens", 8192, "--threads", 1)
    rows = {}
    for way in options.ways.split(","):
        servers = [Server(*flags) for _ in range(options.replicas)]
        ports, router = [server.port for server in servers], None
        with contextlib.ExitStack() as stack:
            if way == "round robin":
                turns = itertools.cycle(ports)
                pick = always(lambda _: next(turns))
            elif way == "hashing":
                pick = stack.enter_context(hashing(ports))
            else:
                router = Router(servers)
                pick = always(lambda _: router.port)
            times, totals = run(options, pick, servers[0].model)
        counts = [server.metric("sluice_prompt_length_count") for server in servers]
        times.sort()
        rows[way] = totals["prompt"] - totals["cached"]
        print(f"{way:12} prefill {rows[way]:7d} of {totals['prompt']:7d} tokens   TTFT p50 {times[len(times) // 2] * 1e3:6.0f} ms  "
              f"p99 {times[int(len(times) * 0.99)] * 1e3:6.0f} ms   imbalance {max(counts) * len(counts) / sum(counts):.2f}",
              flush=True)
        if router:
            direct, routed = overhead(router, servers[0])
            print(f"router adds  {routed - direct:.3f} ms to {direct:.3f} ms (p50 of GET /version on one connection)")
            router.stop()
        for server in servers:
            server.stop()
    if {"hashing", "router"} <= rows.keys():
        print(f"hashing prefills {rows['hashing'] / rows['router']:.2f} times the router's tokens")


if __name__ == "__main__":
    main()
