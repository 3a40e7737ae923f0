#!/usr/bin/env python3
"""What constraints cost those that have them, and those that have none: constrained.py [--url URL] [--batch N] [--tokens N]
[--nasty N] [--rounds N]

cost:  N answers at once without a schema and N with a different schema each, in turn. Printed is the time of a step in both
       while all N are running (sluice_step_seconds of /metrics), how many tokens a step gave, and the median of the ratios,
       and the same for the processor time of the server, which other programs disturb less.
       The schemas leave a choice nearly everywhere, so that no token is forced and the steps have the same rows. The first
       round is not counted: masks are computed when they are first met.
nasty: gaps between the tokens of plain streams, alone and while N requests with schemas that are slow, or too large, come at
       once, in turn. Printed is the p99 of both, their ratio, and what the requests were told.
Both kinds of a round run next to each other, so that other programs of the machine disturb them alike. Without --url it
starts `sluice serve` with the default model."""
import argparse
import asyncio
import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
import serving

QUESTION = [{"role": "user", "content": "Write a long list of made-up people with their jobs."}]


def schema_of(number):
    """An answer that goes on for as long as it is let and is forced nowhere behind its beginning."""
    kinds = [{"type": "string", "minLength": 4000 + number},
             {"type": "array", "items": {"type": "integer"}, "minItems": 2000 + number},
             {"type": "array", "items": {"type": "string"}, "minItems": 2000 + number},
             {"type": "array", "items": {"type": ["number", "string", "null"]}, "minItems": 2000 + number}]
    return {"type": "object", "properties": {f"value_{number}": kinds[number % len(kinds)]}, "required": [f"value_{number}"]}


def deep(number):
    schema = {"type": "string", "maxLength": 900 + number % 50}
    for level in range(20):
        many = {f"key_{number}_{level}_{i}": {"type": "string", "pattern": f"^[a-z]{{{i % 7 + 1},{i % 90 + 20}}}_{number}$"} for i in range(12)}
        schema = {"type": "object", "properties": {f"level_{number}_{level}": schema, **many}, "minProperties": 3}
    return schema


def enumeration(number):
    draw = random.Random(number)
    return {"enum": [f"{draw.getrandbits(80):x} {number}" for _ in range(9000)]}


def exponential(number):
    """As an automaton that decides at each character: 2^n states."""
    return {"type": "string", "pattern": f"^(a|b|{number})*a(a|b){{{18 + number % 6}}}$"}


def recursive(number):
    names = [f"node_{number}_{i}" for i in range(40)]
    return {"$defs": {name: {"type": "object", "properties": {f"{other}_{number % 9}": {"$ref": f"#/$defs/{other}"} for other in names}} for name in names},
            "$ref": f"#/$defs/{names[0]}"}


def repeated(number):
    return {"type": "array", "minItems": 4000 + number, "maxItems": 90000, "items": {"type": "string", "pattern": f"^(([a-z]{{1,90}}-){{1,{90 + number % 9}}}[0-9]{{2,60}}){{3,80}}$"}}


def long_pattern(number):
    draw = random.Random(number)
    word = lambda: "".join(draw.choices("abcdefgh", k=6))
    return {"type": "string", "pattern": "^(" + "|".join(f"{word()}[a-f]?{word()}" for _ in range(3000)) + ")+$"}


def product(number):
    return {"allOf": [{"anyOf": [{"properties": {f"p_{number}_{i}_{j}": {"type": "string", "minLength": j}}, "required": [f"p_{number}_{i}_{j}"]} for j in range(8)]}
                      for i in range(8)]}


NASTY = [deep, enumeration, exponential, recursive, repeated, long_pattern, product]


def nasty_schema(number):
    """Slow, too large or exponential, and new each time."""
    return NASTY[number % len(NASTY)](number)


