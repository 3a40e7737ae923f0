#!/usr/bin/env python3
"""What speculation gains on prompts that repeat, and costs on prompts that do not: tokens per second, with each proposer and
without in turn. Answers must be the same. The gain is the median of the ratios of neighbouring runs; beside it stand the
tokens per pass of a sequence, which are the gain where verifying drafts costs nothing.

usage: speculate.py [--binary PATH] [--model FILE] [--rounds N] [--tokens N] [--batch N] [--only TEXT] [PROPOSER ...]
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
CHAT = ["Once upon a time there was a fisherman who",
        "Question: What is the capital of France, and what is it known for?\nAnswer:",
        "Dear Sir or Madam,\nI am writing to complain about",
        "The three most important things to know about baking bread are",
        "User: My bicycle makes a noise when I brake. What should I do?\nAssistant:",
        "In 1969 the first people landed on the moon. The mission",
        "Recipe for a simple tomato soup:\n",
        "A short poem about the sea in autumn:\n"]
WORKLOADS = {
    "repeat a text": [f"Repeat this text word for word:\n{MINUTES}\nThe text again:\n{MINUTES[:60]}"],
    "go on with code": [f"# Python\n{CODE}def area("],
    "new code": ["# Python: a class for a binary search tree with insert, find and remove\nclass Node:\n"],
    "mixed chat": CHAT,
}


def run(options, prompts, proposer):
    """Seconds of the engine's steps, tokens, counters."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests = [{"id": str(i), "prompt": prompts[i % len(prompts)], "max_tokens": options.tokens, "temperature": 0,
                     "ignore_eos": True} for i in range(max(options.batch, len(prompts)))]
        (folder / "in.jsonl").write_text("".join(json.dumps(request) + "\n" for request in requests))
        subprocess.run([options.binary, "generate", "--input", folder / "in.jsonl", "--output", folder / "out.jsonl", "-m",
                        options.model, "--metrics", folder / "metrics.json", "--max-seqs", str(options.batch),
                        "--prefix-cache", "off", "--speculate", proposer],
                       check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        answers = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
        counts = json.loads((folder / "metrics.json").read_text())
    tokens = {answer["id"]: answer["choices"][0]["token_ids"] for answer in answers}
    return counts["step_seconds"]["mean"] * counts["step_seconds"]["count"], tokens, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/release/sluice")
    parser.add_argument("--model", default=".models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--only", default="", help="workloads whose name has this text")
    parser.add_argument("proposers", nargs="*", default=["ngram", "suffix", "auto"])
    options = parser.parse_args()
    print("| prompts | batch | proposer | tok/s | gain | tokens a pass | steps | drafted | accepted |\n"
          "|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for title, prompts in WORKLOADS.items():
        if options.only not in title:
            continue
        seconds, expected = {}, None
        for _ in range(options.rounds):
            for proposer in ["off", *options.proposers]:
                took, tokens, counts = run(options, prompts, proposer)
                expected = expected or tokens
                if tokens != expected:
                    raise SystemExit(f"{title}: an answer with {proposer} is another one")
                seconds.setdefault(proposer, []).append((took, counts))
        for proposer, runs in seconds.items():
            took, counts = statistics.median(took for took, _ in runs), runs[-1][1]
            gain = statistics.median(off / on for (off, _), (on, _) in zip(seconds["off"], runs))
            made = counts["generated_tokens"]
            passes = made - counts["accepted_drafts"]
            print(f"| {title} | {options.batch} | {proposer} | {made / took:.0f} | {gain:.2f} | {made / passes:.2f} | "
                  f"{counts['steps']} | {counts['drafted_tokens']} | {counts['accepted_drafts']} |", flush=True)


if __name__ == "__main__":
    main()
