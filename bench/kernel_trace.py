#!/usr/bin/env python3
"""Where the time of a decode step goes: reads what libkernel_trace.so (kernel_trace.cpp) wrote.

  bench/kernel_trace.py FILE [--steps 20] [--every]

A step is what repeats: the kernels between two runs of the rarest kernel among the last ones. Printed are, for each kernel of a
step in its order, the medians over the last steps of when it starts behind the start of the step, how long it runs, and how much
later it ends than all before it, which is what it adds to the step; then the same by name, the largest sums first. --every: all
kernels of a step, where else only the first 40 and the last 20 are shown."""
import argparse
import re
import statistics
import subprocess
from collections import Counter, defaultdict


def short(name):
    """A kernel's name without namespaces and with the start of its template arguments."""
    name = re.sub(r"\(anonymous namespace\)::|sluice::|kernels::|cuda::|flashinfer::|cutlass::|void ", "", name)
    return name.split("(")[0][:70]


def demangled(names):
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, map(short, text.split("\n"))))


def read(path):
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 6) for line in file]
    names = demangled(sorted({row[6] for row in rows}))
    return [(int(row[0]), int(row[1]), names[row[6]], int(row[3]), int(row[4]), int(row[5])) for row in rows]


def steps_of(kernels, wanted):
    """The last steps, lists of kernels of one length: cut at a kernel that runs once a step."""
    most_kernels = 1800  # of a step
    tail = kernels[-wanted * most_kernels:]
    counts = Counter(kernel[2] for kernel in tail)
    for marker, _ in sorted(counts.items(), key=lambda item: item[1]):
        cuts = [i for i, kernel in enumerate(tail) if kernel[2] == marker]
        steps = [tail[begin:end] for begin, end in zip(cuts, cuts[1:])]
        if not steps:
            continue
        length, often = Counter(map(len, steps)).most_common(1)[0]
        if often >= min(wanted, 3) and often * 2 >= len(steps):
            return [step for step in steps if len(step) == length][-wanted:]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", action="store_true")
    options = parser.parse_args()
    steps = steps_of(read(options.file), options.steps)
    if not steps:
        raise SystemExit("no steps that repeat")
    rows = []
    for place in range(len(steps[0])):
        same = [step[place] for step in steps]
        starts = [kernel[0] - step[0][0] for step, kernel in zip(steps, same)]
        runs = [kernel[1] - kernel[0] for kernel in same]
        adds = [kernel[1] - max([k[1] for k in step[:place]] or [kernel[0]]) for step, kernel in zip(steps, same)]
        rows.append((same[0][2], same[0][3:], *(statistics.median(x) / 1000 for x in (starts, runs, adds))))
    whole = statistics.median(step[-1][1] - step[0][0] for step in steps) / 1000
    print(f"{len(steps)} steps of {len(rows)} kernels, {whole:.1f} us from the first's start to the last's end")
    print("| kernel | blocks x threads, KB | starts at us | runs us | adds us |\n|---|---|---:|---:|---:|")
    for place, (name, (blocks, threads, shared), start, run, add) in enumerate(rows):
        if options.every or place < 40 or place >= len(rows) - 20:
            print(f"| {name} | {blocks} x {threads}, {shared / 1024:.0f} | {start:.1f} | {run:.1f} | {add:.1f} |")
    sums = defaultdict(lambda: [0, 0.0, 0.0])
    for name, _, _, run, add in rows:
        sums[name] = [sums[name][0] + 1, sums[name][1] + run, sums[name][2] + add]
    print("\n| kernel | times | runs us | adds us |\n|---|---:|---:|---:|")
    for name, (times, run, add) in sorted(sums.items(), key=lambda item: -item[1][2]):
        print(f"| {name} | {times} | {run:.1f} | {add:.1f} |")


if __name__ == "__main__":
    main()
