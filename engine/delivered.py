"""Counts of what a request has delivered, and its stages' checkpoints, so that another replica can continue it.

The counts do not depend on how the stream was cut into chunks. They count samples of audio, frames of codes, characters
of text (or tokens without characters), and chunks of all other kinds. Tensors that are ``placed`` are sent again,
because their reader recognises what it already has.
"""

from __future__ import annotations

from typing import assert_never

from msgspec.structs import replace

from engine.chunk import (
    Audio,
    Bundle,
    Checkpoint,
    Chunk,
    Codes,
    Counts,
    Kind,
    Speech,
    Tensors,
    Text,
    ToolCall,
    ToolCallDelta,
    Transcript,
    Usage,
    VideoFrame,
    VoiceText,
)


def count(counts: Counts, chunk: Chunk) -> None:
    """Add a delivered chunk to the counts."""
    key, units = _units(chunk)
    counts[key] = counts.get(key, 0) + units


def kind_of(key: str) -> Kind:
    """Return the kind of the chunks that are counted under ``key``."""
    return key.partition(",")[0]


def fresh(owed: Counts, chunk: Chunk) -> Chunk | None:
    """Return the part of a chunk that has not been delivered before; None if all of the chunk has been delivered.

    ``owed`` counts the units that must still be skipped. This call subtracts the chunk's units from it.
    """
    key, units = _units(chunk)
    known = owed.get(key, 0)
    if known <= 0:
        return chunk
    owed[key] = known - units
    return None if known >= units else _behind(chunk, known)


def _behind(chunk: Chunk, known: int) -> Chunk:
    """Return a chunk without its first ``known`` units."""
    match chunk:
        case Text(text, start) | VoiceText(text, start):
            return replace(chunk, text=text[known:], start=start + known)
        case Audio(wave, marks):
            return Audio(wave[known:], marks)
        case Codes(frames, text_end):
            return Codes(frames[known:], text_end)
        case _:
            return chunk


class RecoveryLog:
    """The stored chunks of a request's stages (``StageInfo.checkpoints``), and their latest Checkpoints.

    Its size is bounded by the request's limits on tokens and audio.
    """

    def __init__(self) -> None:
        self._all: list[Chunk] = []
        self._checkpoints: dict[str, Checkpoint] = {}

    def note(self, chunk: Chunk) -> None:
        if isinstance(chunk, Checkpoint):
            self._checkpoints[chunk.stage] = chunk
        else:
            self._all.append(chunk)

    @property
    def kinds(self) -> frozenset[Kind]:
        return frozenset(chunk.kind for chunk in self._all)

    def chunks(self) -> tuple[Chunk, ...]:
        return (*self._all, *self._checkpoints.values())


def _units(chunk: Chunk) -> tuple[str, int]:
    """Return the key under which a chunk is counted, and its number of units; 0 units for a chunk that is sent again.

    Final transcripts have their own key: the number of preliminary ones depends on timing.
    """
    match chunk:
        case Audio(wave):
            return chunk.kind, len(wave)
        case Codes(frames):
            return chunk.kind, len(frames)
        case Text(text):
            return (chunk.kind, len(text)) if text else ("text, mute", 1)  # a token without characters
        case VoiceText(text):
            return chunk.kind, len(text)
        case Transcript():
            return ("transcript, final" if chunk.final else chunk.kind), 1
        case Tensors():
            return (f"{chunk.kind}, placed", 0) if chunk.placed else (chunk.kind, 1)
        case Speech() | VideoFrame() | ToolCallDelta() | ToolCall() | Usage() | Bundle() | Checkpoint():
            return chunk.kind, 1
        case _:
            assert_never(chunk)
