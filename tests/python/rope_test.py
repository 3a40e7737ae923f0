#!/usr/bin/env python3
"""Miniatures whose rotary frequencies depend on the length of the sequence, through `sluice generate` with its default flags:
prompts and answers that cross the original length give the greedy tokens of transformers' `generate`.

SLUICE_BINARY names the program. The miniatures and their references are those of tests/golden/data (tools/make_golden.py).
"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import serving
from serving import BINARY, ROOT, Skip

DATA = ROOT / "tests/golden/data"


def answers(model, requests, *flags):
    if not Path(BINARY).exists():
        raise Skip(f"no program at {BINARY}")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
        source.write_text("".join(json.dumps(request) + "\n" for request in requests))
        command = [BINARY, "generate", "-m", str(model), "--input", str(source), "--output", str(target), *flags]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in target.read_text().splitlines()]
    assert not any("error" in line for line in lines), lines
    found = {line["id"]: [choice["token_ids"] for choice in line["choices"]] for line in lines}
    return found, done.stderr


def requests_of(cases, **more):
    return [{"id": str(i), "prompt": case["prompt"], "max_tokens": len(case["greedy"]), "temperature": 0,
             "ignore_eos": True} | more for i, case in enumerate(cases)]


def expect_references(folder, model, *flags, **more):
    cases = json.loads((DATA / folder / "golden.json").read_text())["cases"]
    found, _ = answers(model, requests_of(cases, **more), *flags)
    for i, case in enumerate(cases):
        for choice in found[str(i)]:
            assert choice == case["greedy"], f"{folder} {flags}, prompt of {len(case['prompt'])}: {choice}, not {case['greedy']}"


def test_longrope_folder():
    expect_references("longrope", DATA / "longrope")


def test_longrope_gguf():
    expect_references("longrope", DATA / "longrope/longrope.gguf")


def test_longrope_whose_keys_are_kept():
    expect_references("longrope-kept", DATA / "longrope-kept")


def test_dynamic():
    expect_references("dynamic", DATA / "dynamic")


def test_any_setup():
    for folder in ("longrope", "longrope-kept", "dynamic"):
        expect_references(folder, DATA / folder, n=3)
        for flags in (["--max-step-tokens", "8"], ["--kv-tokens", "128", "--block-size", "4"], ["--prefix-cache", "off"],
                      ["--kv-cache", "off"], ["--preempt", "swap", "--kv-tokens", "96", "--swap-tokens", "96"],
                      ["--scheme", "static"], ["--prefill", "separate"], ["--device", "ref"]):
            expect_references(folder, DATA / folder, *flags)


def test_cached_prefixes_are_of_the_same_set():
    case = max(json.loads((DATA / "longrope/golden.json").read_text())["cases"], key=lambda c: len(c["prompt"]))
    prompt = case["prompt"]  # over the original length; its first 20 tokens alone are not
    requests = [{"id": f"{n}-{length}", "prompt": prompt[:length], "max_tokens": 8, "temperature": 0, "ignore_eos": True}
                for n in range(2) for length in (20, 23, 40, len(prompt))]
    cached, _ = answers(DATA / "longrope", requests, "--block-size", "4", "--max-seqs", "1")
    alone, _ = answers(DATA / "longrope", requests, "--prefix-cache", "off", "--max-seqs", "1")
    assert cached == alone, (cached, alone)


def test_a_context_beyond_the_models_is_warned_of():
    request = [{"id": "0", "prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}]
    _, said = answers(DATA / "longrope", request, "--ctx-size", "4096")
    assert "--ctx-size is 4096" in said and "128 positions" in said, said
    _, said = answers(DATA / "longrope", request, "--ctx-size", "128")
    assert "--ctx-size" not in said, said


def test_a_context_beyond_what_is_computed_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        model, source = Path(folder, "model"), Path(folder, "in.jsonl")
        shutil.copytree(DATA / "deepseek_v32", model)
        config = json.loads((model / "config.json").read_text())
        del config["index_n_heads"]  # nothing says how its layers choose the 16 positions that they attend to
        (model / "config.json").write_text(json.dumps(config))
        source.write_text(json.dumps({"id": "0", "prompt": [5, 6, 7], "max_tokens": 2}))
        command = [BINARY, "generate", "-m", str(model), "--input", str(source), "--output", str(Path(folder, "out.jsonl"))]
        done = subprocess.run([*command, "--ctx-size", "64"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 78 and "--ctx-size is 64: beyond 16 positions" in done.stderr, done
        assert subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
