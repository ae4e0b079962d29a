"""Counts of the chunks that a request was given, and its stages' checkpoints, so that another replica can continue.

The counts do not depend on how the stream was cut into chunks: samples of audio, frames of codes, characters of text
(and tokens without any), and chunks of the other kinds. Tensors that are ``placed`` are sent again: their reader knows
which of them it has.
"""

from __future__ import annotations

from typing import assert_never

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
    """Note a chunk that was passed on."""
    key, units = _units(chunk)
    counts[key] = counts.get(key, 0) + units


def kind_of(key: str) -> Kind:
    """The kind of chunks that are counted as ``key``."""
    return key.partition(",")[0]


def fresh(owed: Counts, chunk: Chunk) -> Chunk | None:
    """Return the part of a chunk that has not been given before; ``owed`` is what is still to be left out, and shrinks
    by it."""
    key, units = _units(chunk)
    known = owed.get(key, 0)
    if known <= 0:
        return chunk
    owed[key] = known - units
    return None if known >= units else _behind(chunk, known)


def _behind(chunk: Chunk, known: int) -> Chunk:
    """A chunk without its first units."""
    match chunk:
        case Text(text, start, token_ids):
            return Text(text[known:], start + known, token_ids)
        case VoiceText(text, start):
            return VoiceText(text[known:], start + known)
        case Audio(wave, marks):
            return Audio(wave[known:], marks)
        case Codes(frames, text_end):
            return Codes(frames[known:], text_end)
        case _:
            return chunk


class RecoveryLog:
    """The checkpoints of a request's stages: chunks of ``StageInfo.checkpoints``, and their latest states.

    Bounded by the request's limits of tokens and frames.
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
    """Return the kind that a chunk is counted as, and its units of that kind; 0 for a chunk that is passed on again.

    How many preliminary transcripts come before the final one depends on the time; that the final one comes does not.
    """
    match chunk:
        case Audio(wave):
            return chunk.kind, len(wave)
        case Codes(frames):
            return chunk.kind, len(frames)
        case Text(text):
            return (chunk.kind, len(text)) if text else ("text, mute", 1)  # a token that has no characters
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
