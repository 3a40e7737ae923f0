#!/usr/bin/env python3
"""Answers of a served model held to PyPI's jsonschema: structured.py FOLDER [--url URL] [--schemas N] [--tokens N]
[--results FILE] [--seconds N]

FOLDER is JSONSchemaBench (github guidance-ai/jsonschemabench, maskbench/data) or a file like
tests/grammar/data/schemas.json. Each of N schemas, spread evenly over the folder, is sent as `response_format` with
temperature 1; what finishes with `stop` must validate, and what does not fit must be the error schema_violation. Prints one
line for each answer that breaks this, and the counts. Without --url it starts `sluice serve` with the default model.

--results keeps the verdict of each schema in FILE, a line each: a later run asks for what is missing. --seconds ends a run
by beginning no more requests after so long."""
import argparse
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
import serving


def schemas_of(path, count):
    if path.is_file():
        cases = [(case["name"], case["schema"]) for case in json.loads(path.read_text())]
        return cases[:: max(1, len(cases) // count)][:count]
    files = sorted(path.glob("*.json"))
    chosen = files[:: max(1, len(files) // count)][:count]
    return [(file.name, json.loads(file.read_text())["schema"]) for file in chosen]


def ask(url, model, number, schema, tokens):
    body = {"model": model, "temperature": 1, "seed": number, "max_tokens": tokens,
            "messages": [{"role": "user", "content": "Give an example as JSON, as short as possible."}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def judge(name, schema, status, answer):
    """One word for the counts, and what is wrong."""
    if status != 200:
        code = answer["error"]["code"]
        known = status == 400 or (status == 422 and code == "schema_violation")
        return code, None if known else f"{status} {answer['error']['message']}"
    choice = answer["choices"][0]
    if choice["finish_reason"] != "stop":
        return choice["finish_reason"], None
    try:
        value = json.loads(choice["message"]["content"])
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        validator(schema).validate(value)
    except RecursionError:
        return "not judged", None
    except Exception as error:  # jsonschema has several kinds, for schemas that it cannot read too
        if isinstance(error, (jsonschema.ValidationError, json.JSONDecodeError)):
            return "invalid", f"{str(error)[:200]!r} {choice['message']['content'][:200]!r}"
        return "not judged", None
    return "valid", None


def run(arguments, url, model):
    cases = schemas_of(arguments.folder, arguments.schemas)
    known = {}
    if arguments.results and arguments.results.exists():
        known = {line["name"]: line for line in map(json.loads, arguments.results.read_text().splitlines())}
    began, lock = time.monotonic(), threading.Lock()

    def one(item):
        number, (name, schema) = item
        if name in known or (arguments.seconds and time.monotonic() - began > arguments.seconds):
            return
        status, answer = ask(url, model, number, schema, arguments.tokens)
        word, wrong = judge(name, schema, status, answer)
        if wrong:
            print(f"{name}: {wrong}", flush=True)
        with lock:
            known[name] = {"name": name, "verdict": word, "wrong": wrong, "tokens": answer.get("usage", {}).get("completion_tokens", 0)}
            if arguments.results:
                with arguments.results.open("a") as file:
                    file.write(json.dumps(known[name]) + "\n")

    with ThreadPoolExecutor(arguments.parallel) as pool:
        list(pool.map(one, enumerate(cases)))
    verdicts = [known[name] for name, _ in cases if name in known]
    counts = Counter(line["verdict"] for line in verdicts)
    print(f"{len(verdicts)} of {len(cases)} schemas, {sum(line['tokens'] for line in verdicts)} tokens, in {time.monotonic() - began:.0f} s:",
          ", ".join(f"{word} {count}" for word, count in counts.most_common()))
    return 1 if any(line["wrong"] for line in verdicts) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url")
    parser.add_argument("--schemas", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--seconds", type=float)
    arguments = parser.parse_args()
    if arguments.url:
        with urllib.request.urlopen(arguments.url + "/v1/models") as answer:
            return run(arguments, arguments.url, json.load(answer)["data"][0]["id"])
    server = serving.Server()
    try:
        return run(arguments, server.url, server.model)
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    sys.exit(main())
