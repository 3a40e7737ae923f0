#!/usr/bin/env python3
"""Makes tests/golden/data/quantized: miniatures of every quantised format, with the logits of the weights they stand for.

usage: make_quantized_golden.py [NAME ...]

Folders have a config.json as such checkpoints are published; GGUF files have blocks of random bytes, decoded by the `gguf`
package. The reference is a Llama decoder in float64. Needs numpy, ml_dtypes and gguf.
"""
import json
import struct
import sys
from pathlib import Path

import gguf
import numpy as np
import quantized_formats as formats
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

OUT = Path(__file__).resolve().parent.parent / "tests/golden/data/quantized"
HEADS, KV, VOCAB, THETA, EPS = 4, 2, 32, 10000.0, 1e-6
LINEAR = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
          "mlp.down_proj"]


def shapes(dim, inner):
    kv = dim // HEADS * KV
    return dict(zip(LINEAR, [(dim, dim), (kv, dim), (kv, dim), (dim, dim), (inner, dim), (inner, dim), (dim, inner)]))


def norm(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * gain


def forward(w, layers, tokens, kv_from=None):
    """Logits [tokens, vocab] of a model whose weights are named as in a folder. kv_from[l]: whose keys and values layer l reads;
    -1: its own."""
    kept = {}
    x = w["model.embed_tokens"][tokens].astype(np.float64)
    n, width = len(tokens), x.shape[1] // HEADS
    angle = np.arange(n)[:, None] * THETA**(-np.arange(0, width, 2) / width)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def rotated(v):
        a, b = v[..., :width // 2], v[..., width // 2:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    for layer in range(layers):
        at = lambda name: w[f"model.layers.{layer}.{name}"].astype(np.float64)  # noqa: B023, E731
        h = norm(x, at("input_layernorm"))
        q = rotated((h @ at(LINEAR[0]).T).reshape(n, HEADS, width))
        source = kv_from[layer] if kv_from else -1
        if source < 0:
            kept[layer] = (rotated((h @ at(LINEAR[1]).T).reshape(n, KV, width)).repeat(HEADS // KV, 1),
                           (h @ at(LINEAR[2]).T).reshape(n, KV, width).repeat(HEADS // KV, 1))
        k, v = kept[layer if source < 0 else source]
        score = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(width)
        score = np.where(np.tri(n, dtype=bool), score, -np.inf)
        share = np.exp(score - score.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", share, v).reshape(n, -1) @ at(LINEAR[3]).T
        h = norm(x, at("post_attention_layernorm"))
        gate = h @ at(LINEAR[4]).T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ at(LINEAR[5]).T)) @ at(LINEAR[6]).T
    return norm(x, w["model.norm"].astype(np.float64)) @ w["lm_head"].astype(np.float64).T


def bf16(array):
    return array.astype(formats.ml_dtypes.bfloat16)


def plain_weights(dim, inner, layers, random):
    w = {"model.embed_tokens": random.normal(size=(VOCAB, dim)), "model.norm": 1 + 0.1 * random.normal(size=dim),
         "lm_head": random.normal(size=(VOCAB, dim)) / np.sqrt(dim)}
    for layer in range(layers):
        for name, shape in shapes(dim, inner).items():
            w[f"model.layers.{layer}.{name}"] = random.normal(size=shape) * (0.7 / np.sqrt(shape[1]))
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{layer}.{name}"] = 1 + 0.1 * random.normal(size=dim)
    return {name: bf16(value).astype(np.float32) for name, value in w.items()}


def write_safetensors(path, tensors):
    header, at, data = {}, 0, []
    for name, (kind, shape, raw) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def write_golden(folder, real, layers, note, kv_from=None):
    random = np.random.default_rng(3)
    cases, logits = [], {}
    for index, length in enumerate((1, 9)):
        prompt = random.integers(3, VOCAB, length)
        out = forward(real, layers, prompt, kv_from).astype(np.float32)
        logits[f"logits.{index}"] = formats.tensor(out)
        tokens = list(prompt)
        for _ in range(3):
            tokens.append(int(forward(real, layers, np.array(tokens), kv_from)[-1].argmax()))
        cases.append({"prompt": [int(t) for t in prompt], "greedy": [int(t) for t in tokens[length:]]})
    (folder / "golden.json").write_text(json.dumps({"cases": cases, "reference": note}))
    write_safetensors(folder / "golden.safetensors", logits)


def config(dim, inner, layers, extra):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim, "intermediate_size": inner,
            "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV, "vocab_size": VOCAB,
            "max_position_embeddings": 64, "rms_norm_eps": EPS, "rope_theta": THETA, "hidden_act": "silu",
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2} | extra


def make_folder(name, recipe, seed):
    quantize, extra = recipe["quantize"], recipe["config"]
    dim, inner, layers = recipe.get("dim", 128), recipe.get("dim", 128), recipe.get("layers", 1)
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    plain = plain_weights(dim, inner, layers, np.random.default_rng(seed))
    tensors, real = {}, {}
    for module, value in plain.items():
        chosen = quantize(module) if callable(quantize) and quantize.__name__ == "choose" else quantize
        if module in recipe.get("absent", ()):
            continue
        if any(module.endswith(linear) for linear in LINEAR) and chosen is not None:
            parts, real[module] = chosen(value)
            tensors |= {module + suffix: part for suffix, part in parts.items()}
        else:
            real[module] = value
            tensors[module + ".weight"] = formats.tensor(bf16(value))
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config(dim, inner, layers, extra), indent=1))
    for file, content in recipe.get("files", {}).items():
        (folder / file).write_text(json.dumps(content, indent=1))
    write_golden(folder, real, layers, "the weights as the format defines them, float64", recipe.get("kv_from"))


def compressed(form, weights, ignore=("lm_head",), targets=("Linear",)):
    group = {"targets": list(targets), "weights": {"actorder": None, "block_structure": None, "dynamic": False,
             "observer": "minmax", "observer_kwargs": {}} | weights, "input_activations": None, "output_activations": None}
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group},
            "ignore": list(ignore), "kv_cache_scheme": None, "quantization_status": "compressed",
            "global_compression_ratio": 1.5}}


