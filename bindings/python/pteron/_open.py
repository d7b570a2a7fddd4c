"""How models are opened: keywords as records, functions as listeners, the folders that the command line uses too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from . import pteron as native

Progress = Callable[[native.Event], object]
"""Told what happens; what gives ``False`` back cancels the opening."""


class Opening(TypedDict, total=False):
    """How a model is opened; see ``OpenOptions`` for what each means."""

    home: str | os.PathLike[str] | None
    settings: str | os.PathLike[str] | None
    tokenizer: str | os.PathLike[str] | None
    context: int | None
    memory_limit: int | None
    backend: str | None
    threads: int | None
    precision: native.Precision | None
    untrusted: bool
    hub_token: str | None


class _ProgressListener(native.ProgressListener):
    def __init__(self, function: Progress) -> None:
        self._function = function

    def progress(self, event: native.Event) -> bool:
        return self._function(event) is not False


def progress_listener(function: Progress | None) -> native.ProgressListener | None:
    return None if function is None else _ProgressListener(function)


def places() -> tuple[Path, Path]:
    """The folders for models and for settings: those of the command line."""
    home = os.environ.get("PTERON_HOME", "").strip()
    if home:
        return Path(home), Path(home)
    if sys.platform == "win32":
        local, roaming = os.environ.get("LOCALAPPDATA", ""), os.environ.get("APPDATA", "")
        return Path(local) / "pteron" / "cache", Path(roaming) / "pteron" / "config"
    user = Path.home()
    if sys.platform == "darwin":
        return user / "Library/Caches/pteron", user / "Library/Application Support/pteron"

    def folder(variable: str, usual: str) -> Path:
        named = Path(os.environ.get(variable, ""))
        return (named if named.is_absolute() else user / usual) / "pteron"

    return folder("XDG_CACHE_HOME", ".cache"), folder("XDG_CONFIG_HOME", ".config")


def record(options: Opening) -> native.OpenOptions:
    models, settings = places()
    chosen = dict(options)
    if chosen.get("home") is None:
        chosen["home"] = models
        chosen["settings"] = chosen.get("settings") or settings
    if chosen.get("hub_token") is None:
        chosen["hub_token"] = os.environ.get("HF_TOKEN") or None
    for name in ("home", "settings", "tokenizer"):
        if chosen.get(name) is not None:
            chosen[name] = os.fspath(chosen[name])  # type: ignore[call-overload]
    return native.OpenOptions(**chosen)  # type: ignore[arg-type]
