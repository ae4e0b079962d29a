"""Runs one request for a command, passes its audio on, and keeps the answer.

Callbacks receive the text to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from app.commands.sink import Sink
from app.commands.source import Answered, Answerer
from engine import Audio, Codes, Ledger, Output, Request, Text, ToolCall, ToolCallDelta, Transcript, Usage
from engine.core import Wave


@dataclass(slots=True)
class ReceivedAnswer:
    """A received answer. ``codes`` and ``prompt_ids`` are filled only for a request with ``dump``."""

    pieces: list[str] = field(default_factory=list[str])
    text_ids: list[int] = field(default_factory=list[int])
    prompt_ids: list[int] = field(default_factory=list[int])
    codes: list[NDArray[np.int16]] = field(default_factory=list[NDArray[np.int16]])
    waves: list[Wave] = field(default_factory=list[Wave])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    finish: str = ""
    ledger: Ledger | None = None
    marks_ms: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Show:
    """Callbacks for the parts of an answer that are shown while they arrive."""

    text: Callable[[str], None] = lambda piece: None
    transcript: Callable[[str], None] = lambda text: None
    spoken: Callable[[int, int], None] = lambda text_end, samples: None


async def answer(source: Answerer, request: Request, sink: Sink, show: Show, result: ReceivedAnswer) -> None:
    """Run a request to its end and fill ``result`` incrementally, so that a cancelled answer's first part is kept.

    Raises EngineError, and ListenerGone if the reader of the audio has closed its pipe.
    """
    async with source.open(request) as chunks:
        async for chunk in chunks:
            await _take(chunk, chunks, result, sink, show)
        result.ledger = chunks.ledger
        result.marks_ms = chunks.marks_ms


async def _take(chunk: Output, chunks: Answered, result: ReceivedAnswer, sink: Sink, show: Show) -> None:
    match chunk:
        case Text(text, _, token_ids):
            result.pieces.append(text)
            result.text_ids += token_ids
            show.text(text)
        case Audio(wave):
            if not result.waves:
                chunks.played()
            result.waves.append(wave)
            show.spoken(chunk.text_end, len(wave))
            await sink.write(wave)
        case Codes(frames):
            result.codes.append(frames)
        case Transcript(text, final):
            if final:
                show.transcript(text)
        case ToolCall():
            result.calls.append(chunk)
        case Usage():
            result.finish = chunk.finish
            result.prompt_ids += chunk.prompt_ids
        case ToolCallDelta():
            pass
        case _:
            assert_never(chunk)


def save_dump(path: Path, result: ReceivedAnswer) -> None:
    """Write an answer as a NumPy archive.

    ``prompt_ids`` and ``text_ids`` int64 [n], ``codes`` int16 [frames, codebooks], ``pcm`` float32 [samples] at
    SPEAKER_RATE_HZ, and the timeline: ``mark_names`` with ``mark_ms`` since the commit, ``ledger_terms`` with
    ``ledger_ms``.
    """
    terms = result.ledger.terms if result.ledger else {}
    np.savez(
        path,
        prompt_ids=np.array(result.prompt_ids, np.int64),
        text_ids=np.array(result.text_ids, np.int64),
        codes=_joined(result.codes, np.zeros((0, 0), np.int16)),
        pcm=_joined(result.waves, np.zeros(0, np.float32)),
        mark_names=np.array(list(result.marks_ms), np.str_),
        mark_ms=np.array(list(result.marks_ms.values()), np.float64),
        ledger_terms=np.array(list(terms), np.str_),
        ledger_ms=np.array(list(terms.values()), np.float64),
    )


def _joined(parts: Iterable[NDArray[Any]], nothing: NDArray[Any]) -> NDArray[Any]:
    found = list(parts)
    return np.concatenate(found) if found else nothing
