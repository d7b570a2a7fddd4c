#!/usr/bin/env python3
"""Write a tiny random checkpoint for every family of models, as transformers saves it, with the logits it must give.

usage: make_families.py OUT [--filter GLOB] [--seed S] [--zip FILE]

Needs torch and transformers. The format is that of make_checkpoints.py, described in CHECKPOINTS.md; `--zip` packs what was
written. The families are in family_configs.py.
"""

import argparse
import fnmatch
import inspect
import json
import logging
import os
import shutil
import sys
import warnings
import zlib
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

from case_files import pack, write_json
from ckpt_models import greedy, reference_logits
from family_configs import CASES, HYBRID

transformers.utils.logging.disable_progress_bar()

ATOL, RTOL = 2e-4, 2e-4
PROMPT_LEN, DECODE_LEN, GREEDY_LEN = 16, 4, 40
EMBEDDINGS = ("embed", "wte", "wpe", "word_embeddings")
# Models without caches.
UNCACHED = ("openai-gpt",)


def attention(model_type):
    """Falcon's eager attention adds what is lost by distance twice, once with the mask; its other forms do not."""
    return "sdpa" if model_type == "falcon" else "eager"


def made(model_type, settings):
    config = AutoConfig.for_model(model_type, **settings)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention(model_type)).float().eval()


def check_norms(model):
    """Transformers before 5.23 norms all groups of a state space as one, where models are trained with a norm for each."""
    for module in model.modules():
        if type(module).__name__ in ("MambaRMSNormGated", "BambaRMSNormGated", "GraniteMoeHybridRMSNormGated"):
            assert hasattr(module, "group_size"), "needs transformers 5.23"


def fill(model, seed):
    """Weights with which no part of the network is idle: soft attention, uneven norms, routers that disagree."""
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            generator = torch.Generator().manual_seed(seed ^ zlib.crc32(name.encode()))
            noise = torch.randn(tensor.shape, generator=generator)
            if tensor.ndim == 0 or not tensor.is_floating_point():
                continue
            if tensor.ndim == 1 or "norm" in name or name.endswith("_bias"):
                tensor.add_(0.2 * noise)
            elif any(part in name for part in EMBEDDINGS) and "norm" not in name:
                tensor.copy_(0.3 * noise)
            elif "router" in name or ".gate.weight" in name:
                tensor.copy_(2.0 * noise * tensor.shape[-1] ** -0.5)
            else:
                tensor.copy_(1.4 * noise * min(tensor.shape[-2:]) ** -0.5)
    model.tie_weights()


def tokens_of(model, seed):
    """A prompt whose greedy continuation is never a close call, and tokens to feed afterwards."""
    rng = np.random.default_rng(seed)
    for attempt in range(60):
        prompt = rng.integers(3, 48, PROMPT_LEN).tolist()
        answer, lead = greedy(model, prompt, GREEDY_LEN)
        # Soft caps and scaled embeddings make some tiny models say one thing over and over.
        if lead > 0.005 and len(set(answer)) > (2 if attempt < 30 else 0):
            return prompt, rng.integers(3, 48, DECODE_LEN).tolist(), answer
    raise AssertionError("no prompt with a clear greedy answer")


@torch.no_grad()
def recurrent_logits(model, prompt, decode):
    """The same of models with states, some of which want their cache under another name, or do not give it back."""
    key = "cache_params" if "cache_params" in inspect.signature(model.forward).parameters else "past_key_values"
    state = {key: DynamicCache(config=model.config), "use_cache": True}
    rows, at = [], 0
    for tokens in [prompt, *([token] for token in decode)]:
        # Bamba counts from 0 in every call unless it is told the positions.
        positions = torch.arange(at, at + len(tokens))[None]
        rows.append(model(input_ids=torch.tensor([tokens]), position_ids=positions, **state).logits[0])
        at += len(tokens)
    return rows[0], [row[-1] for row in rows[1:]]


