"""The wire over a real socket: what a client may send, and the order of what it gets (realtime.md, B6)."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from tests.app.rig import running, script_spec, silence, talking

USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "say: one two"}]}
OPENED = [
    "response.created",
    "rate_limits.updated",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
]
CLOSED = [
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "conversation.item.done",
    "response.output_item.done",
    "response.done",
]


async def test_the_first_event_spells_out_every_default(client: Any) -> None:
    session = client.events[0]["session"]
    assert session["object"] == "realtime.session"
    assert session["type"] == "realtime"
    assert session["id"].startswith("sess_")
    assert session["output_modalities"] == ["audio"]
    assert session["audio"]["input"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "transcription": None,
        "noise_reduction": None,
        "turn_detection": {
            "type": "server_vad",
            "threshold": 0.5,
            "prefix_padding_ms": 300,
            "silence_duration_ms": 500,
            "idle_timeout_ms": None,
            "create_response": True,
            "interrupt_response": True,
            "backchannel_ms": 1000,
            "speaker": "auto",
            "voiceprint": None,
        },
    }
    assert session["audio"]["output"] == {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "tone", "speed": 1.0}
    assert session["max_output_tokens"] == "inf"
    assert session["tools"] == []
    assert session["tool_choice"] == "auto"
    assert session["truncation"] == "auto"
    assert all(session[name] is None for name in ("tracing", "prompt", "include"))


async def test_the_event_behind_the_greeting_is_the_reply_to_the_first_command(client: Any) -> None:
    """Open WebUI and others read so; the hosted service sends no conversation.created in between."""
    await client.configure(instructions="Be brief.")
    assert client.types() == ["session.created", "session.updated"]


async def test_a_typed_turn_is_spoken_with_its_transcript_in_order(client: Any) -> None:
    response = await client.ask("say: one two three", metadata={"client_event_id": "mine"})
    types = client.types()
    at = types.index("response.created")
    assert types[1:at] == ["conversation.item.added", "conversation.item.done"]
    assert types[at : at + 5] == OPENED
    assert types[-6:] == CLOSED
    middle = set(types[at + 5 : -6])
    assert middle == {"response.output_audio.delta", "response.output_audio_transcript.delta"}
    words = "".join(event["delta"] for event in client.of("response.output_audio_transcript.delta"))
    assert words == "one two three"
    assert client.of("response.output_audio_transcript.done")[0]["transcript"] == words
    assert client.of("response.created")[0]["response"]["metadata"] == {"client_event_id": "mine"}
    assert response["status"] == "completed"
    assert response["metadata"] == {"client_event_id": "mine"}
    assert response["output"][0]["content"] == [{"type": "output_audio", "transcript": words}]
    assert response["usage"]["output_token_details"]["text_tokens"] == 3
    assert client.audio_s() == 3 * 2 * 0.04
    assert response["usage"]["output_token_details"]["audio_tokens"] * 0.04 == client.audio_s()
    ledger = response["parley"]["ledger"]
    assert ledger["ttfa_ms"] > 0
    assert abs(sum(ledger["terms_ms"].values()) - ledger["ttfa_ms"]) < 0.05


async def test_previous_item_id_is_null_for_the_first_item_and_chains_on(client: Any) -> None:
    await client.ask("say: one")
    added = client.of("conversation.item.added")
    assert "previous_item_id" in added[0]
    assert added[0]["previous_item_id"] is None
    assert added[1]["previous_item_id"] == added[0]["item"]["id"]
    assert client.of("response.created")[0]["response"]["conversation_id"].startswith("conv_")


async def test_text_only_answers_have_no_audio(client: Any) -> None:
    await client.configure(output_modalities=["text"])
    response = await client.ask("say: one two")
    assert not [kind for kind in client.types() if "audio" in kind and kind.startswith("response")]
    assert client.of("response.output_text.done")[0]["text"] == "one two"
    assert response["output"][0]["content"] == [{"type": "output_text", "text": "one two"}]
    assert client.of("response.content_part.added")[0]["part"]["type"] == "text"


async def test_updates_merge_and_unknown_fields_and_names_do_no_harm(client: Any) -> None:
    await client.configure(instructions="Be brief.", colour="green", audio={"output": {"voice": "alloy"}})
    session = await client.configure(
        audio={"input": {"turn_detection": None, "noise_reduction": {"type": "far_field"}}}
    )
    assert session["instructions"] == "Be brief."
    assert session["audio"]["output"]["voice"] == "alloy"
    assert session["parley"]["voice"] == "tone"
    assert session["audio"]["input"]["turn_detection"] is None
    assert "colour" not in session
    session = await client.configure(instructions="", audio={"input": {"noise_reduction": None}})
    assert session["instructions"] == ""
    assert session["audio"]["input"]["noise_reduction"] is None
    assert not client.of("error")


async def test_the_operators_instructions_hold_until_the_client_sets_others(serve_with: Any, talk: Any) -> None:
    async with serve_with(instructions="Be brief.") as server, talk(server) as client:
        assert client.events[0]["session"]["instructions"] == "Be brief."
        assert (await client.configure(tool_choice="none"))["instructions"] == "Be brief."
        assert (await client.configure(instructions=""))["instructions"] == ""
        url, body = f"{server.http}/v1/realtime/client_secrets", {"session": {"instructions": "Be kind."}}
        async with httpx.AsyncClient() as http:
            made = (await http.post(url, json=body)).json()
        async with talk(server, additional_headers={"Authorization": f"Bearer {made['value']}"}) as page:
            assert page.events[0]["session"]["instructions"] == made["session"]["instructions"] == "Be kind."


async def test_an_unknown_model_name_is_echoed_and_served(server: Any, talk: Any) -> None:
    async with talk(server, "?model=gpt-realtime") as client:
        assert client.events[0]["session"]["model"] == "gpt-realtime"
        assert client.events[0]["session"]["parley"]["model"] == "script"
        await client.alive()


async def test_the_voice_stays_once_it_has_spoken(client: Any) -> None:
    await client.configure(audio={"output": {"voice": "alloy"}})
    await client.ask("say: one")
    await client.send(
        "session.update", session={"type": "realtime", "audio": {"output": {"voice": "echo"}}}, event_id="e1"
    )
    error = await client.error()
    assert error["code"] == "cannot_update_voice"
    assert error["event_id"] == "e1"
    assert (await client.configure(instructions="x"))["audio"]["output"]["voice"] == "alloy"


async def test_a_tool_call_streams_its_arguments_and_its_result_goes_back(client: Any) -> None:
    tool = {"type": "function", "name": "time", "description": "The time.", "parameters": {"type": "object"}}
    assert (await client.configure(tools=[tool]))["tools"] == [tool]
    response = await client.ask('tool time {"zone":"UTC"}')
    call = response["output"][0]
    assert call["type"] == "function_call"
    assert (call["name"], call["arguments"]) == ("time", '{"zone":"UTC"}')
    done = client.of("response.function_call_arguments.done")[0]
    assert done["arguments"] == "".join(e["delta"] for e in client.of("response.function_call_arguments.delta"))
    assert done["call_id"] == call["call_id"]
    types = client.types()
    assert types.index("response.output_item.added") < types.index("response.function_call_arguments.delta")
    assert types.index("response.function_call_arguments.done") < types.index("response.output_item.done")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "noon"}
    await client.send("conversation.item.create", item=result)
    assert (await client.until("conversation.item.done"))["item"]["output"] == "noon"
    await client.alive()


async def test_max_output_tokens_ends_an_answer_as_incomplete(client: Any) -> None:
    response = await client.ask("long 9", max_output_tokens=4)
    assert response["status"] == "incomplete"
    assert response["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    assert response["max_output_tokens"] == 4


async def test_the_text_of_an_answer_ends_with_its_longest_sound() -> None:
    async with running(script_spec(limits={"answer_s": 2.0})) as server, talking(server) as client:
        response = await client.ask("long 4000")
        assert response["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
        assert client.audio_s() == 2.0
        written = response["output"][0]["content"][0]["transcript"].split()
        assert len(written) < 1000, "the thinker stops with the voice"


async def test_a_failed_response_ends_once_and_the_session_goes_on(client: Any) -> None:
    response = await client.ask("fail")
    assert response["status"] == "failed"
    assert response["status_details"]["error"]["code"] == "stage_failed"
    assert "script" in response["status_details"]["error"]["message"]
    assert len(client.of("response.done")) == 1
    assert client.types()[-6:] == CLOSED
    await client.alive()


async def test_a_response_that_must_call_a_tool_and_does_not_fails_in_words(client: Any) -> None:
    tools = [{"type": "function", "name": "time", "parameters": {"type": "object", "properties": {}}}]
    for choice in ("required", {"type": "function", "name": "time"}):
        response = await client.ask("say: hello", tools=tools, tool_choice=choice)
        assert response["status"] == "failed"
        assert "requires a tool call" in response["status_details"]["error"]["message"]
        assert (await client.ask("tool time {}", tools=tools, tool_choice=choice))["status"] == "completed"


async def test_cancel_closes_what_was_open_at_once(client: Any) -> None:
    await (await client.say("long 500")).send("response.create")
    await client.until("response.output_audio.delta")
    await client.send("response.cancel")
    response = (await client.until("response.done"))["response"]
    assert response["status"] == "cancelled"
    assert response["status_details"]["reason"] == "client_cancelled"
    assert client.types()[-6:] == CLOSED
    await client.alive()
    assert client.of("response.done")[0]["response"]["id"] == response["id"]
    after = client.events[client.types().index("response.done") + 1 :]
    assert not [event for event in after if event.get("response_id") == response["id"]]


async def test_audio_is_sent_no_more_than_two_seconds_ahead(client: Any) -> None:
    """A long answer is made at once, but most of it waits at the server, where a barge-in can recall it."""
    begun_s = asyncio.get_running_loop().time()
    await (await client.say("long 400")).send("response.create")
    for _ in range(12):
        await client.until("response.output_audio.delta")
    await client.send("response.cancel")
    await client.until("response.done")
    assert client.audio_s() < 2.5 + asyncio.get_running_loop().time() - begun_s


async def test_a_committed_turn_is_heard_and_transcribed(client: Any) -> None:
    await client.configure(audio={"input": {"turn_detection": None, "transcription": {"model": "whisper-1"}}})
    for _ in range(50):
        await client.append(silence(0.02))
    await client.send("input_audio_buffer.commit")
    committed = await client.until("input_audio_buffer.committed")
    assert committed["previous_item_id"] is None
    done = await client.until("conversation.item.done")
    assert done["item"]["id"] == committed["item_id"]
    assert done["item"]["content"] == [{"type": "input_audio", "transcript": None}]
    transcript = await client.until("conversation.item.input_audio_transcription.completed")
    assert transcript["item_id"] == committed["item_id"]
    assert transcript["transcript"] == "1.0 seconds"
    assert transcript["usage"] == {"type": "duration", "seconds": pytest.approx(1.0, abs=0.002)}
    await client.send("response.create")
    response = (await client.until("response.done"))["response"]
    assert response["status"] == "completed"
    assert len(client.of("conversation.item.input_audio_transcription.completed")) == 1


async def test_clear_forgets_the_buffer(client: Any) -> None:
    await client.configure(audio={"input": {"turn_detection": None}})
    await client.append(silence(0.5))
    await client.send("input_audio_buffer.clear")
    await client.until("input_audio_buffer.cleared")
    await client.send("input_audio_buffer.commit")
    assert (await client.error())["code"] == "input_audio_buffer_commit_empty"


async def test_items_are_retrieved_with_audio_and_deleted(client: Any) -> None:
    pcm = base64.b64encode(silence(0.5).tobytes()).decode()
    content = [{"type": "input_audio", "audio": pcm}]
    item = {"id": "mine", "type": "message", "role": "user", "content": content}
    await client.send("conversation.item.create", item=item)
    assert "audio" not in (await client.until("conversation.item.added"))["item"]["content"][0]
    await client.send("conversation.item.retrieve", item_id="mine")
    part = (await client.until("conversation.item.retrieved"))["item"]["content"][0]
    assert abs(len(base64.b64decode(part["audio"])) - 24_000) <= 8
    await client.send("conversation.item.delete", item_id="mine")
    assert (await client.until("conversation.item.deleted"))["item_id"] == "mine"
    await client.send("conversation.item.retrieve", item_id="mine")
    assert (await client.error())["code"] == "item_retrieve_invalid_item_id"


async def test_truncation_is_accepted_after_the_response_and_takes_the_transcript(client: Any) -> None:
    response = await client.ask("say: one two three four")
    item_id = response["output"][0]["id"]
    await client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=150)
    truncated = await client.until("conversation.item.truncated")
    assert (truncated["item_id"], truncated["content_index"], truncated["audio_end_ms"]) == (item_id, 0, 150)
    assert truncated["parley"]["heard_text"] in ("one", "one two")
    await client.send("conversation.item.retrieve", item_id=item_id)
    assert (await client.until("conversation.item.retrieved"))["item"]["content"][0]["transcript"] is None
    await client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=99_999)
    assert (await client.error())["param"] == "audio_end_ms"


async def test_out_of_band_responses_run_beside_and_leave_no_item(client: Any) -> None:
    await (await client.say("long 200")).send("response.create")
    main = (await client.until("response.created"))["response"]["id"]
    await client.send(
        "response.create", response={"conversation": "none", "input": [USER], "output_modalities": ["text"]}
    )
    aside = (await client.until("response.done"))["response"]
    assert aside["id"] != main
    assert aside["conversation_id"] is None
    assert aside["output"][0]["content"][0]["text"] == "one two"
    items = {event["item"]["id"] for event in client.of("conversation.item.added")}
    assert aside["output"][0]["id"] not in items
    await client.send("response.cancel", response_id=main)
    assert (await client.until("response.done"))["response"]["id"] == main


async def test_events_of_the_wire_are_text_frames_only(server: Any, talk: Any) -> None:
    async with talk(
        server, subprotocols=["realtime", "openai-insecure-api-key.sk-none", "openai-agents-sdk.0.20.0"]
    ) as client:
        assert client.socket.subprotocol == "realtime"
        await client.alive()  # Client.next refuses binary frames
