#!/usr/bin/env python3
"""Writes tests/tensor/data/quantize_cases.bin: floats with the blocks that the `gguf` package makes of them.

File: f32[2048], then for each type {char name[8]; u32 bytes; bytes}.
"""
import struct
from pathlib import Path

import gguf
import numpy as np
from gguf.constants import GGMLQuantizationType

OUTPUT = Path(__file__).resolve().parent.parent / "tests/tensor/data/quantize_cases.bin"
random = np.random.default_rng(21)
values = random.normal(size=2048).astype(np.float32) * 0.05
values[256:512] = np.round(random.normal(size=256)).astype(np.float32)  # ties
values[512:768] = 0
values[768:1024] *= 1e-6
with OUTPUT.open("wb") as file:
    file.write(values.tobytes())
    for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16", "TQ1_0", "TQ2_0", "MXFP4"):
        with np.errstate(all="ignore"):
            data = gguf.quants.quantize(values.reshape(1, -1), GGMLQuantizationType[name]).tobytes()
        file.write(struct.pack("<8sI", name.encode(), len(data)) + data)
