"""Writes tiny random Parakeets (TDT, RNNT, CTC) as Hugging Face and as NVIDIA publish them, and what transformers makes of
features and of a sound with them.

    python make_parakeet.py
"""

import io
import json
import struct
import tarfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    ParakeetCTCConfig,
    ParakeetFeatureExtractor,
    ParakeetForCTC,
    ParakeetForRNNT,
    ParakeetForTDT,
    ParakeetRNNTConfig,
    ParakeetTDTConfig,
)

DATA = Path(__file__).parent / "data"
PIECES = ["<unk>", "▁a", "▁the", "▁cat", "▁sa", "t", "s", ".", ",", "▁dog", "▁ran", "?", "▁we", "▁saw", "▁it", "ing", "▁old",
          "er", "▁and", "▁off", "▁man", "▁so", "▁he"]
BLANK = len(PIECES)
VOCABULARY = BLANK + 1
MELS = 16
FRAMES = [83, 8, 1, 150]
ENCODER = dict(
    hidden_size=32, num_attention_heads=4, intermediate_size=64, conv_kernel_size=5, subsampling_factor=8,
    subsampling_conv_channels=16, num_mel_bins=MELS,
)
# Beginnings and parts of names, as Hugging Face has them and as NeMo does.
NAMES = [
    ("encoder.subsampling.layers.", "encoder.pre_encode.conv."),
    ("encoder.subsampling.linear.", "encoder.pre_encode.out."),
    ("encoder_projector.", "joint.enc."),
    ("decoder.embedding.", "decoder.prediction.embed."),
    ("decoder.lstm.", "decoder.prediction.dec_rnn.lstm."),
    ("decoder.decoder_projector.", "joint.pred."),
    ("joint.head.", "joint.joint_net.2."),
    ("ctc_head.", "decoder.decoder_layers.0."),
    ("self_attn.q_proj", "self_attn.linear_q"),
    ("self_attn.k_proj", "self_attn.linear_k"),
    ("self_attn.v_proj", "self_attn.linear_v"),
    ("self_attn.o_proj", "self_attn.linear_out"),
    ("self_attn.relative_k_proj", "self_attn.linear_pos"),
    ("self_attn.bias_", "self_attn.pos_bias_"),
    ("conv.norm.", "conv.batch_norm."),
]


def randomised(model, blank_bias):
    """Weights larger than at the start of a training, so that attention looks somewhere; all of them in f16."""
    for name, parameter in model.named_parameters():
        size = 0.3 if parameter.ndim > 1 else 0.1
        # The text so far has to count as much as the sound.
        size *= 3 if name.startswith("decoder.") else 1
        parameter.data = torch.randn_like(parameter) * size
        if "norm" in name and name.endswith("weight"):
            parameter.data += 1
        if name in ("joint.head.bias", "ctc_head.bias"):
            parameter.data[BLANK] += blank_bias
        parameter.data = parameter.data.half().float()
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.data = (torch.randn_like(buffer) * 0.2).half().float()
        if name.endswith("running_var"):
            buffer.data = (torch.rand_like(buffer) + 0.5).half().float()
    return model.eval()


def halves(model):
    return {
        name: value.half().contiguous() if value.is_floating_point() else value.contiguous()
        for name, value in model.state_dict().items()
    }


def plain(config):
    kept = {key: value for key, value in config.to_dict().items() if isinstance(value, (int, str, list, tuple))}
    kept["encoder_config"] = {
        key: value for key, value in config.encoder_config.to_dict().items() if isinstance(value, (int, str))
    }
    return kept


def folder(name, model, kind):
    place = DATA / name
    place.mkdir(parents=True, exist_ok=True)
    save_file(halves(model), str(place / "model.safetensors"), metadata={"format": "pt"})
    settings = plain(model.config)
    settings["architectures"] = [kind]
    (place / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
    vocabulary = [(piece, 0.0 if at == 0 else -float(at)) for at, piece in enumerate(PIECES)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 0, False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(place / "tokenizer.json"), pretty=False)
    return tokenizer


def field(number, wire, payload):
    key = bytes([number << 3 | wire])
    return key + (bytes([len(payload)]) if wire == 2 else b"") + payload


def sentencepiece():
    """The same vocabulary as SentencePiece writes it: pieces with scores and kinds, and what kind of model it is."""
    out = b""
    for at, piece in enumerate(PIECES):
        entry = field(1, 2, piece.encode()) + field(2, 5, struct.pack("<f", -float(at)))
        if at == 0:
            entry += field(3, 0, b"\x02")
        out += field(1, 2, entry)
    return out + field(2, 2, field(3, 0, b"\x01"))


def nemo(name, model, durations):
    encoder = model.config.encoder_config
    settings = f"""sample_rate: 16000
model_defaults:
  enc_hidden: {encoder.hidden_size}
  tdt_durations:
{chr(10).join(f'  - {duration}' for duration in durations)}
preprocessor:
  _target_: nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor
  sample_rate: 16000
  normalize: per_feature
  window_size: 0.025
  window_stride: 0.01
  features: {encoder.num_mel_bins}
  n_fft: 512
encoder:
  _target_: nemo.collections.asr.modules.ConformerEncoder
  subsampling: dw_striding
  self_attention_model: rel_pos
  xscaling: {str(encoder.scale_input).lower()}
  att_context_size:
  - -1
  - -1
  conv_norm_type: batch_norm
joint:
  jointnet:
    activation: relu
decoding:
  greedy:
    max_symbols: 10
"""
    state = {}
    for name_here, value in halves(model).items():
        for ours, theirs in NAMES:
            name_here = name_here.replace(ours, theirs)
        state[name_here] = value
    state["preprocessor.featurizer.window"] = torch.zeros(4)
    weights = io.BytesIO()
    torch.save(state, weights)
    with tarfile.open(DATA / name, "w:") as tar:
        for entry, content in [
            ("./model_config.yaml", settings.encode()),
            ("./model_weights.ckpt", weights.getvalue()),
            ("./0123_tokenizer.model", sentencepiece()),
        ]:
            about = tarfile.TarInfo(entry)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))


