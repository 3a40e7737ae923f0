#!/usr/bin/env python3
"""What speculation gains on prompts that repeat, and costs on prompts that do not: tokens per second of one answer after the
other, with each proposer and without, in turn. Answers must be the same.

usage: speculate.py [--binary PATH] [--model FILE] [--rounds N] [--tokens N] [PROPOSER ...]
"""
import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

MINUTES = ("The committee shall publish the minutes of every meeting within five working days. "
           "Members who cannot attend shall name a deputy. ") * 3
CODE = ("def area(width, height):\n    return width * height\n\n"
        "def volume(width, height, depth):\n    return width * height * depth\n\n") * 3
WORKLOADS = {
    "repeat a text": f"Repeat this text word for word:\n{MINUTES}\nThe text again:\n{MINUTES[:60]}",
    "go on with code": f"# Python\n{CODE}def area(",
    "a story": "Once upon a time there was a fisherman who",
    "a question": "Question: What is the capital of France, and what is it known for?\nAnswer:",
}


def run(options, prompt, proposer):
    """Seconds of the engine's steps, tokens, counters."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        request = {"id": "0", "prompt": prompt, "max_tokens": options.tokens, "temperature": 0, "ignore_eos": True}
        (folder / "in.jsonl").write_text(json.dumps(request) + "\n")
        subprocess.run([options.binary, "generate", "--input", folder / "in.jsonl", "--output", folder / "out.jsonl", "-m",
                        options.model, "--metrics", folder / "metrics.json", "--speculate", proposer],
                       check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        answer = json.loads((folder / "out.jsonl").read_text())
        counts = json.loads((folder / "metrics.json").read_text())
    return counts["decode_seconds"]["mean"], answer["choices"][0]["token_ids"], counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/sluice")
    parser.add_argument("--model", default=".models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("proposers", nargs="*", default=["ngram", "suffix"])
    options = parser.parse_args()
    print("| prompt | proposer | tok/s | gain | steps | drafted | accepted |\n|---|---|---:|---:|---:|---:|---:|")
    for title, prompt in WORKLOADS.items():
        seconds, expected = {}, None
        for _ in range(options.rounds):
            for proposer in ["off", *options.proposers]:
                took, tokens, counts = run(options, prompt, proposer)
                expected = expected or tokens
                if tokens != expected:
                    raise SystemExit(f"{title}: the answer with {proposer} is another one")
                seconds.setdefault(proposer, []).append((took, counts))
        off = statistics.median(took for took, _ in seconds["off"])
        for proposer, runs in seconds.items():
            took, counts = statistics.median(took for took, _ in runs), runs[-1][1]
            print(f"| {title} | {proposer} | {(options.tokens - 1) / took:.0f} | {off / took:.2f} | {counts['steps']} | "
                  f"{counts['drafted_tokens']} | {counts['accepted_drafts']} |", flush=True)


if __name__ == "__main__":
    main()
