"""A model that can be talked to, and what it would need."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import pteron as native
from ._chat import Chat, Disposed, Generation, Json, answering, messages_of, text_of
from ._open import Opening, Progress, progress_listener, record


class Model(Disposed):
    """A model that can be talked to. What is made of it is disposed of with it."""

    def __init__(self, model: native.Model) -> None:
        self._native = model

    def __enter__(self) -> Model:
        return self

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str] = "",
        *,
        progress: Progress | None = None,
        cancel: native.Cancel | None = None,
        **options: Any,
    ) -> Model:
        """Opens a program, a GGUF file or a checkpoint folder by its path, or a model by its name.

        ``options`` are those of ``Opening``. What has to be fetched or converted is so the first time and kept in
        ``home``, which is the folder of the command line unless it is given.
        """
        chosen = record(Opening(**options))  # type: ignore[typeddict-item]
        return cls(native.Model.open(os.fspath(source), chosen, progress_listener(progress), cancel))

    @classmethod
    async def open_async(cls, source: str | os.PathLike[str] = "", **options: Any) -> Model:
        """The same on a thread of its own. Where the task is cancelled, the opening is too."""
        cancel = options.pop("cancel", None) or native.Cancel()
        try:
            return await asyncio.to_thread(cls.open, source, cancel=cancel, **options)
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    @property
    def name(self) -> str:
        """What it was asked for by."""
        return self._native.name()

    @property
    def context(self) -> int | None:
        """Positions that a text may have; ``None`` where nothing says it."""
        return self._native.context()

    @property
    def sees(self) -> bool:
        """Whether it sees images: those that ``Chat.show`` gives it."""
        return self._native.sees()

    @property
    def memory(self) -> native.MemoryReport:
        """What it holds, with all that is said with it."""
        return self._native.memory()

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has."""
        return self._native.count_tokens(text)

    def chat(
        self,
        system: str | None = None,
        *,
        history: Iterable[native.Message | Mapping[str, Any]] = (),
        tools: str | Json | None = None,
        when_full: native.WhenFull | None = None,
        **options: Any,
    ) -> Chat:
        """A conversation; ``options`` are those of ``Answering``, for all answers."""
        chosen = native.ChatOptions(
            system=system,
            history=messages_of(history),
            tools=text_of(tools),
            when_full=when_full,
            answering=answering(options) if options else None,
        )
        return Chat(self._native.chat(chosen))

    def generation(self, **options: Any) -> Generation:
        """Answers without a conversation; ``options`` are those of ``Answering``."""
        return Generation(self._native.generation(answering(options) if options else None))


def requirements(source: str | os.PathLike[str] = "", **options: Any) -> native.Requirements:
    """What a model needs. Nothing is fetched, converted or loaded for the answer."""
    return native.requirements(os.fspath(source), record(Opening(**options)))  # type: ignore[typeddict-item]