class Client:
    def __init__(self, url):
        self.host = urlsplit(url).netloc

    def post(self, body):
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def whole(self, body):
        connection, answer = self.post(body)
        answer.read()
        connection.close()
        return answer.status

    def gaps(self, body, stop):
        """Seconds between the events of a stream, until it ends or `stop` is set."""
        connection, answer = self.post(body | {"stream": True})
        gaps, last = [], None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            if last is not None:
                gaps.append(now - last)
            last = now
            if stop.is_set():
                break
        connection.close()
        return gaps

    def counters(self):
        """Seconds of steps, steps, tokens that were generated, and seconds of the processor."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        value = lambda name: sum(float(line.split()[-1]) for line in lines if line.startswith(name))
        return value("sluice_step_seconds_sum"), value("sluice_step_seconds_count"), value("sluice_generated_tokens_total"), value("process_cpu_seconds_total")


def body_of(tokens, schema=None):
    body = {"messages": QUESTION, "temperature": 1, "max_tokens": tokens}
    if schema is None:
        return body | {"ignore_eos": True}
    return body | {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def running_step(client, pool, bodies, tokens):
    """Mean seconds, tokens and processor seconds of a step between the time when all have begun and when the first may end."""
    begun = client.counters()[2]
    answers = [pool.submit(client.whole, body) for body in bodies]

    def counters_at(count):
        while client.counters()[2] < begun + count * len(bodies) and not all(answer.done() for answer in answers):
            time.sleep(0.05)
        return client.counters()

    first, last = counters_at(16), counters_at(tokens - 8)
    wrong = [answer.result() for answer in answers if answer.result() != 200]
    if wrong:
        raise SystemExit(f"{len(wrong)} requests were answered with {wrong[0]}")
    steps = max(1, last[1] - first[1])
    return (last[0] - first[0]) / steps, (last[2] - first[2]) / steps, (last[3] - first[3]) / steps


def cost(client, arguments):
    plain, held = [], []
    with ThreadPoolExecutor(arguments.batch) as pool:
        for number in range(arguments.rounds + 1):
            without = running_step(client, pool, [body_of(arguments.tokens)] * arguments.batch, arguments.tokens)
            within = running_step(client, pool, [body_of(arguments.tokens, schema_of(i)) for i in range(arguments.batch)], arguments.tokens)
            print(f"cost: step without {1e3 * without[0]:.2f} ms of {without[1]:.1f} tokens, with {1e3 * within[0]:.2f} ms of {within[1]:.1f}: "
                  f"{100 * (within[0] / without[0] - 1):+.2f} %; processor {1e3 * without[2]:.2f} and {1e3 * within[2]:.2f} ms: "
                  f"{100 * (within[2] / max(1e-9, without[2]) - 1):+.2f} %", flush=True)
            if number > 0:
                plain.append(without)
                held.append(within)
    middle = lambda rows, column: statistics.median(row[column] for row in rows)
    ratio = lambda column: 100 * (statistics.median(b[column] / max(1e-9, a[column]) for a, b in zip(plain, held)) - 1)
    print(f"cost: step of {arguments.batch} plain answers {1e3 * middle(plain, 0):.2f} ms, of as many with a schema each "
          f"{1e3 * middle(held, 0):.2f} ms: {ratio(0):+.2f} %; processor {ratio(2):+.2f} %")


async def send_all(host, numbers):
    """What the server told each of the nasty requests, all of which are sent at once."""
    name, port = host.split(":")

    async def one(number):
        body = json.dumps(body_of(1, nasty_schema(number))).encode()
        try:
            reader, writer = await asyncio.open_connection(name, int(port))
            writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n"
                         f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
            answer = await reader.read()
            writer.close()
        except OSError as error:
            return [number, 0, str(error)]
        head, _, text = answer.partition(b"\r\n\r\n")
        status = int(head.split()[1]) if head else 0
        message = "" if status == 200 else (json.loads(text[text.find(b"{"):text.rfind(b"}") + 1] or b"{}").get("error") or {}).get("message", "")
        return [number, status, message]

    return await asyncio.gather(*(one(number) for number in numbers))


def gaps_beside(client, seconds, sender=None):
    """The gaps of 4 plain streams, for so long or until the sender ends."""
    stop = threading.Event()
    with ThreadPoolExecutor(4) as streams:
        running = [streams.submit(client.gaps, body_of(7000), stop) for _ in range(4)]
        time.sleep(1)
        if sender:
            told = json.loads(sender().communicate()[0])
        else:
            time.sleep(seconds)
            told = []
        stop.set()
        gaps = sorted(gap for one in running for gap in one.result())
    return gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))] if gaps else 0, len(gaps), told


def nasty(client, arguments):
    ratios, share, all_told = [], max(1, arguments.nasty // arguments.rounds), []
    for number in range(arguments.rounds):
        # A program of its own, which gives way to the server and to the reader of the streams.
        command = ["nice", "-n", "19", sys.executable, __file__, "--url", f"http://{client.host}", "--send", f"{number * share}:{(number + 1) * share}"]
        began = time.monotonic()
        rough, events, told = gaps_beside(client, 0, lambda: subprocess.Popen(command, stdout=subprocess.PIPE))
        took = time.monotonic() - began
        calm, _, _ = gaps_beside(client, max(5, min(20, took)))
        ratios.append(rough / calm if calm else 0)
        all_told += told
        print(f"nasty: p99 of a gap {1e3 * calm:.1f} ms alone, {1e3 * rough:.1f} ms beside {share} nasty schemas ({100 * (ratios[-1] - 1):+.1f} %), "
              f"{took:.0f} s, {events} gaps; {dict(Counter(status for _, status, _ in told))}", flush=True)
    by_kind = Counter((NASTY[number % len(NASTY)].__name__, status, message[:140]) for number, status, message in all_told)
    for (kind, status, message), count in sorted(by_kind.items()):
        print(f"  {kind:13} {status} {count:4} {message}")
    print(f"nasty: {share * arguments.rounds} schemas, median {100 * (statistics.median(ratios) - 1):+.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--nasty", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--send", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        first, last = map(int, arguments.send.split(":"))
        print(json.dumps(asyncio.run(send_all(urlsplit(arguments.url).netloc, range(first, last)))))
        return
    server = None if arguments.url else serving.Server("--max-seqs", str(max(64, arguments.batch)))
    client = Client(arguments.url or server.url)
    try:
        if arguments.batch > 0:
            cost(client, arguments)
        if arguments.nasty > 0:
            nasty(client, arguments)
    finally:
        if server:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
