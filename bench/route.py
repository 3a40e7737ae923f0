#!/usr/bin/env python3
"""A multi-turn trace over four replicas, chosen by turns, by consistent hashing as HAProxy does it, and by `sluice route`.

  bench/route.py [--conversations 24] [--turns 4] [--replicas 4] [--concurrency 8] [--skew 1.2] [--model FILE]

Conversations share the system prompts of a few groups, whose sizes follow Zipf's law: hashing by the first 512 bytes sends
a whole group to one replica. Printed for each way: tokens that were prefilled, TTFT p50 and p99, and the imbalance, which is
the largest share of requests of a replica over the mean. The last lines are what the router adds to a request, and how many
times its tokens hashing prefills. All processes share this machine: compare the rows, not the times with those of other machines."""
import argparse
import hashlib
import http.client
import itertools
import json
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
from route_test import Router  # noqa: E402
from serving import DEFAULT_MODEL, Server  # noqa: E402


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
                first, text, usage = ask(pick(json.dumps(body)), body)
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


def hashing(ports):
    """A ring with 100 points a replica, by the first 512 bytes."""
    ring = sorted((int(hashlib.sha256(f"{port}-{i}".encode()).hexdigest()[:8], 16), port) for port in ports for i in range(100))

    def pick(body):
        at = int(hashlib.sha256(body[:512].encode()).hexdigest()[:8], 16)
        return next((port for point, port in ring if point >= at), ring[0][1])
    return pick


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("conversations", 24), ("turns", 4), ("replicas", 4), ("concurrency", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--skew", type=float, default=1.2)
    parser.add_argument("--think", type=float, default=0.1, help="seconds between an answer and the next question")
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    options = parser.parse_args()
    flags = ("-m", options.model, "--ctx-size", 2048, "--kv-tokens", 8192, "--threads", 1)
    rows = {}
    for way in ("round robin", "hashing", "router"):
        servers = [Server(*flags) for _ in range(options.replicas)]
        ports, router = [server.port for server in servers], None
        if way == "round robin":
            turns = itertools.cycle(ports)
            pick = lambda _: next(turns)  # noqa: E731
        elif way == "hashing":
            pick = hashing(ports)
        else:
            router = Router(servers)
            pick = lambda _: router.port  # noqa: E731
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
    print(f"hashing prefills {rows['hashing'] / rows['router']:.2f} times the router's tokens")


if __name__ == "__main__":
    main()
