#!/usr/bin/env python3
"""Write a tiny random GGUF file of every architecture beyond those of make_checkpoints.py, with the logits it must give.

usage: make_gguf_families.py OUT [--filter GLOB] [--seed S] [--zip FILE]

Needs torch, transformers and gguf, whose tables of names are those of llama.cpp. What transformers computes with the same
weights is what a case must give; settings that these files cannot say have the values that their readers take. The format is
that of make_checkpoints.py, described in CHECKPOINTS.md.
"""

import argparse
import contextlib
import fnmatch
import io
import shutil
from pathlib import Path

import gguf
import torch
import transformers
from safetensors.torch import save_file

from case_files import pack, write_json
from ckpt_gguf import swap_rope_halves
from ckpt_models import reference_logits
from family_configs import EXPERTS, KINDS, QWEN_EXPERTS, WIDE, YARN, base
from make_families import ATOL, RTOL, fill, made, tokens_of

# Names of numbers in settings, and what files call them.
NUMBERS = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "norm_epsilon": "attention.layer_norm_epsilon",
    "norm_eps": "attention.layer_norm_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
    "logit_scale": "logit_scale",
}
GRANITE = {"attention_multiplier": 0.2, "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.1, 1.7], "long_factor": [2.0, 5.0]}
PARTIAL = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
OLMO3_ROPE = {
    "full_attention": {**YARN, "rope_theta": 5000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
}

# Name of the case, architecture of the file, model type, settings; matrices are in f16, or in what stands behind a colon.
CASES = [
    ("qwen2moe", "QWEN2MOE", "qwen2_moe", base(**QWEN_EXPERTS, shared_expert_intermediate_size=64, norm_topk_prob=False)),
    ("qwen3moe", "QWEN3MOE", "qwen3_moe", base(**WIDE, **QWEN_EXPERTS, norm_topk_prob=True)),
    ("mixtral", "LLAMA", "mixtral", base(**EXPERTS, sliding_window=None)),
    ("gemma", "GEMMA", "gemma", base(**WIDE)),
    (
        "gemma2",
        "GEMMA2",
        "gemma2",
        base(**WIDE, query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, sliding_window=7, layer_types=KINDS),
    ),
    ("phi3", "PHI3", "phi3", base(sliding_window=9)),
    ("phi3-long", "PHI3", "phi3", base(original_max_position_embeddings=64, rope_parameters={**LONG, "partial_rotary_factor": 0.5})),
    ("olmo2", "OLMO2", "olmo2", base(attention_bias=True)),
    ("olmo3", "OLMO2", "olmo3", base(sliding_window=7, layer_types=KINDS, rope_parameters=OLMO3_ROPE)),
    ("olmoe", "OLMOE", "olmoe", base(num_experts=4, num_experts_per_tok=2, intermediate_size=32)),
    ("granite", "GRANITE", "granite", base(**GRANITE)),
    ("granitemoe", "GRANITE_MOE", "granitemoe", base(**EXPERTS, **GRANITE)),
    ("smollm3", "SMOLLM3", "smollm3", base(num_hidden_layers=4, no_rope_layer_interval=4)),
    ("arcee", "ARCEE", "arcee", base(mlp_bias=True)),
    ("glm4", "GLM4", "glm4", base(**WIDE, attention_bias=True, rope_parameters=PARTIAL)),
    ("starcoder2", "STARCODER2", "starcoder2", base(use_bias=True, sliding_window=None)),
    ("stablelm", "STABLELM", "stablelm", base(use_qkv_bias=True, use_parallel_residual=False, rope_parameters=PARTIAL)),
    ("command-r", "COMMAND_R", "cohere", base(use_qk_norm=True, logit_scale=0.5, tie_word_embeddings=True)),
    ("nemotron", "NEMOTRON", "nemotron", base(rope_parameters=PARTIAL)),
    ("exaone4", "EXAONE4", "exaone4", base(sliding_window=7, layer_types=KINDS)),
    ("exaone4-full", "EXAONE4", "exaone4", base(sliding_window=None, sliding_window_pattern=None, layer_types=["full_attention"] * 2)),
    ("ernie4_5", "ERNIE4_5", "ernie4_5", base(**WIDE, use_bias=True)),
    ("seed_oss", "SEED_OSS", "seed_oss", base(**WIDE, attention_bias=True, attention_out_bias=False)),
    ("qwen3moe:q4_0", "QWEN3MOE", "qwen3_moe", base(**WIDE, **QWEN_EXPERTS, norm_topk_prob=True)),
    ("mixtral:q8_0", "LLAMA", "mixtral", base(**EXPERTS, sliding_window=None)),
    ("phi3:q4_1", "PHI3", "phi3", base(sliding_window=9)),
    ("glm4:q8_0", "GLM4", "glm4", base(**WIDE, attention_bias=True, rope_parameters=PARTIAL)),
    ("granite:q4_0", "GRANITE", "granite", base(**GRANITE)),
    ("gpt-oss", "GPT_OSS", "gpt_oss", base(**WIDE, **EXPERTS, sliding_window=7, layer_types=KINDS, rope_parameters={**YARN, "truncate": False})),
]
# Architectures whose queries and keys turn in neighbouring pairs where transformers turns halves.
PAIRED = {"LLAMA", "GRANITE", "GRANITE_MOE", "SMOLLM3", "ARCEE"}
# Those whose norms have 1 added.
ADDED_ONE = {"GEMMA", "GEMMA2", "NEMOTRON"}


def metadata(writer, arch, config):
    """The sizes and numbers of a model in the keys of its architecture."""
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_tokenizer_model("no_vocab")
    for name, key in NUMBERS.items():
        number = getattr(config, name, None)
        if number is not None:
            writer.add_float32(f"{writer.arch}.{key}", number)
    rope = getattr(config, "rope_parameters", None) or {}
    if "full_attention" in rope:
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    part = rope.get("partial_rotary_factor") or getattr(config, "partial_rotary_factor", None) or 1.0
    writer.add_rope_dimension_count(int(head_dim * part))
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope.get("rope_type") == "longrope":
        writer.add_rope_scaling_orig_ctx_len(config.original_max_position_embeddings)
    window = getattr(config, "sliding_window", None)
    if window is not None and arch not in ("QWEN2MOE", "QWEN3MOE", "SMOLLM3", "LLAMA"):
        writer.add_sliding_window(window)
        if arch in ("OLMO2", "EXAONE4"):
            writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in config.layer_types])
    if arch == "STABLELM":
        writer.add_parallel_residual(config.use_parallel_residual)
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        if hasattr(config, "moe_intermediate_size"):
            writer.add_expert_feed_forward_length(config.moe_intermediate_size)
        if hasattr(config, "shared_expert_intermediate_size"):
            writer.add_expert_shared_feed_forward_length(config.shared_expert_intermediate_size)