def said(model, features):
    """Tokens without blanks, the places that they begin in and how many they last."""
    if isinstance(model, ParakeetForCTC):
        with torch.no_grad():
            ids = model(features).logits[0].argmax(-1).tolist()
        out = []
        for place, token in enumerate(ids):
            if token != BLANK and (place == 0 or ids[place - 1] != token):
                out.append([token, place, 1])
            elif token != BLANK:
                out[-1][2] += 1
        return out
    # Durations are scores behind those of tokens; published models have them suppressed.
    durations = list(range(VOCABULARY, model.joint.head.out_features)) or None
    made = model.generate(
        features, decoder_start_token_id=BLANK, max_new_tokens=400, suppress_tokens=durations, eos_token_id=None,
        pad_token_id=BLANK,
    )
    out, place = [], 0
    for token, duration in zip(made.sequences[0, 1:].tolist(), made.durations[0, 1:].tolist()):
        if token != BLANK:
            lasts = duration if isinstance(model, ParakeetForTDT) else 1
            out.append([token, place, lasts])
        place += duration
    assert place < 100 + features.shape[1], "it does not stop talking"
    return out


def sound(count):
    """Saws of changing height and length, in whole numbers, so that tests can make them too."""
    at = torch.arange(count, dtype=torch.int64)
    return ((at * at // 640) % 4096 - 2048) * (at // 1600 % 7 + 1)


torch.manual_seed(3)
common = dict(vocab_size=VOCABULARY, pad_token_id=2)
heard = dict(decoder_hidden_size=32, num_decoder_layers=2, blank_token_id=BLANK)
configurations = {
    "parakeet_tdt": (ParakeetForTDT, ParakeetTDTConfig(
        **common, **heard, encoder_config=dict(**ENCODER, num_hidden_layers=2, attention_bias=False, convolution_bias=False)
    ), 3.2),
    "parakeet_rnnt": (ParakeetForRNNT, ParakeetRNNTConfig(
        **common, **heard, max_symbols_per_step=3, encoder_config=dict(**ENCODER, num_hidden_layers=1, scale_input=False)
    ), 7.0),
    "parakeet_ctc": (ParakeetForCTC, ParakeetCTCConfig(
        vocab_size=VOCABULARY, pad_token_id=BLANK, encoder_config=dict(**ENCODER, num_hidden_layers=1)
    ), 2.0),
}
expected = {}
extractor = ParakeetFeatureExtractor(feature_size=MELS)
samples = sound(51_360)
heard_features = extractor((samples.double() / 32768).float().numpy(), sampling_rate=16000, return_tensors="pt")
frames = int(heard_features.attention_mask.sum())
for name, (kind, config, blank_bias) in configurations.items():
    model = randomised(kind(config), blank_bias)
    tokenizer = folder(name, model, kind.__name__)
    for count in FRAMES:
        features = expected.setdefault(f"features.{count}", torch.randn(1, count, MELS))
        with torch.no_grad():
            if kind is ParakeetForCTC:
                expected[f"{name}.{count}.places"] = model(features).logits[0]
            else:
                expected[f"{name}.{count}.places"] = model.get_audio_features(features).pooler_output[0]
        tokens = said(model, features)
        expected[f"{name}.{count}.said"] = torch.tensor(tokens, dtype=torch.int64).reshape(-1, 3)
    tokens = said(model, heard_features.input_features[:, :frames])
    expected[f"{name}.sound"] = torch.tensor(tokens, dtype=torch.int64).reshape(-1, 3)
    print(name, tokens, repr(tokenizer.decode([token for token, *_ in tokens])))
    if name != "parakeet_rnnt":
        nemo(f"{name}.nemo", model, [0, 1, 2, 3, 4])
save_file({name: value.contiguous() for name, value in expected.items()}, str(DATA / "parakeet_expected.safetensors"))
