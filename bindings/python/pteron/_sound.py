"""What is said in sound: sound in, text with times out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from . import pteron as native
from ._chat import Disposed
from ._open import Opening, Progress, progress_listener, record

Hearing = Callable[[native.Heard], object]
"""Told what is found; what gives ``False`` back ends the transcription."""


class _SoundListener(native.SoundListener):
    def __init__(self, function: Hearing) -> None:
        self._function = function

    def heard(self, event: native.Heard) -> bool:
        return self._function(event) is not False


class Transcriber(Disposed):
    """A speech model that writes down what is said."""

    def __init__(self, transcriber: native.Transcriber) -> None:
        self._native = transcriber

    def __enter__(self) -> Transcriber:
        return self

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        cancel: native.Cancel | None = None,
        **options: Any,
    ) -> Transcriber:
        """Opens a speech model by path or name."""
        chosen = record(Opening(**options))  # type: ignore[typeddict-item]
        return cls(native.Transcriber.open(os.fspath(source), chosen, progress_listener(progress), cancel))

    def leave_out_silence(self, **options: Any) -> None:
        """Leaves silence out, by a small network that is fetched once."""
        self._native.leave_out_silence(record(Opening(**options)))  # type: ignore[typeddict-item]

    @property
    def tells_word_times(self) -> bool:
        """Whether it can tell the times of words."""
        return self._native.tells_word_times()

    def transcribe(
        self,
        audio: str | os.PathLike[str] | bytes | native.LiveSound | Iterable[float],
        *,
        rate: int = 16_000,
        listener: Hearing | None = None,
        **options: Any,
    ) -> native.Transcript:
        """Writes down what is said in a file, in its bytes, in samples of one channel between -1 and 1, or in a sound
        while it is being said: another thread pushes it into a ``LiveSound``.

        ``rate`` is that of samples; ``options`` are those of ``TranscribeOptions``.
        """
        if isinstance(audio, (bytes, bytearray)):
            sound = native.Audio.ENCODED(bytes(audio))
        elif isinstance(audio, (str, os.PathLike)):
            sound = native.Audio.FILE(os.fspath(audio))
        elif isinstance(audio, native.LiveSound):
            sound = native.Audio.LIVE(audio)
        else:
            sound = native.Audio.SAMPLES([float(sample) for sample in audio], rate)
        told = None if listener is None else _SoundListener(listener)
        return self._native.transcribe(sound, native.TranscribeOptions(**options), told)

    def stop(self) -> None:
        """Ends the transcription that is under way, from any thread."""
        self._native.stop()
