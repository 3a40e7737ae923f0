"""How checkpoints of each quantised format keep a matrix, by the formats' published formulas, in numpy.

Every function takes a float32 matrix [rows, cols] and gives (tensors by suffix, the float32 matrix that they stand for). A
tensor is (dtype name of safetensors, shape, bytes).
"""
import json

import ml_dtypes
import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
                1.0], np.float32)
FP4 = np.array([0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4], np.float32)
FP4 = np.concatenate([FP4, -FP4])
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int32): "I32", np.dtype(np.int8): "I8",
         np.dtype(np.uint8): "U8", np.dtype(np.int64): "I64", np.dtype(ml_dtypes.bfloat16): "BF16",
         np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3"}


def tensor(array):
    return NAMES[array.dtype], array.shape, np.ascontiguousarray(array).tobytes()


def packed(codes, bits, axis, order=None):
    """Unsigned codes along an axis into 32-bit words, the first lowest."""
    count = 32 // bits
    codes = np.moveaxis(codes.astype(np.uint64), axis, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, count)
    places = order if order is not None else list(range(count))
    words = sum(codes[..., source] << np.uint64(bits * place) for place, source in enumerate(places))
    return np.moveaxis(words.astype(np.uint32).view(np.int32), -1, axis)


def grouped(weight, bits, group, symmetric, scale_type=np.float16, order=None):
    """codes [rows, cols], scales and zeros [rows, groups], and the matrix they stand for. order[k]: column k's group."""
    rows, cols = weight.shape
    group = cols if group == -1 else group
    if order is None:
        order = np.arange(cols) // group
    groups = order.max() + 1
    top = 2**bits - 1
    scales, zeros = np.zeros((rows, groups), scale_type), np.zeros((rows, groups), np.int64)
    for g in range(groups):
        part = weight[:, order == g]
        low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
        if symmetric:
            scales[:, g] = np.abs(part).max(1) / (2**(bits - 1) - 1)
            zeros[:, g] = 2**(bits - 1)
        else:
            scales[:, g] = (high - low) / top
            zeros[:, g] = np.clip(np.round(-low / scales[:, g].astype(np.float32)), 0, top)
    wide = scales.astype(np.float32)[:, order]
    codes = np.clip(np.round(weight / wide) + zeros[:, order], 0, top).astype(np.int64)
    return codes, scales, zeros, (wide * (codes - zeros[:, order])).astype(np.float32)


