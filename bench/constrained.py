#!/usr/bin/env python3
"""What constraints cost those that have them, and those that have none: constrained.py [--url URL] [--batch N] [--tokens N]
[--nasty N] [--rounds N]

cost:  N answers at once without a schema and N with a different schema each, in turn. Printed is the time of a step in both
       while all N are running (sluice_step_seconds of /metrics), how many tokens a step gave, and the median of the ratios,
       and the same for the time from step to step by the clock, and for the processor time of the server, which other
       programs disturb less.
       The schemas leave a choice nearly everywhere, so that no token is forced and the steps have the same rows. The first
       round is not counted: masks are computed when they are first met.
nasty: gaps between the tokens of 4 plain streams, alone and while N requests with schemas that are slow, or too large, come
       at once, in turn; from the first of them to the last answer. Printed is the p99 of both, their ratio, the median, what
       the requests were told, and what share of a core other programs took meanwhile: runs with more than a few percent say
       little. A step takes longer the more tokens its answers have, so both are cut to as many tokens of each stream; and
       tokens that end inside a character give no event, so the streams are greedy answers of plain ASCII.
Both kinds of a round run next to each other, so that other programs of the machine disturb them alike. Without --url it
starts `sluice serve` with the default model; with it, Python's standard library is all that it needs."""
import argparse
import http.client
import json
import os
import random
import statistics
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streams import Client, Sender, quantile

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


class Measured(Client):
    def seconds_of_others(self):
        """Of the processor that neither this script, nor what it started and waited for, nor the server has used."""
        fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        return busy - sum(os.times()[:4]) - self.counters()[3]

    def counters(self):
        """Seconds of steps, steps, tokens that were generated, seconds of the processor, and what time it is."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        value = lambda name: sum(float(line.split()[-1]) for line in lines if line.startswith(name))
        return value("sluice_step_seconds_sum"), value("sluice_step_seconds_count"), value("sluice_generated_tokens_total"), value("process_cpu_seconds_total"), time.monotonic()


def body_of(tokens, schema=None):
    body = {"messages": QUESTION, "temperature": 1, "max_tokens": tokens}
    if schema is None:
        return body | {"ignore_eos": True}
    return body | {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def running_step(client, pool, bodies, tokens):
    """Mean seconds of a step in the executor, its tokens, processor seconds, and seconds by the clock, between the time when
    all have begun and when the first may end."""
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
    return tuple((last[i] - first[i]) / steps for i in (0, 2, 3, 4))


def cost(client, arguments):
    plain, held = [], []
    with ThreadPoolExecutor(arguments.batch) as pool:
        for number in range(arguments.rounds + 1):
            without = running_step(client, pool, [body_of(arguments.tokens)] * arguments.batch, arguments.tokens)
            within = running_step(client, pool, [body_of(arguments.tokens, schema_of(i)) for i in range(arguments.batch)], arguments.tokens)
            print(f"cost: step without {1e3 * without[0]:.2f} ms of {without[1]:.1f} tokens, with {1e3 * within[0]:.2f} ms of {within[1]:.1f}: "
                  f"{100 * (within[0] / without[0] - 1):+.2f} %; by the clock {1e3 * without[3]:.2f} and {1e3 * within[3]:.2f} ms: "
                  f"{100 * (within[3] / without[3] - 1):+.2f} %; processor {1e3 * without[2]:.2f} and {1e3 * within[2]:.2f} ms: "
                  f"{100 * (within[2] / max(1e-9, without[2]) - 1):+.2f} %", flush=True)
            if number > 0:
                plain.append(without)
                held.append(within)
    middle = lambda rows, column: statistics.median(row[column] for row in rows)
    ratio = lambda column: 100 * (statistics.median(b[column] / max(1e-9, a[column]) for a, b in zip(plain, held)) - 1)
    print(f"cost: step of {arguments.batch} plain answers {1e3 * middle(plain, 0):.2f} ms, of as many with a schema each "
          f"{1e3 * middle(held, 0):.2f} ms: {ratio(0):+.2f} %; by the clock {ratio(3):+.2f} %; processor {ratio(2):+.2f} %")


def gaps_beside(client, seconds, sender=None):
    """The gaps of 4 plain streams, and what the sender was told, for so long or until it is done."""
    begin, stop = threading.Event(), threading.Event()
    with ThreadPoolExecutor(4) as streams:
        running = [streams.submit(client.gaps, body_of(7000) | {"temperature": 0}, begin, stop) for _ in range(4)]
        time.sleep(1)
        begin.set()
        told = []
        if sender:
            told = sender.send()
            sender.close()
        else:
            time.sleep(seconds)
        stop.set()
        return [one.result() for one in running], told


def quantile_of(streams, tokens, share):
    return quantile([gap for stream in streams for gap in stream[:tokens]], share)


def sender_seconds(sender):
    """What a program that still runs has used of the processor; it counts as this script's once it was waited for."""
    fields = Path(f"/proc/{sender.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def nasty(client, arguments):
    ratios, share, all_told = [], max(1, arguments.nasty // arguments.rounds), []
    for number in range(arguments.rounds):
        first = number * share
        sender = Sender(client.url, [body_of(1, nasty_schema(i)) for i in range(first, first + share)])
        began, others = time.monotonic(), client.seconds_of_others() - sender_seconds(sender.process)
        rough, told = gaps_beside(client, 0, sender)
        took = time.monotonic() - began
        shares = [client.seconds_of_others() - others]
        others = client.seconds_of_others()
        calm, _ = gaps_beside(client, took)
        shares.append(client.seconds_of_others() - others)
        tokens = min(len(stream) for stream in rough + calm)
        alone, beside = quantile_of(calm, tokens, 0.99), quantile_of(rough, tokens, 0.99)
        ratios.append(beside / alone if alone else 0)
        all_told += [[first + one[0], *one[1:]] for one in told]
        print(f"nasty: p99 of a gap {1e3 * alone:.1f} ms alone, {1e3 * beside:.1f} ms beside {share} nasty schemas ({100 * (ratios[-1] - 1):+.1f} %), "
              f"median {1e3 * quantile_of(calm, tokens, 0.5):.1f} and {1e3 * quantile_of(rough, tokens, 0.5):.1f} ms, {took:.0f} s, "
              f"{tokens} tokens of each stream, other programs {100 * max(0, shares[1]) / took:.0f} and {100 * max(0, shares[0]) / took:.0f} % of a core; "
              f"{dict(Counter(status for _, status, _, _ in told))}", flush=True)
    by_kind = Counter((NASTY[number % len(NASTY)].__name__, status, message[:140]) for number, status, message, _ in all_told)
    for (kind, status, message), count in sorted(by_kind.items()):
        print(f"  {kind:13} {status} {count:4} {message}")
    print(f"nasty: {share * arguments.rounds} schemas, median {100 * (statistics.median(ratios) - 1):+.1f} %")


def started(arguments):
    """A server with the default model."""
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
    import serving
    return serving.Server("--max-seqs", str(max(64, arguments.batch)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--nasty", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    server = None if arguments.url else started(arguments)
    client = Measured(arguments.url or server.url)
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
