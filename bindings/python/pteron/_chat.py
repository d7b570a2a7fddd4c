"""Conversations and single answers, streamed to functions or iterated over, with or without ``async``."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypedDict

from . import pteron as native

Listener = Callable[[str], object]
"""Gets an answer piece by piece; what gives ``False`` back ends it."""

Json = Mapping[str, Any] | Sequence[Any]


class Answering(TypedDict, total=False):
    """What an answer shall be like; see ``GenerateOptions`` for what each means."""

    max_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    frequency_penalty: float | None
    presence_penalty: float | None
    seed: int | None
    stop: Sequence[str]
    ignore_end: bool
    schema: str | Json | bool | None
    grammar: str | None
    answers: int | None


def answering(options: Mapping[str, Any]) -> native.GenerateOptions:
    chosen = dict(options)
    chosen["schema"] = text_of(chosen.get("schema"))
    chosen["stop"] = list(chosen.get("stop", ()))
    return native.GenerateOptions(**chosen)


def text_of(value: object) -> str | None:
    """JSON as text, where it is not text already."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def messages_of(messages: str | Iterable[native.Message | Mapping[str, Any]]) -> list[native.Message]:
    if isinstance(messages, str):
        return [native.Message(role="user", content=messages)]

    def message(given: native.Message | Mapping[str, Any]) -> native.Message:
        if isinstance(given, native.Message):
            return given
        fields = dict(given)
        fields["tool_calls"] = text_of(fields.get("tool_calls"))
        return native.Message(**fields)

    return [message(given) for given in messages]


class _PieceListener(native.PieceListener):
    def __init__(self, function: Listener) -> None:
        self._function = function

    def piece(self, text: str) -> bool:
        return self._function(text) is not False


def piece_listener(function: Listener | None) -> native.PieceListener | None:
    return None if function is None else _PieceListener(function)


class Stream:
    """An answer that is being written: iterate over its pieces, with ``for`` or ``async for``.

    It stops when nobody holds this any more.
    """

    def __init__(self, stream: native.AnswerStream) -> None:
        self._native = stream

    def __iter__(self) -> Iterator[str]:
        while (piece := self._native.wait_next()) is not None:
            yield piece

    async def __aiter__(self) -> AsyncIterator[str]:
        while (piece := await self._native.next()) is not None:
            yield piece

    @property
    def answer(self) -> native.Answer | None:
        """The whole answer, once it has ended; ``None`` before."""
        return self._native.answer()

    def stop(self) -> None:
        """Ends the answer; what was said until then stays."""
        self._native.stop()


class Disposed:
    """What is disposed of at the end of a ``with`` block."""

    _native: Any

    def dispose(self) -> None:
        """Cancels what is under way, waits for its end, and gives the memory back."""
        self._native.dispose()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dispose()


class Chat(Disposed):
    """A conversation with a model, which remembers; made by :meth:`Model.chat`.

    One call at a time may use it: a second one gets ``PteronError.Busy``.
    """

    def __init__(self, chat: native.Chat) -> None:
        self._native = chat

    def __enter__(self) -> Chat:
        return self

    def send(self, text: str, listener: Listener | None = None, **options: Any) -> native.Answer:
        """Asks something. The listener gets the answer piece by piece and ends it by ``False``.

        ``options`` are those of :class:`Answering`, for this answer alone.
        """
        chosen = answering(options) if options else None
        return self._native.send(text, chosen, piece_listener(listener))

    def stream(self, text: str, **options: Any) -> Stream:
        """The same, to be iterated over."""
        return Stream(self._native.stream(text, answering(options) if options else None))

    def send_result(self, found: str, listener: Listener | None = None) -> native.Answer:
        """Gives the model what a tool has found that it called in its last answer."""
        return self._native.send_result(found, piece_listener(listener))

    def stream_result(self, found: str) -> Stream:
        """The same, to be iterated over."""
        return Stream(self._native.stream_result(found))

    def regenerate(self, listener: Listener | None = None) -> native.Answer | None:
        """Another answer to the last question, in place of the last one."""
        return self._native.regenerate(piece_listener(listener))

    def stop(self) -> None:
        """Stops the answer that is being given, from any thread; what was said until then stays."""
        self._native.stop()

    def show(self, image: bytes) -> None:
        """Shows the model an image with the next question: the bytes of its file, PNG or JPEG."""
        self._native.show(image)

    @property
    def history(self) -> list[native.Message]:
        """Everything that was said, in order."""
        return self._native.history()

    @property
    def turns(self) -> int:
        """How many questions have been answered."""
        return self._native.turns()

    def rewind(self, turns: int) -> None:
        """Goes back until so many turns are left."""
        self._native.rewind(turns)

    def undo(self) -> str | None:
        """Takes the last turn back; what was asked in it."""
        return self._native.undo()

    def fork(self) -> Chat:
        """Another conversation that goes on from here; the two share memory until either goes on."""
        return Chat(self._native.fork())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the conversation to a file."""
        self._native.save(os.fspath(path))

    def restore(self, path: str | os.PathLike[str]) -> str | None:
        """Goes on with a conversation in a file; the model that it was held with, where that was another one."""
        return self._native.restore(os.fspath(path))

    @property
    def cache_state(self) -> native.CacheState:
        """How much of the context is used."""
        return self._native.cache_state()

    def drop_oldest(self, turns: int) -> int:
        """Leaves out so many of the oldest turns that the model is shown; how many there were."""
        return self._native.drop_oldest(turns)

    def set_answering(self, **options: Any) -> None:
        """Changes what further answers shall be like."""
        self._native.set_answering(answering(options))


class Generation(Disposed):
    """Answers without a conversation; made by :meth:`Model.generation`."""

    def __init__(self, generation: native.Generation) -> None:
        self._native = generation

    def __enter__(self) -> Generation:
        return self

    def generate(
        self, messages: str | Iterable[native.Message | Mapping[str, Any]], tools: str | Json | None = None
    ) -> list[native.Answer]:
        """Answers a conversation, as often as ``answers`` asks for."""
        return self._native.generate(messages_of(messages), text_of(tools))

    def respond(
        self,
        messages: str | Iterable[native.Message | Mapping[str, Any]],
        listener: Listener | None = None,
        tools: str | Json | None = None,
    ) -> native.Answer:
        """Answers a conversation once, piece by piece to a listener."""
        return self._native.respond(messages_of(messages), text_of(tools), piece_listener(listener))

    def stream(
        self, messages: str | Iterable[native.Message | Mapping[str, Any]], tools: str | Json | None = None
    ) -> Stream:
        """The same, to be iterated over."""
        return Stream(self._native.stream(messages_of(messages), text_of(tools)))

    def stop(self) -> None:
        """Stops the answer that is being given, from any thread."""
        self._native.stop()
