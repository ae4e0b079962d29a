"""The benchmark of live captions: where speech starts in a recording, and which event counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import soundfile

from app.client.events import Other
from benchmarks.captions import DELTA, SPOKEN, first_words_ms, recording
from benchmarks.pauses_at_once import LEAD_S
from engine import SPEAKER_RATE_HZ


class Client:
    """Receives these events at once, and never finishes speaking."""

    def __init__(self, *types: str) -> None:
        self._types = types

    async def events(self) -> AsyncIterator[Other]:
        for type in self._types:
            yield Other(type, {})

    async def speak(self, pcm: Any) -> None:
        await asyncio.Event().wait()


def test_the_speech_of_a_recording_is_found() -> None:
    path = sorted(SPOKEN.glob("*.ogg"))[0]
    wave, start_s, end_s = recording(path)
    assert LEAD_S <= start_s < end_s <= LEAD_S + soundfile.info(path).duration
    loud = np.abs(wave.astype(int)) > 0.1 * np.abs(wave.astype(int)).max()
    assert abs(np.flatnonzero(loud)[0] / SPEAKER_RATE_HZ - start_s) < 0.1


async def test_only_a_delta_of_the_transcript_counts() -> None:
    wave = np.zeros(0, np.int16)
    with_words: Any = Client("input_audio_buffer.committed", DELTA)
    without: Any = Client("conversation.item.input_audio_transcription.partial")
    assert await first_words_ms(with_words, wave, 0.0) is not None
    assert await first_words_ms(without, wave, 0.0) is None
