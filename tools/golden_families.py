"""The miniature of every file in src/models/arch: which model of transformers is its reference, and how small.

A family of transformers is a Recipe of its model type and what its config needs beside TINY. A family that transformers
does not have is a twin: a model of transformers that computes the same, whose weights are stored under the names and in
the layout, and with the config, of the family's own publication.
"""
from dataclasses import dataclass, field
from typing import Callable, Optional

import golden_twins as twins

TINY = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
UNSET = "unset"  # leaves a key of TINY out


@dataclass
class Recipe:
    model_type: str
    config: dict = field(default_factory=dict)
    adjust: Optional[Callable] = None  # changes the model before its weights are drawn
    export: Optional[Callable] = None  # (config, weights) of the reference to those of the twin


def recipe(model_type, adjust=None, export=None, **config):
    return Recipe(model_type, config, adjust, export)


EXPERTS = dict(moe_intermediate_size=16, num_experts_per_tok=2)
GROUPED = dict(EXPERTS, n_routed_experts=4, n_shared_experts=1, n_group=2, topk_group=1, first_k_dense_replace=1,
               norm_topk_prob=True, routed_scaling_factor=2.5)
WINDOWS = dict(sliding_window=8, layer_types=["sliding_attention", "full_attention"])
HEADS_ALIKE = dict(num_key_value_heads=UNSET)

KINDS = dict(layer_types=["linear_attention", "full_attention", "linear_attention"], num_hidden_layers=3)
DELTA = dict(KINDS, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12)
SPACE = dict(mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=12)
PLAIN = dict(intermediate_size=UNSET, num_attention_heads=UNSET, num_key_value_heads=UNSET, max_position_embeddings=UNSET)
EXPERTS_OF_GEMMA = dict(head_dim=8, global_head_dim=16, hidden_size_per_layer_input=0, vocab_size_per_layer_input=64,
                        enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=16,
                        attention_k_eq_v=True, num_global_key_value_heads=1, final_logit_softcapping=30.0)
VISION_OF_STEP = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=28, mlp_ratio=2.0, max_position_embeddings=4)
VISION_OF_MINIMAX = dict(hidden_size=12, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=2, image_size=8)
VISION_OF_MUSE = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=2, pos_emb_height=2,
                      pos_emb_width=2, max_position_embeddings=4)
SHARED = dict(EXPERTS, num_experts=4, shared_expert_intermediate_size=24)
LATENT = dict(GROUPED, q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4)
# So many heads that no two positions have a score of exactly 0: which of equals is chosen, transformers leaves open.
INDEXED = dict(LATENT, index_topk=16, index_n_heads=8, index_head_dim=16)

