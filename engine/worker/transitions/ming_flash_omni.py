"""Ming-Flash-Omni, from the thinker to its voice: only text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.chunk import Chunk, Text, Usage, VoiceText
from engine.errors import StageFailed


class MingVoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The requested voice: a preset's name, or a sample's text and arrays in the talker's format."""

    name: str = "DB30"
    prompt_text: str | None = None
    speaker: NDArray[np.float32] | None = None
    """The speaker's embedding [1, width]."""
    prompt_latents: NDArray[np.float32] | None = None
    prompt_embedding: NDArray[np.float32] | None = None
    max_text_length: int = 50
    """Maximum characters that the talker speaks at once."""


class SpokenLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ming_flash_omni.line"):
    """The whole text of an answer, and its voice."""

    text: str
    voice: MingVoice


class MingText:
    """The text of one answer. Raises StageFailed for Tensors: this voice computes its own from the text."""

    def __init__(self, voice: MingVoice | None = None) -> None:
        self._voice = voice or MingVoice()
        self._pieces: list[str] = []

    def add(self, chunk: Chunk) -> Iterable[SpokenLine]:
        match chunk:
            case Text(text) | VoiceText(text):
                self._pieces.append(text)
            case Usage():
                pass
            case _:
                raise StageFailed(f"Ming-Flash-Omni's voice only takes text, not {chunk.kind}")
        return ()

    def end(self) -> SpokenLine:
        return SpokenLine("".join(self._pieces), self._voice)
