#!/usr/bin/env python3
"""Turns miniature model folders into GGUF files with llama.cpp's own converter, so that its tensor names, keys,
permutations and folded constants are the ones under test.

usage: make_gguf.py CONVERTER OUT FOLDER...

CONVERTER is a checkout of llama.cpp (convert_hf_to_gguf.py, conversion/ and gguf-py/ are used). OUT receives
NAME.gguf for every FOLDER/NAME, in bf16. Miniatures have no tokenizer, so the files say that they have no vocabulary.
Needs torch, transformers and safetensors. `sluice check FOLDER -m OUT/NAME.gguf` compares the result.
"""
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

if len(sys.argv) < 4 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
converter = Path(sys.argv[1]).resolve()
sys.path[:0] = [str(converter), str(converter / "gguf-py")]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import ModelBase, get_model_class  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402


def without_vocabulary(model_class):
    def set_vocab(self):
        self.gguf_writer.add_tokenizer_model("no_vocab")
        self.gguf_writer.add_vocab_size(text_part(self.hparams)["vocab_size"])

    def __init__(self, *args, **kwargs):
        model_class.__init__(self, *args, **kwargs)
        self.gguf_writer.add_key_value = overwriting(self.gguf_writer)

    return type(model_class.__name__, (model_class,), dict(set_vocab=set_vocab, __init__=__init__, model_arch=model_class.model_arch))


def overwriting(writer):
    def add_key_value(key, value, kind, sub_type=None):
        writer.kv_data[0][key] = gguf.GGUFValue(value=value, type=kind, sub_type=sub_type)
    return add_key_value


PUBLISHED_CLASSES = {
    "MptForCausalLM": "MPTForCausalLM", "PhimoeForCausalLM": "PhiMoEForCausalLM",
    "Mistral4ForCausalLM": "Mistral3ForConditionalGeneration", "Ministral3ForCausalLM": "Mistral3ForConditionalGeneration"}


def text_part(hparams):
    return {**hparams, **hparams.get("text_config", {})}


def as_published(hparams):
    """The keys that published configs have and that recent versions of transformers no longer write."""
    text = text_part(hparams)
    heads = text.get("num_attention_heads") or text.get("n_head") or text.get("n_heads") or text.get("num_heads")
    width = text.get("head_dim") or (text.get("hidden_size") or text.get("d_model") or text.get("n_embd")) // heads
    if "rope_parameters" in hparams and "rope_type" in (hparams["rope_parameters"] or {}):
        hparams["rope_parameters"].setdefault("type", hparams["rope_parameters"]["rope_type"])
    part = (hparams.get("rope_parameters") or {}).get("partial_rotary_factor", 1.0)
    hparams.setdefault("rotary_pct", part)
    hparams.setdefault("rotary_dim", int(part * width))
    hparams.setdefault("n_ctx", hparams.get("n_positions"))
    if hparams["model_type"] == "falcon" and not hparams["new_decoder_architecture"]:
        hparams["num_kv_heads"] = 1 if hparams["multi_query"] else heads
    if hparams["model_type"] == "deepseek_v3":
        hparams["scoring_func"] = "sigmoid"
    return as_published_hybrid(hparams, width)


def as_published_hybrid(hparams, width):
    kind, layers = hparams["model_type"], hparams.get("layer_types") or hparams.get("layers_block_type") or []
    if kind == "granitemoehybrid":
        hparams["layer_types"] = ["attention" if layer == "full_attention" else "mamba" for layer in layers]
    if kind == "nemotron_h":
        letters = dict(linear_attention="M", full_attention="*", mlp="-", moe="E")
        hparams["hybrid_override_pattern"] = "".join(letters[layer] for layer in layers)
    if kind == "falcon_h1":
        hparams["head_dim"] = width
    if kind == "bamba":
        hparams["attn_rotary_emb"] = width // 2
    if kind == "kimi_linear":
        hparams["linear_attn_config"] = dict(
            full_attn_layers=[i + 1 for i, layer in enumerate(layers) if layer == "full_attention"],
            short_conv_kernel_size=4, head_dim=hparams["linear_head_dim"], num_heads=hparams["linear_num_heads"])
        hparams.setdefault("num_shared_experts", hparams.get("n_shared_experts", 1))
        hparams["first_k_dense_replace"] = hparams["mlp_layer_types"].count("dense")
    return as_published_mixture(hparams)


