#!/usr/bin/env python3
"""Closed loop over HTTP: CLIENTS connections, each with one request at a time, prompts and answers of fixed length.

    bench/http_load.py PORT [clients 128] [requests of each 2] [tokens in 1000] [tokens out 1000]

Prints output tokens per second, the time to the first piece of an answer and that between pieces: median and 99th
percentile, and the latter over the mean. Prompts are lists of random token ids, answers are streamed, greedy, end tokens ignored. Several processes share the clients, so
that reading is never what is measured.
"""
import asyncio
import json
import multiprocessing
import random
import sys
import time

PROCESSES = 8
HIGHEST = 1000  # token ids of prompts are below
MODEL = "random"  # as the server was told to call it


async def one_request(port, tokens_in, tokens_out, gaps, waits):
    body = json.dumps({"model": MODEL, "prompt": [random.randrange(HIGHEST) for _ in range(tokens_in)],
                       "max_tokens": tokens_out, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError((status + await reader.read(2000)).decode(errors="replace"))
    last, generated = None, 0
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        now = time.monotonic()
        if b'"usage":{' in line:
            generated = json.loads(line[6:])["usage"]["completion_tokens"]
            continue
        if last is None:
            waits.append(now - start)
        else:
            gaps.append(now - last)
        last = now
    writer.close()
    return generated


async def client(port, requests, tokens_in, tokens_out, times):
    return sum([await one_request(port, tokens_in, tokens_out, *times) for _ in range(requests)])


def share(arguments):
    seed, clients, port, requests, tokens_in, tokens_out = arguments
    random.seed(seed)
    times = [], []  # between pieces, to the first one

    async def all_clients():
        return await asyncio.gather(*[client(port, requests, tokens_in, tokens_out, times) for _ in range(clients)])
    return sum(asyncio.run(all_clients())), *times


def in_ms(times, percent):
    return f"p{percent} {sorted(times)[len(times) * percent // 100] * 1e3:.1f} ms"


def main():
    if not 2 <= len(sys.argv) <= 6 or not all(text.isdigit() for text in sys.argv[1:]):
        sys.exit(__doc__)
    numbers = [int(text) for text in sys.argv[1:]]
    port = numbers[0]
    clients, requests, tokens_in, tokens_out = numbers[1:] + [128, 2, 1000, 1000][len(numbers) - 1:]
    processes = min(PROCESSES, clients)
    shares = [clients // processes + (i < clients % processes) for i in range(processes)]
    start = time.monotonic()
    with multiprocessing.Pool(processes) as pool:
        parts = pool.map(share, [(i, n, port, requests, tokens_in, tokens_out) for i, n in enumerate(shares)], 1)
    seconds = time.monotonic() - start
    tokens = sum(part[0] for part in parts)
    gaps, waits = ([value for part in parts for value in part[kind]] for kind in (1, 2))
    mean = sum(gaps) / len(gaps)
    print(f"{clients} clients, {requests} requests each, {tokens_in} in, {tokens_out} out: {tokens / seconds:.0f} tok/s "
          f"in {seconds:.1f} s; first piece {in_ms(waits, 50)}, {in_ms(waits, 99)}; between pieces {in_ms(gaps, 50)}, "
          f"{in_ms(gaps, 99)} ({sorted(gaps)[len(gaps) * 99 // 100] / mean:.1f} x the mean), {tokens} tokens, {len(gaps)} gaps")
    return 0 if tokens == clients * requests * tokens_out else 1


if __name__ == "__main__":
    sys.exit(main())