def gptq_config(bits=4, group=32, sym=True, desc=False, form="gptq"):
    return {"quantization_config": {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": desc,
            "checkpoint_format": form, "damp_percent": 0.01, "true_sequential": True, "lm_head": False}}


def weights_of(bits, group, symmetric, strategy="group", kind="int"):
    return {"num_bits": bits, "group_size": group, "symmetric": symmetric, "strategy": strategy, "type": kind}


def mixed():
    """Four bits for attention, eight for the feed-forward, one module left as it is."""
    def choose(module):
        if module.endswith("1.mlp.down_proj"):
            return None
        return formats.pack_quantized if "self_attn" in module else lambda w: formats.pack_quantized(w, 8, -1)
    both = compressed("pack-quantized", weights_of(4, 32, True), ("lm_head", "re:.*layers\\.1\\.mlp\\.down_proj"),
                      ("re:.*self_attn.*",))
    both["quantization_config"]["config_groups"]["group_1"] = {
        "targets": ["re:.*mlp.*"], "weights": weights_of(8, None, True, "channel"), "input_activations": None}
    return {"quantize": choose, "config": both, "layers": 2}


def ordered():
    """Matrices with the same inputs whose orders differ, and one that has none beside those that have."""
    def choose(module):
        if module.endswith("self_attn.v_proj"):
            return lambda w: formats.gptq(w, symmetric=False)
        seed = next((i for i, name in enumerate(LINEAR) if module.endswith(name)), 0)
        return lambda w: formats.gptq(w, symmetric=False, act_order=True, seed=max(1, seed))  # one of queries and keys
    return {"quantize": choose, "config": gptq_config(sym=False, desc=True)}


