"""Models as they are published, on the machine at hand.

    import pteron

    with pteron.Model.open("smollm2-135m") as model:
        chat = model.chat(system="Be brief.")
        for piece in chat.stream("Why is the sky blue?"):
            print(piece, end="", flush=True)

Errors are the classes inside :class:`PteronError`, such as ``PteronError.NotFound``.
"""

from __future__ import annotations

from ._chat import Chat, Generation, Stream
from ._errors import PteronError
from ._model import Model, requirements
from ._module import Module
from ._sound import Transcriber
from ._vectors import Embedder
from .pteron import (
    Answer,
    ArgumentKind,
    CacheState,
    Cancel,
    DType,
    Event,
    FinishReason,
    Heard,
    LiveSound,
    MemoryReport,
    Message,
    MethodMetadata,
    Precision,
    Requirements,
    Segment,
    Stats,
    ToolCall,
    Transcript,
    WhenFull,
    Word,
)

__all__ = [
    "Answer",
    "ArgumentKind",
    "CacheState",
    "Cancel",
    "Chat",
    "DType",
    "Embedder",
    "Event",
    "FinishReason",
    "Generation",
    "Heard",
    "LiveSound",
    "MemoryReport",
    "Message",
    "MethodMetadata",
    "Model",
    "Module",
    "Precision",
    "PteronError",
    "Requirements",
    "Segment",
    "Stats",
    "Stream",
    "ToolCall",
    "Transcriber",
    "Transcript",
    "WhenFull",
    "Word",
    "requirements",
]
