#!/usr/bin/env python3
"""Writes tests/tensor/data/block_cases.bin: stored blocks of every weight type with the floats they stand for.

The floats come from the `gguf` package (pip install gguf); F8_E4M3, which it does not know, is expanded here from
the format's definition. Blocks are random bytes, blocks of one repeated byte (every nibble pattern), and both of
these with extreme scales. File: for each type {char name[8]; u32 elements; u32 bytes; bytes; f32[elements]}.
"""
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

OUTPUT = Path(__file__).resolve().parent.parent / "tests/tensor/data/block_cases.bin"

# Byte offsets of the f16 scales in a block, or of the one exponent byte of MXFP4.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "MXFP4": [0]}
# zeros, smallest and largest subnormal, smallest normal, one, largest, infinities, NaN
# Types of code books: random blocks alone, with these offsets of the f16 scale (IQ1_M spreads it, NVFP4 has bytes).
BOOKS = {"IQ1_S": 0, "IQ1_M": None, "IQ2_XXS": 0, "IQ2_XS": 0, "IQ2_S": 0, "IQ3_XXS": 0, "IQ3_S": 0, "IQ4_XS": 0, "TQ1_0": 52,
         "TQ2_0": 64, "NVFP4": None}
F16_EXTREMES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00]
E8M0_EXTREMES = [0, 1, 2, 3, 126, 127, 128, 253, 254, 255]


def blocks_of(name, size, random):
    """[blocks, size] bytes."""
    noise = random.integers(0, 256, (12, size), dtype=np.uint8)
    repeated = np.repeat(np.array([i * 17 for i in range(16)] + [0x0F, 0xF0, 0x80, 0x7F], np.uint8)[:, None], size, 1)
    groups = [noise, repeated]
    extremes = E8M0_EXTREMES if name == "MXFP4" else F16_EXTREMES
    for value in extremes:
        few = random.integers(0, 256, (2, size), dtype=np.uint8)
        few[1] = 0xFF if value & 1 else 0x00
        for offset in SCALES[name]:
            if name == "MXFP4":
                few[:, offset] = value
            else:
                few[:, offset] = value & 0xFF
                few[:, offset + 1] = value >> 8
        groups.append(few)
    return np.concatenate(groups)


def e4m3(codes):
    sign = np.where(codes & 0x80, -1.0, 1.0)
    exponent = ((codes >> 3) & 0xF).astype(np.int32)
    mantissa = (codes & 7).astype(np.float64)
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * np.exp2(exponent - 10.0))
    value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    return (sign * value).astype(np.float32)


def main():
    random = np.random.default_rng(20)
    cases = []
    for name in SCALES:
        kind = GGMLQuantizationType[name]
        data = blocks_of(name, GGML_QUANT_SIZES[kind][1], random)
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(data.reshape(1, -1), kind)
        cases.append((name, data, values))
    for name, offset in BOOKS.items():
        kind = GGMLQuantizationType[name]
        data = random.integers(0, 256, (6, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        if name == "TQ2_0":  # 3 is no code
            data[:, :64] &= ~((data[:, :64] >> 1) & 0x55)
        if offset is not None:  # one, a small one, the smallest, minus one, zero, largest
            for row, value in enumerate((0x3C00, 0x1234, 0x0001, 0xBC00, 0x0000, 0x7BFF)):
                data[row, offset], data[row, offset + 1] = value & 0xFF, value >> 8
        with np.errstate(all="ignore"):
            cases.append((name, data, gguf.quants.dequantize(data.reshape(1, -1), kind)))
    halves = np.concatenate([np.arange(0, 65536, 97, dtype=np.uint16), np.array(F16_EXTREMES, np.uint16)])
    for name in ("F16", "BF16"):
        data = halves.view(np.uint8)
        cases.append((name, data, gguf.quants.dequantize(data.reshape(1, -1), GGMLQuantizationType[name])))
    codes = np.arange(256, dtype=np.uint8)
    cases.append(("F8_E4M3", codes, e4m3(codes)))
    with OUTPUT.open("wb") as file:
        for name, data, values in cases:
            raw, floats = data.tobytes(), values.astype(np.float32).tobytes()
            file.write(struct.pack("<8sII", name.encode(), len(floats) // 4, len(raw)) + raw + floats)
    print(f"{OUTPUT}: {len(cases)} types, {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
