"""Writes a tiny random Whisper as Hugging Face and as OpenAI publish one, and what transformers computes with it.

    python make_whisper.py
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import WhisperConfig, WhisperForConditionalGeneration

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "whisper"
TOKENS = [1, 17, 5, 5, 30, 2, 8]
HEADS = [[1, 3], [0, 1]]
# Parts of names, as Hugging Face has them and as OpenAI does.
NAMES = [
    ("model.", ""),
    ("embed_tokens.weight", "token_embedding.weight"),
    ("embed_positions.weight", "positional_embedding"),
    ("encoder.layer_norm.", "encoder.ln_post."),
    ("decoder.layer_norm.", "decoder.ln."),
    (".layers.", ".blocks."),
    ("self_attn_layer_norm", "attn_ln"),
    ("encoder_attn_layer_norm", "cross_attn_ln"),
    ("final_layer_norm", "mlp_ln"),
    ("self_attn", "attn"),
    ("encoder_attn", "cross_attn"),
    ("fc1", "mlp.0"),
    ("fc2", "mlp.2"),
    ("q_proj", "query"),
    ("k_proj", "key"),
    ("v_proj", "value"),
    ("out_proj", "out"),
]

torch.manual_seed(0)
config = WhisperConfig(
    vocab_size=64,
    num_mel_bins=16,
    d_model=32,
    encoder_layers=1,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_source_positions=12,
    max_target_positions=24,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
)
model = WhisperForConditionalGeneration(config).eval()
for parameter in model.parameters():
    # Larger than at the start of a training, so that attention looks somewhere; in f16, so that both files say the same.
    parameter.data = (torch.randn_like(parameter) * (0.4 if parameter.ndim > 1 else 0.1)).half().float()
for name, parameter in model.named_parameters():
    if "norm.weight" in name:
        parameter.data = (parameter.data + 1).half().float()
model.set_attn_implementation("eager")

state = {name: value.half().contiguous() for name, value in model.state_dict().items() if name != "proj_out.weight"}
FOLDER.mkdir(parents=True, exist_ok=True)
save_file(state, str(FOLDER / "model.safetensors"), metadata={"format": "pt"})
settings = {key: value for key, value in config.to_dict().items() if isinstance(value, (int, str)) or key == "architectures"}
settings["architectures"] = ["WhisperForConditionalGeneration"]
(FOLDER / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
(FOLDER / "generation_config.json").write_text(json.dumps({"alignment_heads": HEADS, "eos_token_id": 2}) + "\n")

renamed = {}
for name, value in state.items():
    for ours, theirs in NAMES:
        name = name.replace(ours, theirs)
    renamed[name] = value
dims = {
    "n_mels": 16, "n_vocab": 64, "n_audio_ctx": 12, "n_audio_state": 32, "n_audio_head": 4, "n_audio_layer": 1,
    "n_text_ctx": 24, "n_text_state": 32, "n_text_head": 4, "n_text_layer": 2,
}
torch.save({"dims": dims, "model_state_dict": renamed}, DATA / "whisper.pt")

features = torch.randn(1, 16, 24)
with torch.no_grad():
    hidden = model.get_encoder()(features).last_hidden_state
    out = model(
        encoder_outputs=(hidden,), decoder_input_ids=torch.tensor([TOKENS]), output_attentions=True, use_cache=False
    )
expected = {
    "features": features,
    "tokens": torch.tensor([TOKENS]),
    "hidden": hidden,
    "logits": out.logits[0],
    "weights": torch.stack([out.cross_attentions[layer][0, head] for layer, head in HEADS]),
}
save_file({name: value.contiguous() for name, value in expected.items()}, str(DATA / "whisper_expected.safetensors"))
