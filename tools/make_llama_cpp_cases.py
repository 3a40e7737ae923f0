#!/usr/bin/env python3
"""Writes tests/python/data/llama_cpp.json: greedy continuations of the default model by llama.cpp.

Needs llama-cpp-python, and the model as SLUICE_MODELS has it:

    python tools/make_llama_cpp_cases.py
"""
import json
import os
from pathlib import Path

import llama_cpp

ROOT = Path(__file__).resolve().parent.parent
MODEL = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
TOKENS = 16
PROMPTS = [
    "The capital of France is",
    "Water boils at a temperature of",
    "Once upon a time, in a small village by the sea,",
    "The three primary colours are",
    "def fibonacci(n):\n    ",
    "To make a good cup of tea, first",
    "The quick brown fox",
    "Photosynthesis is the process by which",
    "In 1969, the first human",
    "The largest planet in the solar system is",
    "My favourite season is autumn because",
    "The square root of 16 is",
    "Shakespeare wrote the play",
    "A list of common fruits: apples,",
    "The opposite of hot is",
    "She opened the door and saw",
    "The Pacific Ocean is the",
    "How to tie your shoes:\n1.",
    "In mathematics, a prime number is",
    "The main ingredients of bread are",
]


def main():
    model = llama_cpp.Llama(str(MODEL), n_ctx=512, verbose=False, n_threads=1)
    cases = []
    for text in PROMPTS:
        prompt = model.tokenize(text.encode(), add_bos=True, special=False)
        model.reset()
        answer = []
        for token in model.generate(prompt, temp=0.0):
            answer.append(token)
            if len(answer) == TOKENS:
                break
        cases.append({"text": text, "prompt": prompt, "answer": answer})
        print(repr(text), repr(model.detokenize(answer).decode(errors="replace")), flush=True)
    target = ROOT / "tests/python/data/llama_cpp.json"
    target.parent.mkdir(exist_ok=True)
    note = {"model": MODEL.name, "version": llama_cpp.__version__}
    rows = ",\n  ".join(json.dumps(case) for case in cases)
    target.write_text(json.dumps(note)[:-1] + f',\n "cases": [\n  {rows}]}}\n')


if __name__ == "__main__":
    main()
