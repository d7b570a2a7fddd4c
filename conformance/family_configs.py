"""The families of make_families.py: tiny settings under the names of their config.json, one row a case.

Sizes are chosen so that every setting can be seen: windows shorter than the prompt, fewer key heads than query heads, heads
whose features are not the stream's share, parts of heads that turn, layers of every kind. A row is: name of the case, model
type, settings, and changes that must move the logits (so that the case can fail).
"""

BASE = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

WIDE = {"head_dim": 16}
GPT = {
    "vocab_size": 48,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 128,
    "n_inner": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BLOOM = {"vocab_size": 48, "hidden_size": 32, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": 2}
KINDS = ["sliding_attention", "full_attention"]
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32}
ONE = {"num_hidden_layers": 1}
QWEN_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "num_experts_per_tok": 2,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}


def base(**over):
    return {**BASE, **over}


DENSE = [
    ("llama", "llama", base(**WIDE, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3), {"rope_parameters": None}),
    ("mistral", "mistral", base(**WIDE, sliding_window=7), {"sliding_window": 40}),
    ("ministral", "ministral", base(**WIDE, sliding_window=7, layer_types=KINDS), {"sliding_window": 40}),
    (
        "ministral3",
        "ministral3",
        base(
            **WIDE,
            rope_parameters={**YARN, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.5, "mscale": 1.0, "mscale_all_dim": 0.5},
        ),
        {},
    ),
    ("qwen2", "qwen2", base(use_sliding_window=True, sliding_window=7, max_window_layers=1), {"sliding_window": 40}),
    ("qwen3", "qwen3", base(**WIDE, tie_word_embeddings=True), {}),
    ("gemma", "gemma", base(**WIDE, hidden_act="gelu"), {}),
    (
        "gemma2",
        "gemma2",
        base(**WIDE, sliding_window=7, query_pre_attn_scalar=24, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
        {"sliding_window": 40, "attn_logit_softcapping": 50.0, "final_logit_softcapping": None},
    ),
    (
        "vaultgemma",
        "vaultgemma",
        base(**WIDE, sliding_window=7, query_pre_attn_scalar=24, attn_logit_softcapping=2.0, tie_word_embeddings=False),
        {"sliding_window": 40, "attn_logit_softcapping": None},
    ),
    (
        "gemma3",
        "gemma3_text",
        base(**WIDE, sliding_window=7, layer_types=KINDS, query_pre_attn_scalar=24, final_logit_softcapping=4.0),
        {"sliding_window": 40, "final_logit_softcapping": None},
    ),
    ("phi", "phi", base(partial_rotary_factor=0.5, qk_layernorm=False, hidden_act="gelu_new"), {"partial_rotary_factor": 1.0}),
    ("phi-normed", "phi", base(**ONE, qk_layernorm=True, num_key_value_heads=4), {}),
    (
        "phi3",
        "phi3",
        base(
            sliding_window=9,
            original_max_position_embeddings=64,
            partial_rotary_factor=0.5,
            rope_parameters={
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "short_factor": [1.0, 1.5],
                "long_factor": [2.0, 4.0],
                "original_max_position_embeddings": 64,
            },
        ),
        {"sliding_window": None},
    ),
    ("phi3-plain", "phi3", base(**ONE, tie_word_embeddings=True), {}),
    ("smollm3", "smollm3", base(no_rope_layer_interval=2), {"no_rope_layer_interval": 5}),
    ("olmo", "olmo", base(clip_qkv=0.7), {"clip_qkv": None}),
    ("olmo2", "olmo2", base(attention_bias=True), {}),
    (
        "olmo3",
        "olmo3",
        base(
            layer_types=KINDS,
            sliding_window=7,
            rope_parameters={"full_attention": {**YARN, "rope_theta": 5000.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}},
        ),
        {"sliding_window": 40},
    ),
    (
        "granite",
        "granite",
        base(embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.2),
        {"embedding_multiplier": 1.0, "logits_scaling": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 0.5},
    ),
    ("cohere", "cohere", base(logit_scale=0.5, use_qk_norm=True), {"logit_scale": 1.0}),
    ("cohere-plain", "cohere", base(**ONE, attention_bias=True, tie_word_embeddings=False), {}),
    ("cohere2", "cohere2", base(**WIDE, layer_types=KINDS, sliding_window=7, logit_scale=0.5), {"sliding_window": 40}),
    ("stablelm", "stablelm", base(use_qkv_bias=True, partial_rotary_factor=0.5), {"partial_rotary_factor": 1.0}),
    ("stablelm-parallel", "stablelm", base(**ONE, use_parallel_residual=True, qk_layernorm=True), {}),
    ("starcoder2", "starcoder2", base(sliding_window=7), {"sliding_window": None}),
    ("gpt2", "gpt2", GPT, {}),
    ("gpt2-scaled", "gpt2", {**GPT, "scale_attn_by_inverse_layer_idx": True, "n_inner": None}, {"scale_attn_by_inverse_layer_idx": False}),
    ("gpt_bigcode", "gpt_bigcode", GPT, {}),
    ("gpt_bigcode-heads", "gpt_bigcode", {**GPT, "n_layer": 1, "multi_query": False}, {}),
    (
        "gpt_neo",
        "gpt_neo",
        {
            "vocab_size": 48,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "max_position_embeddings": 128,
            "window_size": 6,
            "attention_types": [[["global", "local"], 1]],
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        {"window_size": 40},
    ),
    ("gptj", "gptj", {**GPT, "rotary_dim": 4}, {"rotary_dim": 8}),
    ("gpt_neox", "gpt_neox", base(rotary_pct=0.5, num_key_value_heads=None), {"use_parallel_residual": False}),
    ("gpt_neox-sequential", "gpt_neox", base(**ONE, use_parallel_residual=False, rotary_pct=1.0, num_key_value_heads=None), {}),
    ("opt", "opt", base(ffn_dim=64, num_key_value_heads=None), {}),
    ("opt-after", "opt", base(**ONE, ffn_dim=64, do_layer_norm_before=False, word_embed_proj_dim=64, num_key_value_heads=None), {}),
    ("bloom", "bloom", BLOOM, {}),
    ("falcon", "falcon", base(multi_query=True, parallel_attn=True, num_key_value_heads=None), {}),
    ("falcon-new", "falcon", base(**ONE, new_decoder_architecture=True, num_kv_heads=2, num_key_value_heads=None, bias=True, ffn_hidden_size=64), {}),
    ("falcon-alibi", "falcon", base(**ONE, alibi=True, multi_query=False, parallel_attn=False, bias=True, num_key_value_heads=None), {}),
    ("glm", "glm", base(**WIDE, partial_rotary_factor=0.5), {"partial_rotary_factor": 1.0}),
    ("glm4", "glm4", base(**WIDE, partial_rotary_factor=0.5), {}),
    ("exaone4", "exaone4", base(layer_types=KINDS, sliding_window=7), {"sliding_window": 40}),
    ("nemotron", "nemotron", base(**WIDE, partial_rotary_factor=0.5), {"partial_rotary_factor": 1.0}),
    ("helium", "helium", base(head_dim=8), {}),
    (
        "hunyuan",
        "hunyuan_v1_dense",
        base(**WIDE, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": 50.0}),
        {},
    ),
    ("seed_oss", "seed_oss", base(**WIDE, attention_out_bias=True), {}),
    ("apertus", "apertus", base(rope_parameters=LLAMA3), {"rope_parameters": None}),
    ("arcee", "arcee", base(mlp_bias=True), {}),
    ("ernie4_5", "ernie4_5", base(**WIDE, use_bias=True), {}),
    ("nanochat", "nanochat", base(final_logit_softcapping=2.0), {"final_logit_softcapping": None}),
    ("bitnet", "bitnet", base(tie_word_embeddings=True), {}),
]

SPARSE = [
    ("mixtral", "mixtral", base(**EXPERTS, sliding_window=9), {"num_experts_per_tok": 1, "sliding_window": None}),
    (
        "qwen2_moe",
        "qwen2_moe",
        base(**QWEN_EXPERTS, shared_expert_intermediate_size=32, decoder_sparse_step=2),
        {"num_experts_per_tok": 1, "norm_topk_prob": True},
    ),
    ("qwen3_moe", "qwen3_moe", base(**WIDE, **QWEN_EXPERTS, norm_topk_prob=True, mlp_only_layers=[0]), {"norm_topk_prob": False}),
    ("olmoe", "olmoe", base(num_experts=4, num_experts_per_tok=2, intermediate_size=32, clip_qkv=0.9), {"norm_topk_prob": True, "clip_qkv": None}),
    ("phimoe", "phimoe", base(**EXPERTS, lm_head_bias=True, router_jitter_noise=0.4), {"router_jitter_noise": 0.01}),
    (
        "granitemoe",
        "granitemoe",
        base(**EXPERTS, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.2),
        {"num_experts_per_tok": 1},
    ),
    (
        "gpt_oss",
        "gpt_oss",
        base(**WIDE, **EXPERTS, sliding_window=7, layer_types=KINDS, swiglu_limit=1.0, rope_parameters={**YARN, "truncate": False}),
        {"sliding_window": 40, "swiglu_limit": 7.0},
    ),
    ("gpt_oss-mxfp4", "gpt_oss", base(**WIDE, **EXPERTS, sliding_window=7, layer_types=KINDS), {}),
    ("deepseek_v2", "deepseek_v2", base(**MLA, topk_method="greedy", routed_scaling_factor=1.5, mlp_bias=True), {"routed_scaling_factor": 1.0}),
    (
        "deepseek_v2-groups",
        "deepseek_v2",
        base(**ONE, **{**MLA, "q_lora_rank": None, "v_head_dim": 8, "num_experts_per_tok": 4, "first_k_dense_replace": 0}, topk_method="group_limited_greedy", n_group=4, topk_group=2, rope_parameters={**YARN, "mscale": 0.7, "mscale_all_dim": 0.7}),
        {"topk_group": 4},
    ),
    ("deepseek_v3", "deepseek_v3", base(**MLA, n_group=4, topk_group=2, rope_parameters={**YARN, "mscale": 1.0, "mscale_all_dim": 0.5}), {"topk_group": 4}),
    (
        "glm4_moe",
        "glm4_moe",
        base(**WIDE, moe_intermediate_size=32, num_experts_per_tok=2, n_routed_experts=8, n_shared_experts=1, n_group=2, topk_group=1, use_qk_norm=True, routed_scaling_factor=1.5),
        {"n_group": 1, "routed_scaling_factor": 1.0},
    ),
    (
        "llama4",
        "llama4_text",
        base(
            **WIDE,
            **{**EXPERTS, "num_experts_per_tok": 1},
            intermediate_size_mlp=64,
            interleave_moe_layer_step=2,
            no_rope_layer_interval=2,
            attention_chunk_size=9,
            floor_scale=6,
            attn_scale=0.5,
        ),
        {"attention_chunk_size": 64, "attn_scale": 0.1},
    ),
]

SSM = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 8, "mamba_d_conv": 3, "mamba_expand": 2, "mamba_chunk_size": 8}
DELTA = {
    "linear_conv_kernel_dim": 3,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 16,
}
MAMBA = {"vocab_size": 48, "hidden_size": 32, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "conv_kernel": 3}

# Layers that keep a state of all tokens so far. Chunks of the reference are shorter than the prompt.
HYBRID = [
    (
        "lfm2",
        "lfm2",
        base(layer_types=["conv", "full_attention"], conv_L_cache=3, block_multiple_of=16, block_ffn_dim_multiplier=1.5),
        {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    ),
    ("lfm2-plain", "lfm2", base(layer_types=["full_attention", "conv"], conv_L_cache=4, conv_bias=True, block_auto_adjust_ff_dim=False, tie_word_embeddings=False), {}),
    (
        "lfm2_moe",
        "lfm2_moe",
        base(layer_types=["conv", "full_attention"], num_dense_layers=1, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2, routed_scaling_factor=1.5),
        {"routed_scaling_factor": 1.0, "num_experts_per_tok": 1},
    ),
    (
        "mamba2",
        "mamba2",
        {**MAMBA, "num_heads": 4, "head_dim": 16, "n_groups": 2, "state_size": 8, "expand": 2, "chunk_size": 8, "use_bias": True},
        {},
    ),
    ("mamba2-tied", "mamba2", {**MAMBA, **ONE, "num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8, "chunk_size": 8, "use_conv_bias": False, "tie_word_embeddings": True}, {}),
    ("mamba", "mamba", {**MAMBA, "state_size": 8, "expand": 2, "time_step_rank": 32, "use_bias": True}, {}),
    ("falcon_mamba", "falcon_mamba", {**MAMBA, "expand": 4, "intermediate_size": 96, "state_size": 8, "time_step_rank": 32, "mixer_rms_eps": 0.3}, {"mixer_rms_eps": 1e-6}),
    (
        "jamba",
        "jamba",
        base(attn_layer_period=2, attn_layer_offset=1, num_experts=4, num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=0, mamba_d_state=8, mamba_d_conv=3, mamba_dt_rank=32),
        {"num_experts_per_tok": 1},
    ),
    (
        "granitemoehybrid",
        "granitemoehybrid",
        base(**{**SSM, **EXPERTS}, layer_types=["linear_attention", "full_attention"], shared_intermediate_size=64, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.2),
        {"num_experts_per_tok": 1, "residual_multiplier": 1.0, "attention_multiplier": 0.5},
    ),
    (
        "granitemoehybrid-dense",
        "granitemoehybrid",
        base(**SSM, layer_types=["full_attention", "linear_attention"], shared_intermediate_size=64, num_local_experts=0, position_embedding_type="rope"),
        {"position_embedding_type": None},
    ),
    ("bamba", "bamba", base(**SSM, attn_layer_indices=[1]), {}),
    (
        "falcon_h1",
        "falcon_h1",
        base(
            **SSM,
            mamba_d_ssm=64,
            mamba_rms_norm=True,
            mamba_norm_before_gate=False,
            embedding_multiplier=3.0,
            lm_head_multiplier=0.5,
            mlp_multipliers=[0.7, 1.3],
            key_multiplier=0.6,
            attention_in_multiplier=1.4,
            attention_out_multiplier=0.8,
            ssm_multipliers=[0.7, 1.2, 0.8, 1.3, 0.9],
            ssm_in_multiplier=1.5,
            ssm_out_multiplier=0.6,
        ),
        {"key_multiplier": 1.0, "mamba_norm_before_gate": True, "attention_in_multiplier": 1.0, "ssm_out_multiplier": 1.0},
    ),
    ("falcon_h1-plain", "falcon_h1", base(**{**SSM, "mamba_n_groups": 1}, **ONE, mamba_d_ssm=64, projectors_bias=True, tie_word_embeddings=True), {}),
    (
        "nemotron_h",
        "nemotron_h",
        {
            **{key: BASE[key] for key in BASE if key not in ("num_hidden_layers", "intermediate_size")},
            "intermediate_size": 64,
            "head_dim": 16,
            "layers_block_type": ["linear_attention", "mlp", "full_attention"],
            "mamba_num_heads": 4,
            "mamba_head_dim": 16,
            "n_groups": 2,
            "ssm_state_size": 8,
            "conv_kernel": 3,
            "chunk_size": 8,
        },
        {},
    ),
    (
        "qwen3_next",
        "qwen3_next",
        base(**DELTA, **QWEN_EXPERTS, shared_expert_intermediate_size=32, partial_rotary_factor=0.5, mlp_only_layers=[1], hidden_act="gelu"),
        {"partial_rotary_factor": 1.0, "norm_topk_prob": False},
    ),
    ("qwen3_5", "qwen3_5_text", base(**DELTA, partial_rotary_factor=0.5, attention_bias=True, tie_word_embeddings=True), {"partial_rotary_factor": 1.0}),
    ("qwen3_5_moe", "qwen3_5_moe_text", base(**{**DELTA, "linear_num_value_heads": 2}, **QWEN_EXPERTS, shared_expert_intermediate_size=32), {"num_experts_per_tok": 1}),
    (
        "recurrent_gemma",
        "recurrent_gemma",
        base(num_hidden_layers=3, num_key_value_heads=1, attention_window_size=7, block_types=["recurrent", "attention"], conv1d_width=3, logits_soft_cap=3.0),
        {"attention_window_size": 40, "logits_soft_cap": 30.0},
    ),
]

CASES = DENSE + SPARSE + HYBRID
