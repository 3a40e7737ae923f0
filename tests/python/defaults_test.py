#!/usr/bin/env python3
"""What people get who set nothing: the sampling that the model's makers recommend and one rule for system messages, the same
through the API, the page's requests and the command line; and that easy questions are then mostly answered right."""
import json
import os
import re
import subprocess
import sys

import serving
from serving import BINARY, MODELS, Server

QUESTIONS = [  # and what a right answer has in it
    ("What is the capital of France?", ("paris",)),
    ("What is the capital of Italy?", ("rome",)),
    ("What is 2 + 2?", ("4", "four")),
    ("How many days are in a week?", ("7", "seven")),
    ("What color is the sky on a clear day?", ("blue",)),
    ("What planet do we live on?", ("earth",)),
    ("Who wrote Romeo and Juliet?", ("shakespeare",)),
    ("What is the largest ocean on Earth?", ("pacific",)),
]
SAMPLES = 4
server = None


def ask(question, **fields):
    """The texts of an answer's choices. Without fields this is the request that the page sends."""
    body = {"model": server.model, "messages": [{"role": "user", "content": question}]} | fields
    return [choice["message"]["content"] for choice in server.post("/v1/chat/completions", body)["choices"]]


def right(**fields):
    """How many of SAMPLES answers to each question are."""
    texts = [(text, words) for question, words in QUESTIONS for text in ask(question, n=SAMPLES, seed=1, max_tokens=48, **fields)]
    return sum(any(re.search(rf"\b{word}\b", text.lower()) for word in words) for text, words in texts)


def run(question, *flags):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")} | {"SLUICE_MODELS": str(MODELS)}
    result = subprocess.run([BINARY, "run", "-p", question, *map(str, flags)], env=clean, stdin=subprocess.DEVNULL, capture_output=True,
                            text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout.removesuffix("\n")


def test_the_default_model_has_its_makers_settings():
    wanted = {"temperature": 0.2, "top_p": 0.9}
    assert server.get("/v1/models")["data"][0]["meta"]["sampling"] == wanted
    assert server.get("/props")["default_generation_settings"]["params"] == wanted


def test_every_way_in_gives_the_same_answer():
    for seed, (question, _) in enumerate(QUESTIONS[:4]):
        [text] = ask(question, seed=seed, max_tokens=32)
        [spelled] = ask(question, seed=seed, max_tokens=32, temperature=0.2, top_p=0.9, top_k=0, min_p=0, repetition_penalty=1)
        assert spelled == text, (spelled, text)
        assert run(question, "-s", seed, "-n", 32) == text.removesuffix("\n"), question
        chat = server.post("/api/chat", {"model": server.model, "messages": [{"role": "user", "content": question}], "stream": False,
                                         "options": {"seed": seed, "num_predict": 32}})
        assert chat["message"]["content"] == text, (chat, text)


def test_easy_questions_are_mostly_answered_right():
    everything = len(QUESTIONS) * SAMPLES
    count, hot = right(), right(temperature=1, top_p=1)
    print(f"  {count} of {everything} right with the defaults, {hot} with temperature 1 and top_p 1")
    assert count >= everything // 2 and count > hot, (count, hot)


def test_the_operator_comes_before_the_model():
    with Server("--temperature", 0, "--top-k", 7, "--repeat-penalty", 1.1) as other:
        wanted = {"temperature": 0, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.1}
        assert other.get("/v1/models")["data"][0]["meta"]["sampling"] == wanted
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24}
        texts = {json.dumps(other.post("/v1/chat/completions", body)["choices"][0]["message"]) for _ in range(3)}
        assert len(texts) == 1, texts


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
