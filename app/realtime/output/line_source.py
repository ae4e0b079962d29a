"""The source of a response that is spoken while tools run: fixed lines, and a soft sound between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from msgspec.structs import replace

from app.realtime.ports import AnswerSource
from app.telemetry import log
from engine import SPEAKER_RATE_HZ, Audio, EngineError, ModelInfo, Output, Request, StageTime, Text
from engine.core import Wave


def _soft_sound(length_s: float = 0.25, pitch_hz: float = 520.0, peak: float = 0.04) -> Wave:
    """Return a quiet tone that swells and fades: float32 [samples] at SPEAKER_RATE_HZ. Speech has a peak of 0.3."""
    at_s = np.arange(round(length_s * SPEAKER_RATE_HZ)) / SPEAKER_RATE_HZ
    swell = np.sin(np.pi * at_s / length_s) ** 2
    return (peak * swell * np.sin(2 * np.pi * pitch_hz * at_s)).astype(np.float32)


SOUND = Audio(_soft_sound())


class LineSource:
    """Produces chunks like an engine. ``changed`` is called after each line."""

    def __init__(self, engine: AnswerSource, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._changed = changed
        self._lines = asyncio.Queue[str | None](2)  # one line and the end, since ``busy`` delays the next line
        self.busy = False
        """Whether a line is being produced."""

    @property
    def model(self) -> ModelInfo:
        return self._engine.model

    def say(self, text: str) -> None:
        """Speak a line; "" plays the soft sound."""
        self.busy = True
        self._lines.put_nowait(text)

    def end(self) -> None:
        """End the response after the current line."""
        self._lines.put_nowait(None)

    @asynccontextmanager
    async def open(self, request: Request, inputs: Any = None) -> AsyncGenerator[Any]:
        yield _LineChunks(self._produce(request))

    async def _produce(self, request: Request) -> AsyncGenerator[Output]:
        characters = samples = 0
        while (line := await self._lines.get()) is not None:
            if line:
                text = f"{' ' if characters else ''}{line}"
                yield Text(text, characters)
                characters += len(text)
                begun = samples
                before = characters - len(line)
                async for audio in self._spoken(replace(request, say=line)):
                    yield Audio(audio.wave, tuple((begun + at, before + end) for at, end in audio.marks))
                    samples += len(audio.wave)
            else:
                yield SOUND
                samples += len(SOUND.wave)
            self.busy = False
            self._changed()

    async def _spoken(self, request: Request) -> AsyncGenerator[Audio]:
        """Yield the audio of a line; the soft sound if the engine cannot speak it."""
        try:
            async with self._engine.open(request) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Audio):
                        yield chunk
        except EngineError as error:
            log("tool_speech.failed", session=request.session, code=error.code)
            yield SOUND


class _LineChunks:
    """The interface of ``engine.Chunks`` that a response uses. Reports of playback have no effect."""

    ledger = None

    def __init__(self, chunks: AsyncIterator[Output]) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._chunks

    def stage_times(self) -> tuple[StageTime, ...]:
        return ()

    def claim(self) -> None: ...

    def played(self, skipped_s: float = 0.0) -> None: ...
