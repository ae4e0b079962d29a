"""``POST /v1/speakers``: enrolment with consent, and the voiceprint in a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from typing import Any

import httpx
import numpy as np
import pytest

from app.http.sound import encoded
from app.realtime.inference_thread import InferenceThread
from tests.app.rig import LoudnessVad, Running, running, script_spec, silence, talking
from tests.app.voices import PitchEncoder, other, user


@pytest.fixture(autouse=True)
def judgements_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sound comes faster than in real time, and must not overtake them on a busy machine."""

    def run(_: InferenceThread, work: Callable[[Any], Any], pcm: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(work(pcm))
        return done

    monkeypatch.setattr(InferenceThread, "run", run)


@pytest.fixture
async def server() -> AsyncGenerator[Running]:
    async with running(script_spec(), vad=LoudnessVad) as one:
        one.service.speaker_encoder = PitchEncoder()
        yield one


async def enrol(server: Running, pcm: Any, **form: str) -> httpx.Response:
    wave = np.divide(pcm, 32768, dtype=np.float32)
    files = {"file": ("voice.wav", encoded(wave, "wav"))}
    async with httpx.AsyncClient(base_url=server.http) as http:
        return await http.post("/v1/speakers", files=files, data=form)


async def test_a_voiceprint_opens_turns_for_its_voice_alone(server: Running) -> None:
    answer = await enrol(server, np.concatenate([silence(1.0), user(4.0)]), consent="true")
    assert (answer.status_code, answer.json().keys()) == (200, {"voiceprint"})
    detection = {"type": "server_vad", "speaker": "enrolled", "voiceprint": answer.json()["voiceprint"]}
    async with talking(server) as client:
        await client.configure(audio={"input": {"turn_detection": detection}})
        await client.append(np.concatenate([other(2.0), silence(1.0)]))
        await client.append(np.concatenate([user(2.0), silence(1.0)]))
        started = await client.until("input_audio_buffer.speech_started")
        assert started["audio_start_ms"] == pytest.approx(2700, abs=100)
        assert len(client.of("input_audio_buffer.speech_started")) == 1


@pytest.mark.parametrize(
    ("pcm", "form", "code", "words"),
    [
        (user(4.0), {}, "consent_required", "ask them, then send consent=true"),
        (user(4.0), {"consent": "false"}, "consent_required", "ask them, then send consent=true"),
        (silence(4.0), {"consent": "true"}, "invalid_value", "has 0.0 s of speech: send at least 3 s"),
        (user(0.2), {"consent": "true"}, "invalid_value", "has 0.2 s of speech: send at least 3 s"),
        (
            np.concatenate([user(3.0), other(3.0)]),
            {"consent": "true"},
            "invalid_value",
            "several voices: record one person alone",
        ),
    ],
)
async def test_a_bad_enrolment_gets_one_clear_error(
    server: Running, pcm: Any, form: dict[str, str], code: str, words: str
) -> None:
    answer = await enrol(server, pcm, **form)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, code)
    assert words in error["message"]


async def test_a_server_without_the_model_names_the_command(server: Running) -> None:
    server.service.speaker_encoder = None
    answer = await enrol(server, user(4.0), consent="true")
    assert answer.status_code == 400
    assert "parley pull campplus" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"audio": {"input": {"turn_detection": {"speaker": "first"}}}}, "session.audio.input.turn_detection.speaker"),
        ({"parley": {"speakers": True}}, "session.parley.speakers"),
    ],
)
async def test_a_session_without_the_model_gets_one_error_and_goes_on(
    server: Running, session: dict[str, Any], param: str
) -> None:
    server.service.speaker_encoder = None
    async with talking(server) as client:
        await client.send("session.update", session={"type": "realtime", **session})
        error = await client.error()
        assert (error["code"], error["param"]) == ("unsupported_value", param)
        assert "parley pull campplus" in error["message"]
        await client.alive()


async def test_enrolled_without_a_voiceprint_is_refused(server: Running) -> None:
    async with talking(server) as client:
        detection = {"speaker": "enrolled"}
        await client.send(
            "session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
        )
        error = await client.error()
        assert error["param"] == "session.audio.input.turn_detection.voiceprint"
        await client.alive()


async def test_labels_come_as_an_event_of_our_own(server: Running) -> None:
    async with talking(server) as client:
        await client.configure(
            parley={"speakers": True}, audio={"input": {"turn_detection": {"create_response": False}}}
        )
        await client.append(np.concatenate([user(2.0), silence(1.5)]))
        while not (labels := client.of("parley.input_audio_transcription.speaker")):
            await client.append(silence(0.1))  # the microphone goes on
            await client.alive()
        found = labels[0]
        assert found["speaker"] == "speaker_1"
        assert found["item_id"] == client.of("input_audio_buffer.committed")[0]["item_id"]


async def test_a_server_whose_setting_needs_the_model_says_once_that_it_is_missing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.service.speaker_encoder", lambda: None)
    caplog.set_level("INFO", "parley")
    async with running(script_spec(turns={"speaker": "first"}), vad=LoudnessVad) as server:
        for _ in range(2):
            async with talking(server) as client:
                await client.append(user(0.5))
                await client.until("input_audio_buffer.speech_started")
    said = [record.message for record in caplog.records if "speaker.unavailable" in record.message]
    assert len(said) == 1
    assert "parley pull campplus" in said[0]


async def test_the_servers_setting_is_that_of_sessions_which_set_none(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = PitchEncoder()
    monkeypatch.setattr("app.service.speaker_encoder", lambda: encoder)
    async with running(script_spec(turns={"speaker": "first"}), vad=LoudnessVad) as server, talking(server) as client:
        await client.append(np.concatenate([user(4.0), silence(1.0)]))
        await client.until("input_audio_buffer.committed")
        await client.append(np.concatenate([other(2.0), silence(1.0), user(2.0), silence(1.0)]))
        await client.until("input_audio_buffer.committed")
    assert len(client.of("input_audio_buffer.speech_started")) == 2
    assert encoder.heard
