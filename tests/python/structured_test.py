#!/usr/bin/env python3
"""Answers that must have a form: the openai client's parse helper, every dialect's field, and answers at temperature 1 held
to PyPI's jsonschema; the JSON Schema Test Suite through the grammar layer's own test program."""
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Literal

import serving
from serving import Skip, package

ASK = [{"role": "user", "content": "Describe a person, a place or a thing as JSON."}]
SCHEMAS = json.loads((serving.ROOT / "tests/grammar/data/schemas.json").read_text())
# jsonschema's source, which carries the JSON Schema Test Suite; the hash is that of requirements.txt.
SUITE = ("jsonschema", "4.26.0", "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326")
server = None


def client():
    return package("openai").OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def ask(fields, path="/v1/chat/completions"):
    status, _, body = server.request("POST", path, {"model": server.model, "messages": ASK, "max_tokens": 160, "stream": False} | fields)
    return status, json.loads(body)


def content(answer):
    return answer["choices"][0]["message"]["content"]


def test_openai_parse():
    pydantic = package("pydantic")

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        age: int = pydantic.Field(ge=0, le=120)
        tags: list[Literal["old", "tall", "kind"]] = pydantic.Field(max_length=2)
        mother: Literal["known"] | None

    completion = client().chat.completions.parse(model=server.model, messages=ASK, response_format=Person, max_tokens=300,
                                                 temperature=0.5, seed=7)
    person = completion.choices[0].message.parsed
    assert isinstance(person, Person) and 0 <= person.age <= 120, completion
    assert completion.choices[0].finish_reason == "stop", completion


def test_openai_stream_is_the_whole():
    fields = {"model": server.model, "messages": ASK, "max_tokens": 60, "temperature": 0,
              "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": {
                  "type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"],
                  "additionalProperties": False}}}}
    whole = client().chat.completions.create(**fields).choices[0].message.content
    chunks = client().chat.completions.create(stream=True, **fields)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert isinstance(json.loads(whole)["n"], int)


def test_every_field():
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    fits = lambda text: json.loads(text)["n"] in (1, 2)
    for fields in ({"guided_json": schema}, {"structured_outputs": {"json": schema}}, {"json_schema": schema},
                   {"response_format": {"type": "json_object", "schema": schema}}):
        status, answer = ask(fields)
        assert status == 200 and fits(content(answer)), (fields, answer)
    for fields, pattern in (({"guided_regex": "[ab]{3}"}, "[ab]{3}"), ({"guided_choice": ["yes", "no"]}, "yes|no"),
                            ({"grammar": 'root ::= "<" [0-9]{2} ">"'}, "<[0-9]{2}>"),
                            ({"guided_grammar": 'start: "x" /[yz]/'}, "x[yz]")):
        status, answer = ask(fields)
        assert status == 200 and re.fullmatch(pattern, content(answer)), (fields, answer)
    status, answer = ask({"format": schema}, "/api/chat")
    assert status == 200 and fits(answer["message"]["content"]), answer
    status, answer = ask({"output_config": {"format": {"type": "json_schema", "schema": schema}}}, "/v1/messages")
    assert status == 200 and fits(answer["content"][0]["text"]), answer
    status, body = server.request("POST", "/v1/responses", {"model": server.model, "input": "x", "text": {"format": {
        "type": "json_schema", "name": "n", "schema": schema}}})[::2]
    answer = json.loads(body)
    assert status == 200 and fits(answer["output"][0]["content"][0]["text"]), answer


def test_answers_at_temperature_1_validate():
    jsonschema = package("jsonschema")
    finished = 0
    for number, case in enumerate(SCHEMAS[::6]):
        status, answer = ask({"temperature": 1, "seed": number, "max_tokens": 64, "guided_json": case["schema"]})
        if status == 422:
            assert answer["error"]["code"] == "schema_violation" and "refused" in case, (case["name"], answer)
            continue
        assert status == 200, (case["name"], answer)
        if answer["choices"][0]["finish_reason"] == "stop":
            finished += 1
            jsonschema.Draft202012Validator(case["schema"]).validate(json.loads(content(answer)))
    assert finished >= 10, finished


def test_several_choices():
    status, answer = ask({"n": 3, "temperature": 1, "seed": 3, "guided_choice": ["red", "green", "blue"]})
    assert status == 200 and all(choice["message"]["content"] in ("red", "green", "blue") for choice in answer["choices"]), answer


def test_refusals_name_keyword_and_path():
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    status, answer = ask({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": True, "schema": schema}}})
    error = answer["error"]
    assert status == 400 and error["param"] == "response_format" and "`uniqueItems` at #/properties/a" in error["message"], answer


def test_command_line():
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "schema.json"
        schema.write_text('{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"]}')
        grammar = Path(folder) / "moves.gbnf"
        grammar.write_text('root ::= [a-h] [1-8]\n')
        run = lambda *words: subprocess.run([serving.BINARY, "run", "-m", serving.DEFAULT_MODEL, "-p", "A move:", "-n", "40", *words],
                                            capture_output=True, text=True, timeout=300)
        done = run("--json-schema", schema)
        assert done.returncode == 0 and 0 <= json.loads(done.stdout)["n"] <= 9, done
        done = run("--grammar", grammar)
        assert done.returncode == 0 and re.fullmatch("[a-h][1-8]", done.stdout.strip()), done
        assert run("--grammar", grammar, "--json-schema", schema).returncode != 0


def test_schema_suite():
    """0 invalid values taken over the whole suite of draft 2020-12."""
    program = Path(serving.BINARY).parent / "test_grammar"
    if not program.exists():
        raise Skip(f"there is no {program}")
    sources = serving.ROOT / ".deps/sources"
    fetched = subprocess.run([sys.executable, serving.ROOT / "tools/fetch_source.py", *SUITE, sources], capture_output=True, text=True)
    if fetched.returncode != 0:
        raise Skip(f"the suite cannot be fetched: {fetched.stderr[-300:]}")
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sources / f"{SUITE[0]}-{SUITE[1]}.tar.gz") as archive:
        stem = f"{SUITE[0]}-{SUITE[1]}/json/tests/draft2020-12/"
        for member in archive.getmembers():
            if member.isfile() and member.name.startswith(stem) and "/" not in member.name[len(stem):]:
                (Path(folder) / Path(member.name).name).write_bytes(archive.extractfile(member).read())
        done = subprocess.run([program, "--gtest_filter=Schemas.TestSuite"], capture_output=True, text=True, timeout=600,
                              env=os.environ | {"SLUICE_SCHEMA_SUITE": folder})
    assert done.returncode == 0 and "SKIPPED" not in done.stdout, done.stdout[-4000:]


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
