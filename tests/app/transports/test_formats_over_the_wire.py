"""Telephone formats and transcription sessions over a real socket."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from app.media import g711
from engine.audio.resampler import resample
from tests.app.conftest import Talking
from tests.app.rig import Client, Running, silence, tone

LAWS = {"audio/pcmu": (g711.encode_ulaw, g711.decode_ulaw), "audio/pcma": (g711.encode_alaw, g711.decode_alaw)}


def pitch_hz(pcm: Any, rate_hz: int) -> float:
    return float(np.argmax(np.abs(np.fft.rfft(pcm * np.hanning(len(pcm)), rate_hz)))) if len(pcm) else 0.0


@pytest.mark.parametrize("law", sorted(LAWS))
async def test_a_telephone_is_heard_and_spoken_to(law: str, client: Any) -> None:
    encode, decode = LAWS[law]
    session = await client.configure(audio={"input": {"format": {"type": law}}, "output": {"format": {"type": law}}})
    assert session["audio"]["input"]["format"] == session["audio"]["output"]["format"] == {"type": law}
    pcm = resample(np.concatenate([tone(0.6), silence(0.8)]), 24_000, g711.RATE_HZ)
    for at in range(0, len(pcm), 160):
        audio = base64.b64encode(encode(pcm[at : at + 160])).decode()
        await client.send("input_audio_buffer.append", audio=audio)
    response = (await client.until("response.done"))["response"]
    assert response["audio"]["output"]["format"] == {"type": law}
    stopped = client.of("input_audio_buffer.speech_stopped")[0]
    assert stopped["audio_end_ms"] == pytest.approx(600 + 500, abs=70)
    spoken = decode(b"".join(base64.b64decode(event["delta"]) for event in client.of("response.output_audio.delta")))
    words = len(response["output"][0]["content"][0]["transcript"].split())
    assert len(spoken) / g711.RATE_HZ == pytest.approx(words * 0.08, abs=0.002)  # two frames of 40 ms a word
    assert 200 < pitch_hz(spoken[:640], g711.RATE_HZ) < 600


async def test_a_clip_of_an_item_is_in_the_session_s_format(client: Any) -> None:
    await client.configure(audio={"input": {"format": {"type": "audio/pcmu"}, "turn_detection": None}})
    audio = base64.b64encode(bytes(8_000)).decode()
    content = [{"type": "input_audio", "audio": audio}]
    await client.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    item = (await client.until("conversation.item.done"))["item"]
    await client.send("conversation.item.retrieve", item_id=item["id"])
    retrieved = (await client.until("conversation.item.retrieved"))["item"]
    assert len(base64.b64decode(retrieved["content"][0]["audio"])) == pytest.approx(48_000, abs=200)  # a second


@pytest.fixture
async def scribe(server: Running, talk: Talking) -> Any:
    async with talk(server, "?intent=transcription") as one:
        yield one


async def test_a_transcription_session_hears_and_never_answers(scribe: Client) -> None:
    session = scribe.of("session.created")[0]["session"]
    assert (session["type"], session["object"]) == ("transcription", "realtime.transcription_session")
    assert set(session) == {"id", "object", "type", "expires_at", "include", "audio", "parley"}
    assert session["audio"]["input"]["transcription"]["model"] is None
    await scribe.append(np.concatenate([tone(0.6), silence(0.8)]))
    completed = await scribe.until("conversation.item.input_audio_transcription.completed")
    assert completed["transcript"].endswith("seconds")
    assert completed["usage"] == {"type": "duration", "seconds": pytest.approx(1.1, abs=0.1)}
    await scribe.send("response.create")
    assert (await scribe.error())["code"] == "invalid_request"
    assert not scribe.of("response.created")


async def test_a_session_s_kind_stays(scribe: Client) -> None:
    await scribe.send("session.update", session={"type": "realtime"})
    assert (await scribe.error())["param"] == "session.type"
    await scribe.send("session.update", session={"type": "transcription", "audio": {"input": {"turn_detection": None}}})
    assert (await scribe.until("session.updated"))["session"]["audio"]["input"]["turn_detection"] is None


async def test_other_transcription_models_are_echoed_and_the_loaded_one_hears(client: Any) -> None:
    session = await client.configure(audio={"input": {"transcription": {"model": "whisper-9", "language": "en"}}})
    assert session["audio"]["input"]["transcription"]["model"] == "whisper-9"
    assert session["parley"]["model"] == "script"


async def test_silence_for_too_long_is_answered(client: Any) -> None:
    detection = {"type": "server_vad", "idle_timeout_ms": 1000}
    await client.configure(audio={"input": {"turn_detection": detection}})
    await client.append(silence(3.0))
    await client.ask("say: hello")  # silence counts from an answer on
    sent_ms = 3000
    for _ in range(40):
        await client.append(silence(0.1))
        sent_ms += 100
    triggered = await client.until("input_audio_buffer.timeout_triggered")
    assert triggered["audio_end_ms"] - triggered["audio_start_ms"] == pytest.approx(1000, abs=40)
    assert 3000 - 40 <= triggered["audio_start_ms"] <= sent_ms
    committed = await client.until("input_audio_buffer.committed")
    assert committed["item_id"] == triggered["item_id"]
    done = await client.until("response.done")
    assert done["response"]["output"][0]["content"][0]["transcript"].startswith("I heard 1.0")
