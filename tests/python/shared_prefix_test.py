#!/usr/bin/env python3
"""Requests that begin alike compute their common beginning once: the prefill work of 32 requests behind 1,500 shared
tokens falls by at least 90 %, by the engine's own metrics and by the answers' usage, and no answer changes."""
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SLUICE = os.environ.get("SLUICE_BINARY", str(ROOT / "build/release/sluice"))
MODELS = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models"))
REQUESTS, SHARED, OWN, ANSWER, BEGINNING = 32, 1500, 12, 4, 100


def jobs(count):
    source = random.Random(7)
    shared = [source.randrange(1000, 20000) for _ in range(SHARED)]
    return [{"id": str(i), "prompt": shared + [source.randrange(1000, 20000) for _ in range(OWN)],
             "max_tokens": ANSWER, "temperature": 0, "ignore_eos": True} for i in range(count)]


def generate(folder, requests, prefix_cache):
    """Answers by id, and the engine's metrics."""
    given, answers, metrics = folder / "in.jsonl", folder / "out.jsonl", folder / "metrics.json"
    given.write_text("".join(json.dumps(request) + "\n" for request in requests))
    subprocess.run([SLUICE, "generate", "-i", given, "-o", answers, "--force", "--metrics", metrics, "--prefix-cache", prefix_cache],
                   check=True)
    lines = [json.loads(line) for line in answers.read_text().splitlines()]
    return {line["id"]: line for line in lines}, json.loads(metrics.read_text())


def prefill_tokens(metrics, requests):
    """Prompt tokens that were run: every token of a step but the ones that were generated and fed back."""
    return metrics["run_tokens"] - len(requests) * (ANSWER - 1)


def main():
    if not any(MODELS.glob("*.gguf")):
        print(f"the default model is not in {MODELS}\n0 passed, 0 failed, 1 skipped")
        return 0
    failures = []
    with tempfile.TemporaryDirectory() as name:
        requests = jobs(REQUESTS)
        shared, metrics = generate(Path(name), requests, "on")
        # Without sharing each request computes its whole prompt: one of them as it is, for its answer, and the beginning of
        # another one.
        apart = [requests[0], requests[1] | {"prompt": requests[1]["prompt"][:BEGINNING]}]
        alone, plain = generate(Path(name), apart, "off")
    whole = REQUESTS * (SHARED + OWN)
    run = prefill_tokens(metrics, requests)
    print(f"{whole} prompt tokens, {run} run with the prefix cache: {100 * (1 - run / whole):.1f} % less")
    if prefill_tokens(plain, apart) != SHARED + OWN + BEGINNING:
        failures.append(f"without the prefix cache {prefill_tokens(plain, apart)} tokens ran")
    if run > 0.1 * whole:
        failures.append(f"{run} of {whole} prompt tokens ran")
    cached = sum(line["usage"]["cached_tokens"] for line in shared.values())
    if cached != metrics["cached_tokens"] or cached + run != whole:
        failures.append(f"usage says {cached} cached tokens, metrics {metrics['cached_tokens']}, {whole - run} did not run")
    if alone["0"]["choices"][0]["token_ids"] != shared["0"]["choices"][0]["token_ids"]:
        failures.append("an answer differs with the prefix cache on")
    for failure in failures:
        print(f"FAILED: {failure}")
    print(f"{4 - len(failures)} passed, {len(failures)} failed, 0 skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
