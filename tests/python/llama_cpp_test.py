#!/usr/bin/env python3
"""Greedy text of the default model against llama.cpp's, recorded by tools/make_llama_cpp_cases.py.

Both programs round activations to 8 bits, each in its own way, so that a near tie may fall either way. Hence two rules:
at least five prompts continue with the same eight tokens; and every recorded token, whether the texts have parted or
not, is by our reference back-end the likeliest in its place or at most MARGIN below it. SLUICE_BINARY names the program,
SLUICE_MODELS the folder of the default model; an argument names another device than the CPU for the first rule.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = os.environ.get("SLUICE_BINARY", str(ROOT / "build/release/sluice"))
MODEL = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
CASES = json.loads((Path(__file__).parent / "data/llama_cpp.json").read_text())["cases"]
TOKENS, PROMPTS = 8, 5
# On these tokens our own back-ends, 32-bit and 8-bit activations, differ by up to 0.30 in a logarithm of probability,
# and 0.22 is the most that a token of llama.cpp lies below our likeliest.
MARGIN = 0.5


def generate(folder, requests, device):
    source, target = folder / "in.jsonl", folder / "out.jsonl"
    lines = [{"id": str(i), "temperature": 0, "ignore_eos": True, **request} for i, request in enumerate(requests)]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([BINARY, "generate", "--input", source, "--output", target, "-m", MODEL, "--device", device, "--force"],
                   check=True, stdin=subprocess.DEVNULL)
    answers = {int(line["id"]): line for line in map(json.loads, target.read_text().splitlines())}
    return [answers[i] for i in range(len(requests))]


def greedy_agreement(folder, device):
    """How many prompts continue alike, from text to tokens by our own tokenizer."""
    answers = generate(folder, [{"prompt": case["text"], "max_tokens": TOKENS} for case in CASES], device)
    agree = 0
    for case, answer in zip(CASES, answers):
        ours, theirs = answer["choices"][0]["token_ids"], case["answer"][:TOKENS]
        same = next((i for i in range(TOKENS) if ours[i] != theirs[i]), TOKENS)
        agree += same == TOKENS
        if same < TOKENS:
            print(f"{case['text']!r}: {same} tokens agree, then {answer['choices'][0]['text']!r}")
    print(f"{agree} of {len(CASES)} prompts agree for {TOKENS} tokens on {device}")
    return agree


def distances(folder):
    """By how much each recorded token lies below our likeliest one in its place: (distance, prompt, position)."""
    requests = [{"prompt": case["prompt"] + case["answer"], "max_tokens": 1, "prompt_logprobs": 1} for case in CASES]
    for case, answer in zip(CASES, generate(folder, requests, "ref")):
        for i, token in enumerate(answer["prompt_logprobs"][-len(case["answer"]):]):
            assert token["token_id"] == case["answer"][i]
            yield max(0.0, token["top_logprobs"][0]["logprob"] - token["logprob"]), case["text"], i


def main():
    if not MODEL.exists():
        print(f"the default model is not at {MODEL}\n0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory() as name:
        agree = greedy_agreement(Path(name), sys.argv[1] if len(sys.argv) > 1 else "cpu")
        found = list(distances(Path(name)))
    far = [entry for entry in found if entry[0] > MARGIN]
    parted = [entry[0] for entry in found if entry[0] > 0]
    print(f"{len(parted)} of {len(found)} recorded tokens are not our likeliest, the farthest {max(parted, default=0):.2f} below")
    for distance, text, i in far:
        print(f"FAILED: {text!r}: token {i} of llama.cpp is {distance:.2f} below ours, limit {MARGIN}")
    if agree < PROMPTS:
        print(f"FAILED: only {agree} prompts agree, least {PROMPTS}")
    failed = (agree < PROMPTS) + (len(far) > 0)
    print(f"{2 - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
