"""A duplex conversation over a WebSocket: the model greets, hears, answers, and falls silent when it is interrupted."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from app.transports.websocket import SocketTransport
from engine import EngineSpec
from tests.app.rig import Client, Running, eventually, running, silence, talking, tone
from tests.app.scripted import duplex_spec

LONG = "say: " + " ".join(f"word{n}" for n in range(60))


async def words(client: Client) -> str:
    """The transcript of the next response."""
    return (await client.until("response.done"))["response"]["output"][0]["content"][0]["transcript"]


@pytest.mark.slow
async def test_the_model_greets_and_answers_what_it_hears(duplex: Running) -> None:
    async with talking(duplex) as client:
        assert client.events[0]["session"]["audio"]["input"]["turn_detection"] is None
        await client.configure(instructions="say: good day")
        await client.append(silence(0.02))
        assert await words(client) == "good day"
        assert client.audio_s() >= 2 * 3 * 0.08
        await client.append(tone(0.16))
        assert await words(client) == "I heard 1 word."
        assert not client.of("input_audio_buffer.speech_started")
        assert not client.of("error")
    await duplex.empty()


@pytest.mark.slow
async def test_the_model_falls_silent_when_the_user_interrupts(duplex: Running) -> None:
    async with talking(duplex) as client:
        await client.configure(instructions=LONG)
        await client.append(silence(0.02))
        await client.until("response.output_audio.delta")
        await client.append(tone(0.4))
        assert len((await words(client)).split()) < 20
        assert client.of("response.done")[0]["response"]["status"] == "completed"
    await duplex.empty()


async def test_a_client_cancels_the_speech(duplex: Running) -> None:
    async with talking(duplex) as client:
        await client.configure(instructions=LONG)
        await client.append(silence(0.02))
        await client.until("response.output_audio.delta")
        await client.send("response.cancel")
        done = await client.until("response.done")
        assert done["response"]["status"] == "cancelled"
        assert done["response"]["status_details"]["reason"] == "client_cancelled"
    await duplex.empty()


async def test_a_client_that_vanishes_frees_its_slot(duplex: Running) -> None:
    async with talking(duplex) as client:
        await client.append(silence(0.02))
        await eventually(lambda: duplex.metric("parley_stage_leased", stage="duplex") == 1)
    await duplex.empty()


async def test_a_full_model_refuses_the_next_session() -> None:
    async with running(narrow(duplex_spec())) as server:
        async with talking(server) as client:
            await client.append(silence(0.02))
            await eventually(lambda: server.metric("parley_stage_leased", stage="duplex") == 1)
            with pytest.raises(InvalidStatus) as refused:
                async with talking(server):
                    pass
            assert refused.value.response.status_code == 503
            assert b"server_full" in refused.value.response.body
            await client.configure(instructions="say: still here")  # the model starts anew, in the same slot
            await client.until("response.output_audio.delta")
            assert not client.of("error")
        await server.empty()


def narrow(spec: EngineSpec) -> EngineSpec:
    """The deployment with one slot."""
    return replace(spec, workers=tuple(replace(worker, max_batch=1) for worker in spec.workers))


@pytest.mark.slow
async def test_a_whole_recording_at_once_is_heard_in_real_time(duplex: Running) -> None:
    """Four words, sent in one message."""
    recording = np.concatenate([np.concatenate([tone(0.16), silence(0.08)]) for _ in range(4)])
    async with talking(duplex) as client:
        await client.append(recording)
        assert (await words(client)).startswith("I heard")
    await duplex.empty()


@pytest.mark.slow
async def test_a_client_that_never_reads_loses_audio_and_no_memory_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(duplex_spec(limits={"send_timeout_s": 30})) as server, talking(server) as client:
        await client.configure(instructions=LONG)
        reads = asyncio.Event()
        send = SocketTransport.send

        async def stuck(self: SocketTransport, text: str) -> None:
            await reads.wait()
            await send(self, text)

        monkeypatch.setattr(SocketTransport, "send", stuck)
        await client.append(silence(0.02))
        await eventually(lambda: server.metric("parley_duplex_dropped_seconds_total", what="unread") > 0.3)
        reads.set()
        await client.until("response.output_audio.delta")
        await client.send("response.cancel")
        await client.until("response.done")
        assert client.audio_s() < 2.0
