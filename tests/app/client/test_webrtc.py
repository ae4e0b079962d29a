"""The typed client over a call: the same conversation as over a socket, with sound over RTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from app.client import AudioDelta, ClientError, connect
from app.client.events import Other
from app.client.webrtc import CallChannel
from tests.app.rig import Running, keys_file, running, script_spec, silence, tone


async def test_a_typed_question_is_answered_aloud(server: Running) -> None:
    async with connect(server.http, transport="webrtc") as client:
        asked_s = asyncio.get_running_loop().time()
        answer = await client.ask("say: one two three four five")
        assert (answer.status, answer.text) == ("completed", "one two three four five")
        assert answer.ttfa_s is not None
        assert 0 < answer.ttfa_s < asyncio.get_running_loop().time() - asked_s
        assert 0.2 < np.count_nonzero(np.abs(answer.pcm) > 300) / 24_000 < 0.4  # 0.3 s of tones, some of it near zero
    await server.empty()


async def test_sound_that_overtakes_its_event_is_heard() -> None:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    line = CallChannel(connection)
    try:
        line._add_samples(tone(0.02))
        line._take(b'{"type": "output_audio_buffer.started", "event_id": "e", "response_id": "resp_1"}')
        line._add_samples(tone(0.02)[::-1])
        begun, first, second = [await line.receive() for _ in range(3)]
        assert isinstance(begun, Other)
        assert [event.delta for event in (first, second) if isinstance(event, AudioDelta)] == [
            tone(0.02).tobytes(), tone(0.02)[::-1].tobytes(),
        ]  # fmt: skip
    finally:
        line.close()
        await connection.close()


async def test_a_call_that_has_ended_says_so_each_time() -> None:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    line = CallChannel(connection)
    line.close()
    await connection.close()
    async with asyncio.timeout(20):
        for _ in range(2):
            with pytest.raises(ClientError, match="has ended"):
                await line.receive()


async def test_a_spoken_turn(server: Running) -> None:
    async with connect(server.http, transport="webrtc") as client:
        await client.speak(np.concatenate([silence(0.2), tone(0.5)]))
        client.speech_ended()
        hush = asyncio.create_task(client.speak(silence(30)), name="hush")
        answer = await client.answer()
        hush.cancel()
        await asyncio.wait([hush])
        assert answer.text.startswith("I heard")
        assert answer.complete


async def test_an_interruption_is_the_server_s_to_measure(server: Running) -> None:
    async with connect(server.http, transport="webrtc") as client:
        events = client.events()
        asking = asyncio.create_task(client.ask("long 50"), name="asking")
        async for event in events:
            if isinstance(event, AudioDelta):
                break
        await client.interrupt()
        answer = await asking
        assert answer.status == "cancelled"
        assert len(answer.pcm) < 50 * 2 * 960 / 2  # less than half of it was played
        assert (await client.ask("say: and on")).text == "and on"


async def test_a_server_that_goes_ends_the_call() -> None:
    async with running(script_spec(drain_s=0)) as server, connect(server.http, transport="webrtc") as client:
        listening = asyncio.create_task(client.answer(), name="listening")
        await asyncio.sleep(0)
        server.server.leave()
        with pytest.raises(ClientError, match="the call has ended"):
            await listening
        with pytest.raises(ClientError):
            await client.say("too late")


async def test_a_proxy_of_the_environment_is_not_asked(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with connect(server.http, transport="webrtc", key="sk-one-0123456789") as client:
        assert client.session["model"] == "script"


async def test_a_timeout_of_the_block_is_its_own(server: Running) -> None:
    with pytest.raises(TimeoutError, match="mine"):
        async with connect(server.http, transport="webrtc"):
            raise TimeoutError("mine")


async def test_a_refusal_is_in_the_server_s_words(tmp_path: Path) -> None:
    async with running(script_spec(keys_file=keys_file(tmp_path, "sk-one-0123456789"))) as server:
        with pytest.raises(ClientError, match="API key"):
            async with connect(server.http, transport="webrtc"):
                pass
        async with connect(server.http, transport="webrtc", key="sk-one-0123456789") as client:
            assert (await client.ask("say: open")).text == "open"
    for url in ("ftp://x", "http://127.0.0.1:1"):
        with pytest.raises(ClientError):
            async with connect(url, transport="webrtc"):
                pass
