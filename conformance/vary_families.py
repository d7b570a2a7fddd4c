#!/usr/bin/env python3
"""Write cases of every family in which one setting at a time is another than in make_families.py.

usage: vary_families.py OUT [--filter GLOB] [--seed S]

Needs torch and transformers. What a setting may be is told by what it is: numbers grow and shrink, flags turn, activations
and kinds of positions go round. A setting with which transformers cannot build, save or run a model makes no case. The
format is that of make_families.py, without greedy answers: `pteron conformance OUT --from checkpoint` judges the logits.
"""

import argparse
import fnmatch
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig

from case_files import write_json
from family_configs import CASES
from make_families import ATOL, DECODE_LEN, PROMPT_LEN, RTOL, check_norms, fill, made, reference_of

ACTIVATIONS = ["silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu"]
# What has no say in what a model computes, or names another model.
APART = {
    "_name_or_path", "architectures", "chunk_size_feed_forward", "dtype", "id2label", "label2id", "is_encoder_decoder", "model_type",
    "output_attentions", "output_hidden_states", "problem_type", "return_dict", "torch_dtype", "transformers_version", "use_cache",
    "pad_token_id", "bos_token_id", "eos_token_id", "initializer_range", "output_router_logits", "router_aux_loss_coef", "auto_map",
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "vocab_size",
    "use_mamba_kernels", "mamba_chunk_size", "chunk_size", "num_logits_to_keep", "rescale_prenorm_residual", "time_step_floor",
}
NONES = {
    "sliding_window": [5], "head_dim": [8, 24], "num_key_value_heads": [1, 4], "attn_logit_softcapping": [1.5],
    "final_logit_softcapping": [1.5], "clip_qkv": [0.5], "n_inner": [48], "layer_types": [], "swiglu_limit": [0.8], "rotary_dim": [4],
    "partial_rotary_factor": [0.5], "num_attention_heads": [2], "ffn_hidden_size": [48], "attention_bias": [True], "mlp_bias": [True],
    "attention_multiplier": [0.3], "q_lora_rank": [16], "n_group": [2], "topk_group": [1],
}
OLD = 16
# Other numbers of a setting that are tried, of those that a model can have.
MOST_NUMBERS = 2


def ropes(value):
    theta = value.get("rope_theta", 10000.0)
    rest = {key: value[key] for key in ("partial_rotary_factor",) if key in value}
    kinds = [
        {"rope_type": "default", "rope_theta": 300.0},
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": OLD, "beta_fast": 4, "beta_slow": 1},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": OLD, "attention_factor": 1.3, "truncate": False},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": OLD},
        {"rope_type": "proportional"},
    ]
    kinds = [{"rope_theta": theta, **rest, **kind} for kind in kinds]
    if rest or value.get("rope_type", "default") == "default":
        kinds.append({"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 0.25})
    return kinds


def others(key, value):
    """What a setting may be besides."""
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return NONES.get(key, [])
    if isinstance(value, int):
        return [value * 2, value // 2, value + 1, value + 3] + ([None] if key in NONES else [])
    if isinstance(value, float):
        if "dropout" in key or "pdrop" in key or "jitter" in key or "noise" in key:
            return []
        return [0.05 if value < 1e-3 else value * 1.5 + 0.1] + ([None] if key in NONES else [])
    if isinstance(value, str):
        return [name for name in ACTIVATIONS if name != value][:4] if "act" in key else []
    if isinstance(value, dict) and key == "rope_parameters":
        if "rope_type" in value or "rope_theta" in value:
            return ropes(value)
        return [{**value, kind: rope} for kind in value if isinstance(value[kind], dict) for rope in ropes(value[kind])]
    if isinstance(value, list) and len(value) > 1:
        numbers = all(isinstance(item, float) for item in value)
        return [[item * 1.5 for item in value]] if numbers else [value[::-1], [value[0]] * len(value)]
    return []


def variations(case):
    """Keys, names and settings."""
    _, model_type, settings, _ = case
    known = {**AutoConfig.for_model(model_type, **settings).to_dict(), **settings}
    for key, value in known.items():
        if key in APART:
            continue
        for number, other in enumerate(others(key, value)):
            text = f"{number}" if isinstance(other, (dict, list)) else str(other)
            yield key, f"{key}={text}", {**settings, key: other}


@torch.no_grad()
def build(name, case, settings, out, seed):
    _, model_type, _, _ = case
    torch.manual_seed(seed)
    place = out / name
    folder = place / "checkpoint"
    folder.mkdir(parents=True)
    model = made(model_type, settings)
    check_norms(model)
    fill(model, seed)
    model.save_pretrained(folder)
    rng = np.random.default_rng(seed)
    prompt, decode = rng.integers(3, 48, PROMPT_LEN).tolist(), rng.integers(3, 48, DECODE_LEN).tolist()
    prefill, steps = reference_of(case)(model, prompt, decode)
    whole = model(input_ids=torch.tensor([prompt + decode])).logits[0]
    torch.testing.assert_close(torch.cat([prefill, torch.stack(steps)]), whole, atol=ATOL / 2, rtol=ATOL / 2)
    assert whole.isfinite().all(), "not finite"
    logits = {"logits.prefill": prefill.contiguous()}
    logits |= {f"logits.decode.{k}": step.contiguous() for k, step in enumerate(steps)}
    save_file(logits, place / "io.safetensors")
    source = f"{model_type}, seed {seed}: {json.dumps(settings)}"
    tokens = {"prompt": prompt, "decode": decode, "greedy": []}
    write_json(place / "case.json", {"name": name, "kind": "checkpoint", "source": source, "atol": ATOL, "rtol": RTOL, **tokens})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--filter", default="*", help="only families whose name matches this glob")
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()
    torch.set_num_threads(1)
    written, without = 0, 0
    for case in CASES:
        if not fnmatch.fnmatch(case[0], args.filter) or case[0].endswith("-mxfp4"):
            continue
        made_of = {}
        for key, what, settings in variations(case):
            if made_of.get(key, 0) == MOST_NUMBERS and isinstance(settings[key], int):
                continue
            name = f"{case[0]}.{what}".replace("/", "-")
            try:
                build(name, case, settings, args.out, args.seed)
                written += 1
                made_of[key] = made_of.get(key, 0) + 1
            except Exception as error:
                shutil.rmtree(args.out / name, ignore_errors=True)
                print(f"no case {name}: {type(error).__name__}: {error}".splitlines()[0][:160], file=sys.stderr)
                without += 1
    print(f"{written} written; transformers cannot run {without}")


if __name__ == "__main__":
    main()
