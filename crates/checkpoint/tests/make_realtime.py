"""Writes a tiny random Voxtral Realtime as Hugging Face publishes one, and what transformers hears with it: features and rows of a sound,
logits of each place, and the tokens that it writes.

    python make_realtime.py
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import VoxtralRealtimeConfig, VoxtralRealtimeFeatureExtractor, VoxtralRealtimeForConditionalGeneration

DATA = Path(__file__).parent / "data"
FOLDER = DATA / "realtime"
MELS, WIDTH, VOCABULARY, PLACE = 16, 32, 64, 1280
# Places of silence before the sound, places that the text is behind, and places behind the sound for long words.
SILENCE, DELAY, BEHIND = 4, 3, 11
START, NOTHING = 1, 33
MARKS = {0: "<unk>", 1: "<s>", 2: "</s>", 32: "[STREAMING_WORD]", 33: "[STREAMING_PAD]"}


def sound(samples):
    """Saws of changing height and length."""
    at = torch.arange(samples)
    return ((at * at // 640 % 4096 - 2048) * (at // 1600 % 7 + 1)).float() / 32768


def plain(config):
    kept = {key: value for key, value in config.to_dict().items() if isinstance(value, (int, float, str))}
    if getattr(config, "rope_parameters", None):
        kept["rope_parameters"] = config.rope_parameters
    return kept


torch.manual_seed(7)
config = VoxtralRealtimeConfig(
    audio_config=dict(
        model_type="voxtral_realtime_encoder", hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        head_dim=8, num_mel_bins=MELS, sliding_window=22, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    text_config=dict(
        model_type="voxtral_realtime_text", vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=256, rms_norm_eps=1e-5,
        sliding_window=14, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, tie_word_embeddings=True,
        bos_token_id=START, eos_token_id=2, pad_token_id=11,
    ),
    default_num_delay_tokens=DELAY,
)
model = VoxtralRealtimeForConditionalGeneration(config).eval()
for name, parameter in model.named_parameters():
    # Larger than at the start of a training, so that attention looks somewhere; in f16, as the file has them.
    parameter.data = torch.randn_like(parameter) * (0.3 if parameter.ndim > 1 else 0.1)
    if "norm" in name and name.endswith("weight") and parameter.ndim == 1:
        parameter.data += 1
    parameter.data = parameter.data.half().float()

# A text of random weights would end within a few places.
model.get_input_embeddings().weight.data[2] = 0

FOLDER.mkdir(parents=True, exist_ok=True)
state = {name: value.half().contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
save_file(state, str(FOLDER / "model.safetensors"), metadata={"format": "pt"})
settings = plain(config)
settings["audio_config"], settings["text_config"] = plain(config.audio_config), plain(config.text_config)
settings["architectures"] = ["VoxtralRealtimeForConditionalGeneration"]
(FOLDER / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
audio = {"frame_rate": 12.5, "transcription_delay_ms": 80.0 * DELAY, "streaming_n_left_pad_tokens": SILENCE}
(FOLDER / "tekken.json").write_text(json.dumps({"audio": audio}) + "\n")
letters = iter("\u0120.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
vocabulary = {MARKS.get(at) or next(letters): at for at in range(VOCABULARY)}
level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
(FOLDER / "tokenizer.json").write_text(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level, "post_processor": None,
    "decoder": level, "added_tokens": [
        {"id": at, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for at, mark in MARKS.items()
    ],
    "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocabulary, "merges": []},
}) + "\n")

expected = {}
for name, samples in (("short", 20_000), ("long", 51_360)):
    rest = -samples % PLACE
    padded = torch.nn.functional.pad(sound(samples), (SILENCE * PLACE, rest + (DELAY + 1 + 10) * PLACE))
    extractor = VoxtralRealtimeFeatureExtractor(feature_size=MELS)
    features = extractor(padded.numpy(), sampling_rate=16000, return_tensors="pt").input_features
    places = features.shape[-1] // 8
    with torch.no_grad():
        rows = model.get_audio_features(features).pooler_output[0]
        tokens, logits = [START] + [NOTHING] * (SILENCE + DELAY), []
        while len(tokens) < places:
            embeds = model.get_input_embeddings()(torch.tensor([tokens])) + rows[None, : len(tokens)]
            time = model.model.time_embedding(torch.full((1,), float(DELAY)))[None]
            states = model.model.language_model(inputs_embeds=embeds, t_cond=time, use_cache=False).last_hidden_state
            logits.append(model.lm_head(states[0, -1]))
            tokens.append(int(logits[-1].argmax()))
            if tokens[-1] == 2:
                break
        # The same by its own loop, which is told nothing but features and prompt.
        prompt = torch.tensor([tokens[: 1 + SILENCE + DELAY]])
        own = model.generate(
            input_ids=prompt, input_features=features, num_delay_tokens=DELAY, do_sample=False, pad_token_id=11)[0].tolist()
    assert own == tokens, (own, tokens)
    expected |= {f"{name}.features": features[0], f"{name}.rows": rows, f"{name}.logits": torch.stack(logits),
                 f"{name}.tokens": torch.tensor(tokens)}
    print(name, places, tokens)
save_file({name: value.contiguous() for name, value in expected.items()}, str(DATA / "realtime_expected.safetensors"))
