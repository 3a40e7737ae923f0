#!/usr/bin/env python3
"""Ollama's clients, unmodified, against a server of a model from Ollama's store: the calls of its documentation with curl,
its Python package, and LiteLLM's two providers for it."""
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import serving
from serving import Skip, package

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # no download at import
NAME = "little:135m"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"temperature": 0, "num_predict": 24}
server = None


def fill_store(store):
    """Ollama's store with the default model under NAME."""
    name, tag = NAME.split(":")
    manifest = Path(store) / "manifests/registry.ollama.ai/library" / name / tag
    manifest.parent.mkdir(parents=True)
    (Path(store) / "blobs").mkdir()
    digest = hashlib.sha256(serving.DEFAULT_MODEL.read_bytes()).hexdigest()
    (Path(store) / f"blobs/sha256-{digest}").symlink_to(serving.DEFAULT_MODEL)
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest,
             "size": serving.DEFAULT_MODEL.stat().st_size}
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [layer]}))


def reference():
    """The answer to the question with GREEDY, through OpenAI's route."""
    body = {"model": NAME, "messages": QUESTION, "temperature": 0, "max_tokens": GREEDY["num_predict"]}
    return server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]


def curl(path, body=None, *arguments):
    """The documented form: -d alone, which sends application/x-www-form-urlencoded."""
    if shutil.which("curl") is None:
        raise Skip("curl is not installed")
    data = [] if body is None else ["-d", json.dumps(body)]
    result = subprocess.run(["curl", "-sS", *arguments, server.url + path, *data], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


# -- names -------------------------------------------------------------------------------------------------------------

def test_the_model_has_its_own_name():
    assert server.model == NAME, server.model
    assert [model["name"] for model in curl("/api/tags")[0]["models"]] == [NAME]
    for name in (NAME, "ollama:" + NAME):  # as `sluice list` shows it
        server.post("/v1/chat/completions", {"model": name, "messages": QUESTION, "max_tokens": 1})
        server.post("/api/chat", {"model": name, "messages": QUESTION, "stream": False, "options": {"num_predict": 1}})
    server.post("/api/chat", {"model": "little", "messages": QUESTION}, status=404)


def test_run_takes_model_and_prompt():
    with tempfile.TemporaryDirectory() as store:
        fill_store(store)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        environment |= {"OLLAMA_MODELS": store, "SLUICE_MODELS": str(serving.MODELS)}
        run = lambda *words: subprocess.run([serving.BINARY, "run", *words, "-n", "24", "--temp", "0"], env=environment, text=True,
                                            capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
        by_words = run(NAME, "What is the capital", "of France?")
        assert by_words.returncode == 0 and by_words.stdout.rstrip("\n") == reference(), by_words
        assert run("-m", NAME, "-p", "What is the capital of France?").stdout == by_words.stdout
        assert run("-m", NAME, "What is the capital of France?").stdout == by_words.stdout
        twice = run(NAME, "one", "-p", "other")
        assert twice.returncode == 64 and "twice" in twice.stderr, twice
        listed = subprocess.run([serving.BINARY, "list"], env=environment, text=True, capture_output=True, timeout=60).stdout
        assert f"ollama:{NAME}" in listed, listed


# -- curl --------------------------------------------------------------------------------------------------------------

def check_end(last):
    assert last["done"] is True and last["done_reason"] in ("stop", "length"), last
    assert last["eval_count"] > 0 and last["prompt_eval_count"] > 0
    assert last["total_duration"] >= last["eval_duration"] > 0 and last["prompt_eval_duration"] > 0, last


def check_times(lines):
    times = [datetime.datetime.fromisoformat(line["created_at"].replace("Z", "+00:00")) for line in lines]
    assert times == sorted(times) and len(set(times)) > 1, times
    assert any(time.microsecond for time in times), times
    now = datetime.datetime.now(datetime.timezone.utc)
    assert abs((now - times[-1]).total_seconds()) < 300, (now, times[-1])


def test_curl_generate():
    lines = curl("/api/generate", {"model": NAME, "prompt": "What is the capital of France?", "options": GREEDY})
    assert all(line["done"] is False for line in lines[:-1]) and len(lines) > 2
    assert "".join(line["response"] for line in lines) == reference()
    check_end(lines[-1])
    check_times(lines)
    [whole] = curl("/api/generate", {"model": NAME, "prompt": "What is the capital of France?", "stream": False, "options": GREEDY})
    assert whole["response"] == "".join(line["response"] for line in lines)
    [loaded] = curl("/api/generate", {"model": NAME})
    assert loaded["done"] is True and loaded["response"] == ""
    [raw] = curl("/api/generate", {"model": NAME, "prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "raw": True,
                                   "stream": False, "options": {"num_predict": 4}})
    assert raw["response"]


def test_curl_chat():
    lines = curl("/api/chat", {"model": NAME, "messages": QUESTION, "options": GREEDY})
    assert "".join(line["message"]["content"] for line in lines) == reference()
    check_end(lines[-1])
    check_times(lines)
    [whole] = curl("/api/chat", {"model": NAME, "messages": QUESTION, "stream": False, "options": GREEDY})
    assert whole["message"]["role"] == "assistant" and whole["done"] is True
    [loaded] = curl("/api/chat", {"model": NAME, "messages": []})
    assert loaded["done_reason"] == "load"


def test_curl_models_and_vectors():
    [shown] = curl("/api/show", {"model": NAME})
    assert shown["details"]["family"] == "llama" and "completion" in shown["capabilities"]
    assert curl("/api/ps")[0]["models"][0]["name"] == NAME
    assert curl("/api/version")[0]["version"]
    [vectors] = curl("/api/embed", {"model": NAME, "input": ["Why is the sky blue?", "Why is the grass green?"]})
    assert [len(vector) for vector in vectors["embeddings"]] == [576, 576]
    [vector] = curl("/api/embeddings", {"model": NAME, "prompt": "Here is an article about llamas..."})
    assert len(vector["embedding"]) == 576


def test_bodies_that_are_not_json():
    for kind in ("application/x-www-form-urlencoded", "text/plain", "application/octet-stream"):
        status, _, body = server.request("POST", "/api/chat", "model=x", {"Content-Type": kind})
        assert status == 400 and "error" in json.loads(body), (status, body)
    status, _, _ = server.request("POST", "/v1/chat/completions", "{}", {"Content-Type": "text/plain"})
    assert status == 415, "other dialects' clients say what they send"
    body = json.dumps({"model": NAME, "messages": QUESTION})
    status, _, _ = server.request("POST", "/api/chat", body, {"Content-Type": "text/plain", "Origin": "http://evil.example"})
    assert status == 403, "a page of another site can send this without asking"


# -- the Python package ------------------------------------------------------------------------------------------------

def test_python_package():
    ollama = package("ollama")
    client = ollama.Client(host=server.url)
    whole = client.chat(model=NAME, messages=QUESTION, options=GREEDY)
    assert whole.message.content == reference() and whole.done and whole.eval_duration > 0
    pieces = list(client.chat(model=NAME, messages=QUESTION, options=GREEDY, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert client.generate(model=NAME, prompt="Hello", options=GREEDY).response
    assert len(client.embed(model=NAME, input="Hello").embeddings[0]) == 576
    assert len(client.embeddings(model=NAME, prompt="Hello").embedding) == 576
    assert [model.model for model in client.list().models] == [NAME]
    assert client.ps().models[0].name == NAME
    assert client.show(NAME).modelinfo["general.architecture"] == "llama"
    try:
        client.chat(model="other", messages=QUESTION)
        raise AssertionError("an unknown model answered")
    except ollama.ResponseError as error:
        assert error.status_code == 404 and "other" in error.error, error


# -- LiteLLM -----------------------------------------------------------------------------------------------------------

def test_litellm_providers():
    litellm = package("litellm")
    for provider in ("ollama", "ollama_chat"):
        request = {"model": f"{provider}/{NAME}", "api_base": server.url, "temperature": 0, "max_tokens": 24, "num_retries": 0}
        whole = litellm.completion(messages=QUESTION, **request)
        assert whole.choices[0].message.content, (provider, whole)
        assert provider == "ollama" or whole.choices[0].message.content == reference(), (provider, whole)
        assert whole.usage.completion_tokens > 0, (provider, whole.usage)
        parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(messages=QUESTION, stream=True, **request)]
        assert "".join(parts) == whole.choices[0].message.content, (provider, parts)
    vectors = litellm.embedding(model=f"ollama/{NAME}", api_base=server.url, input=["Hello", "world"])
    assert [len(item["embedding"]) for item in vectors.data] == [576, 576]


def main():
    module = sys.modules[__name__]
    try:
        serving.need_model()
    except Skip as reason:
        print(f"{reason}\n0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory(prefix="sluice-ollama-") as store:
        fill_store(store)
        with serving.Server("-m", NAME, environment={"OLLAMA_MODELS": store}) as module.server:
            return serving.run_tests(serving.tests_of(module))


if __name__ == "__main__":
    sys.exit(main())
