"""``POST /v1/audio/transcriptions``, through the official client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError

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
    long = encoded(np.tile(WAVE, 301), "flac")
    with pytest.raises(BadRequestError, match="longer than 300 s"):
        await openai.audio.transcriptions.create(model="script", file=("one.flac", long))


async def test_as_a_stream(openai: AsyncOpenAI) -> None:
    file = ("one.wav", encoded(WAVE, "wav"))
    stream: Any = await openai.audio.transcriptions.create(model="script", file=file, stream=True)
    events = [event async for event in stream]
    assert [event.type for event in events] == ["transcript.text.delta", "transcript.text.done"]
    assert [events[0].delta, events[1].text] == ["1.0 seconds"] * 2


async def test_an_upload_over_the_cap_is_refused_as_it_comes(openai: AsyncOpenAI) -> None:
    with pytest.raises(APIStatusError) as refused:
        await openai.audio.transcriptions.create(model="script", file=("one.wav", bytes(27 * 2**20)))
    assert (refused.value.status_code, refused.value.code) == (413, "request_too_large")


async def test_a_field_that_is_none_of_ours_is_named(openai: AsyncOpenAI) -> None:
    file = ("one.wav", encoded(WAVE, "wav"))
    with pytest.raises(BadRequestError) as refused:
        await openai.audio.transcriptions.create(model="script", file=file, response_format="srt")
    assert refused.value.param == "response_format"