def unpacked(name, tensor):
    """What transformers keeps of all experts together, as a tensor for each matrix."""
    before = ".".join(name.split(".")[:3])
    for kind, ending in (("weight", ("experts.gate_up_proj", "input_linear.weight")), ("bias", ("experts.gate_up_proj_bias",))):
        if not name.endswith(ending):
            continue
        if "bias" in name or kind == "weight" and "gpt_oss" in unpacked.family:
            # Gates and the features beside them in turns, inputs as rows.
            tensor = tensor if kind == "bias" else tensor.transpose(1, 2)
            halves = tensor[:, ::2], tensor[:, 1::2]
        else:
            halves = tensor.chunk(2, dim=1)
        return [(f"{before}.mlp.experts.{part}.{kind}", half) for part, half in zip(("gate_proj", "up_proj"), halves)]
    if name.endswith("experts.down_proj"):
        tensor = tensor.transpose(1, 2) if "gpt_oss" in unpacked.family else tensor
        return [(f"{before}.mlp.experts.down_proj.weight", tensor)]
    if name.endswith("output_linear.weight"):
        return [(f"{before}.mlp.experts.down_proj.weight", tensor)]
    if name.endswith("experts.down_proj_bias"):
        return [(f"{before}.mlp.experts.down_proj.bias", tensor)]
    if name.endswith(("router.layer.weight", "router.weight", "router.bias")):
        return [(f"{before}.mlp.gate.{name.rsplit('.', 1)[1]}", tensor)]
    if name.endswith("self_attn.sinks"):
        return [(f"{name}.weight", tensor)]
    return [(name, tensor)]