def folders():
    f = formats
    bnb4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_compute_dtype": "bfloat16", "llm_int8_skip_modules": None}
    fp8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
    nvfp4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head"]}
    return {
        "gptq-v1": {"quantize": f.gptq, "config": gptq_config()},
        "gptq-v1-asym": {"quantize": lambda w: f.gptq(w, symmetric=False), "config": gptq_config(sym=False)},
        "gptq-v2-asym": {"quantize": lambda w: f.gptq(w, group=64, symmetric=False, version=2),
                         "config": gptq_config(group=64, sym=False, form="gptq_v2")},
        "gptq-act-order": {"quantize": lambda w: f.gptq(w, symmetric=False, act_order=True),
                           "config": gptq_config(sym=False, desc=True)},
        "gptq-8bit": {"quantize": lambda w: f.gptq(w, bits=8, group=-1), "config": gptq_config(8, -1)},
        "awq": {"quantize": lambda w: f.awq(w, 64), "config": {"quantization_config": {
            "quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm", "backend": "autoawq",
            "modules_to_not_convert": None}}},
        "pack-quantized": {"quantize": lambda w: f.pack_quantized(w, 4, 128),
                           "config": compressed("pack-quantized", weights_of(4, 128, True))},
        "pack-quantized-asym": {"quantize": lambda w: f.pack_quantized(w, 4, 32, False),
                                "config": compressed("pack-quantized", weights_of(4, 32, False))},
        "pack-quantized-mixed": mixed(),
        "int-quantized": {"quantize": f.int_quantized,
                          "config": compressed("int-quantized", weights_of(8, None, True, "channel"))},
        "float-quantized": {"quantize": f.float_quantized,
                            "config": compressed("float-quantized", weights_of(8, None, True, "channel", "float"))},
        "fp8-tensor": {"quantize": lambda w: f.float_quantized(w, False), "config": {
            "quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}}},
        "fp8-blocks": {"quantize": f.fp8_blocks, "config": {"quantization_config": fp8}},
        "nvfp4-pack-quantized": {"quantize": f.nvfp4,
                                 "config": compressed("nvfp4-pack-quantized", weights_of(4, 16, True, "tensor_group", "float"))},
        "mxfp4-pack-quantized": {"quantize": f.mxfp4,
                                 "config": compressed("mxfp4-pack-quantized", weights_of(4, 32, True, "group", "float"))},
        "modelopt-nvfp4": {"quantize": lambda w: f.nvfp4(w, True), "config": {"quantization_config": nvfp4}},
        "modelopt-file": {"quantize": lambda w: f.nvfp4(w, True), "config": {}, "files": {
            "hf_quant_config.json": {"producer": {"name": "modelopt", "version": "0.29.0"}, "quantization": {
                "quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head"]}}}},
        "bnb-int8": {"quantize": f.bnb_int8, "config": {"quantization_config": {
            "quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": True, "llm_int8_threshold": 6.0}}},
        "bnb-nf4": {"quantize": f.bnb, "config": {"quantization_config": bnb4 | {"bnb_4bit_use_double_quant": False}}},
        "bnb-nf4-nested": {"quantize": lambda w: f.bnb(w, nested=True),
                           "config": {"quantization_config": bnb4 | {"bnb_4bit_use_double_quant": True}}},
        "mxfp8-quantized": {"quantize": f.mxfp8, "dim": 64,
                            "config": compressed("mxfp8-quantized", weights_of(8, 32, True, "group", "float"))},
        "fp8-blocks-e8m0": {"quantize": lambda w: f.fp8_blocks(w, 32, True), "dim": 64, "config": {"quantization_config": fp8 | {
            "weight_block_size": [32, 32], "scale_fmt": "ue8m0"}}},
        # Not quantised: two layers that read the first one's keys and values have none of their own.
        "kv_from": {"quantize": lambda w: ({".weight": f.tensor(bf16(w))}, w), "dim": 32, "layers": 3, "kv_from": [-1, 0, 0],
                    "config": {"kv_from": [-1, 0, 0]},
                    "absent": [f"model.layers.{layer}.self_attn.{part}_proj" for layer in (1, 2) for part in "kv"]},
        "gptq-orders": ordered(),
        "bnb-fp4": {"quantize": lambda w: f.bnb(w, "fp4"),
                    "config": {"quantization_config": bnb4 | {"bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": False}}},
    }


# Where the f16 scale of a block lies; IQ1_M spreads it, NVFP4 has bytes.
GGUF_SCALES = {"IQ1_S": 0, "IQ1_M": None, "IQ2_XXS": 0, "IQ2_XS": 0, "IQ2_S": 0, "IQ3_XXS": 0, "IQ3_S": 0, "IQ4_NL": 0,
               "IQ4_XS": 0, "TQ1_0": 52, "TQ2_0": 64, "NVFP4": None}


def gguf_blocks(kind, shape, random):
    """Random blocks whose values have about the size of trained weights, with what they stand for."""
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = random.integers(0, 256, (shape[0] * shape[1] // elements, size), dtype=np.uint8)

    def set_scale(value):
        half = np.full(len(data), value, np.float16) * random.uniform(0.8, 1.2, len(data)).astype(np.float16)
        bits = half.view(np.uint16)
        if GGUF_SCALES[kind] is not None:
            data[:, GGUF_SCALES[kind]], data[:, GGUF_SCALES[kind] + 1] = bits & 0xFF, bits >> 8
        elif kind == "IQ1_M":
            for i in range(4):
                data[:, 49 + 2 * i] = (data[:, 49 + 2 * i] & 0x0F) | (((bits >> (4 * i)) & 0xF) << 4).astype(np.uint8)

    decode = lambda: gguf.quants.dequantize(data.reshape(shape[0], -1), GGMLQuantizationType[kind])  # noqa: E731
    if kind == "NVFP4":
        data[:, :4] = random.integers(0x10, 0x20, (len(data), 4))
        return data.reshape(shape[0], -1), decode().astype(np.float32)
    if kind == "TQ2_0":  # 3 is no code
        data[:, :64] &= ~((data[:, :64] >> 1) & 0x55)
    if kind == "TQ1_0":
        values = random.normal(size=shape).astype(np.float32)
        data = gguf.quants.quantize(values, GGMLQuantizationType[kind]).reshape(len(data), size).copy()
    set_scale(1.0)
    set_scale(0.7 / np.sqrt(shape[1]) / decode().std())
    return data.reshape(shape[0], -1), decode().astype(np.float32)


GGUF_NAMES = dict(zip(LINEAR, ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]))


def make_gguf(kind, seed):
    dim, inner, layers = 256, 256, 1
    folder = OUT / f"gguf-{kind.lower()}"
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    real = plain_weights(dim, inner, layers, random)
    writer = gguf.GGUFWriter(folder / "model.gguf", "qwen2")
    writer.add_context_length(64)
    writer.add_embedding_length(dim)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(THETA)
    writer.add_vocab_size(VOCAB)
    for name, stored in (("model.embed_tokens", "token_embd"), ("model.norm", "output_norm"), ("lm_head", "output")):
        value = real[name].astype(np.float32 if value_is_vector(real[name]) else np.float16)
        real[name] = value.astype(np.float32)
        writer.add_tensor(stored + ".weight", value)
    for layer in range(layers):
        for name, stored in (("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")):
            writer.add_tensor(f"blk.{layer}.{stored}.weight", real[f"model.layers.{layer}.{name}"])
        for name, shape in shapes(dim, inner).items():
            data, value = gguf_blocks(kind, shape, random)
            if kind == "NVFP4":
                factor = np.float32(0.7 / np.sqrt(shape[1]) / value.std())
                value = value * factor
                writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[name]}.scale", np.array([factor], np.float32))
            real[f"model.layers.{layer}.{name}"] = value
            writer.add_tensor(f"blk.{layer}.{GGUF_NAMES[name]}.weight", data, raw_dtype=GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write_golden(folder, real, layers, "the gguf package's values, float64")


def value_is_vector(value):
    return value.ndim == 1


def main():
    wanted = sys.argv[1:]
    for seed, (name, recipe) in enumerate(folders().items()):
        if not wanted or name in wanted:
            make_folder(name, recipe, 100 + seed)
    for seed, kind in enumerate(GGUF_SCALES):
        if not wanted or f"gguf-{kind.lower()}" in wanted:
            make_gguf(kind, 200 + seed)


if __name__ == "__main__":
    sys.exit(main())
