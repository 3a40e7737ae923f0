#!/usr/bin/env python3
"""Runs the checks and tests of the repository: run_tests.py [STEP...]; without names, every step that is on by default.

One line per step with its time; the output of what fails is shown in full. The last line is
"N passed, M failed, K skipped", and the exit code is 0 where nothing failed. Started by ./sluice test."""
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from testing import checks, programs, python_tests, tidy  # noqa: E402
from testing.step import Counts, Failed, Skipped  # noqa: E402

# name, what it does, the function, whether it runs unasked
STEPS = [
    ("layers", "includes follow layers.txt, and ARCHITECTURE.md shows it", checks.layers, True),
    ("includes", "files include the precompiled headers that they use", checks.includes, True),
    ("style", "lengths of files and functions", checks.style, True),
    ("format", "clang-format has nothing to change", checks.formatting, True),
    ("model", "the default model is there, or can be fetched", checks.default_model, True),
    ("build", "release build of the program and all tests", programs.build_release, True),
    ("tidy", "clang-tidy over the files of src/ that changed", tidy.tidy, True),
    ("tidy-all", "clang-tidy over all of src/ (slow)", tidy.tidy_all, False),
    ("unit", "every test program, release build", programs.unit, True),
    ("python", "scripts of tests/python against packages from PyPI", python_tests.run_all, True),
    ("asan", "every test program, address and undefined sanitizers", programs.asan, True),
    ("tsan", "tests that use threads, thread sanitizer", programs.tsan, True),
    ("cross", "kernels and parity tests for the other architecture, under qemu", programs.cross, True),
    ("fuzz", "each fuzz target for ten seconds over its corpus", programs.fuzz, True),
    ("cuda", "cuda build, and its tests where a GPU is", programs.cuda, True),
]


def run_step(name, function):
    started = time.monotonic()
    output = ""
    try:
        counts = function()
    except Skipped as skipped:
        counts = Counts(skipped=1, note=str(skipped))
    except Failed as failed:
        counts = Counts(failed=1, note=failed.args[0])
        output = failed.output
    output += counts.output
    word = "FAIL" if counts.failed else "ok" if counts.passed else "skip"
    seconds = time.monotonic() - started
    print(f"{word:<5}{name:<9}{seconds:7.1f} s  {counts.describe()}", flush=True)
    if counts.failed and output:
        print(output.rstrip("\n"), flush=True)
    return counts


def main():
    known = [step[0] for step in STEPS]
    wanted = sys.argv[1:] or [name for name, _, _, unasked in STEPS if unasked]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"unknown step {unknown[0]}; the steps are:", file=sys.stderr)
        for name, what, _, unasked in STEPS:
            print(f"  {name:<9}{what}{'' if unasked else ' (only when named)'}", file=sys.stderr)
        return 64
    started = time.monotonic()
    total = Counts()
    if "python" in wanted:
        python_tests.start_preparing()
    for name, _, function, _ in STEPS:
        if name in wanted:
            total += run_step(name, function)
    print(f"all steps: {time.monotonic() - started:.0f} s")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