FAMILIES = {
    "afmoe": recipe("afmoe", **WINDOWS, **EXPERTS, num_experts=4, num_local_experts=4, num_shared_experts=1,
                    num_dense_layers=1, head_dim=8, global_attn_every_n_layers=2),
    "apertus": recipe("apertus"),
    "arcee": recipe("arcee"),
    "aria": recipe("aria_text", moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1),
    "baichuan": recipe("llama", export=twins.baichuan, num_key_value_heads=4),
    "bailing": recipe("glm4_moe", export=twins.bailing, **GROUPED, head_dim=8, use_qk_norm=True),
    "bamba": recipe("bamba", **SPACE, attn_layer_indices=[1], num_hidden_layers=3),
    "biogpt": recipe("biogpt", **HEADS_ALIKE),
    "bitnet": recipe("bitnet"),
    "bloom": recipe("bloom", n_head=4, n_layer=2, **HEADS_ALIKE),
    "chatglm": recipe("glm", export=twins.chatglm, head_dim=8, attention_bias=True),
    "codegen": recipe("codegen", n_embd=32, n_layer=2, n_head=4, n_positions=64, n_ctx=64, rotary_dim=4, n_inner=48),
    "cohere": recipe("cohere2", **WINDOWS, logit_scale=0.25),
    "cohere2_moe": recipe("cohere2_moe", **WINDOWS, **EXPERTS, num_experts=4, head_dim=8),
    "dbrx": recipe("dbrx", intermediate_size=UNSET, num_key_value_heads=UNSET, d_model=32, n_heads=4, n_layers=2, max_seq_len=64,
                   attn_config=dict(kv_n_heads=2, clip_qkv=8, rope_theta=10000.0),
                   ffn_config=dict(ffn_hidden_size=16, moe_num_experts=4, moe_top_k=2, moe_normalize_expert_weights=1.0)),
    "deepseek": recipe("deepseek_v3", **LATENT),
    "deepseek_moe": recipe("llama", adjust=twins.use_deepseek_experts, export=twins.deepseek_moe),
    "deepseek_v32": recipe("deepseek_v32", **INDEXED),
    "ernie4_5": recipe("ernie4_5_moe", **EXPERTS, moe_num_experts=4, moe_k=2, moe_num_shared_experts=1,
                       moe_layer_start_index=1, moe_layer_end_index=1, moe_layer_interval=1),
    "exaone": recipe("llama", export=twins.exaone),
    "exaone4": recipe("exaone4", **WINDOWS, sliding_window_pattern=2),
    "falcon": recipe("falcon", new_decoder_architecture=True, num_kv_heads=2, **HEADS_ALIKE),
    "falcon_h1": recipe("falcon_h1", **SPACE | dict(mamba_d_ssm=64), embedding_multiplier=2.0, lm_head_multiplier=0.5,
                        mlp_multipliers=[0.9, 0.7], key_multiplier=0.8, attention_out_multiplier=0.9, attention_in_multiplier=1.1,
                        ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.7], ssm_in_multiplier=1.2, ssm_out_multiplier=0.6,
                        mamba_rms_norm=True, mamba_norm_before_gate=False),
    "flint": recipe("flint", **WINDOWS, **EXPERTS, num_experts=4, shared_expert_intermediate_size=16, head_dim=8),
    "gemma": recipe("gemma3_text", **WINDOWS, head_dim=8, query_pre_attn_scalar=8),
    "gemma3n": recipe("gemma3n_text", layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=8, num_hidden_layers=4, head_dim=8,
                      hidden_size_per_layer_input=8, vocab_size_per_layer_input=60, num_kv_shared_layers=2, laurel_rank=8,
                      altup_num_inputs=3, activation_sparsity_pattern=[0.8, 0.0, 0.5, 0.0], vocab_size=64),
    "gemma3n_published": recipe("gemma3n_text", layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=8, num_hidden_layers=4,
                                head_dim=8, hidden_size_per_layer_input=8, vocab_size_per_layer_input=64, num_kv_shared_layers=2,
                                activation_sparsity_pattern=[0.8, 0.0, 0.0, 0.0]),
    "gemma4": recipe("gemma4_text", **WINDOWS, head_dim=8, global_head_dim=16, hidden_size_per_layer_input=8,
                     vocab_size_per_layer_input=64, num_kv_shared_layers=0),
    "gemma4_moe": recipe("gemma4_text", **WINDOWS, **EXPERTS_OF_GEMMA),
    "glm": recipe("glm4", head_dim=8),
    "glm4_moe": recipe("glm4_moe", **GROUPED, head_dim=8, use_qk_norm=True),
    "glm_moe_dsa": recipe("glm_moe_dsa", **INDEXED | dict(num_hidden_layers=3, indexer_types=["full", "shared", "full"])),
    "gpt2": recipe("gpt2", n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=48),
    "gpt_bigcode": recipe("gpt_bigcode", n_embd=32, n_layer=2, n_head=4, n_positions=64, n_inner=48),
    "gpt_neo": recipe("gpt_neo", num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8,
                      num_hidden_layers=UNSET, num_attention_heads=UNSET, **HEADS_ALIKE),
    "gpt_neox": recipe("gpt_neox", **HEADS_ALIKE),
    "gpt_oss": recipe("gpt_oss", **WINDOWS, num_local_experts=4, num_experts_per_tok=2, head_dim=8),
    "gptj": recipe("gptj", n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4, n_inner=48),
    "granite": recipe("granite", embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.3,
                      logits_scaling=2.0),
    "granite_hybrid": recipe("granitemoehybrid", **KINDS, **SPACE, num_local_experts=4,
                             num_experts_per_tok=2, shared_intermediate_size=24, position_embedding_type="nope", intermediate_size=16,
                             embedding_multiplier=6.0, residual_multiplier=0.4, attention_multiplier=0.3,
                             logits_scaling=2.0),
    "helium": recipe("helium", head_dim=8),
    "hunyuan": recipe("hunyuan_v1_dense", head_dim=8),
    "hunyuan3": recipe("hy_v3", **EXPERTS, num_experts=4, num_local_experts=4, num_shared_experts=1, head_dim=8,
                       first_k_dense_replace=1),
    "hyperclovax": recipe("hyperclovax", head_dim=8, embedding_multiplier=6.0, residual_multiplier=0.4,
                          attention_multiplier=0.3, logits_scaling=0.5),
    "internlm2": recipe("llama", export=twins.internlm2),
    "laguna": recipe("laguna", **WINDOWS, **SHARED, head_dim=8, num_attention_heads_per_layer=[4, 2], moe_routed_scaling_factor=2.5,
                     moe_router_logit_softcapping=1.5, mlp_layer_types=["sparse", "dense"]),
    "llama": recipe("llama"),
    "jamba": recipe("jamba", num_hidden_layers=3, num_experts=4, num_experts_per_tok=2, attn_layer_period=3, attn_layer_offset=1,
                    expert_layer_period=2, expert_layer_offset=0, mamba_d_state=12, mamba_dt_rank=4),
    "kimi_linear": recipe("kimi_linear", **KINDS, moe_intermediate_size=16, num_experts_per_tok=2, num_local_experts=4, n_shared_experts=1,
                          mlp_layer_types=["dense", "sparse", "sparse"], kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8,
                          v_head_dim=8, num_key_value_heads=4, linear_head_dim=12, linear_num_heads=4),
    "lfm2": recipe("lfm2", layer_types=["conv", "full_attention", "conv"], num_hidden_layers=3, block_multiple_of=8),
    "lfm2_moe": recipe("lfm2_moe", **EXPERTS, layer_types=["conv", "full_attention", "conv"], num_hidden_layers=3,
                       num_experts=4, num_dense_layers=1, conv_bias=True),
    "llama4": recipe("llama4_text", intermediate_size_mlp=48, num_local_experts=4, num_experts_per_tok=1, head_dim=8,
                     interleave_moe_layer_step=2, attention_chunk_size=8,
                     layer_types=["chunked_attention", "full_attention"], no_rope_layers=[1, 0]),
    "mamba2": recipe("mamba2", num_heads=8, head_dim=8, state_size=12, n_groups=2, **PLAIN),
    "mimo_v2": recipe("mimo_v2_flash", **EXPERTS, num_hidden_layers=3, n_routed_experts=4, head_dim=16, v_head_dim=8, n_group=2, topk_group=1,
                      num_key_value_heads=1, sliding_window=8, layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "minicpm": recipe("minicpm3", q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
                      num_key_value_heads=4),
    "minimax_m2": recipe("minimax_m2", num_local_experts=4, num_experts_per_tok=2, head_dim=8, rotary_dim=4),
    "minimax_m3": recipe("minimax_m3_vl_text", num_local_experts=4, num_experts_per_tok=2, head_dim=8, rotary_dim=4,
                         dense_intermediate_size=40, shared_intermediate_size=24, mlp_layer_types=["dense", "sparse"],
                         intermediate_size=16, rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
    "minimax_m3_published": recipe(
        "minimax_m3_vl", export=twins.minimax_m3, **dict.fromkeys(TINY, UNSET), projector_hidden_size=8, vision_config=VISION_OF_MINIMAX,
        text_config=TINY | dict(num_local_experts=4, num_experts_per_tok=2, head_dim=8, dense_intermediate_size=40, intermediate_size=16,
                                shared_intermediate_size=24, mlp_layer_types=["dense", "sparse"], rotary_dim=4,
                                layer_types=["full_attention", "minimax_m3_sparse"], index_n_heads=2, index_head_dim=8, index_block_size=4,
                                index_topk_blocks=3,
                                rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "mistral": recipe("mistral", sliding_window=8),
    "mixtral": recipe("mixtral", num_local_experts=4, num_experts_per_tok=2),
    "mpt": recipe("mpt", d_model=32, n_heads=4, n_layers=2, max_seq_len=64, **HEADS_ALIKE),
    "muse_glimmer": recipe("muse_glimmer", **dict.fromkeys(TINY, UNSET), vision_config=VISION_OF_MUSE, out_hidden_size=16, projector_hidden_size=8,
                           text_config=TINY | WINDOWS | dict(head_dim=8, layer_rope_theta=[1e4, 0], output_multiplier=0.4, post_norm_eps=1e-3,
                                                             rope_parameters=dict(rope_type="default", rope_theta=1e4))),
    "nanochat": recipe("nanochat"),
    "nemotron": recipe("nemotron", head_dim=8),
    "nemotron_h": recipe("nemotron_h", **EXPERTS, layers_block_type=["linear_attention", "moe", "full_attention", "mlp"],
                         num_hidden_layers=4, head_dim=8, ssm_state_size=12, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, n_routed_experts=4,
                         moe_shared_expert_intermediate_size=24, n_group=2, routed_scaling_factor=2.5),
    "nemotron_3": recipe("nemotron_h", **EXPERTS, layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
                         num_hidden_layers=4, head_dim=8, ssm_state_size=12, mamba_num_heads=8, mamba_head_dim=8, n_groups=2, n_routed_experts=4,
                         moe_shared_expert_intermediate_size=24, n_group=1, routed_scaling_factor=2.5, moe_latent_size=20),
    "olmo": recipe("olmo", clip_qkv=2.0),
    "olmo_hybrid": recipe("olmo_hybrid", **KINDS, rope_parameters=None, linear_num_key_heads=2, linear_num_value_heads=4,
                          linear_key_head_dim=8, linear_value_head_dim=12),
    "olmo2": recipe("olmo3", **WINDOWS),
    "olmoe": recipe("olmoe", num_experts=4, num_experts_per_tok=2),
    "openai_gpt": recipe("openai-gpt", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "opt": recipe("opt", ffn_dim=48, word_embed_proj_dim=32, **HEADS_ALIKE),
    "orion": recipe("llama", adjust=twins.use_layer_norms, export=twins.orion),
    "persimmon": recipe("persimmon", **HEADS_ALIKE),
    "phi": recipe("phi"),
    "phi3": recipe("phi3", sliding_window=8),
    "phimoe": recipe("phimoe", num_local_experts=4, num_experts_per_tok=2),
    "qwen": recipe("qwen2", export=twins.qwen, num_key_value_heads=4),
    "qwen2": recipe("qwen2"),
    "qwen3": recipe("qwen3", head_dim=8),
    "qwen3_5": recipe("qwen3_5_text", **DELTA),
    "qwen3_5_moe": recipe("qwen3_5_moe_text", **DELTA, **SHARED),
    "qwen3_next": recipe("qwen3_next", **DELTA, **SHARED),
    "smollm3": recipe("smollm3", no_rope_layers=[1, 0]),
    "stablelm": recipe("stablelm", use_qkv_bias=True),
    "starcoder2": recipe("starcoder2", sliding_window=8),
    "step3": recipe("step3p7", **dict.fromkeys(TINY, UNSET), vision_config=VISION_OF_STEP, text_config=TINY | EXPERTS | dict(
        layer_types=["full_attention", "sliding_attention"], mlp_layer_types=["dense", "sparse"], sliding_window=8, head_dim=8,
        num_sliding_attention_heads=6, n_routed_experts=4, share_expert_dim=24, moe_router_scaling_factor=2.5,
        swiglu_limits=[0.0, 0.5], swiglu_limits_shared=[0.4, 0.3], rope_theta=[1e6, 1e4], partial_rotary_factors=[0.5, 1.0])),
    "xglm": recipe("xglm", d_model=32, ffn_dim=48, num_layers=2, attention_heads=4, **HEADS_ALIKE),
    "zamba2": recipe("zamba2", hidden_size=16, intermediate_size=24, num_hidden_layers=4, num_mem_blocks=2, adapter_rank=4,
                     layers_block_type=["hybrid", "mamba", "hybrid", "hybrid"], n_mamba_heads=4, mamba_ngroups=2, mamba_d_state=8,
                     use_mem_rope=True, use_shared_attention_adapter=True, num_key_value_heads=4),
}
