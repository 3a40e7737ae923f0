#!/usr/bin/env python3
"""One workload under every scheduling scheme and KV policy, as a markdown table.

64 requests of random tokens arrive at once; lengths of prompts and answers are log-uniform, so that short and long ones
mix in every batch. Each row is one run of `sluice generate`; its figures are the engine's own metrics."""
import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NO_CACHE = "no KV cache, batch 1"
SCHEMES = {
    NO_CACHE: ["--scheme", "continuous", "--kv-cache", "off", "--max-seqs", "1"],
    "static padded": ["--scheme", "static", "--layout", "padded"],
    "dynamic padded": ["--scheme", "dynamic", "--layout", "padded"],
    "iteration padded": ["--scheme", "iteration", "--layout", "padded"],
    "iteration packed": ["--scheme", "iteration", "--layout", "packed"],
    "continuous separate": ["--scheme", "continuous", "--prefill", "separate"],
    "continuous mixed": ["--scheme", "continuous", "--prefill", "mixed"],
}
POLICIES = ["preallocate", "on-demand"]


def lengths(text):
    """'8-128' as a pair."""
    low, _, high = text.partition("-")
    if not (low.isdigit() and high.isdigit() and 0 < int(low) <= int(high)):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form 8-128")
    return int(low), int(high)


def log_uniform(source, bounds):
    low, high = bounds
    return round(math.exp(source.uniform(math.log(low), math.log(high))))


def workload(options):
    source = random.Random(options.seed)
    return [{"id": str(i), "prompt": [source.randrange(1000, 20000) for _ in range(log_uniform(source, options.prompt))],
             "max_tokens": log_uniform(source, options.output), "temperature": 0, "ignore_eos": True}
            for i in range(options.requests)]


def run(options, folder, flags, requests):
    """The metrics of one run."""
    jobs, answers, metrics = folder / "in.jsonl", folder / "out.jsonl", folder / "metrics.json"
    jobs.write_text("".join(json.dumps(request) + "\n" for request in requests))
    command = [options.sluice, "generate", "-i", jobs, "-o", answers, "--force", "--metrics", metrics, "--prefix-cache", "off",
               "--max-step-tokens", str(options.max_step_tokens), "--kv-tokens", str(options.kv_tokens)]
    if "--max-seqs" not in flags:
        command += ["--max-seqs", str(options.max_seqs)]
    if options.model:
        command += ["-m", options.model]
    done = subprocess.run([*map(str, command), *flags], stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"scheme_table: {' '.join(flags)}: {done.stderr.strip()}")
    found = json.loads(metrics.read_text())
    if found["requests_reached_length"] != len(requests):
        sys.exit(f"scheme_table: {' '.join(flags)}: {found['requests_reached_length']} of {len(requests)} requests ended well")
    return found


def row(name, policy, found):
    def seconds(metric, key):
        return f"{found[metric][key]:.2f}"

    def milliseconds(metric, key):
        return f"{found[metric][key] * 1e3:.0f}"

    padding = 1 - found["run_tokens"] / found["computed_tokens"]
    cells = [name, policy, f"{found['generated_tokens'] / found['seconds']:.1f}", f"{found['seconds']:.1f}",
             seconds("ttft_seconds", "p50"), seconds("ttft_seconds", "p99"), milliseconds("tpot_seconds", "p50"),
             milliseconds("tbt_seconds", "p50"), milliseconds("tbt_seconds", "p99"), f"{padding * 100:.0f} %",
             f"{found['kv_share']['mean'] * 100:.0f} %", f"{found['batch_size']['mean']:.1f}",
             str(found["preemptions_recompute"] + found["preemptions_swap"])]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sluice", default=str(ROOT / "build/release/sluice"), help="the program")
    parser.add_argument("-m", "--model", help="the default model where left out")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=lengths, default=(8, 128), help="shortest-longest prompt (%(default)s)")
    parser.add_argument("--output", type=lengths, default=(8, 256), help="shortest-longest answer (%(default)s)")
    parser.add_argument("--max-seqs", type=int, default=16)
    parser.add_argument("--max-step-tokens", type=int, default=512)
    parser.add_argument("--kv-tokens", type=int, default=3072, help="too few for 16 of the longest: KV policies differ")
    parser.add_argument("--no-cache-requests", type=int, default=4,
                        help="requests of the rows without KV cache, whose work grows with the square of the length")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not Path(options.sluice).is_file():
        sys.exit(f"scheme_table: '{options.sluice}' does not exist; build it with ninja -C build/release sluice")
    requests = workload(options)
    print(f"{len(requests)} requests, {sum(len(r['prompt']) for r in requests)} prompt tokens, "
          f"{sum(r['max_tokens'] for r in requests)} tokens to generate; without KV cache the first "
          f"{options.no_cache_requests} of them.\n")
    print("| scheme | KV | tokens/s | time s | TTFT p50 s | p99 | TPOT p50 ms | TBT p50 ms | p99 | padding | KV use | batch | preempted |")
    print("|---|---|" + "---:|" * 11, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in SCHEMES.items():
            part = requests[:options.no_cache_requests] if name == NO_CACHE else requests
            for policy in POLICIES:
                print(row(name, policy, run(options, Path(folder), [*flags, "--kv-policy", policy], part)), flush=True)


if __name__ == "__main__":
    main()
