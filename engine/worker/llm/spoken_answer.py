"""The spoken part of an answer, and the limits after which a spoken answer ends.

A language model may write a long row of emoji, which a voice cannot speak, repeat itself, or continue for minutes.
Spoken answers have limits for this; written ones do not.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator
from typing import assert_never

from engine.chunk import Chunk, Text, ToolCall, ToolCallDelta, Usage
from engine.errors import StageFailed
from engine.worker.llm.deltas import Delta, ReasoningDelta
from engine.worker.llm.repetition import Repetition
from engine.worker.llm.spoken_text import SpokenText
from engine.worker.tts.answer_audio import LETTER_S, letters_of
from engine.worker.tts.text_breaks import Breaks, Level

MOST_SILENT = 200
"""Consecutive characters without anything to speak after which a spoken answer ends; code blocks count a tenth."""
OVERTIME = 1.35
"""Multiple of the maximum speech length after which an answer ends at a word, if no sentence has ended before."""
LATEST = 1.5
"""The same after which it ends anywhere, such as in a long row of ideographs or in base64."""


async def read_aloud(
    deltas: AsyncIterator[Delta], speaks: bool = False, longest_s: float | None = None
) -> AsyncGenerator[Chunk]:
    """Yield an answer's chunks, with the text for the voice (VoiceText) after each piece.

    If the answer ``speaks``, it ends early, with the finish reason "length", after MOST_SILENT unspoken characters, or
    at the end of the first sentence after ``longest_s`` seconds of speech or after a loop. Raises StageFailed for a
    spoken answer that ends early without anything to speak.
    """
    aloud = SpokenText()
    end = _AnswerEnd(longest_s) if speaks else None
    pieces = 0
    async for delta in deltas:
        match delta:
            case Text(text):
                pieces += 1
                kept = text if end is None else end.within(text)
                yield delta if len(kept) == len(text) else Text(kept, delta.start)
                for piece in aloud.feed(kept):
                    if end is not None:
                        end.spoken(piece.text)
                    yield piece
                if end is not None and (end.reached or aloud.silent > MOST_SILENT):
                    for piece in aloud.flush():
                        yield piece
                    if not aloud.lettered:
                        raise StageFailed("The answer contains nothing that can be spoken. Ask for it in words.")
                    yield Usage(output_tokens=pieces, finish="length")
                    return
            case Usage():
                for piece in aloud.flush():
                    yield piece
                yield delta
            case ToolCallDelta() | ToolCall():
                yield delta
            case ReasoningDelta():
                pass  # reasoning is not spoken
            case _:
                assert_never(delta)


class _AnswerEnd:
    """Finds the end of an answer of at most ``longest_s`` seconds, or that repeats itself: between sentences, otherwise
    between words, otherwise anywhere.
    """

    def __init__(self, longest_s: float | None) -> None:
        self.reached = False
        self._most = math.inf if longest_s is None else longest_s / LETTER_S
        self._breaks = Breaks()
        self._repetition = Repetition()
        self._length = 0
        """The letters so far; a character that takes longer to say counts as several."""

    def within(self, text: str) -> str:
        """Return the part of the next piece that still belongs to the answer."""
        for i, character in enumerate(text):
            level = self._breaks.push(character)
            if self._length >= self._most and level is not None and level >= self._wanted:
                self.reached = True
                return text[:i]
            self._length += letters_of(character)
        return text

    @property
    def _wanted(self) -> Level:
        """The lowest level of a place at which the answer may end now."""
        if self._length < OVERTIME * self._most:
            return Level.SENTENCE
        return Level.WORD if self._length < LATEST * self._most else Level.GRAPHEME

    def spoken(self, text: str) -> None:
        """Note what the voice receives. If it repeats itself, the answer ends with its sentence."""
        for character in text:
            self._repetition.push(character)
        if self._repetition.found:
            self._most = min(self._most, self._length)
