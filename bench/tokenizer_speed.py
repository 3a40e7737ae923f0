#!/usr/bin/env python3
"""Encoding speed with the default model's vocabulary on one thread, beside the `tokenizers` package in the same run.

usage: .venv/bin/python bench/tokenizer_speed.py [--text FILE] [--rounds N]

The text is Python's own manual unless a file is named. The two take turns; each side's figure is the median of its
rounds, in processor time. The package is timed in each of its ways (the whole text, paragraph by paragraph, paragraphs
as one batch; with and without offsets) and counts with the fastest; bench_tokenizer encodes the whole text. Ends with exit
code 1 where sluice is slower than 5 MB/s or than the package, or where the tokens differ.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = Path(__file__).resolve().parent.parent
MODEL = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
PROGRAM = Path(os.environ.get("SLUICE_BINARY", ROOT / "build/release/sluice")).parent / "bench_tokenizer"
LEAST = 5.0  # MB/s

sys.path.insert(0, str(ROOT / "tests/python"))
from library_tokenizer import smollm  # noqa: E402


def english():
    from pydoc_data.topics import topics
    return "\n\n".join(topics.values())


def ways(tokenizer, text):
    paragraphs = text.split("\n\n")
    plain = {"add_special_tokens": False}
    return {
        "encode, whole": lambda: tokenizer.encode(text, **plain),
        "encode, paragraphs": lambda: [tokenizer.encode(part, **plain) for part in paragraphs],
        "encode_batch": lambda: tokenizer.encode_batch(paragraphs, **plain),
        "encode_batch_fast": lambda: tokenizer.encode_batch_fast(paragraphs, **plain),
    }


def processor_seconds(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin


def ours(path):
    """(tokens, MB/s)"""
    words = subprocess.run([PROGRAM, "encode", MODEL, path, "3"], check=True, capture_output=True, text=True).stdout.split()
    return int(words[2]), float(words[4])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    text = arguments.text.read_text() if arguments.text else english()
    tokenizer = smollm(MODEL)
    count = len(tokenizer.encode(text, add_special_tokens=False).ids)
    speeds, own = {name: [] for name in ways(tokenizer, text)}, []
    size = len(text.encode()) * 1e-6
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "text"
        path.write_text(text)
        for _ in range(arguments.rounds):
            own_count, speed = ours(path)
            own.append(speed)
            for name, work in ways(tokenizer, text).items():
                speeds[name].append(size / processor_seconds(work))
    print(f"{size:.2f} MB of text, {count} tokens; sluice {own_count} tokens")
    for name, values in speeds.items():
        print(f"tokenizers {name:20} {statistics.median(values):7.2f} MB/s")
    best, mine = max(map(statistics.median, speeds.values())), statistics.median(own)
    print(f"sluice     {'':20} {mine:7.2f} MB/s, {mine / best:.2f} times the package's best")
    return 0 if own_count == count and mine >= max(LEAST, best) else 1


if __name__ == "__main__":
    sys.exit(main())