def as_published_mixture(hparams):
    text = hparams.get("text_config", hparams)
    kind = text["model_type"]
    windows = [layer == "sliding_attention" for layer in text.get("layer_types") or []]
    sparse = [i for i, layer in enumerate(text.get("mlp_layer_types") or []) if layer == "sparse"]
    if kind == "mimo_v2_flash":
        hparams.update(
            hybrid_layer_pattern=list(map(int, windows)), swa_head_dim=hparams["head_dim"], swa_v_head_dim=hparams["v_head_dim"],
            swa_num_attention_heads=hparams["num_attention_heads"], swa_num_key_value_heads=2 * hparams["num_key_value_heads"],
            topk_method="noaux_tc", scoring_func="sigmoid", layernorm_epsilon=hparams["rms_norm_eps"],
            partial_rotary_factor=hparams["rope_parameters"]["full_attention"]["partial_rotary_factor"])
        hparams["rope_parameters"]["partial_rotary_factor"] = hparams["partial_rotary_factor"]
    if kind == "step3p5":
        text.update(
            num_attention_groups=text["num_key_value_heads"], moe_num_experts=text["n_routed_experts"], moe_top_k=text["num_experts_per_tok"],
            attention_other_setting=dict(num_attention_heads=text["num_sliding_attention_heads"]), moe_layers_enum=",".join(map(str, sparse)),
            partial_rotary_factors=[1.0 if window else 0.5 for window in windows], norm_expert_weight=True,
            rope_theta=[text["rope_parameters"][name]["rope_theta"] for name in text["layer_types"]])
        hparams.update({key: value for key, value in text.items() if key not in ("model_type", "architectures")})
    if kind == "minimax_m3_vl_text":
        names = dict(num_index_heads="n_heads", index_dim="head_dim", topk_blocks="topk_blocks", block_size="block_size", local_block="local_blocks")
        text.update(n_shared_experts=1, scoring_func="sigmoid", moe_layer_freq=[int(i in sparse) for i in range(len(text["mlp_layer_types"]))],
                    sparse_attention_config={f"sparse_{name}": text[f"index_{written}"] for name, written in names.items()})
        hparams.update({key: value for key, value in text.items() if key not in ("model_type", "architectures")})
    return hparams


def convert(folder, out):
    # Some converters count the words of a tokenizer that they never write.
    with tempfile.TemporaryDirectory() as temporary:
        seen = Path(temporary) / folder.name
        shutil.copytree(folder, seen)
        if text_part(json.loads((folder / "config.json").read_text()))["model_type"] == "kimi_linear":
            name_dense_layers(seen / "model.safetensors")
        words = text_part(json.loads((folder / "config.json").read_text()))["vocab_size"]
        tokenizer = dict(model=dict(vocab={f"<{i}>": i for i in range(words)}), added_tokens=[])
        (seen / "tokenizer.json").write_text(json.dumps(tokenizer))
        write(seen, out.resolve())


def name_dense_layers(path):
    """As published, where transformers writes those of a mixture."""
    weights = load_file(path)
    dense = re.compile(r"block_sparse_moe\.(gate|up|down)_proj")
    save_file({dense.sub(r"mlp.\1_proj", name): weight for name, weight in weights.items()}, path)


def write(folder, out):
    hparams = as_published(ModelBase.load_hparams(folder, False))
    name = hparams["architectures"][0]
    model_class = get_model_class(PUBLISHED_CLASSES.get(name, name), mmproj=False)
    inner = "Mistral4Model" if text_part(hparams)["model_type"] == "mistral4" else "Ministral3Model"
    model_class = without_vocabulary(getattr(model_class, inner, model_class))
    model_class.no_mtp = True  # layers that guess further tokens, which miniatures do not have
    # Factors that the converter multiplies into weights would be rounded with them.
    exact = text_part(hparams)["model_type"] == "falcon_h1"
    kind = gguf.LlamaFileType.ALL_F32 if exact else gguf.LlamaFileType.MOSTLY_BF16
    model = model_class(folder, kind, out, eager=True, hparams=hparams)
    model.write()


def main():
    out = Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    failures = 0
    for folder in map(Path, sys.argv[3:]):
        try:
            with torch.inference_mode():
                convert(folder, out / f"{folder.name}.gguf")
            print(f"{folder.name}: converted")
        except Exception as error:  # one folder that the converter refuses does not stop the others
            failures += 1
            print(f"{folder.name}: {type(error).__name__}: {error}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
