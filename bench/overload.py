#!/usr/bin/env python3
"""A server under many times its load: overload.py [--seconds 300] [--factor 10]

First the peak: a closed loop at the server's batch size. Then --factor times as many requests a second as it finished
there, for --seconds. Prints goodput beside the peak, the time of admitted requests beside what the queue's limit
allows (a full queue and a full batch, every answer the longest), and the server's memory. Ends with 1 where goodput falls
under 90 % of the peak, the 99th percentile is over that time, or memory grows."""
import argparse
import asyncio
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import serve

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
from serving import Server  # noqa: E402

ANSWERS = (32, 64)  # shortest and longest, in tokens


def load(server, **changes):
    options = SimpleNamespace(**({"duration": None, "num_prompts": 0, "input_len": (16, 64), "output_len": ANSWERS,
                                  "shared_prefix": 0, "vocab": 20000, "max_concurrency": 16,
                                  "request_rate": float("inf"), "seed": 1} | changes))
    results, seconds = asyncio.run(serve.drive(options, serve.Workload(options, server.model), server.port, {}))
    return serve.summary(results, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--factor", type=float, default=10)
    parser.add_argument("--peak-seconds", type=float, default=30)
    parser.add_argument("--queue", type=int, default=32)
    parser.add_argument("--seqs", type=int, default=16)
    given = parser.parse_args()
    with Server("--queue-requests", given.queue, "--max-seqs", given.seqs, "--kv-tokens", 8192) as server:
        load(server, duration=5.0)
        peak = load(server, duration=given.peak_seconds, max_concurrency=given.seqs + 4)
        rate = given.factor * peak["request_throughput"]
        memory, stop = [], threading.Event()

        def watch():
            while not stop.wait(2):
                memory.append(server.status("VmRSS") / 1024)
        watcher = threading.Thread(target=watch)
        watcher.start()
        storm = load(server, duration=given.seconds, request_rate=rate, seed=2)
        stop.set()
        watcher.join()
        server.wait_idle()
    bound = (given.queue + given.seqs) * ANSWERS[1] / storm["output_throughput"]
    share = storm["output_throughput"] / peak["output_throughput"]
    early, late = max(memory[: max(1, len(memory) // 3)]), max(memory[-max(1, len(memory) // 3):])
    print(f"peak {peak['output_throughput']:.0f} tok/s, {peak['request_throughput']:.2f} requests/s")
    print(f"{given.factor:g}x for {given.seconds:g} s: {storm['completed']} answered, {storm['failed']} refused, "
          f"{storm['output_throughput']:.0f} tok/s = {100 * share:.0f} % of the peak")
    slowest = storm["p99_e2el_ms"] / 1e3
    print(f"admitted requests: p50 {storm['p50_e2el_ms'] / 1e3:.1f} s, p99 {slowest:.1f} s; "
          f"a full queue of the longest takes {bound:.1f} s")
    print(f"memory {early:.0f} MB in the first third, {late:.0f} MB in the last")
    return 0 if share >= 0.9 and slowest <= bound and late < 1.1 * early + 8 else 1


if __name__ == "__main__":
    sys.exit(main())
