#!/usr/bin/env python3
"""Load on a server that speaks OpenAI's API, and what the clients saw: serve.py --url http://127.0.0.1:8080 [...]

Requests are /v1/completions of random token ids, so that no text is cached by accident; `--shared-prefix` begins all of
them alike. They come in a closed loop of --max-concurrency clients, or by a Poisson process with --request-rate. The
report has the layout and the names of `vllm bench serve`; --save-result keeps it as JSON."""
import argparse
import asyncio
import json
import random
import statistics
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

from streaming import completion, stream

PERCENTILES = (50, 90, 99)


def span(text):
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", help="the first one the server lists where left out")
    parser.add_argument("--api-key")
    parser.add_argument("--num-prompts", type=int, default=64)
    parser.add_argument("--duration", type=float, help="seconds in which requests are sent, in place of --num-prompts")
    parser.add_argument("--input-len", type=span, default=(16, 128), metavar="A-B")
    parser.add_argument("--output-len", type=span, default=(16, 128), metavar="A-B")
    parser.add_argument("--shared-prefix", type=int, default=0, metavar="TOKENS")
    parser.add_argument("--vocab", type=int, default=20000, help="ids are below this")
    parser.add_argument("--max-concurrency", type=int, default=16)
    parser.add_argument("--request-rate", type=float, default=float("inf"), help="requests a second; inf: a closed loop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-result", type=Path, metavar="FILE")
    return parser.parse_args()


class Workload:
    """An endless row of requests, the same for the same seed."""

    def __init__(self, options, model):
        self.options, self.model, self.source = options, model, random.Random(options.seed)
        self.shared = [self.source.randrange(1000, options.vocab) for _ in range(options.shared_prefix)]

    def next(self):
        count = self.source.randint(*self.options.input_len)
        prompt = self.shared + [self.source.randrange(1000, self.options.vocab) for _ in range(count)]
        return completion(prompt, self.source.randint(*self.options.output_len), model=self.model)


async def drive(options, workload, port, headers):
    """All requests; the streams that came of them, in the order of their start."""
    results, started, count = [], time.monotonic(), 0

    def wanted():
        if options.duration is not None:
            return time.monotonic() - started < options.duration
        return count < options.num_prompts

    async def one(body):
        try:
            result = await stream(port, body, headers=headers)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            results.append((body, None, str(error)))
            return
        results.append((body, result, "" if result.complete else json.dumps(result.error)))

    async def client():
        nonlocal count
        while wanted():
            count += 1
            await one(workload.next())

    if options.request_rate == float("inf"):
        await asyncio.gather(*(client() for _ in range(options.max_concurrency)))
        return results, time.monotonic() - started
    tasks = []
    while wanted():
        count += 1
        tasks.append(asyncio.create_task(one(workload.next())))
        await asyncio.sleep(workload.source.expovariate(options.request_rate))
    await asyncio.gather(*tasks)
    return results, time.monotonic() - started


def quantile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, round(percent / 100 * (len(values) - 1)))]


def summary(results, seconds):
    done = [(body, result) for body, result, error in results if result is not None and not error]
    report = {"duration": seconds, "completed": len(done), "failed": len(results) - len(done),
              "total_input_tokens": sum(len(body["prompt"]) for body, _ in done),
              "total_output_tokens": sum(result.tokens for _, result in done),
              "errors": sorted({error[:200] for _, _, error in results if error})}
    report |= {"request_throughput": len(done) / seconds, "output_throughput": report["total_output_tokens"] / seconds,
               "total_token_throughput": (report["total_input_tokens"] + report["total_output_tokens"]) / seconds}
    times = {
        "ttft": [result.ttft for _, result in done if result.times],
        "tpot": [(result.times[-1] - result.times[0]) / (result.tokens - 1) for _, result in done if result.tokens > 1],
        "itl": [gap for _, result in done for gap in result.gaps],
        "e2el": [result.ended - result.sent for _, result in done],
    }
    for name, values in times.items():
        if values:
            report[f"mean_{name}_ms"] = 1e3 * statistics.mean(values)
            report |= {f"p{percent}_{name}_ms": 1e3 * quantile(values, percent) for percent in PERCENTILES}
    return report


def show(report):
    rows = [("Successful requests", "completed", "d"), ("Failed requests", "failed", "d"),
            ("Benchmark duration (s)", "duration", ".2f"), ("Total input tokens", "total_input_tokens", "d"),
            ("Total generated tokens", "total_output_tokens", "d"), ("Request throughput (req/s)", "request_throughput", ".2f"),
            ("Output token throughput (tok/s)", "output_throughput", ".2f"),
            ("Total token throughput (tok/s)", "total_token_throughput", ".2f")]
    print(f"{' Serving Benchmark Result ':=^50}")
    for label, key, form in rows:
        print(f"{label + ':':<40}{report[key]:<10{form}}")
    for name, title in (("ttft", "Time to First Token"), ("tpot", "Time per Output Token (excl. 1st token)"),
                        ("itl", "Inter-token Latency"), ("e2el", "End-to-end Latency")):
        if f"mean_{name}_ms" in report:
            print(f"{title:-^50}")
            for key in ("mean", *(f"p{percent}" for percent in PERCENTILES)):
                print(f"{f'{key.capitalize()} {name.upper()} (ms):':<40}{report[f'{key}_{name}_ms']:<10.2f}")
    print("=" * 50)
    for error in report["errors"][:5]:
        print(f"failed: {error}")


def main():
    options = arguments()
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    model = options.model
    if not model:
        with urllib.request.urlopen(urllib.request.Request(options.url + "/v1/models", headers=headers)) as answer:
            model = json.load(answer)["data"][0]["id"]
    workload = Workload(options, model)
    results, seconds = asyncio.run(drive(options, workload, urlparse(options.url).port or 80, headers))
    report = summary(results, seconds)
    show(report)
    if options.save_result:
        options.save_result.write_text(json.dumps(report | {"model_id": model, "num_prompts": len(results)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
