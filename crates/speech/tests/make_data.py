"""Writes tests/data: features of three front ends by onnx-asr, and one tone in every container that is read.

    pip install numpy av onnx-asr==0.12.0 safetensors
    python make_data.py
"""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from onnx_asr.preprocessors.numpy_preprocessor import NemoPreprocessorNumpy, WhisperPreprocessorNumpy
from safetensors.numpy import save_file

DATA = Path(__file__).parent / "data"
RATE = 16_000


def sound():
    """0.7 s: a voice-like buzz that rises, noise below it, silence in the middle."""
    rng = np.random.default_rng(0)
    t = np.arange(int(0.7 * RATE)) / RATE
    pitch = 2 * np.pi * np.cumsum(110 + 60 * t) / RATE
    buzz = sum(np.sin(n * pitch) / n for n in range(1, 30)) * 0.2
    samples = buzz * (np.sin(2 * np.pi * 3 * t) > -0.5) + 0.002 * rng.standard_normal(len(t))
    samples[4000:5000] = 0
    return np.round(np.clip(samples, -1, 1) * 32767).astype(np.int16)


def features(samples):
    wave = (samples.astype(np.float32) / 32768)[None]
    length = np.array([wave.shape[1]])
    frames = wave.shape[1] // 160
    made = {"samples": samples}
    for mels in (80, 128):
        made[f"whisper{mels}"] = WhisperPreprocessorNumpy(f"whisper{mels}")(wave, length)[0][0, :, :frames]
        made[f"parakeet{mels}"] = NemoPreprocessorNumpy(f"nemo{mels}")(wave, length)[0][0, :, :frames]
    return {name: np.ascontiguousarray(array if array.dtype == np.int16 else array.astype(np.float32))
            for name, array in made.items()}


def tone(name, codec, rate, layout, options):
    """Half a second of 440 Hz at half of full scale."""
    channels = {"mono": 1, "stereo": 2}[layout]
    wave = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate // 2) / rate)
    with av.open(str(DATA / name), "w") as file:
        stream = file.add_stream(codec, rate=rate, layout=layout, options=options)
        planes = np.repeat(wave.astype(np.float32)[None], channels, axis=0)
        frame = av.AudioFrame.from_ndarray(planes, format="fltp", layout=layout)
        frame.sample_rate = rate
        frame.pts, frame.time_base = 0, Fraction(1, rate)
        resampler = av.AudioResampler(stream.codec_context.format, layout, rate)
        size = stream.codec_context.frame_size or 1024
        fifo = av.AudioFifo()
        for part in resampler.resample(frame):
            fifo.write(part)
        while (part := fifo.read(size, partial=True)) is not None:
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))


DATA.mkdir(exist_ok=True)
save_file(features(sound()), str(DATA / "features.safetensors"))
tone("tone.flac", "flac", 44_100, "stereo", {})
tone("tone.mp3", "libmp3lame", 44_100, "stereo", {"b": "64k"})
tone("tone.ogg", "vorbis", 48_000, "stereo", {"strict": "-2"})
tone("tone.m4a", "aac", 24_000, "mono", {"b": "64k"})
