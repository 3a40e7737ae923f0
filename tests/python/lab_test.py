#!/usr/bin/env python3
"""The lab's verbs as people use them: plan, simulate, bench serve, bench schemes and bench sweep, small.

SLUICE_BINARY and SLUICE_MODELS are as in cli_test.py."""
import html.parser
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import serving
from serving import BINARY, DEFAULT_MODEL, MODELS, Server, need_model

TINY = serving.ROOT / "tests/runtime/data/expert"
# Llama 3.1 8B, whose weights need not be there.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
          "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
          "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False}


def sluice(folder, *arguments, code=0):
    """Runs the program in a folder, which is its cache as well, so that no profile of this machine is found."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_") or key == "SLUICE_THREADS"}
    clean |= {"SLUICE_MODELS": str(MODELS), "XDG_CACHE_HOME": str(folder)}
    result = subprocess.run([BINARY, *map(str, arguments)], env=clean, text=True, capture_output=True, timeout=300, cwd=folder)
    assert result.returncode == code, f"exit {result.returncode}: {result.stderr[-600:]}"
    return result


class Closed(html.parser.HTMLParser):
    """Fails on tags that are not closed, and on anything that would be loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], set()
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        assert tag not in ("link", "script", "img", "iframe"), tag
        assert not any(name in ("src", "href") for name, _ in attributes), attributes
        self.seen.add(tag)
        if tag not in ("meta", "br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag


def check_page(path, *words):
    text = path.read_text()
    assert "svg" in Closed(text).seen
    for word in words:
        assert word in text, f"'{word}' is not in {path.name}"


def test_plan_without_weights():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        plan = json.loads(sluice(folder, "plan", "config.json", "--device", "H200", "--json", "--html", "plan.html").stdout)
        cells = {(cell["batch"], cell["context"]): cell for cell in plan["cells"]}
        one = cells[1, 1024]
        assert 16e9 / 4.8e12 < one["tpot_s"] < 2 * 16e9 / 4.8e12, one  # the weights are read once
        assert cells[64, 1024]["tokens_per_s"] > 20 * one["tokens_per_s"] and one["bound"] == "memory"
        check_page(folder / "plan.html", "H200", "prefill")
        half = json.loads(sluice(folder, "plan", "config.json", "--device", "H200", "--weights", "Q8_0", "--json").stdout)
        assert half["cells"][0]["tpot_s"] < 0.7 * plan["cells"][0]["tpot_s"]
        assert "memory" in sluice(folder, "plan", "config.json", "--device", "H200", "--explain").stdout
        assert "H200" in sluice(folder, "plan", "config.json", "--device", "abacus", code=64).stderr
        assert "calibrate" in sluice(folder, "plan", "config.json", "--device", "this", code=74).stderr


def test_simulate():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        load = ("--request-rate", 20, "--num-prompts", 400, "--input-len", "lognormal:256:0.5", "--output-len", "64")
        args = ("simulate", "config.json", "--device", "H200", *load)
        text = sluice(folder, *args, "--output", "one.json", "--html", "one.html").stdout
        assert "Median TTFT (ms):" in text and "simulated in" in text
        report = json.loads((folder / "one.json").read_text())
        assert report["completed"] == 400 and report["total_output_tokens"] == 400 * 64
        check_page(folder / "one.html", "TTFT")
        sluice(folder, *args, "--output", "again.json")
        again = json.loads((folder / "again.json").read_text())
        assert again["mean_ttft_ms"] == report["mean_ttft_ms"]  # virtual time is the same each time
        sluice(folder, *args, "--replicas", 4, "--output", "four.json")
        assert json.loads((folder / "four.json").read_text())["p99_tpot_ms"] < report["p99_tpot_ms"]


def test_bench_serve_compares():
    need_model()
    with tempfile.TemporaryDirectory() as name, Server() as server:
        folder = Path(name)
        load = ("--num-prompts", 6, "--concurrency", 3, "--input-len", 16, "--output-len", 8)
        text = sluice(folder, "bench", "serve", "--url", server.url, *load, "--label", "server", "--output", "a.json").stdout
        assert "Serving Benchmark Result" in text
        sluice(folder, "bench", "serve", "-m", DEFAULT_MODEL, *load, "--label", "engine", "--output", "b.json")
        for file in ("a.json", "b.json"):
            report = json.loads((folder / file).read_text())
            assert report["completed"] == 6 and report["failed"] == 0 and report["total_output_tokens"] == 48, report
        sluice(folder, "bench", "serve", "--compare", "a.json,b.json", "--html", "both.html")
        check_page(folder / "both.html", "server", "engine", "TTFT")
        server.stop()


def test_bench_schemes_and_sweep():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = ("-m", TINY, "--num-prompts", 4, "--concurrency", 4, "--input-len", "8-16", "--output-len", "2-6")
        sluice(folder, "bench", "schemes", *load, "--no-cache-requests", 1, "--output", "s.json", "--html", "s.html")
        rows = json.loads((folder / "s.json").read_text())
        assert len(rows) == 15 and {"static padded", "continuous mixed"} <= {row["scheme"] for row in rows}, rows
        check_page(folder / "s.html", "continuous mixed", "padding")
        sweep = ("bench", "sweep", "--grid", "max-seqs=1,4", *load, "--slo", "ttft:60s", "--results", "r.jsonl")
        assert "max-seqs" in sluice(folder, *sweep, "--html", "w.html").stdout
        lines = (folder / "r.jsonl").read_text().splitlines()
        assert len(lines) == 2, lines
        check_page(folder / "w.html", "max-seqs")
        sluice(folder, *sweep)  # all points are there already
        assert (folder / "r.jsonl").read_text().splitlines() == lines


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
