#!/usr/bin/env python3
"""sluice bench against llama.cpp on the same file: ratios of speed with their spread.

Both sides run in turn, round after round, so that what else the machine does hits both alike; a ratio is taken within a
round. The other side is llama-bench (prompts and single answers), llama-batched-bench (answers in batches), or, with
--python, the llama_cpp module of the interpreter that runs this script, timed around llama_decode alone."""
import argparse
import ctypes
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fail(message):
    sys.exit(f"versus: {message}")


def numbers(text):
    try:
        return [int(part) for part in text.split(",") if part]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers with commas")


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def listed(values):
    return ",".join(map(str, values))


# Each side gives {(kind, tokens, batch, depth): tokens per second} for one round.

def sluice_round(options):
    found = json.loads(run([options.sluice, "bench", "-m", options.model, "--pp", listed(options.pp), "--tg",
                            listed(options.tg), "--batch", listed(options.batch), "--depth", listed(options.depth),
                            "--repeat", 1, "--threads", options.threads, "--format", "json"]))
    return {(t["kind"], t["tokens"], t["batch"], t["depth"]): t["tokens_per_second"] for t in found["tests"]}


def llama_bench_round(options):
    answers = options.tg if 1 in options.batch else []
    command = [options.llama_bench, "-m", options.model, "-d", listed(options.depth), "-r", 1, "-o", "json", "-p",
               listed(options.pp or [0]), "-n", listed(answers or [0])]
    if options.threads:
        command += ["-t", options.threads]
    out = {}
    for test in json.loads(run(command)):
        kind, tokens = ("pp", test["n_prompt"]) if test["n_prompt"] else ("tg", test["n_gen"])
        out[kind, tokens, 1, test.get("n_depth", 0)] = test["avg_ts"]
    return out


def llama_batched_round(options):
    out = {}
    for depth in options.depth:
        known = max(depth, 1)  # it always reads a prompt first
        command = [options.llama_batched_bench, "-m", options.model, "-c", max(options.batch) * (known + max(options.tg)),
                   "-npp", known, "-ntg", listed(options.tg), "-npl", listed(options.batch), "--output-format", "jsonl"]
        if options.threads:
            command += ["-t", options.threads]
        for line in run(command).splitlines():
            if line.startswith("{"):
                test = json.loads(line)
                out["tg", test["tg"], test["pl"], depth] = test["speed_tg"]
    return out


