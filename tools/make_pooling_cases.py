#!/usr/bin/env python3
"""Makes tests/runtime/data/pooling.json: vectors of prompts, from the last hidden states that transformers computes for
the models of tests/runtime/data (see make_search_cases.py). Needs torch, transformers and safetensors:

    python tools/make_pooling_cases.py
"""
import json
from pathlib import Path

import torch
from transformers import AutoModel

DATA = Path(__file__).resolve().parent.parent / "tests/runtime/data"
LENGTHS = (1, 2, 7, 33, 70)


@torch.no_grad()
def cases(name):
    model = AutoModel.from_pretrained(DATA / name, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(21)
    for length in LENGTHS:
        prompt = torch.randint(3, 96, (length,), generator=generator)
        hidden = model(prompt[None]).last_hidden_state[0].double()
        for of, vector in (("mean", hidden.mean(0)), ("last", hidden[-1])):
            yield {"model": name, "prompt": prompt.tolist(), "of": of, "vector": [round(x, 6) for x in vector.tolist()]}


def main():
    rows = [row for name in ("expert", "windowed") for row in cases(name)]
    (DATA / "pooling.json").write_text("[\n " + ",\n ".join(map(json.dumps, rows)) + "\n]\n")
    print(len(rows), "cases")


if __name__ == "__main__":
    main()
