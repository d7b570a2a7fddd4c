"""Writes tests/data: features of three front ends by onnx-asr, one tone in every container that is read, and what Silero's
network says with made-up weights.

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


def voice(name, bits, rate):
    """The buzz as Opus, and lossless what libopus hears in it."""
    encoded, heard = DATA / f"{name}.opus", DATA / f"{name}.flac"
    with av.open(str(encoded), "w") as file:
        options = {"b": bits, "application": "audio" if bits == "96k" else "voip"}
        stream = file.add_stream("libopus", rate=rate, layout="mono", options=options)
        frame = av.AudioFrame.from_ndarray(sound()[None], format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = RATE, 0, Fraction(1, RATE)
        resampler, fifo = av.AudioResampler(stream.codec_context.format, "mono", rate), av.AudioFifo()
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            fifo.write(part)
        while (part := fifo.read(stream.codec_context.frame_size, partial=True)) is not None:
            file.mux(stream.encode(part))
        file.mux(stream.encode(None))
    with av.open(str(encoded)) as source, av.open(str(heard), "w") as target:
        decoder = av.CodecContext.create("libopus", "r")
        decoder.extradata = source.streams.audio[0].codec_context.extradata
        stream = target.add_stream("flac", rate=48_000, layout="mono")
        resampler, fifo = av.AudioResampler("s16", "mono", 48_000), av.AudioFifo()
        for packet in source.demux(audio=0):
            for part in decoder.decode(packet):
                part.pts = None
                for converted in resampler.resample(part):
                    converted.pts = None
                    fifo.write(converted)
        while (part := fifo.read(4096, partial=True)) is not None:
            target.mux(stream.encode(part))
        target.mux(stream.encode(None))


def silero(samples):
    """Probabilities by the network as its tinygrad form spells it, in float64; weights are sines."""

    def weight(number, *shape, scale=1.0):
        count = int(np.prod(shape))
        fan_in = count // shape[0] if len(shape) > 1 else 100
        waves = np.sin(12.9898 * (np.arange(count) + 1) + 78.233 * number)
        return (scale * waves / np.sqrt(fan_in)).astype(np.float32).astype(np.float64).reshape(shape)

    def conv(x, w, b, stride):
        x = np.pad(x, ((0, 0), (1, 1)))
        taps = [np.einsum("oik,ik->o", w, x[:, at : at + 3]) + b for at in range(0, x.shape[1] - 2, stride)]
        return np.maximum(np.stack(taps, axis=1), 0)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    window = np.hanning(257)[:-1]
    layers = [(1, 129, 128, 1), (3, 128, 64, 2), (5, 64, 64, 2), (7, 64, 128, 1)]
    wave = samples.astype(np.float64) / 32768
    wave = np.pad(wave, (64, -len(wave) % 512))
    h, c = np.zeros(128), np.zeros(128)
    said = []
    for at in range(64, len(wave), 512):
        x = np.pad(wave[at - 64 : at + 512], (0, 64), mode="reflect")
        x = np.stack([np.abs(np.fft.rfft(x[i : i + 256] * window)) for i in range(0, len(x) - 255, 128)], axis=1)
        for number, inputs, outputs, stride in layers:
            x = conv(x, weight(number, outputs, inputs, 3, scale=9.0), weight(number + 1, outputs), stride)
        gates = weight(9, 512, 128, scale=9.0) @ x[:, 0] + weight(11, 512) + weight(10, 512, 128, scale=9.0) @ h + weight(12, 512)
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        said.append(float(sigmoid(weight(13, 1, 128, scale=9.0)[0] @ np.maximum(h, 0) + weight(14, 1)[0])))
    return said


DATA.mkdir(exist_ok=True)
(DATA / "silero.txt").write_text("".join(f"{p:.7f}\n" for p in silero(sound())))
save_file(features(sound()), str(DATA / "features.safetensors"))
tone("tone.flac", "flac", 44_100, "stereo", {})
tone("tone.mp3", "libmp3lame", 44_100, "stereo", {"b": "64k"})
tone("tone.ogg", "vorbis", 48_000, "stereo", {"strict": "-2"})
tone("tone.m4a", "aac", 24_000, "mono", {"b": "64k"})
tone("tone.opus", "libopus", 48_000, "stereo", {"b": "64k"})
tone("tone.webm", "libopus", 48_000, "mono", {"b": "48k"})
tone("tone-opus.mp4", "libopus", 48_000, "stereo", {"b": "64k"})
# One file for each of Opus's ways to code, and what its own decoder makes of them.
for name, bits, rate in [("silk", "12k", 16_000), ("hybrid", "32k", 48_000), ("celt", "96k", 48_000)]:
    voice(f"voice-{name}", bits, rate)
