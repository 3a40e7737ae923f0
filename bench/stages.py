#!/usr/bin/env python3
"""Ranks beside one rank on the same cores: tokens a second of requests in flight, decode and prefill.

  bench/stages.py [--cut pp] [--stages 2] [--threads 1] [--all-cores] [--requests 8] [--tokens 128] [--prompt 400]
                  [--rounds 5] [--micro-batches 0] [--model FILE]

One server has all threads (stages x threads), the other is `mpirun -n STAGES sluice serve --pp STAGES -t THREADS`, with --cut tp
one of `--tp STAGES`; with --all-cores each of its ranks has all threads, too. Both are up all the time and take turns, round by
round; the ratio is of their medians."""
import argparse
import random
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
from serving import DEFAULT_MODEL, Server  # noqa: E402

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n")


def ask_all(server, options, rng, prompt, tokens):
    """Seconds in which all requests, which start together, have been answered."""
    bodies = [{"model": server.model, "prompt": [rng.randrange(1000, 40000) for _ in range(prompt)], "max_tokens": tokens,
               "temperature": 0, "ignore_eos": True} for _ in range(options.requests)]
    answers = []
    threads = [threading.Thread(target=lambda body=body: answers.append(server.request("POST", "/v1/completions", body)))
               for body in bodies]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begin
    assert all(status == 200 for status, *_ in answers), answers[0]
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("stages", 2), ("threads", 1), ("requests", 8), ("tokens", 128), ("prompt", 400), ("rounds", 5),
                          ("micro-batches", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--all-cores", action="store_true")
    parser.add_argument("--cut", choices=("pp", "tp"), default="pp")
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    options = parser.parse_args()
    flags = ("-m", options.model, "--device", "cpu", "--ctx-size", 2048, "--kv-tokens", 16384, "--speculate", "off")
    all_threads = options.stages * options.threads
    rng = random.Random(3)
    loads = {"decode": (16, options.tokens, options.tokens), "prefill": (options.prompt, 1, options.prompt)}
    rates = {}
    with Server(*flags, "-t", all_threads) as one, \
            Server(*flags, "-t", all_threads if options.all_cores else options.threads, f"--{options.cut}", options.stages,
                   "--pp-micro-batches", options.micro_batches, before=(*MPIRUN, options.stages)) as staged:
        for turn in range(options.rounds + 1):
            for load, (prompt, tokens, counted) in loads.items():
                for name, server in (("one rank", one), ("stages", staged)):
                    took = ask_all(server, options, rng, prompt, tokens)
                    if turn > 0:  # the first one warms up
                        rates.setdefault((load, name), []).append(options.requests * counted / took)
            print(f"round {turn}:", *(f"{load} of {name} {values[-1]:.0f}" for (load, name), values in rates.items()), flush=True)
    for load in loads:
        one, staged = (statistics.median(rates[load, name]) for name in ("one rank", "stages"))
        pairs = sorted(b / a for a, b in zip(rates[load, "one rank"], rates[load, "stages"]))
        print(f"{load:8} one rank {one:8.1f} tokens/s   {options.stages} stages {staged:8.1f} tokens/s   ratio {staged / one:.3f}"
              f"   of rounds {pairs[0]:.3f} to {pairs[-1]:.3f}", flush=True)


if __name__ == "__main__":
    main()
