"""``POST /v1/audio/transcriptions``, through the official client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from app.http.sound import Format, encoded
from tests.app.http.test_sound import WAVE


@pytest.mark.parametrize("format", ["wav", "flac", "opus"])
async def test_a_recording_is_heard(format: Format, openai: AsyncOpenAI) -> None:
    file = (f"one.{format}", encoded(WAVE, format))
    heard: Any = await openai.audio.transcriptions.create(model="script", file=file)
    assert heard.text == "1.0 seconds"
    assert heard.usage.seconds == pytest.approx(1.0, abs=0.05)


async def test_as_text(openai: AsyncOpenAI) -> None:
    file = ("one.wav", encoded(WAVE, "wav"))
    heard: Any = await openai.audio.transcriptions.create(model="script", file=file, response_format="text")
    assert heard.strip() == "1.0 seconds"


async def test_what_is_no_recording_or_too_long_is_refused(openai: AsyncOpenAI) -> None:
    with pytest.raises(BadRequestError):
        await openai.audio.transcriptions.create(model="script", file=("one.wav", b"RIFFxxxx"))
    with pytest.raises(NotFoundError):
        await openai.audio.transcriptions.create(model="whisper-1", file=("one.wav", encoded(WAVE, "wav")))
    long = encoded(np.tile(WAVE, 301), "flac")
    with pytest.raises(BadRequestError, match="longer than 300 s"):
        await openai.audio.transcriptions.create(model="script", file=("one.flac", long))