class LlamaModule:
    """llama.cpp in this process, through the low-level functions of llama_cpp."""

    def __init__(self, options):
        try:
            from llama_cpp import llama_cpp
        except ImportError:
            fail(f"--python: {sys.executable} has no module llama_cpp (pip install llama-cpp-python)")
        self.api, self.options = llama_cpp, options
        self.random = random.Random(1)
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(options.model.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            fail(f"llama_cpp cannot load {options.model}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.sequences = max(options.batch, default=1)
        most = max(options.depth) + max(options.pp + options.tg)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = (most + 255) // 256 * 256 * self.sequences
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = self.sequences
        params.n_threads = params.n_threads_batch = options.threads or available_cores()
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            fail("llama_cpp cannot make a context of this size")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.batch = llama_cpp.llama_batch_init(max(512, self.sequences), 0, 1)

    def decode(self, places, wanted):
        """Seconds of one llama_decode of random tokens at (sequence, position) places; logits where wanted(i)."""
        batch = self.batch
        batch.n_tokens = len(places)
        for i, (sequence, position) in enumerate(places):
            batch.token[i] = self.random.randrange(self.vocab)
            batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0] = position, 1, sequence
            batch.logits[i] = wanted(i)
        start = time.perf_counter()
        if self.api.llama_decode(self.context, batch) != 0:
            fail("llama_decode failed")
        self.api.llama_synchronize(self.context)
        return time.perf_counter() - start

    def prompt(self, begin, count):
        seconds = 0.0
        for first in range(begin, begin + count, 512):
            places = [(0, p) for p in range(first, min(first + 512, begin + count))]
            seconds += self.decode(places, lambda i: i == len(places) - 1)
        return seconds

    def cut(self, depth):
        for sequence in range(self.sequences):
            self.api.llama_memory_seq_rm(self.memory, sequence, depth, -1)

    def round(self):
        out = {}
        for depth in self.options.depth:
            self.api.llama_memory_clear(self.memory, True)
            self.prompt(0, depth)
            for sequence in range(1, self.sequences if depth else 0):
                self.api.llama_memory_seq_cp(self.memory, 0, sequence, -1, -1)
            for tokens in self.options.pp:
                self.prompt(depth, tokens)
                self.cut(depth)
                out["pp", tokens, 1, depth] = tokens / self.prompt(depth, tokens)
                self.cut(depth)
            for tokens in self.options.tg:
                for size in self.options.batch:
                    steps = [[(s, depth + i) for s in range(size)] for i in range(tokens)]
                    seconds = sum(self.decode(places, lambda i: 1) for places in steps)
                    out["tg", tokens, size, depth] = tokens * size / seconds
                    self.cut(depth)
        return out


def available_cores():
    return len(os.sched_getaffinity(0))


def others(options):
    """What to compare with: a function that gives one round."""
    for name in ("llama_bench", "llama_batched_bench"):
        path = getattr(options, name)
        if path and not shutil.which(path):
            fail(f"--{name.replace('_', '-')}: '{path}' is not a program")
    sides = []
    if options.python:
        sides.append(LlamaModule(options).round)
    if options.llama_bench:
        sides.append(lambda: llama_bench_round(options))
    if options.llama_batched_bench:
        sides.append(lambda: llama_batched_round(options))
    if not sides:
        fail("nothing to compare with; give --llama-bench, --llama-batched-bench or --python")
    return lambda: {key: speed for side in sides for key, speed in side().items()}


def name(key):
    kind, tokens, batch, depth = key
    return f"{kind}{tokens}" + (f" x{batch}" if batch > 1 else "") + (f" @ d{depth}" if depth else "")


def default_model(options):
    if options.model:
        return options.model
    folder = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models"))
    found = sorted(folder.glob("*.gguf"))
    if not found:
        fail(f"no -m MODEL, and no .gguf file in {folder}")
    return str(found[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", help="a GGUF file")
    parser.add_argument("--sluice", default=str(ROOT / "build/release/sluice"))
    parser.add_argument("--llama-bench", metavar="PROGRAM")
    parser.add_argument("--llama-batched-bench", metavar="PROGRAM")
    parser.add_argument("--python", action="store_true", help="compare with the module llama_cpp of this interpreter")
    parser.add_argument("--pp", type=numbers, default=[512])
    parser.add_argument("--tg", type=numbers, default=[128])
    parser.add_argument("--batch", type=numbers, default=[1, 2, 3, 4, 6, 8, 16, 32])
    parser.add_argument("--depth", type=numbers, default=[0, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    options = parser.parse_args()
    options.model = default_model(options)
    if not shutil.which(options.sluice):
        fail(f"--sluice: '{options.sluice}' is not a program; build it with ninja -C build/release sluice")
    other = others(options)
    ours, theirs = {}, {}
    for _ in range(options.rounds):
        for side, speeds in ((ours, sluice_round(options)), (theirs, other())):
            for key, speed in speeds.items():
                side.setdefault(key, []).append(speed)
    print(f"{options.model}, {options.rounds} rounds\n\n| test | sluice t/s | llama.cpp t/s | ratio | least | most |\n|---|---:|---:|---:|---:|---:|")
    for key in ours:
        if key not in theirs:
            continue
        ratios = [a / b for a, b in zip(ours[key], theirs[key])]
        print(f"| {name(key)} | {statistics.median(ours[key]):.1f} | {statistics.median(theirs[key]):.1f} | "
              f"{statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f} |")


if __name__ == "__main__":
    main()
