#!/usr/bin/env python3
"""Writes src/tensor/grids.inc: the code books of GGUF's IQ types, from the `gguf` package (pip install gguf).

An entry of the 2-bit and 1-bit books is eight values of two bits each, one of the 3-bit books four values of three bits, the
first lowest: indices into the magnitudes that src/tensor/grids.cpp names.
"""
from pathlib import Path

import numpy as np
from gguf import quants

OUTPUT = Path(__file__).resolve().parent.parent / "src/tensor/grids.inc"
BOOKS = [("kIq2XxsBook", quants.IQ2_XXS, 2), ("kIq2XsBook", quants.IQ2_XS, 2), ("kIq2SBook", quants.IQ2_S, 2),
         ("kIq1Book", quants.IQ1_S, 2), ("kIq3XxsBook", quants.IQ3_XXS, 3), ("kIq3SBook", quants.IQ3_S, 3)]


def main():
    lines = ["// Made by tools/make_grids.py.", "// clang-format off"]
    for name, kind, bits in BOOKS:
        kind.init_grid()
        grid = kind.grid.reshape(kind.grid_shape).astype(int)
        values = sorted(set(grid.flatten().tolist()))
        codes = np.searchsorted(values, grid)
        packed = [sum(int(c) << (bits * i) for i, c in enumerate(row)) for row in codes]
        print(name, len(packed), values)
        lines.append(f"constexpr uint16_t {name}[{len(packed)}] = {{")
        for i in range(0, len(packed), 18):
            lines.append(",".join(str(v) for v in packed[i:i + 18]) + ",")
        lines.append("};")
    OUTPUT.write_text("\n".join(lines) + "\n// clang-format on\n")


main()
