#!/usr/bin/env python3
"""Fails on an #include that layers.txt does not allow, on a cycle in layers.txt itself, where the table of
ARCHITECTURE.md differs from it, on a path that README.md, ARCHITECTURE.md or docs/ name and that is not there, and on a CUDA
kernel in reach of clusters, TMA or wgmma that does not begin with what it requires (src/kernels/cuda/common/compiled.cuh): it
would not assemble for other architectures."""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (".h", ".cpp", ".cu", ".cuh")
HOPPER = {f"kernels/cuda/common/{name}.cuh" for name in ("cluster", "tma", "wgmma")}
NAMED_PATH = re.compile(r"(?<![\w./-])(?:src|tests|tools|bench|docs|cmake|web|deploy|include|examples)/[\w./*-]*\w")


def read_layers():
    layers = {}
    for line in (ROOT / "layers.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, allowed = line.partition(":")
            layers[name.strip()] = allowed.split()
    return layers


def read_table():
    """The rows of ARCHITECTURE.md's table of layers: the first and the last of three columns."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("| may include |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    return {row[0]: row[-1].replace("–", "").split() for row in rows}


def compare_table(layers):
    table = read_table()
    return [f"ARCHITECTURE.md: {name} is {' '.join(table[name]) if name in table else 'not in the table'}, "
            f"layers.txt has {' '.join(layers[name]) if name in layers else 'no such line'}"
            for name in sorted(layers.keys() | table.keys()) if layers.get(name) != table.get(name)]


def is_there(path):
    """Whether a path, or one that fits its asterisks, exists. A part in capitals stands for any name."""
    if any(re.fullmatch(r"[A-Z_]{2,}(\.\w+)?", part) for part in path.split("/")) and not (ROOT / path).exists():
        path = re.sub(r"(?<=/)[A-Z_]{2,}(?=[./]|$)", "*", path)
    return any(True for _ in ROOT.glob(path))


def missing_paths():
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/*.md")),
             *sorted(ROOT.glob("tests/*/README.md")), *sorted(ROOT.glob("deploy/*.md"))]
    return [f"{page.relative_to(ROOT)}:{number}: {path} is not there"
            for page in pages for number, line in enumerate(page.read_text().splitlines(), 1)
            for path in NAMED_PATH.findall(line) if not is_there(path)]


def included(path):
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M)


def reaches(path, targets, seen):
    """Whether a file of src/ includes one of the targets, itself or by way of others."""
    seen.add(path)
    return any(name in targets or (name not in seen and (ROOT / "src" / name).is_file() and
                                   reaches(ROOT / "src" / name, targets, seen | {name}))
               for name in included(path))


def kernels_without_requirement():
    problems = []
    for path in sorted((ROOT / "src/kernels/cuda").rglob("*.cu*")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        kernels = list(re.finditer(r"__global__\s(?:[^;{]*?\b(?:__launch_bounds__|__cluster_dims__)\([^;{]*?\)\s+)*(?:void\s+)?(\w+)\([^;{]*\)\s*\{((?:[^\n]*\n){4})", text))
        if kernels and reaches(path, HOPPER, set()):
            problems += [f"{path.relative_to(ROOT)}: {kernel[1]} does not begin with require_hopper() or require_bulk_copies()"
                         for kernel in kernels if not re.search(r"\brequire_(hopper|bulk_copies)\(\);", kernel[2])]
    return problems


def layer_of(path, layers):
    """The longest layer that is a prefix of the path: kernels/cpu before kernels."""
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        name = "/".join(parts[:length])
        if name in layers:
            return name
    return None


def find_cycle(layers):
    done, path = set(), []

    def visit(name):
        if name in path:
            return path[path.index(name):] + [name]
        if name in done:
            return None
        path.append(name)
        for dependency in layers[name]:
            cycle = visit(dependency)
            if cycle:
                return cycle
        path.pop()
        done.add(name)
        return None

    for name in layers:
        cycle = visit(name)
        if cycle:
            return cycle
    return None


def main():
    layers = read_layers()
    problems = []
    for name, allowed in layers.items():
        problems += [f"layers.txt: {name} names unknown layer {other}" for other in allowed if other not in layers]
    cycle = None if problems else find_cycle(layers)
    if cycle:
        problems.append("layers.txt: cycle " + " -> ".join(cycle))
    problems += compare_table(layers) + missing_paths() + kernels_without_requirement()
    files = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in SOURCES)
    for file in files:
        relative = file.relative_to(ROOT / "src").as_posix()
        layer = layer_of(relative, layers)
        if layer is None:
            problems.append(f"src/{relative}: directory is not in layers.txt")
            continue
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = layer_of(match[1], layers)
            if target is None:
                problems.append(f'src/{relative}:{number}: "{match[1]}" is not a path from src/')
            elif target != layer and target not in layers[layer]:
                problems.append(f"src/{relative}:{number}: {layer} may not include {target} ({match[1]})")
    for problem in problems:
        print(problem)
    print(f"layers: {len(files)} files, {len(layers)} layers, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
