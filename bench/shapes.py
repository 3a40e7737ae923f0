#!/usr/bin/env python3
"""Times models of several shapes through the engine, each beside its floor and what vLLM 0.25.1 reached: shapes.py
BUILD FOLDER [SHAPE ...]. Random models are written below FOLDER with BUILD/random_model and removed after use."""
import os
import re
import shutil
import subprocess
import sys

# Milliseconds of a decode step at 1, 8, 64 and 256 sequences, then tokens a second of prefill, of an H200: floors (bytes at
# 4.39 TB/s, operations at 790 TFLOP/s), and vLLM with CUDA graphs; 0: not measured.
SHAPES = {
    "qwen3-0.6b": ((0.29, 0.39, 1.24, 4.1, 700_000), (2.377, 2.496, 3.445, 7.362, 374_296)),
    "qwen3-30b-a3b": ((0.45, 1.6, 3.7, 4.4, 500_000), (2.130, 3.091, 4.755, 18.985, 238_025)),
    "v2-lite": ((0.44, 1.3, 2.4, 2.6, 500_000), (1.916, 2.137, 3.834, 8.402, 249_869)),
    "qwen3.5-9b": ((3.62, 3.7, 5.3, 10.3, 54_955), (0, 0, 0, 0, 0)),
    "qwen3.5-35b-a3b": ((0.57, 1.5, 4.8, 7.1, 520_000), (0, 0, 0, 0, 0)),
    "phi-3-mini": ((1.75, 2.1, 5.0, 14.9, 103_262), (0, 0, 0, 0, 0)),
    "llama-3.1-8b": ((3.43, 3.5, 4.4, 7.4, 49_000), (4.85, 5.16, 6.72, 13.55, 43_148)),
}
WORKLOADS = ["decode1", "decode8", "decode64", "decode256", "prefill"]


def measure(build, model):
    """One figure for each workload: milliseconds a step, then tokens a second."""
    run = subprocess.run([f"{build}/bench_engine", model, *WORKLOADS], capture_output=True, text=True, check=False)
    if run.returncode != 0 or "FAILED" in run.stdout:
        sys.exit(f"bench_engine {model}: {run.stdout[-2000:]}{run.stderr[-2000:]}")
    steps = [float(value) for value in re.findall(r"([\d.]+) ms a step", run.stdout)]
    prefill = [float(value) for value in re.findall(r"^\| prefill [^|]*\| (\d+)", run.stdout, re.MULTILINE)]
    return steps + prefill


def main():
    build, folder = sys.argv[1], sys.argv[2]
    wanted = sys.argv[3:] or list(SHAPES)
    os.makedirs(folder, exist_ok=True)
    print("| shape | figure | sluice | floor | share of floor | vLLM 0.25.1 |\n|---|---|---|---|---|---|")
    for name in wanted:
        if name not in SHAPES:
            sys.exit(f"unknown shape '{name}'; known: {', '.join(SHAPES)}")
        model = f"{folder}/{name}"
        subprocess.run([f"{build}/random_model", model, name], check=True)
        figures = measure(build, model)
        shutil.rmtree(model)
        for workload, figure, floor, vllm in zip(WORKLOADS, figures, *SHAPES[name]):
            speed = workload == "prefill"
            share = figure / floor if speed else floor / figure
            form = "{:,.0f} tok/s" if speed else "{:.3f} ms"
            print(f"| {name} | {workload} | {form.format(figure)} | {form.format(floor)} | {share:.0%} "
                  f"| {form.format(vllm) if vllm else '-'} |",
                  flush=True)


if __name__ == "__main__":
    main()
