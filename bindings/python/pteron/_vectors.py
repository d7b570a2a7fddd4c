"""Vectors of texts, and how well texts answer a question."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import pteron as native
from ._chat import Disposed
from ._open import Opening, Progress, progress_listener, record


class Embedder(Disposed):
    """A model that makes a vector of a text, or numbers of a pair of texts. Threads may use it at the same time."""

    def __init__(self, embedder: native.Embedder) -> None:
        self._native = embedder

    def __enter__(self) -> Embedder:
        return self

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str],
        *,
        progress: Progress | None = None,
        cancel: native.Cancel | None = None,
        **options: Any,
    ) -> Embedder:
        """Opens an encoder by path or name."""
        chosen = record(Opening(**options))  # type: ignore[typeddict-item]
        return cls(native.Embedder.open(os.fspath(source), chosen, progress_listener(progress), cancel))

    @property
    def dimensions(self) -> int:
        """How many numbers a vector has."""
        return self._native.dimensions()

    @property
    def scores(self) -> bool:
        """Whether it gives numbers for pairs of texts, by :meth:`score`, and no vectors."""
        return self._native.scores()

    def embed(self, texts: Iterable[str]) -> list[list[float]]:
        """The vector of each text."""
        return self._native.embed(list(texts))

    def score(self, question: str, documents: Iterable[str]) -> list[list[float]]:
        """What a reranker says of each document beside a question."""
        return self._native.score(question, list(documents))

    def count_tokens(self, text: str) -> int:
        """Tokens that the model reads of a text."""
        return self._native.count_tokens(text)
