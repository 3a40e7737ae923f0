#!/usr/bin/env python3
"""How long running answers wait while long prompts are prefilled: in one process that does both, and with prefill and decode
in processes of their own, a core for each.

  bench/roles.py [--answers 4] [--prompt 1500] [--prompts 4] [--quiet 1.5] [--rows one,two,apart,neighbour] [--model FILE]

The time between tokens (TBT) of the running answers is taken by the client, by turns while nothing else runs and while a
prompt of --prompt tokens is prefilled. Rows: one process on one core, one process on two cores, two processes on a core each,
and, for what the machine itself makes of a busy neighbour (caches, memory, clocks), two servers that know nothing of each
other: one has the answers, the other the prompts. The client shares the core of the process that prefills."""
import argparse
import asyncio
import os
import random
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
from serving import DEFAULT_MODEL, Server  # noqa: E402
from streaming import Stream, completion, read_chunks, read_head, request_bytes, stream, take_event  # noqa: E402


def pinned(cores, *flags):
    """A server whose threads have these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return Server(*flags, "--threads", len(cores))
    finally:
        os.sched_setaffinity(0, before)


def long_prompt(rng, tokens):
    return " ".join(str(rng.randrange(10)) for _ in range(tokens // 2))


async def follow(port, body, answer):
    """Reads a stream into `answer` until it is cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writer.write(request_bytes("/v1/completions", body))
        _, fields = await read_head(reader)
        async for data in read_chunks(reader, fields.get("transfer-encoding") == "chunked"):
            for line in data.decode().splitlines():
                take_event(answer, line, time.monotonic())
    finally:
        writer.close()


async def play(options, port, prompt_port):
    """(TBT gaps while quiet, gaps during prefills, seconds to the first token of the long prompts)."""
    rng = random.Random(5)
    answers = [Stream() for _ in range(options.answers)]
    tasks = [asyncio.create_task(follow(port, completion(f"Story {i}: once upon a time", options.tokens), answer))
             for i, answer in enumerate(answers)]
    await asyncio.sleep(1)
    spans, waits = [], []  # of prefills
    for _ in range(options.prompts):
        await asyncio.sleep(options.quiet)
        begin = time.monotonic()
        waits.append((await stream(prompt_port, completion(long_prompt(rng, options.prompt), 1))).ttft)
        spans.append((begin, time.monotonic()))
    await asyncio.sleep(options.quiet)
    quiet, busy = [], []
    for answer, task in zip(answers, tasks):
        assert not task.done(), "answers ended before the prompts did: --tokens is too small"
        task.cancel()
        for before, after in zip(answer.times, answer.times[1:]):
            if any(begin < after and before < end for begin, end in spans):
                busy.append(after - before)
            elif before > spans[0][0] - options.quiet:
                quiet.append(after - before)
    return sorted(quiet), sorted(busy), waits


def share(values, part):
    return values[min(len(values) - 1, int(part * len(values)))] * 1e3


def report(name, options, port, prompt_port=None):
    quiet, busy, waits = asyncio.run(play(options, port, prompt_port or port))
    print(f"{name:24} TBT quiet p50 {share(quiet, 0.5):6.1f} p99 {share(quiet, 0.99):6.1f} ms   during prefills "
          f"p50 {share(busy, 0.5):6.1f} p99 {share(busy, 0.99):6.1f} ms   p99 ratio {share(busy, 0.99) / share(quiet, 0.99):5.2f}"
          f"   prompts {sum(waits) / len(waits):.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("answers", 4), ("tokens", 1900), ("prompt", 1500), ("prompts", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quiet", type=float, default=1.5, help="seconds between two long prompts")
    parser.add_argument("--rows", default="one,two,apart,neighbour")
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    flags = ("-m", options.model, "--ctx-size", 2048, "--kv-tokens", 16384)
    os.sched_setaffinity(0, cores[-1:])
    rows = options.rows.split(",")
    for row, name, used in (("one", "both, one core", cores[:1]), ("two", "both, two cores", cores)):
        if row in rows:
            with pinned(used, *flags) as server:
                report(name, options, server.port)
    if "neighbour" in rows:
        with pinned(cores[-1:], *flags) as prefill, pinned(cores[:1], *flags) as decode:
            report("no handover, a core each", options, decode.port, prefill.port)
    if "apart" not in rows:
        return
    with pinned(cores[-1:], *flags, "--role", "prefill") as prefill, \
            pinned(cores[:1], *flags, "--role", "decode", "--prefill-server", prefill.url) as decode:
        report("apart, a core for each", options, decode.port)
        blocks = decode.metric("sluice_blocks_imported_total")
        print(f"{blocks:.0f} KV blocks were handed over")


if __name__ == "__main__":
    main()
