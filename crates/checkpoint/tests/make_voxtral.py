"""Writes a tiny random Voxtral as Hugging Face publishes one, and what transformers computes with it.

    python make_voxtral.py
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import VoxtralConfig, VoxtralForConditionalGeneration

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "voxtral"
AUDIO = 24
# Marks, two windows of sound, marks.
PROMPT = [1, 3, 25] + [AUDIO] * 4 + [4, 30, 31, 34]
STEPS = 8

torch.manual_seed(5)
config = VoxtralConfig(
    audio_config=dict(
        model_type="voxtral_encoder", hidden_size=32, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_mel_bins=16, max_source_positions=8,
    ),
    text_config=dict(
        model_type="llama", vocab_size=48, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=256, rope_theta=100000000.0, rms_norm_eps=1e-5,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=11,
    ),
    audio_token_id=AUDIO,
)
model = VoxtralForConditionalGeneration(config).eval()
for name, parameter in model.named_parameters():
    # Larger than at the start of a training, so that attention looks somewhere; in f16, as the file has them.
    parameter.data = torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.1)
    if "norm" in name and name.endswith("weight"):
        parameter.data += 1
    parameter.data = parameter.data.half().float()

FOLDER.mkdir(parents=True, exist_ok=True)
state = {name: value.half().contiguous() for name, value in model.state_dict().items()}
save_file(state, str(FOLDER / "model.safetensors"), metadata={"format": "pt"})


def plain(config):
    kept = {key: value for key, value in config.to_dict().items() if isinstance(value, (int, float, str))}
    if getattr(config, "rope_parameters", None):
        kept["rope_parameters"] = config.rope_parameters
    return kept


settings = plain(config)
settings["audio_config"] = plain(config.audio_config)
settings["text_config"] = plain(config.text_config)
settings["architectures"] = ["VoxtralForConditionalGeneration"]
(FOLDER / "config.json").write_text(json.dumps(settings, indent=1) + "\n")

features = torch.randn(2, 16, 16)
with torch.no_grad():
    rows = model.get_audio_features(features).pooler_output
    ids = torch.tensor([PROMPT])
    logits, tokens = [], []
    for _ in range(STEPS):
        out = model(input_ids=ids, input_features=features, use_cache=False).logits[0, -1]
        logits.append(out)
        tokens.append(int(out.argmax()))
        ids = torch.cat([ids, torch.tensor([[tokens[-1]]])], dim=1)
print(tokens)
expected = {"features": features, "rows": rows, "logits": torch.stack(logits), "tokens": torch.tensor(tokens)}
save_file({name: value.contiguous() for name, value in expected.items()}, str(DATA / "voxtral_expected.safetensors"))
