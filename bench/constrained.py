#!/usr/bin/env python3
"""What constraints cost those that have them, and those that have none: constrained.py [--url URL] [--batch N] [--tokens N]
[--nasty N] [--rounds N]

cost:  N answers at once without a schema and N with a different schema each, in turn. Printed is the mean time of a step in
       both (sluice_step_seconds of /metrics), and their ratio. The first round of each is not counted: masks are computed
       when they are first met.
nasty: gaps between the tokens of plain streams while N requests of one token arrive, without schemas and with schemas that
       are slow to compile, in turn. Printed is the p99 of both, and their ratio.
Both kinds of a round run next to each other, so that other programs of the machine disturb them alike. Without --url it
starts `sluice serve` with the default model."""
import argparse
import http.client
import json
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
import serving

QUESTION = [{"role": "user", "content": "Write a long list of made-up people with their jobs."}]


def schema_of(number):
    """An answer that goes on for as long as it is let, with names of its own."""
    members = {f"name_{number}": {"type": "string"}, f"age_{number}": {"type": "integer"}, f"job_{number}": {"enum": ["cook", "smith", "clerk"]},
               "tags": {"type": "array", "items": {"type": "string"}}}
    person = {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
    return {"type": "array", "items": person, "minItems": 500}


def nasty_schema(number):
    """Slow to compile, and new each time."""
    many = {f"key_{number}_{i}": {"type": "string", "pattern": f"^[a-z]{{{i % 7 + 1},{i % 90 + 20}}}_{number}$"} for i in range(40)}
    deep = {"type": "string", "maxLength": 900 + number % 50}
    for level in range(8):
        deep = {"type": "object", "properties": {f"level_{number}_{level}": deep, **many}, "minProperties": 3}
    return {"anyOf": [deep, {"enum": [f"value {number} {i}" for i in range(2000)]}]}


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

    def steps(self):
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        value = lambda name: sum(float(line.split()[-1]) for line in lines if line.startswith(name))
        return value("sluice_step_seconds_sum"), value("sluice_step_seconds_count")


def body_of(tokens, schema=None):
    body = {"messages": QUESTION, "temperature": 1, "max_tokens": tokens}
    if schema is None:
        return body | {"ignore_eos": True}
    return body | {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def mean_step(client, pool, bodies):
    seconds, count = client.steps()
    list(pool.map(client.whole, bodies))
    later, more = client.steps()
    return (later - seconds) / max(1, more - count)


def cost(client, arguments):
    plain, held = [], []
    with ThreadPoolExecutor(arguments.batch) as pool:
        for number in range(arguments.rounds + 1):
            times = [mean_step(client, pool, [body_of(arguments.tokens)] * arguments.batch),
                     mean_step(client, pool, [body_of(arguments.tokens, schema_of(i)) for i in range(arguments.batch)])]
            if number > 0:
                plain.append(times[0])
                held.append(times[1])
    ratio = statistics.median(b / a for a, b in zip(plain, held))
    print(f"cost: step of {arguments.batch} plain answers {1e3 * statistics.median(plain):.2f} ms, of as many with a schema each "
          f"{1e3 * statistics.median(held):.2f} ms: {100 * (ratio - 1):+.1f} %")


def disturbed(client, count, make):
    """The gaps of 4 plain streams while `count` other requests come, 32 at a time."""
    stop = threading.Event()
    with ThreadPoolExecutor(4) as streams, ThreadPoolExecutor(32) as others:
        running = [streams.submit(client.gaps, body_of(4000), stop) for _ in range(4)]
        time.sleep(0.5)
        codes = list(others.map(lambda number: client.whole(make(number)), range(count)))
        stop.set()
        gaps = sorted(gap for one in running for gap in one.result())
    return gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))] if gaps else 0, codes


def nasty(client, arguments):
    ratios, share = [], max(1, arguments.nasty // arguments.rounds)
    for number in range(arguments.rounds):
        calm, _ = disturbed(client, share, lambda _: body_of(1))
        rough, codes = disturbed(client, share, lambda i: body_of(1, nasty_schema(number * share + i)))
        ratios.append(rough / calm if calm else 0)
        print(f"nasty: p99 of a gap {1e3 * calm:.1f} ms beside plain requests, {1e3 * rough:.1f} ms beside nasty schemas "
              f"({100 * (ratios[-1] - 1):+.1f} %); answers {dict((code, codes.count(code)) for code in set(codes))}", flush=True)
    print(f"nasty: {share * arguments.rounds} schemas, median {100 * (statistics.median(ratios) - 1):+.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--nasty", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
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
