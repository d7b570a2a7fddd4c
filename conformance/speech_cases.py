#!/usr/bin/env python3
"""Makes cases of sound: the preprocessors that ExecuTorch's wheel exports, and programs with complex numbers inside.

    VENV/bin/python speech_cases.py OUT [--filter GLOB]... [--zip FILE]

Preprocessors come in the forms `portable` (no delegate), `xnnpack` and `mlx`, as `extension/audio/mel_spectrogram.py` has them. The
outputs are those of ExecuTorch's own runtime, which must agree with PyTorch eager; of `mlx`, for which the wheel has no runtime on
every machine, those of PyTorch.
"""

import et_env  # first: it puts stand-ins in place
import torch
from case_files import make_all
from executorch.extension.audio import mel_spectrogram
from torch import nn

TOLERANCE = 1e-4
RATE = 16000


class Op(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Parakeet(nn.Module):
    """Parakeet's front end as NeMo has it in evaluation: emphasis, a transform of 512 points with zeros outside, logarithms, and
    each band less its mean by its deviation."""

    def __init__(self, mels=24):
        super().__init__()
        from transformers.audio_utils import mel_filter_bank

        filters = mel_filter_bank(257, mels, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
        self.filters = nn.Buffer(torch.from_numpy(filters).float().T.contiguous())
        window = torch.zeros(512)
        window[56:456] = torch.hann_window(400, periodic=False)
        self.window = nn.Buffer(window)

    def forward(self, samples):
        samples = torch.cat([samples[:1], samples[1:] - 0.97 * samples[:-1]])
        spectrum = torch.stft(samples, 512, 160, window=self.window, pad_mode="constant", return_complex=True)
        energies = self.filters @ torch.view_as_real(spectrum).square().sum(-1)
        logarithms = torch.log(energies + 2.0**-24)[:, :-1]
        mean = logarithms.mean(1, keepdim=True)
        deviation = (logarithms - mean).square().sum(1, keepdim=True) / (logarithms.shape[1] - 1)
        return ((logarithms - mean) / (deviation.sqrt() + 1e-5)).unsqueeze(0)


def sound(samples):
    """Saws of changing height and length, which pack well."""
    at = torch.arange(samples)
    return (((at * at // 640 % 64) - 32) * (at // 1600 % 7 + 1)).float() / 512


def processor(**settings):
    return lambda: mel_spectrogram.WhisperAudioProcessor(**settings)


def number(*shape):
    return torch.randn(*shape)


def real(function):
    """A function that gives complex numbers, read as pairs."""
    return lambda x: torch.view_as_real(function(x).resolve_conj())


ALL = ("portable", "xnnpack", "mlx")
PREPROCESSORS = {
    "whisper": (ALL, processor(feature_size=80, chunk_length=1, max_audio_len=3), (16000, 3210)),
    "whisper_stacked": (("xnnpack",), processor(feature_size=16, chunk_length=1, max_audio_len=3, stack_output=True),
                        (20000, 16000)),
    "whisper_streaming": (("xnnpack", "mlx"), processor(feature_size=80, streaming=True, max_audio_len=3), (1640, 5000)),
    "parakeet": (("portable",), Parakeet, (4000, 3200)),
}
OPERATORS = {
    "spectrum": (lambda x: torch.fft.rfft(x).abs(), (3, 20)),
    "spectrum_odd": (real(torch.fft.rfft), (2, 3, 15)),
    "spectrum_prime": (real(lambda x: torch.fft.rfft(x, norm="ortho")), (2, 97)),
    "spectrum_forward": (real(lambda x: torch.fft.rfft(x, norm="forward")), (2, 12)),
    "spectrum_turned": (real(lambda x: torch.fft.rfft(x).transpose(0, 1)[1:4].unsqueeze(0).squeeze(0)), (3, 16)),
    "back_again": (lambda x: torch.fft.irfft(torch.fft.rfft(x), n=20), (3, 20)),
    "back_odd": (lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), n=15, norm="ortho"), (2, 15)),
}


def lowered(program, form):
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    partitioner = []
    if form == "xnnpack":
        partitioner = [XnnpackPartitioner()]
    elif form == "mlx":
        from executorch.backends.mlx.partitioner import MLXPartitioner

        partitioner = [MLXPartitioner()]
    edge = to_edge_transform_and_lower(
        program, partitioner=partitioner, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    return edge.to_executorch().buffer


def write(out, name, form, source, model, pte, inputs):
    """A case with a step for each input."""
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    steps = []
    for given in inputs:
        wanted = model(given)
        if form != "mlx":
            own = torch.as_tensor(_load_for_executorch_from_buffer(pte).forward([given])[0]).clone()
            apart = (own.double() - wanted.double()).abs().max().item()
            if not apart <= TOLERANCE * (1 + wanted.abs().max().item()):
                raise et_env.CaseError(f"eager and the runtime are {apart:g} apart")
            wanted = own
        steps.append({"inputs": [given], "outputs": [wanted]})
    meta = {"kind": "op", "source": source, "atol": TOLERANCE, "rtol": TOLERANCE}
    et_env.write_case(out, f"{name}_{form}", meta, pte, None, steps)


@torch.no_grad()
def make_preprocessor(out, name, form, build, lengths):
    model = build().eval()
    shapes = torch.export.ShapesCollection()
    samples = sound(lengths[0])
    shapes[samples] = {0: torch.export.Dim.DYNAMIC(min=600, max=3 * RATE)}
    with torch.fx.experimental._config.patch(backed_size_oblivious=True):
        program = torch.export.export(model, (samples,), dynamic_shapes=shapes, strict=True)
        pte = lowered(program, form)
    write(out, name, form, f"extension/audio/mel_spectrogram.py, {form}", model, pte, [sound(n) for n in lengths])


@torch.no_grad()
def make_operator(out, name, function, shape):
    torch.manual_seed(42)
    model, given = Op(function).eval(), number(*shape)
    pte = lowered(torch.export.export(model, (given,)), "portable")
    write(out, name, "portable", "complex numbers inside a program", model, pte, [given])


def main():
    jobs = [(f"{name}_{form}", lambda out, job=(name, form, build, lengths): make_preprocessor(out, *job))
            for name, (forms, build, lengths) in PREPROCESSORS.items() for form in forms]
    jobs += [(f"{name}_portable", lambda out, job=(name, function, shape): make_operator(out, *job))
             for name, (function, shape) in OPERATORS.items()]
    make_all(__doc__, jobs)


if __name__ == "__main__":
    main()
