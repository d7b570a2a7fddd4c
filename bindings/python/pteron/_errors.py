"""Errors, with their words as what they print."""

from __future__ import annotations

from .pteron import PteronError


def _words(error: PteronError) -> str:
    fields = vars(error)
    if "reason" in fields:
        return str(fields["reason"])
    kind = type(error).__name__.rsplit(".", 1)[-1]
    return f"{kind}: {fields['what']}" if "what" in fields else kind


for _kind in list(vars(PteronError).values()):
    if isinstance(_kind, type) and issubclass(_kind, PteronError):
        _kind.__str__ = _words  # type: ignore[method-assign]

__all__ = ["PteronError"]
