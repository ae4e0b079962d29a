"""Live over a real socket: what is said, heard and delegated, each event strictly of the SDK's types."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosedOK

from tests.app.live.caller import RESPONSES, SOUND, LiveClient, dialled
from tests.app.rig import LoudnessVad, Running, running, script_spec, silence, tone


def loud(pcm: Any) -> int:
    """Samples of sound."""
    return int(np.count_nonzero(np.abs(pcm.astype(int)) > 500))


async def ended(client: LiveClient) -> str:
    """Close the session; the reason that it is told."""
    await client.send("session.close", event_id="bye")
    closed = await client.until("session.closed")
    assert closed["client_event_id"] == "bye"
    with pytest.raises(ConnectionClosedOK):
        await client.next()
    return closed["reason"]


async def test_a_session_speaks_listens_and_ends(server: Running) -> None:
    async with dialled(server) as client:
        started = await client.start(instructions="Be brief.", audio={"output": {"voice": "marin"}})
        assert started["client_event_id"] == "start"
        assert started["session"]["audio"] == {
            "format": {"type": "audio/pcm", "rate": 24000},
            "output": {"voice": "marin"},
        }
        assert started["session"]["delegation"] == {"type": "client"}
        await client.say("say: one two three")
        await client.until("session.usage.updated")
        assert client.words() == "one two three"
        await client.speak(np.concatenate([silence(1.0), tone(0.6), silence(0.8)]))
        await client.until("session.usage.updated")
        assert client.words("input").endswith("seconds")
        assert client.words().startswith("one two three I heard 1.")
        assert loud(client.samples) > 0.2 * 24_000
        assert await ended(client) == "close_requested"
    await server.empty()


async def test_words_have_their_place_in_the_sound(server: Running) -> None:
    """The script's word is a tone of 80 ms: where its words are said to be, there is sound, and elsewhere silence.

    A server that was held up leaves out silence, so the stream may be shorter than the session.
    """
    async with dialled(server) as client:
        await client.start()
        await client.until(SOUND)
        await client.say("say: one two three")
        await client.until("session.usage.updated")
        words = client.of("session.output_transcript.delta")
        assert [one["delta"] for one in words] == ["one ", "two ", "three"]
        assert [one["end_ms"] - one["start_ms"] for one in words] == [80, 80, 80]
        audible = np.flatnonzero(np.abs(client.samples.astype(int)) > 500)
        first, last = words[0]["start_ms"] * 24, words[-1]["end_ms"] * 24
        assert 0 < audible[0] <= first + 480
        assert 0 < audible[-1] - audible[0] <= last - first


async def test_silence_goes_out_where_nothing_is_said(server: Running) -> None:
    async with dialled(server) as client:
        await client.start(audio={"format": {"type": "audio/pcmu", "rate": 8000}})
        while len(client.sound) < 1600:
            await client.next()
        assert set(client.sound) == {0xFF}


async def test_a_function_is_delegated_and_its_result_is_spoken(server: Running) -> None:
    async with dialled(server) as client:
        await client.start(delegation=RESPONSES)
        await client.say('tool get_weather {"city": "Oslo"}')
        created = (await client.until("session.delegation.created"))["delegation"]
        done = await client.until("response.event", "response.completed")
        assert created["target"] == "responses"
        assert (done["delegation_id"], done["event"]["response"]["id"]) == (created["id"], created["response_id"])
        (call,) = [one["item"] for one in client.inner() if one["type"] == "response.output_item.done"]
        assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Oslo"})
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
        await client.send("response.item.create", item=output)
        await client.send("response.create")
        again = await client.until("response.event", "response.completed")
        assert again["delegation_id"] == created["id"]
        assert client.words() == "The tool says: sunny"
        numbers = [one["sequence_number"] for one in client.inner()]
        assert numbers.count(0) == 2


async def test_tools_change_and_the_rest_stays(server: Running) -> None:
    async with dialled(server) as client:
        await client.start(instructions="Be brief.", delegation=RESPONSES)
        change = {"type": "responses", "responses": {"tools": []}}
        await client.send("session.update", session={"delegation": change})
        session = (await client.until("session.updated"))["session"]
        assert session["delegation"]["responses"] == {"model": "gpt-5", "tools": []}
        assert session["instructions"] == "Be brief."
        await client.send("session.update", session={"delegation": {"type": "client"}})
        assert (await client.error())["param"] == "session.delegation.type"


async def test_work_is_delegated_to_the_client_who_answers(server: Running) -> None:
    """What is behind a delegation to the client is a call of the thinker's: the client's words are its result."""
    async with dialled(server) as client:
        await client.start()
        await client.say("tool delegate_to_application {}")
        created = (await client.until("session.delegation.created"))["delegation"]
        assert (created["target"], "response_id" in created) == ("client", False)
        fields = {"delegation_id": created["id"], "event_id": "mine"}
        await client.send("session.thinking.append", content="Looking it up.", **fields)
        assert (await client.until("session.thinking.appended"))["client_event_id"] == "mine"
        await client.send("session.commentary.append", content="it is sunny", **fields)
        await client.until("session.commentary.appended")
        await client.said("it is sunny")
        assert client.words() == "The tool says: it is sunny"
        await client.send("session.instructions.append", content="Be kind.", delegation_id="dlg_unknown")
        assert (await client.error())["code"] == "delegation_not_found"
        await client.send("response.create")
        assert (await client.error())["code"] == "invalid_event"


async def test_an_interruption_is_silence_and_a_short_sound_is_none(server: Running) -> None:
    async with dialled(server) as client:
        await client.start()
        await client.say("long 200")
        await client.until("session.output_transcript.delta")
        await client.speak(np.concatenate([tone(0.15), silence(0.4)]))
        await client.send("session.thinking.append", content="That was a back-channel.", delegation_id=None)
        await client.until("session.thinking.appended")
        before = len(client.of("session.output_transcript.delta"))
        for _ in range(3):
            await client.until("session.output_transcript.delta")
        assert len(client.of("session.output_transcript.delta")) == before + 3
        await client.speak(np.concatenate([tone(0.6), silence(0.8)]))
        await client.said("I heard")
        spoken = client.words().split(" I heard")[0].split()
        assert spoken == [f"word{i}" for i in range(len(spoken))]
        assert 3 < len(spoken) < 100


async def test_history_is_what_was_said_before(server: Running) -> None:
    history = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Good day."}]},
    ]
    async with dialled(server) as client:
        session = (await client.start(input=history))["session"]
        assert session["input"] == history
        await client.say("said")
        await client.until("session.usage.updated")
        assert client.words() == "I said: Good day."


async def test_a_muted_microphone_is_silent(server: Running) -> None:
    async with dialled(server) as client:
        await client.start()
        await client.send("session.input_audio.mute", event_id="hush")
        assert (await client.until("session.input_audio.muted"))["client_event_id"] == "hush"
        await client.speak(np.concatenate([tone(0.6), silence(0.8)]))
        await client.send("session.input_audio.unmute")
        await client.until("session.input_audio.unmuted")
        await client.speak(np.concatenate([tone(0.6), silence(0.8)]))
        await client.until("session.usage.updated")
        assert client.words().count("I heard") == 1


async def test_who_mutes_in_mid_word_and_sends_nothing_more_holds_nothing_up(server: Running) -> None:
    async with dialled(server) as client:
        await client.start()
        await client.say("long 200")
        await client.until("session.output_transcript.delta")
        await client.speak(tone(0.4))  # it is held, and a turn by its length alone, however late the ears say words
        await client.send("session.input_audio.mute")
        await client.said("I heard 0.")


BAD = [
    ("session.input_audio.append", {"audio": "?"}, "invalid_value"),
    ("session.commentary.append", {"content": ""}, "invalid_type"),
    ("session.commentary.append", {}, "missing_required_parameter"),
    ("session.output_audio.fixture.play", {"audio": ""}, "not_supported"),
    ("decision.create", {"event_id": "d"}, "not_supported"),
    ("session.update", {"session": {"delegation": {"type": "responses", "responses": {"tools": [{"type": "shell"}]}}}},
     "not_supported"),
    ("session.start", {"session": {"model": "m"}}, "session_already_started"),
    ("response.item.create", {"item": {"type": "image_generation_call"}}, "invalid_value"),
    ("input_audio_buffer.append", {"audio": ""}, "unknown_event"),
    ("conversation.item.create", {"item": {}}, "unknown_event"),
    ("nonsense", {}, "unknown_event"),
]  # fmt: skip


async def test_bad_input_gets_one_error_and_the_session_goes_on(server: Running) -> None:
    async with dialled(server) as client:
        for type in ("session.close", "input_audio_buffer.append", "session.input_audio.append"):
            await client.send(type, event_id="early", audio="")
            error = await client.error()
            assert error["client_event_id"] == "early"
        await client.send("session.start", session={})
        assert (await client.error())["param"] == "session"
        for session in (
            {"delegation": {"type": "decisions", "decisions": {}}},
            {"delegation": {"type": "responses", "responses": {"model": "m", "tools": [{"type": "web_search"}]}}},
            {"store": True},
            {"triggers": [{"type": "x"}]},
            {"input": [{"role": "user", "content": [{"text": "x"}]}] * 129},
            {"audio": {"format": {"type": "audio/opus"}}},
        ):
            await client.send("session.start", session={"model": "m", **session})
            assert (await client.error())["param"].startswith("session.")
        await client.start(delegation=RESPONSES)
        for type, fields, code in BAD:
            await client.send(type, **fields)
            assert (await client.error())["code"] == code, type
        await client.socket.send(b"\0")
        assert (await client.error())["code"] == "invalid_event"
        assert len(client.of("error")) == 3 + 1 + 6 + len(BAD) + 1
        await client.say("say: still here")
        await client.until("session.usage.updated")
        assert client.words() == "still here"


async def test_lives_events_are_refused_by_realtime(server: Running, client: Any) -> None:
    for type in ("session.start", "session.input_audio.append", "session.commentary.append"):
        await client.send(type, audio="", session={}, content="")
        assert (await client.error())["code"] == "unknown_event"
    await client.alive()


async def test_a_session_whose_time_is_over_is_closed_as_expired() -> None:
    async with running(script_spec(limits={"session_s": 1.0}), vad=LoudnessVad) as server, dialled(server) as client:
        await client.start()
        closed = await client.until("session.closed")
        assert closed["reason"] == "expired"
        assert closed["usage"]["seconds"] >= 1.0
        assert not client.of("error")


async def test_a_client_that_leaves_frees_its_place(server: Running) -> None:
    """The stream of silence would never end by itself."""
    async with dialled(server) as client:
        await client.start()
    async with asyncio.timeout(10):
        await server.empty()
