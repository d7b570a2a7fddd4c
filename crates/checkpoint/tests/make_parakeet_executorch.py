"""Writes the tiny Parakeet of `make_parakeet.py` as ExecuTorch's example exports one: `encoder`, `decoder_step` and `joint` for
the MLX delegate, sizes as constant methods, the vocabulary beside it.

    python make_parakeet_executorch.py
"""

import shutil
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "conformance"))

import model_kit  # noqa: E402  it prepares ExecuTorch
import torch  # noqa: E402
from model_misc import ParakeetDecoderStep, ParakeetJoint  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import ParakeetForTDT, ParakeetTDTConfig  # noqa: E402
import json  # noqa: E402

DATA = Path(__file__).parent / "data"
SOURCE = DATA / "parakeet_tdt"
PLACE = DATA / "parakeet_executorch"


class Encoder(torch.nn.Module):
    """Mel features, band by band, and how many frames there are, to what the joint network takes and how much of it."""

    def __init__(self, model):
        super().__init__()
        self.encoder = model.encoder
        self.projector = model.encoder_projector

    def forward(self, features, length):
        rows = self.projector(self.encoder(features.transpose(1, 2)).last_hidden_state)
        return rows, (length + 7) // 8


settings = json.loads((SOURCE / "config.json").read_text())
config = ParakeetTDTConfig(**{key: value for key, value in settings.items() if key != "architectures"})
model = ParakeetForTDT(config).eval()
weights = {name: value.float() if value.is_floating_point() else value
           for name, value in load_file(str(SOURCE / "model.safetensors")).items()}
model.load_state_dict(weights)
mels, width = config.encoder_config.num_mel_bins, config.decoder_hidden_size
state = torch.zeros(config.num_decoder_layers, 1, width)
frames = torch.export.Dim("frames", min=16, max=5000)
programs = {
    # Sizes of attention follow from the frames in a way that cannot be proved when it is exported.
    "encoder": torch.export.export(
        Encoder(model).eval(), (torch.randn(1, mels, 321), torch.tensor([321])), dynamic_shapes=({2: frames}, None),
        strict=False, prefer_deferred_runtime_asserts_over_guards=True,
    ),
    "decoder_step": model_kit.export(
        ParakeetDecoderStep(model.decoder).eval(), (torch.tensor([[1]]), state, state.clone())
    ),
    "joint": model_kit.export(
        ParakeetJoint(model.joint).eval(), (torch.randn(1, 1, width), torch.randn(1, 1, width))
    ),
}
constants = {
    "num_rnn_layers": config.num_decoder_layers, "pred_hidden": width, "joint_hidden": width,
    "vocab_size": config.vocab_size - 1, "blank_id": config.blank_token_id, "sample_rate": 16000, "window_stride": 0.01,
    "encoder_subsampling_factor": 8,
}
PLACE.mkdir(exist_ok=True)
(PLACE / "model.pte").write_bytes(model_kit.lower(programs, constants).buffer)
with tarfile.open(DATA / "parakeet_tdt.nemo") as tar, open(PLACE / "tokenizer.model", "wb") as out:
    shutil.copyfileobj(tar.extractfile("./0123_tokenizer.model"), out)