@torch.no_grad()
def uncached_logits(model, prompt, decode):
    """The same of models that read the whole text for every token."""
    whole = model(input_ids=torch.tensor([prompt + decode])).logits[0]
    return whole[: len(prompt)], list(whole[len(prompt) :])


def reference_of(case):
    if case[1] in UNCACHED:
        return uncached_logits
    return recurrent_logits if case in HYBRID else reference_logits


def check_matters(model, model_type, settings, changes, prompt, prefill):
    """Each listed change of a setting must move the logits far beyond the tolerance."""
    for key, value in changes.items():
        other = made(model_type, {**settings, key: value})
        other.load_state_dict(model.state_dict(), strict=False)
        with torch.no_grad():
            moved = (other(input_ids=torch.tensor([prompt])).logits[0] - prefill).abs().max().item()
        assert moved > 20 * ATOL, f"{key} does not matter: {moved}"


def build(case, out, seed):
    name, model_type, settings, changes = case
    final, work = out / name, out / f".{name}.part"
    shutil.rmtree(work, ignore_errors=True)
    folder = work / "checkpoint"
    folder.mkdir(parents=True)
    model = made(model_type, settings)
    check_norms(model)
    fill(model, seed)
    model.to(torch.bfloat16).save_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention(model_type), output_loading_info=True
    )
    missing = [key for key in info["missing_keys"] if "mtp" not in key]
    assert not missing and not info["mismatched_keys"], info
    model = model.float().eval()
    if name.endswith("-mxfp4"):
        as_mxfp4(model, folder)
    prompt, decode, answer = tokens_of(model, seed)
    prefill, steps = reference_of(case)(model, prompt, decode)
    whole = model(input_ids=torch.tensor([prompt + decode])).logits[0].detach()
    torch.testing.assert_close(torch.cat([prefill, torch.stack(steps)]), whole, atol=ATOL / 2, rtol=0)
    check_matters(model, model_type, settings, changes, prompt, prefill)
    logits = {"logits.prefill": prefill.contiguous()}
    logits |= {f"logits.decode.{k}": step.contiguous() for k, step in enumerate(steps)}
    save_file(logits, work / "io.safetensors")
    description = {
        "name": name,
        "kind": "checkpoint",
        "source": f"{model_type}; transformers {transformers.__version__}, seed {seed}",
        "atol": ATOL,
        "rtol": RTOL,
        "prompt": prompt,
        "decode": decode,
        "greedy": answer,
    }
    write_json(work / "case.json", description)
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)


def as_mxfp4(model, folder):
    """Experts as gpt-oss is published: blocks of two codes a byte and a power of two for each; the model gets what they mean."""
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    state, parameters = load_file(folder / "model.safetensors"), dict(model.named_parameters())
    for name in [name for name in state if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        weight = state.pop(name).float().transpose(1, 2).contiguous()
        groups = weight.view(*weight.shape[:2], -1, 32)
        exponents = groups.abs().amax(-1, keepdim=True).clamp(min=1e-6).log2().floor() - 2
        scaled = groups / 2.0**exponents
        codes = (scaled.abs()[..., None] - table).abs().argmin(-1)
        values = table[codes] * scaled.sign() * 2.0**exponents
        codes = codes + 8 * (scaled < 0)
        state[f"{name}_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8).contiguous()
        state[f"{name}_scales"] = (exponents[..., 0] + 127).to(torch.uint8)
        parameters[name].data.copy_(values.view(weight.shape).transpose(1, 2))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**config, "quantization_config": {"quant_method": "mxfp4"}})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--filter", default="*", help="only cases whose name matches this glob")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--zip", type=Path, help="pack what is in OUT")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    written, failed = 0, 0
    for case in CASES:
        if not fnmatch.fnmatch(case[0], args.filter):
            continue
        try:
            build(case, args.out, args.seed)
            written += 1
        except Exception as error:
            shutil.rmtree(args.out / f".{case[0]}.part", ignore_errors=True)
            print(f"{case[0]}: {type(error).__name__}: {error}"[:400], file=sys.stderr)
            failed += 1
    if args.zip:
        pack(args.out, args.zip)
    print(f"{written} written, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
