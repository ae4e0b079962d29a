"""A Live session with a duplex model: its continuous output is the protocol's own."""

from __future__ import annotations

import pytest

from tests.app.live.caller import SOUND, dialled
from tests.app.live.test_live_socket import ended, loud
from tests.app.rig import Running, silence, tone


@pytest.mark.slow
async def test_the_model_greets_and_answers_what_it_hears(duplex: Running) -> None:
    async with dialled(duplex) as client:
        await client.start(instructions="say: good day")
        await client.append(silence(0.02))
        await client.until("session.usage.updated")
        assert client.words() == "good day"
        await client.append(tone(0.16))
        await client.until("session.usage.updated")
        assert client.words() == "good day I heard 1 word."
        assert loud(client.samples) > 0.5 * 24_000
        assert not client.of("session.input_transcript.delta")
        assert await ended(client) == "close_requested"
    await duplex.empty()


async def test_words_have_their_place_in_the_sound(duplex: Running) -> None:
    async with dialled(duplex) as client:
        await client.start(instructions="say: one two")
        await client.append(silence(0.02))
        await client.until("session.usage.updated")
        told = client.of("session.output_transcript.delta")
        assert "".join(one["delta"] for one in told) == "one two"
        assert all(one["start_ms"] <= one["end_ms"] for one in told)
        assert told[0]["end_ms"] <= told[1]["end_ms"]
    await duplex.empty()


async def test_what_the_model_can_not_read_is_refused(duplex: Running) -> None:
    async with dialled(duplex) as client:
        await client.start()
        await client.say("say: something")
        assert (await client.error())["code"] == "not_supported"
        await client.until(SOUND)
        assert await ended(client) == "close_requested"
    await duplex.empty()


async def test_a_muted_client_is_not_heard(duplex: Running) -> None:
    async with dialled(duplex) as client:
        await client.start(instructions="say: one")
        await client.send("session.input_audio.mute")
        await client.until("session.input_audio.muted")
        await client.append(tone(0.4))
        await client.until("session.usage.updated")
        assert client.words() == "one"
    await duplex.empty()