def is_packed(name, tensor):
    """Whether a weight is stored in few bits: a matrix, but no norm of heads and no router."""
    few = ("norm", "gate_inp", ".gate.weight", "shared_expert_gate", "router", "bias")
    return tensor.ndim > 1 and not any(part in name for part in few)


def write_gguf(model, path, arch, packing):
    config, kind = model.config, gguf.MODEL_ARCH[arch]
    unpacked.family = config.model_type
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[kind])
    metadata(writer, arch, config)
    names = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    tied = config.tie_word_embeddings
    for whole, stored in model.state_dict().items():
        if tied and whole == "lm_head.weight":
            continue
        for name, tensor in unpacked(whole, stored):
            given = names.get_name(name, try_suffixes=(".weight", ".bias"))
            assert given, f"no name for {name}"
            if arch in PAIRED and ("q_proj" in name or "k_proj" in name):
                heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
                matrix = tensor if tensor.ndim == 2 else tensor[:, None]
                tensor = swap_rope_halves(matrix, heads, to_pairs=True).reshape(tensor.shape)
            if arch in ADDED_ONE and name.endswith("norm.weight"):
                tensor = tensor + 1
            if name.endswith("shared_expert_gate.weight"):
                tensor = tensor[0]
            kind = packing if is_packed(given, tensor) else gguf.GGMLQuantizationType.F32
            writer.add_tensor(given, gguf.quantize(tensor.contiguous().numpy(), kind), raw_dtype=kind)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            factors = torch.tensor(rope[f"{length}_factor"], dtype=torch.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors.numpy())
    with contextlib.redirect_stderr(io.StringIO()):
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def build(case, out, seed):
    name, arch, model_type, settings = case
    name, _, packing = name.partition(":")
    name, packing = f"{name}-{packing}".rstrip("-"), gguf.GGMLQuantizationType[packing.upper() or "F16"]
    final, work = out / f"gguf-{name}", out / f".{name}.part"
    shutil.rmtree(work, ignore_errors=True)
    (work / "checkpoint").mkdir(parents=True)
    model = made(model_type, settings)
    fill(model, seed)
    # What the file holds is what is computed with.
    for parameter_name, parameter in model.named_parameters():
        if is_packed(parameter_name, parameter):
            held = gguf.dequantize(gguf.quantize(parameter.detach().numpy(), packing), packing)
            parameter.data = torch.from_numpy(held).reshape(parameter.shape).clone()
    model.tie_weights()
    write_gguf(model, work / "checkpoint" / "model.gguf", arch, packing)
    prompt, decode, answer = tokens_of(model, seed)
    prefill, steps = reference_logits(model, prompt, decode)
    logits = {"logits.prefill": prefill.contiguous()}
    logits |= {f"logits.decode.{k}": step.contiguous() for k, step in enumerate(steps)}
    save_file(logits, work / "io.safetensors")
    source = f"{model_type}; transformers {transformers.__version__}, seed {seed}"
    tokens = {"prompt": prompt, "decode": decode, "greedy": answer}
    about = {"name": f"gguf-{name}", "kind": "checkpoint", "source": source, "atol": ATOL, "rtol": RTOL}
    write_json(work / "case.json", about | tokens)
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--filter", default="*")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--zip", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    written = 0
    for case in CASES:
        if fnmatch.fnmatch(case[0], arguments.filter):
            build(case, arguments.out, arguments.seed)
            written += 1
    print(f"{written} written")
    if arguments.zip:
        pack(arguments.out, arguments.zip)


if __name__ == "__main__":
    main()
