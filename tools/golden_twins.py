"""Families that transformers does not have, from a model of transformers that computes the same.

Each export takes the twin's config and weights and returns those of the family as its authors publish them: their keys,
their names of weights, their order of rows.
"""
import re

import torch

KEPT = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "hidden_act", "bos_token_id", "eos_token_id",
        "pad_token_id", "tie_word_embeddings")


def config_of(twin, architecture, model_type, **more):
    kept = {key: twin[key] for key in KEPT if twin.get(key) is not None}
    return {"architectures": [architecture], "model_type": model_type, "torch_dtype": "bfloat16",
            "rope_theta": 10000.0} | kept | more


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def renamed(weights, pairs):
    """Each name by the first of `pairs` (pattern, replacement) that matches it."""
    out = {}
    for name, weight in weights.items():
        for pattern, replacement in pairs:
            if re.search(pattern, name):
                name = re.sub(pattern, replacement, name)
                break
        out[name] = weight
    return out


def fuse_qkv(weights, target, join=torch.cat):
    """q, k and v of every layer, weight and bias, as one: `target` below the layer's name."""
    out = dict(weights)
    for name in weights:
        if ".self_attn.q_proj." not in name:
            continue
        parts = [out.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
        out[name.replace("self_attn.q_proj", target)] = join(parts)
    return out


def baichuan(config, weights):
    """Baichuan 7B."""
    config = without(config_of(config, "BaichuanForCausalLM", "baichuan"), "num_key_value_heads")
    return config, fuse_qkv(weights, "self_attn.W_pack")


def bailing(config, weights):
    """Ling 2."""
    experts = dict(num_experts=config["n_routed_experts"], num_shared_experts=config["n_shared_experts"],
                   partial_rotary_factor=0.5, use_qk_norm=True, score_function="sigmoid", head_dim=config["head_dim"],
                   moe_router_enable_expert_bias=True, norm_head=False, use_qkv_bias=False, use_bias=False)
    same = ("moe_intermediate_size", "num_experts_per_tok", "first_k_dense_replace", "n_group", "topk_group",
            "norm_topk_prob", "routed_scaling_factor")
    made = config_of(config, "BailingMoeV2ForCausalLM", "bailing_moe", **experts, **{key: config[key] for key in same})
    return made, renamed(fuse_qkv(weights, "attention.query_key_value"), [
        (r"embed_tokens", "word_embeddings"), (r"self_attn\.q_norm", "attention.query_layernorm"),
        (r"self_attn\.k_norm", "attention.key_layernorm"), (r"self_attn\.o_proj", "attention.dense"),
        (r"gate\.e_score_correction_bias", "gate.expert_bias")])


def chatglm(config, weights):
    """ChatGLM 3 and GLM 4 9B."""
    made = {"architectures": ["ChatGLMModel"], "model_type": "chatglm", "torch_dtype": "bfloat16", "rmsnorm": True,
            "padded_vocab_size": config["vocab_size"], "hidden_size": config["hidden_size"],
            "ffn_hidden_size": config["intermediate_size"], "num_layers": config["num_hidden_layers"],
            "num_attention_heads": config["num_attention_heads"], "kv_channels": config["head_dim"],
            "multi_query_attention": True, "multi_query_group_num": config["num_key_value_heads"],
            "seq_length": config["max_position_embeddings"], "layernorm_epsilon": config["rms_norm_eps"],
            "add_qkv_bias": True, "add_bias_linear": False, "rope_ratio": 1, "tie_word_embeddings": False,
            "eos_token_id": config["eos_token_id"], "pad_token_id": config["pad_token_id"]}
    weights = renamed(fuse_qkv(weights, "self_attention.query_key_value"), [
        (r"self_attn\.o_proj", "self_attention.dense"), (r"mlp\.gate_up_proj", "mlp.dense_h_to_4h"),
        (r"mlp\.down_proj", "mlp.dense_4h_to_h"), (r"^lm_head", "transformer.output_layer"),
        (r"^model\.embed_tokens", "transformer.embedding.word_embeddings"),
        (r"^model\.norm", "transformer.encoder.final_layernorm")])
    return made, renamed(weights, [(r"^model\.layers", "transformer.encoder.layers")])


def use_deepseek_experts(model):
    """DeepSeek 2's experts, which are those of 1, in every layer but the first."""
    from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Config, DeepseekV2Moe
    experts = DeepseekV2Config(
        hidden_size=model.config.hidden_size, intermediate_size=model.config.intermediate_size, moe_intermediate_size=16,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2, topk_method="greedy", routed_scaling_factor=1.0)
    experts._experts_implementation = "eager"
    for layer in model.model.layers[1:]:
        layer.mlp = DeepseekV2Moe(experts)


def deepseek_moe(config, weights):
    """DeepSeek MoE 16B."""
    made = config_of(config, "DeepseekForCausalLM", "deepseek", n_routed_experts=4, n_shared_experts=2,
                     num_experts_per_tok=2, moe_intermediate_size=16, first_k_dense_replace=1, moe_layer_freq=1,
                     norm_topk_prob=False, scoring_func="softmax")
    out = {}
    for name, weight in weights.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            out[name] = weight
            continue
        base = name.rpartition(".")[0]
        for index, expert in enumerate(weight):
            parts = dict(zip(("gate_proj", "up_proj"), expert.chunk(2))) if "gate_up" in name else {"down_proj": expert}
            out |= {f"{base}.{index}.{part}.weight": matrix for part, matrix in parts.items()}
    return made, out


def exaone(config, weights):
    """EXAONE 3."""
    made = config_of(config, "ExaoneForCausalLM", "exaone", num_layers=config["num_hidden_layers"],
                     layer_norm_epsilon=config["rms_norm_eps"], activation_function="silu")
    weights = renamed(weights, [
        (r"mlp\.gate_proj", "mlp.c_fc_0"), (r"mlp\.up_proj", "mlp.c_fc_1"), (r"mlp\.down_proj", "mlp.c_proj"),
        (r"self_attn\.o_proj", "attn.attention.out_proj"), (r"self_attn\.", "attn.attention."),
        (r"input_layernorm", "ln_1"), (r"post_attention_layernorm", "ln_2"), (r"^model\.norm", "transformer.ln_f"),
        (r"^model\.embed_tokens", "transformer.wte")])
    made = without(made, "num_hidden_layers", "rms_norm_eps", "hidden_act")
    return made, renamed(weights, [(r"^model\.layers", "transformer.h")])


def internlm2(config, weights):
    """InternLM 2: for each key head its query heads, then the key, then the value."""
    groups, dim = config["num_key_value_heads"], config["hidden_size"]

    def by_key_head(parts):
        return torch.cat([part.view(groups, -1, dim) for part in parts], dim=1).reshape(-1, dim)
    weights = renamed(fuse_qkv(weights, "attention.wqkv", by_key_head), [
        (r"self_attn\.o_proj", "attention.wo"), (r"mlp\.gate_proj", "feed_forward.w1"),
        (r"mlp\.up_proj", "feed_forward.w3"), (r"mlp\.down_proj", "feed_forward.w2"),
        (r"input_layernorm", "attention_norm"), (r"post_attention_layernorm", "ffn_norm"),
        (r"embed_tokens", "tok_embeddings"), (r"^lm_head", "output")])
    return config_of(config, "InternLM2ForCausalLM", "internlm2", bias=False), weights


def minimax_m3(config, weights):
    text = config["text_config"]
    indexer = dict(block_size="index_block_size", topk_blocks="index_topk_blocks", num_index_heads="index_n_heads", index_dim="index_head_dim")
    sparse = {"sparse_" + key: text[written] for key, written in indexer.items()}
    sparse["sparse_attention_freq"] = [int(kind == "minimax_m3_sparse") for kind in text["layer_types"]]
    flags = [int(kind == "sparse") for kind in text["mlp_layer_types"]]
    text = without(text, "layer_types", "mlp_layer_types", *indexer.values())
    return config | {"text_config": text | {"sparse_attention_config": sparse, "moe_layer_freq": flags}}, weights


def use_layer_norms(model):
    """Layer norms where Llama has root mean squares."""
    def norm():
        return torch.nn.LayerNorm(model.config.hidden_size, eps=model.config.rms_norm_eps)
    model.model.norm = norm()
    for layer in model.model.layers:
        layer.input_layernorm, layer.post_attention_layernorm = norm(), norm()


def orion(config, weights):
    """Orion 14B."""
    return config_of(config, "OrionForCausalLM", "orion"), weights


def qwen(config, weights):
    """Qwen 1: its width of the feed-forward counts gate and up."""
    made = config_of(config, "QWenLMHeadModel", "qwen", intermediate_size=2 * config["intermediate_size"],
                     seq_length=config["max_position_embeddings"], layer_norm_epsilon=config["rms_norm_eps"],
                     kv_channels=config["hidden_size"] // config["num_attention_heads"], rotary_emb_base=10000,
                     rotary_pct=1.0, no_bias=True)
    weights = renamed(fuse_qkv(weights, "attn.c_attn"), [
        (r"self_attn\.o_proj", "attn.c_proj"), (r"mlp\.gate_proj", "mlp.w2"), (r"mlp\.up_proj", "mlp.w1"),
        (r"mlp\.down_proj", "mlp.c_proj"), (r"input_layernorm", "ln_1"), (r"post_attention_layernorm", "ln_2"),
        (r"^model\.norm", "transformer.ln_f"), (r"^model\.embed_tokens", "transformer.wte")])
    made = without(made, "num_key_value_heads", "rms_norm_eps", "hidden_act", "rope_theta")
    return made, renamed(weights, [(r"^model\.layers", "transformer.h")])