def gptq(weight, bits=4, group=32, symmetric=True, version=1, act_order=False, seed=0):
    cols = weight.shape[1]
    order = None
    if act_order:
        order = np.random.default_rng(seed).permutation(np.arange(cols) // group)
    codes, scales, zeros, real = grouped(weight, bits, group, symmetric, order=order)
    g_idx = order if order is not None else np.arange(cols) // (cols if group == -1 else group)
    stored = (zeros - (1 if version == 1 else 0)) & (2**bits - 1)
    return {".qweight": tensor(packed(codes.T, bits, 0)), ".qzeros": tensor(packed(stored.T, bits, 1)),
            ".scales": tensor(scales.T), ".g_idx": tensor(g_idx.astype(np.int32))}, real


def awq(weight, group=32):
    codes, scales, zeros, real = grouped(weight, 4, group, False)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {".qweight": tensor(packed(codes.T, 4, 1, order)), ".qzeros": tensor(packed(zeros.T, 4, 1, order)),
            ".scales": tensor(scales.T)}, real


def pack_quantized(weight, bits=4, group=32, symmetric=True):
    codes, scales, zeros, real = grouped(weight, bits, group, symmetric, ml_dtypes.bfloat16)
    out = {".weight_packed": tensor(packed(codes, bits, 1)), ".weight_scale": tensor(scales),
           ".weight_shape": tensor(np.array(weight.shape, np.int64))}
    if not symmetric:
        out[".weight_zero_point"] = tensor(packed(zeros, bits, 0))
    return out, real


def int_quantized(weight):
    codes, scales, _, real = grouped(weight, 8, -1, True, ml_dtypes.bfloat16)
    return {".weight": tensor((codes - 128).astype(np.int8)), ".weight_scale": tensor(scales)}, real


def e4m3(values):
    return np.clip(values, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def float_quantized(weight, per_row=True):
    largest = np.abs(weight).max(1, keepdims=True) if per_row else np.abs(weight).max().reshape(1)
    scale = (largest / 448).astype(np.float32)
    codes = e4m3(weight / scale)
    return {".weight": tensor(codes), ".weight_scale": tensor(scale)}, codes.astype(np.float32) * scale


def exponents(scale):
    """Powers of two that are no smaller, as e8m0 has them, and what they stand for."""
    codes = np.clip(np.ceil(np.log2(scale)) + 127, 0, 254).astype(np.uint8)
    return codes, np.exp2(codes.astype(np.float32) - 127)


def mxfp8(weight):
    rows, cols = weight.shape
    parts = weight.reshape(rows, -1, 32)
    scale, wide = exponents(np.abs(parts).max(-1) / 448)
    codes = e4m3(parts / wide[..., None])
    real = (codes.astype(np.float32) * wide[..., None]).reshape(rows, cols)
    return {".weight": tensor(codes.reshape(rows, cols)), ".weight_scale": tensor(scale)}, real


def fp8_blocks(weight, side=128, e8m0=False):
    rows, cols = weight.shape
    scale = np.zeros((-(-rows // side), -(-cols // side)), np.float32)
    for i, j in np.ndindex(*scale.shape):
        scale[i, j] = np.abs(weight[i * side:(i + 1) * side, j * side:(j + 1) * side]).max() / 448
    stored = tensor(scale)
    if e8m0:
        powers, scale = exponents(scale)
        stored = "F8_E8M0", powers.shape, powers.tobytes()
    wide = np.repeat(np.repeat(scale, side, 0)[:rows], side, 1)[:, :cols]
    codes = e4m3(weight / wide)
    return {".weight": tensor(codes), ".weight_scale_inv": stored}, codes.astype(np.float32) * wide


def nibble_pairs(codes, high_first=False):
    first, second = codes[..., 0::2].astype(np.uint8), codes[..., 1::2].astype(np.uint8)
    return first << 4 | second if high_first else first | second << 4


def nvfp4(weight, modelopt=False):
    rows, cols = weight.shape
    parts = weight.reshape(rows, -1, 16)
    whole = np.float32(448 * 6 / np.abs(weight).max())  # multiplies: values and scales use their whole ranges
    scale = e4m3(np.abs(parts).max(-1) / 6 * whole)
    wide = scale.astype(np.float32)[..., None] / whole
    codes = np.abs(parts[..., None] / np.where(wide == 0, 1, wide)[..., None] - E2M1).argmin(-1)
    real = (wide * E2M1[codes]).reshape(rows, cols).astype(np.float32)
    values, scales = tensor(nibble_pairs(codes.reshape(rows, cols))), tensor(scale)
    if modelopt:
        return {".weight": values, ".weight_scale": scales, ".weight_scale_2": tensor(np.float32(1 / whole).reshape(())),
                ".input_scale": tensor(np.float32(0.01).reshape(()))}, real
    return {".weight_packed": values, ".weight_scale": scales, ".weight_global_scale": tensor(whole.reshape(1)),
            ".input_global_scale": tensor(np.ones(1, np.float32))}, real


def mxfp4(weight):
    rows, cols = weight.shape
    parts = weight.reshape(rows, -1, 32)
    exponent = np.clip(np.floor(np.log2(np.abs(parts).max(-1))) - 2 + 127, 0, 254).astype(np.uint8)
    wide = np.exp2(exponent.astype(np.float32) - 127)[..., None]
    codes = np.abs(parts[..., None] / wide[..., None] - E2M1).argmin(-1)
    real = (wide * E2M1[codes]).reshape(rows, cols).astype(np.float32)
    return {".weight_packed": tensor(nibble_pairs(codes.reshape(rows, cols))), ".weight_scale": tensor(exponent)}, real


def bnb_int8(weight):
    scb = np.abs(weight).max(1).astype(np.float32)
    codes = np.round(weight * (127 / scb)[:, None]).astype(np.int8)
    return {".weight": tensor(codes), ".SCB": tensor(scb), ".weight_format": tensor(np.uint8(0).reshape(()))}, \
        (codes.astype(np.float32) * scb[:, None] / 127).astype(np.float32)


def bnb(weight, kind="nf4", nested=False):
    block, values = 64, {"nf4": NF4, "fp4": FP4}[kind]
    parts = weight.reshape(-1, block)
    absmax = np.abs(parts).max(1).astype(np.float32)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": list(weight.shape)}
    out = {".weight.quant_map": tensor(values)}
    if nested:
        offset = np.float32(absmax.mean())
        inner = 256
        nested_map = np.sort(np.concatenate([-(np.arange(1, 128) / 127.0)**2, [0.0], (np.arange(1, 129) / 128.0)**2]))
        nested_map = nested_map.astype(np.float32)
        count = -(-len(absmax) // inner)
        nested_absmax = np.array([np.abs(absmax[i * inner:(i + 1) * inner] - offset).max() for i in range(count)], np.float32)
        wide = np.repeat(nested_absmax, inner)[:len(absmax)]
        codes = np.abs(((absmax - offset) / wide)[:, None] - nested_map).argmin(1).astype(np.uint8)
        out |= {".weight.absmax": tensor(codes), ".weight.nested_absmax": tensor(nested_absmax),
                ".weight.nested_quant_map": tensor(nested_map)}
        absmax = nested_map[codes] * wide + offset
        state |= {"nested_blocksize": inner, "nested_dtype": "float32", "nested_offset": float(offset)}
    else:
        out[".weight.absmax"] = tensor(absmax)
    codes = np.abs((parts / absmax[:, None])[..., None] - values).argmin(-1)
    out[".weight"] = tensor(nibble_pairs(codes.reshape(1, -1), True).reshape(-1, 1))
    out[".weight.quant_state.bitsandbytes__" + kind] = tensor(np.frombuffer(json.dumps(state).encode(), np.uint8))
    return out, (values[codes] * absmax[:, None]).reshape(weight.shape).astype(np.float32)
