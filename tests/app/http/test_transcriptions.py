"""``POST /v1/audio/transcriptions``, through the official client."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError

from app.http.sound import Format, encoded
from engine import StageSpec
from tests.app.http.test_sound import WAVE
from tests.app.media.test_audio import KINDS, recorded
from tests.app.rig import LoudnessVad, running, script_spec


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


async def test_with_times(openai: AsyncOpenAI) -> None:
    """The voice begins after one second."""
    pcm = np.concatenate([np.zeros_like(WAVE), WAVE])
    heard: Any = await openai.audio.transcriptions.create(
        model="whisper-1",
        file=("one.wav", encoded(pcm, "wav")),
        response_format="verbose_json",
        timestamp_granularities=["segment"],
    )
    assert (heard.text, heard.language, heard.duration) == ("2.0 seconds", "en", 2.0)
    assert heard.segments[0].start == pytest.approx(1.0, abs=0.04)
    assert heard.segments[0].end == pytest.approx(2.0, abs=0.04)
    assert heard.words is None


@pytest.mark.parametrize(("format", "begins"), [("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n\n00:00:0")])
async def test_as_subtitles(format: Any, begins: str, openai: AsyncOpenAI) -> None:
    file = ("one.wav", encoded(WAVE, "wav"))
    heard: Any = await openai.audio.transcriptions.create(model="whisper-1", file=file, response_format=format)
    assert heard.startswith(begins)
    assert heard.endswith("\n1.0 seconds\n")


@pytest.mark.parametrize("kind", ["webm", "m4a", "mp4 with pictures", "webm with pictures"])
async def test_what_browsers_and_phones_record_is_heard(kind: str, openai: AsyncOpenAI) -> None:
    file = (f"one.{kind[:4].strip()}", recorded(*KINDS[kind]))
    heard: Any = await openai.audio.transcriptions.create(model="whisper-1", file=file)
    assert heard.text == "2.0 seconds"


async def test_a_long_recording_never_lies_in_a_file(openai: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    on_disk: list[object] = []
    rollover = SpooledTemporaryFile.rollover

    def noted(self: SpooledTemporaryFile[bytes]) -> None:
        on_disk.append(self)
        rollover(self)

    monkeypatch.setattr(SpooledTemporaryFile, "rollover", noted)
    file = ("one.wav", encoded(np.tile(WAVE, 60), "wav"))
    assert len(file[1]) > 2_000_000
    heard: Any = await openai.audio.transcriptions.create(model="script", file=file)
    assert heard.text == "60.0 seconds"
    assert not on_disk


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"timestamp_granularities": ["word"], "response_format": "verbose_json"}, "timestamp_granularities[]"),
        ({"timestamp_granularities": ["word"], "response_format": "json"}, "timestamp_granularities[]"),
        ({"timestamp_granularities": ["segment"] * 9, "response_format": "verbose_json"}, "timestamp_granularities[]"),
        ({"include": ["logprobs"]}, "include[]"),
        ({"response_format": "diarized_json"}, "response_format"),
    ],
)
async def test_what_cannot_be_told_is_refused(fields: Any, param: str, openai: AsyncOpenAI) -> None:
    file = ("one.wav", encoded(WAVE, "wav"))
    with pytest.raises(BadRequestError) as refused:
        await openai.audio.transcriptions.create(model="script", file=file, **fields)
    assert refused.value.param == param


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


async def test_words_have_times_where_the_ears_tell_them(tmp_path: Path) -> None:
    """sherpa-onnx itself, with networks of a few nodes; its words and times are those of the library alone."""
    pytest.importorskip("sherpa_onnx")
    from tests.engine.worker.stages.asr import tiny_ears

    folder = tiny_ears.transducer(tmp_path / "tiny-en")
    stages = (
        StageSpec(use="asr.sherpa", name="ears", weights=str(folder)),
        StageSpec(use="script.thinker", name="thinker"),
    )
    spec = dataclasses.replace(script_spec(), model=None, options={}, stages=stages, workers=(), name="tiny")
    wave = np.divide(tiny_ears.speech(3, 5), 32768, dtype=np.float32)
    sound = np.interp(np.arange(0, len(wave), 2 / 3), np.arange(len(wave)), wave).astype(np.float32)
    async with running(spec, vad=LoudnessVad) as server:
        client = AsyncOpenAI(api_key="none", base_url=f"{server.http}/v1", max_retries=0)
        heard: Any = await client.audio.transcriptions.create(
            model="whisper-1", file=("one.wav", encoded(sound, "wav")), response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )  # fmt: skip
        await client.close()
    assert len(heard.words) > 5
    assert [word.word for word in heard.words] == heard.text.split()
    assert all(0 <= one.start <= one.end <= 3.3 for one in heard.words)
    assert [one.start for one in heard.words] == sorted(one.start for one in heard.words)
    assert " ".join(segment.text for segment in heard.segments) == heard.text
    assert all(segment.avg_logprob < 0 for segment in heard.segments)
