#!/usr/bin/env python3
"""The same requests give the same tokens, whatever else is in the batch and however the engine is set up.

Once on the default model, and on miniatures, whose prompts are token ids: one with layers that keep a state, one whose
layers keep keys and a state, one whose layers choose what they attend to.
SLUICE_BINARY names the program, SLUICE_MODELS the folder of the default model. SLUICE_INVARIANCE_REQUESTS (default 12) is the
number of requests; 200 is the full run. SLUICE_INVARIANCE_FLAGS go to every run: "--device cuda --deterministic on".
"""
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(os.environ.get("SLUICE_MODELS", ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
MINIATURES = [Path(__file__).parent.parent / "golden/data" / name for name in ("qwen3_next", "zamba2", "glm_moe_dsa")]
BINARY = os.environ.get("SLUICE_BINARY", "build/release/sluice")
COUNT = int(os.environ.get("SLUICE_INVARIANCE_REQUESTS", "12"))
FLAGS = os.environ.get("SLUICE_INVARIANCE_FLAGS", "").split()

WORDS = "the river opened its gate and water ran over stone while people counted boats in the evening light".split()


def texts(rng, count):
    return " ".join(rng.choice(WORDS) for _ in range(count)) + " "


def token_ids(rng, count):
    return [rng.randint(3, 60) for _ in range(count)]


def make_requests(words):
    rng = random.Random(5)
    shared = words(rng, 40)
    requests = []
    for index in range(COUNT):
        prompt = words(rng, rng.choice([1, 5, 20, 50]))
        if index % 4 == 0:
            prompt = shared + prompt
        request = {"id": str(index), "prompt": prompt, "max_tokens": rng.randint(2, 14), "ignore_eos": index % 5 == 0}
        kind = index % 6
        if kind == 0:
            request["temperature"] = 0
        elif kind == 1:  # grows enough to be preempted where the KV cache is small
            request |= {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
            if index % 4 == 1:  # repeats itself, so that there is something to guess
                request |= {"prompt": words(rng, 8) * 3, "max_tokens": 80, "allowed_token_ids": [7, 20, 33, 41]}
        elif kind == 2:
            request |= {"temperature": 0.9, "top_p": 0.9, "seed": index}
        elif kind == 3:
            request |= {"temperature": 1.0, "top_k": 40, "seed": index, "n": 2, "repetition_penalty": 1.1}
        elif kind == 4:
            request |= {"use_beam_search": True, "n": 2, "best_of": 3}
        else:
            request |= {"temperature": 0.7, "min_p": 0.05, "seed": index, "presence_penalty": 0.5, "logprobs": 2}
        requests.append(request)
    return requests


def run(folder, model, requests, flags):
    """Answers by id, how many times a sequence was preempted, and how many drafts were verified."""
    source, target, metrics = folder / "in.jsonl", folder / "out.jsonl", folder / "metrics.json"
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))
    command = [BINARY, "generate", "--input", str(source), "--output", str(target), "-m", str(model), "--force",
               "--metrics", str(metrics), *FLAGS, *flags]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    answers = {}
    for line in target.read_text().splitlines():
        answer = json.loads(line)
        assert "error" not in answer, answer
        answers[answer["id"]] = [(c["token_ids"], c["text"], c["finish_reason"], c.get("logprobs")) for c in answer["choices"]]
    counts = json.loads(metrics.read_text())
    return answers, counts["preemptions_recompute"] + counts["preemptions_swap"], counts["drafted_tokens"]


SMALL_KV = ["--kv-tokens", "128", "--block-size", "4", "--max-seqs", "12"]  # sequences are preempted
SETUPS = {
    "together": [],
    "static": ["--scheme", "static", "--max-seqs", "8"],
    "dynamic": ["--scheme", "dynamic", "--max-seqs", "8", "--batch-wait", "0.01"],
    "iteration padded": ["--scheme", "iteration"],
    "iteration packed": ["--scheme", "iteration", "--layout", "packed"],
    "separate": ["--prefill", "separate"],
    "chunks of 7": ["--max-step-tokens", "7", "--max-seqs", "6"],
    "chunks of 64": ["--max-step-tokens", "64"],
    "blocks of 5": ["--block-size", "5"],
    "blocks of 32": ["--block-size", "32"],
    "states at every block": ["--block-size", "4", "--state-interval", "4"],
    "preallocate": ["--kv-policy", "preallocate", "--kv-tokens", "1024"],
    "preempt by recompute": SMALL_KV,
    "preempt by swap": [*SMALL_KV, "--preempt", "swap", "--swap-tokens", "4096"],
    "swap to disk": [*SMALL_KV, "--preempt", "swap", "--disk-tokens", "4096", "--disk-folder", tempfile.gettempdir()],
    "no prefix cache": ["--prefix-cache", "off"],
    "one thread": ["--threads", "1"],
    "three threads": ["--threads", "3"],
    "drafts by n-grams": ["--speculate", "ngram"],
    "drafts by suffixes": ["--speculate", "suffix", "--speculate-tokens", "6"],
    "drafts, preempted": [*SMALL_KV, "--speculate", "suffix"],
    "drafts by lookahead": ["--speculate", "lookahead", "--speculate-tokens", "3"],
    "drafts by whoever gains": ["--speculate", "auto"],
    "drafts alone": ["--speculate", "auto", "--max-seqs", "3", "--scheme", "static", "--layout", "packed"],
    "drafts by a model": ["--speculate", f"draft:{MODEL}", "--speculate-tokens", "4"],
    "drafts by a model, preempted": [*SMALL_KV, "--speculate", f"auto:{MODEL}", "--speculate-tokens", "3"],
    "no kv cache": ["--kv-cache", "off", "--max-seqs", "4"],
}
WITHOUT_KV = 6  # the shortest prompts are asked without a KV cache, where each token runs the whole sequence again


def check(model, requests, common, setups):
    """How many setups give the answers of requests that run nearly alone, and how many do not.

    Whether a guess is worth a try is for the engine to say, so that drafts are counted over all setups with some.
    """
    passed = failed = verified = 0
    plain = ["--max-seqs", "3", "--scheme", "static", "--layout", "packed", "--prefix-cache", "off"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone, _, _ = run(folder, model, requests, [*plain, *common])
        for title, flags in setups.items():
            asked = requests
            if title == "no kv cache":
                asked = sorted(requests, key=lambda request: len(request["prompt"]))[:WITHOUT_KV]
            answers, preempted, drafted = run(folder, model, asked, [*flags, *common])
            different = [request["id"] for request in asked if answers.get(request["id"]) != alone[request["id"]]]
            if different or len(answers) != len(asked):
                failed += 1
                key = different[0] if different else "?"
                print(f"{model.name}, {title}: {len(different)} of {len(asked)} answers differ, first {key}:\n"
                      f"  {alone.get(key)}\n  {answers.get(key)}")
            elif flags[:len(SMALL_KV)] == SMALL_KV and preempted == 0:
                failed += 1
                print(f"{model.name}, {title}: nothing was preempted")
            else:
                passed += 1
            verified += drafted
    if verified == 0:
        failed += 1
        print(f"{model.name}: no draft was verified in any setup")
    return passed, failed


def main():
    # No model guesses for one that has another vocabulary.
    of_miniatures = {title: flags for title, flags in SETUPS.items() if "by a model" not in title}
    passed = failed = 0
    for miniature in MINIATURES:
        own = check(miniature, make_requests(token_ids), ["--ctx-size", "128"], of_miniatures)
        passed, failed = passed + own[0], failed + own[1]
    skipped = 0
    if MODEL.exists():
        more = check(MODEL, make_requests(texts), [], SETUPS)
        passed, failed = passed + more[0], failed + more[1]
    else:
        print(f"the default model is not at {MODEL}: skipped")
        skipped = len(SETUPS)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
