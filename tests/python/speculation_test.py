#!/usr/bin/env python3
"""Answers are the same bytes with and without speculation, on the default model: greedy and seeded, with and without a schema,
one request at a time and sixteen at once, whoever guesses. Miniatures of GLM and DeepSeek get a head for multi-token
prediction, which passes its token on to a copy of their last layer.

SLUICE_BINARY names the program, SLUICE_MODELS the folder of the default model. SLUICE_SPECULATION_PROMPTS (default 8) is the
number of prompts; 100 is the full run.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(os.environ.get("SLUICE_MODELS", ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
GOLDEN = Path(__file__).parent.parent / "golden/data"
BINARY = os.environ.get("SLUICE_BINARY", "build/release/sluice")
COUNT = int(os.environ.get("SLUICE_SPECULATION_PROMPTS", "8"))
PROPOSERS = ["ngram", "suffix", "lookahead", "auto"]
BATCHES = [1, 16]

TOPICS = ["bread", "the tides", "bicycles", "maps", "bees", "glass", "letters", "winter", "bridges", "salt"]
KINDS = [
    "Question: What should everybody know about {0}?\nAnswer:",
    "List of five facts about {0}:\n1. Facts about {0} are easy to find.\n2.",
    "Text: People like {0}. People who like {0} talk about {0} every day.\nThe same text again: People like",
    "# Python\ndef count_{1}(items):\n    return sum(1 for item in items if item == '{0}')\n\ndef count_",
    "A short story about {0}.\nOnce upon a time",
    "Describe {0} as JSON.\n",
    "Dear editor, I write to you about {0}, because",
    "Summary of 'All about {0}': the book is about {0}. The first chapter is about",
    "def test_{1}():\n    assert {1}(1) == 1\n    assert {1}(2) == 2\n    assert",
    "User: Tell me a joke about {0}.\nAssistant:",
]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                           "kind": {"enum": ["thing", "place", "habit"]},
                                           "years": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}},
          "required": ["name", "kind", "years"]}


def make_requests():
    requests = []
    for index in range(COUNT):
        topic = TOPICS[index // len(KINDS) % len(TOPICS)]
        prompt = KINDS[index % len(KINDS)].format(topic, topic.replace("the ", ""))
        request = {"id": str(index), "prompt": prompt, "max_tokens": 64, "temperature": 0, "ignore_eos": index % 3 == 0}
        if index % 2 == 1:
            request |= {"temperature": 0.8, "top_p": 0.95, "seed": index}
        if index % 10 in (5, 8):
            request |= {"guided_json": SCHEMA, "ignore_eos": False}
        requests.append(request)
    return requests


def add_head(source, folder):
    """A copy of a miniature of two layers, with a head in the place of a third."""
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    data = (source / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    tensors = {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
               for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
    width = tensors["model.norm.weight"][1][0]
    one = b"\x80\x3f"  # as BF16
    passed = b"".join(one if column == row else b"\0\0" for row in range(width) for column in range(2 * width))
    head = {name.replace("layers.1.", "layers.2."): tensor for name, tensor in tensors.items() if "layers.1." in name}
    head |= {"model.layers.2.eh_proj.weight": ("BF16", [width, 2 * width], passed),
             "model.layers.2.enorm.weight": ("BF16", [width], one * width),
             "model.layers.2.hnorm.weight": ("BF16", [width], one * width),
             "model.layers.2.shared_head.norm.weight": tensors["model.norm.weight"]}
    header, parts, begin = {}, [], 0
    for name, (dtype, shape, content) in (tensors | head).items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(content)]}
        parts.append(content)
        begin += len(content)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return folder


def check_heads(folder):
    """How many miniatures give the same answers with their head, and how many do not."""
    passed = failed = 0
    requests = [{"id": str(i), "prompt": [3 + (7 * i + j * j) % 60 for j in range(4 + i)], "max_tokens": 40,
                 "ignore_eos": True, "temperature": i % 2, "seed": i} for i in range(8)]
    for family in ["glm4_moe", "deepseek"]:
        model = add_head(GOLDEN / family, folder / family)
        expected, *_ = run(folder, requests, "off", 1, model)
        for batch in BATCHES:
            answers, drafted, accepted = run(folder, requests, "mtp", batch, model, ["--speculate-tokens", "3"])
            good = answers == expected and drafted > 0
            passed, failed = passed + good, failed + (not good)
            print(f"mtp of {family}, {batch} at once: {'the same' if answers == expected else 'other'} answers, {accepted} of "
                  f"{drafted} drafts accepted", flush=True)
    return passed, failed


def run(folder, requests, proposer, batch, model=MODEL, flags=()):
    """Answers by id, drafts, and how many of them were accepted."""
    source, target, metrics = folder / "in.jsonl", folder / "out.jsonl", folder / "metrics.json"
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))
    subprocess.run([BINARY, "generate", "--input", source, "--output", target, "-m", model, "--force", "--metrics", metrics,
                    "--max-seqs", str(batch), "--speculate", proposer, *flags],
                   check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    answers = {}
    for line in target.read_text().splitlines():
        answer = json.loads(line)
        assert "error" not in answer, answer
        answers[answer["id"]] = [(c["token_ids"], c["text"], c["finish_reason"]) for c in answer["choices"]]
    counts = json.loads(metrics.read_text())
    return answers, counts["drafted_tokens"], counts["accepted_drafts"]


def check_default_model(folder):
    passed = failed = 0
    requests = make_requests()
    expected, *_ = run(folder, requests, "off", 1)
    assert len(expected) == COUNT
    for batch in BATCHES:
        for proposer in PROPOSERS:
            answers, drafted, accepted = run(folder, requests, proposer, batch)
            different = [key for key in expected if answers.get(key) != expected[key]]
            good = not different and (drafted > 0 or batch > 1)  # in a batch drafts may not pay
            passed, failed = passed + good, failed + (not good)
            print(f"{proposer}, {batch} at once: {COUNT - len(different)} of {COUNT} answers are the same, {accepted} of {drafted} "
                  f"drafts accepted", flush=True)
            if different:
                print(f"  {different[0]}:\n  {expected[different[0]]}\n  {answers.get(different[0])}")
    return passed, failed


def main():
    with tempfile.TemporaryDirectory() as name:
        folder, skipped = Path(name), 0
        passed, failed = check_heads(folder)
        if MODEL.exists():
            more = check_default_model(folder)
            passed, failed = passed + more[0], failed + more[1]
        else:
            print(f"the default model is not at {MODEL}: skipped")
            skipped = len(PROPOSERS) * len(BATCHES)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
