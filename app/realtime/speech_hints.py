"""Hints for the ASR model in a session's settings: languages, a prompt and keywords."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from app.realtime.protocol import SessionOptions
from engine import ModelInfo
from engine.core import NO_HINTS, Hint, SpeechHints

_HINTS: dict[str, Hint] = {"language": "language", "languages": "language", "prompt": "prompt", "keywords": "keywords"}
"""The kind of hint in each field of ``Transcription``."""


def speech_hints(options: SessionOptions) -> SpeechHints:
    """Return the hints for the ASR model in a session's settings."""
    wanted = options.audio.input.transcription
    if wanted is None:
        return NO_HINTS
    languages = [wanted.language or "", *(wanted.languages or ())]
    return SpeechHints(
        languages=tuple(dict.fromkeys(one for one in languages if one)),
        prompt=wanted.prompt or "",
        keywords=tuple(one for one in wanted.keywords or () if one.strip()),
    )


def spoken_languages(options: SessionOptions, model: ModelInfo) -> tuple[str, ...]:
    """Return the languages that the user may speak: the hints, or else those of the ASR model, or else English."""
    return speech_hints(options).languages or model.heard_languages or ("en",)


def ignored_hints(options: SessionOptions, model: ModelInfo) -> list[str]:
    """Return the fields of ``Transcription`` with hints that the ASR model does not use."""
    wanted = options.audio.input.transcription
    return [name for name, kind in _HINTS.items() if kind not in model.hints and getattr(wanted, name, None)]


def without_ignored_hints(options: SessionOptions, model: ModelInfo) -> SessionOptions:
    """Return the settings to show to the client: hints without effect are left out, like unknown fields."""
    audio, wanted = options.audio, options.audio.input.transcription
    ignored = ignored_hints(options, model)
    if wanted is None or not ignored:
        return options
    shown = replace(wanted, **dict.fromkeys(ignored, msgspec.UNSET))
    return replace(options, audio=replace(audio, input=replace(audio.input, transcription=shown)))
