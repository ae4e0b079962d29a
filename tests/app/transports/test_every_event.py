"""Every event of the protocol, over a real socket: sent and taken, or emitted with its required fields and in order.

``tests/data/realtime_events.json`` lists them, from openai-python's ``types/realtime``. The scenes below bring them all
forth; an event that no scene does, or one that is not on the list, fails.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from app.realtime.protocol.server_events import DtmfReceivedEvent
from app.realtime.protocol.to_wire import encode
from tests.app.realtime.test_session import check_order
from tests.app.rig import Client, Running, check_event, fail_at_long_speech, silence, talking, tone

EVENTS: dict[str, dict[str, dict[str, list[str]]]] = json.loads(
    (Path(__file__).parents[2] / "data" / "realtime_events.json").read_text()
)
MCP = "only with MCP servers that the operator names: test_hosted_tools.py"
NOT_APPLICABLE = {
    "conversation.created": "no longer sent by the hosted service; clients take it for the reply to session.update",
    "conversation.item.created": "the beta's name of conversation.item.added; never sent in GA",
    "conversation.item.input_audio_transcription.segment": "for models that tell speakers apart; none here does",
    "input_audio_buffer.dtmf_event_received": "of telephones alone: telephone/test_calls.py has it",
    "mcp_list_tools.completed": f"{MCP} has it",
    **{f"response.mcp_call.{moment}": f"{MCP} has it" for moment in ("in_progress", "completed", "failed")},
    **{f"response.mcp_call_arguments.{moment}": f"{MCP} has it" for moment in ("delta", "done")},
    **{
        f"output_audio_buffer.{moment}": "on WebRTC only, where the server plays"
        for moment in ("started", "stopped", "cleared")
    },
}
PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Witness(Client):
    """Notes the client events that the server took, by the names of those that it refused."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self.sent: dict[str, str] = {}

    async def send(self, type: str, **fields: Any) -> Witness:
        assert set(EVENTS["client"][type]["required"]) <= set(fields)
        event_id = f"mine_{len(self.sent)}"
        self.sent[event_id] = type
        await super().send(type, event_id=event_id, **fields)
        return self

    def taken(self) -> set[str]:
        refused = {event["error"]["event_id"] for event in self.of("error")}
        return {type for name, type in self.sent.items() if name not in refused}


async def spoken(client: Witness) -> None:
    """A turn by voice, heard, transcribed and answered; then silence for too long."""
    detection = {"type": "server_vad", "idle_timeout_ms": 500}
    await client.configure(audio={"input": {"turn_detection": detection, "transcription": {"model": "whisper-1"}}})
    await client.append(np.concatenate([tone(0.6), silence(0.8)]))
    await client.until("conversation.item.input_audio_transcription.completed")
    if not client.of("response.done"):
        await client.until("response.done")
    await client.append(silence(3.0))
    await client.until("input_audio_buffer.timeout_triggered")
    await client.until("response.done")


async def by_hand(client: Witness) -> None:
    """The input buffer without turn detection: cleared, filled, committed; what is committed can't be transcribed."""
    await client.configure(audio={"input": {"turn_detection": None, "transcription": {}}})
    await client.append(tone(0.3))
    await client.send("input_audio_buffer.clear")
    await client.until("input_audio_buffer.cleared")
    await client.append(tone(0.3))
    await client.send("input_audio_buffer.commit")
    await client.until("input_audio_buffer.committed")


async def typed(client: Witness) -> None:
    """Items of every kind, looked at and deleted; an answer in text."""
    content = [{"type": "input_text", "text": "say: hello"}, {"type": "input_image", "image_url": PICTURE}]
    await client.send(
        "conversation.item.create",
        previous_item_id="root",
        item={"type": "message", "role": "user", "content": content},
    )
    item_id = (await client.until("conversation.item.done"))["item"]["id"]
    await client.send("conversation.item.retrieve", item_id=item_id)
    await client.until("conversation.item.retrieved")
    await client.send("conversation.item.delete", item_id=item_id)
    await client.until("conversation.item.deleted")
    assert (await client.ask("say: hello", output_modalities=["text"]))["status"] == "completed"


async def cut(client: Witness) -> None:
    """An answer that is stopped, then cut to what was heard of it."""
    await (await client.say("long 100")).send("response.create")
    item_id = (await client.until("response.output_audio.delta"))["item_id"]
    await client.send("response.cancel")
    assert (await client.until("response.done"))["response"]["status"] == "cancelled"
    await client.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=40)
    await client.until("conversation.item.truncated")


async def tools(client: Witness) -> None:
    """Two calls in one answer, and what became of them."""
    response = await client.ask('tool look {"at": "the moon"} ; listen {}')
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    assert [(call["name"], call["arguments"]) for call in calls] == [("look", '{"at": "the moon"}'), ("listen", "{}")]
    for call in calls:
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "full"}
        await client.send("conversation.item.create", item=output)
    await client.send("response.create")
    assert (await client.until("response.done"))["response"]["status"] == "completed"


async def unheard(client: Witness) -> None:
    """A clip that the ears cannot transcribe."""
    await client.configure(audio={"input": {"turn_detection": None, "transcription": {}}})
    audio = base64.b64encode(tone(20.0).tobytes()).decode()
    item = {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": audio}]}
    await client.send("conversation.item.create", item=item)
    await client.send("response.create")
    await client.until("conversation.item.input_audio_transcription.failed")


async def hosted(client: Witness) -> None:
    """A tool that the server would have to run: its list fails, and what came with it holds."""
    session = await client.configure(tools=[{"type": "mcp", "server_label": "files"}], instructions="Be brief.")
    assert (session["tools"], session["instructions"]) == ([], "Be brief.")
    await client.until("conversation.item.done")


async def refused(client: Witness) -> None:
    await client.send("output_audio_buffer.clear")
    assert (await client.error())["code"] == "invalid_event_for_transport"


Scene = Callable[[Any], Awaitable[None]]
SCENES: list[Scene] = [spoken, by_hand, typed, cut, tools, unheard, hosted, refused]


async def played(server: Running, scenes: list[Scene]) -> list[Witness]:
    """Each scene in a session of its own, at the same time; what was seen there is in order."""

    async def play(scene: Scene) -> Witness:
        async with talking(server, kind=Witness) as client:
            await scene(client)
            check_order(client.events)
            return client

    return list(await asyncio.gather(*map(play, scenes)))


def missing(clients: list[Witness]) -> list[str]:
    """What is wrong with what the clients saw and sent: events never seen, unknown ones, fields left out."""
    events = [event for client in clients for event in client.events]
    seen, known = {event["type"] for event in events}, EVENTS["server"]
    wrong = [f"never emitted: {type}" for type in known.keys() - seen - NOT_APPLICABLE.keys()]
    wrong += [f"not of the protocol: {type}" for type in (seen - known.keys()) | (seen & NOT_APPLICABLE.keys())]
    for event in events:
        required = known.get(event["type"], {"required": []})["required"]
        wrong += [f"{event['type']} without {field}" for field in required if field not in event]
    taken = {type for client in clients for type in client.taken()}
    wrong += [f"never taken: {type}" for type in EVENTS["client"].keys() - taken - {"output_audio_buffer.clear"}]
    return sorted(set(wrong))


async def test_every_event_that_applies_is_emitted_or_taken(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at_long_speech(monkeypatch)
    clients = await played(server, SCENES)
    assert missing(clients) == []
    assert "output_audio_buffer.clear" in clients[-1].sent.values()
    for scene, event in CONTROLS.items():  # without its scene an event is missed
        others = [client for one, client in zip(SCENES, clients, strict=True) if one is not scene]
        assert f"never emitted: {event}" in missing(others)


CONTROLS = {
    spoken: "input_audio_buffer.timeout_triggered",
    by_hand: "input_audio_buffer.cleared",
    typed: "conversation.item.deleted",
    cut: "conversation.item.truncated",
    tools: "response.function_call_arguments.done",
    hosted: "mcp_list_tools.failed",
    unheard: "conversation.item.input_audio_transcription.failed",
}


def test_a_field_left_out_or_a_foreign_event_is_missed() -> None:
    client = Witness(None)
    client.events = [{"type": "response.done", "event_id": "event_1"}, {"type": "response.undone"}]
    wrong = missing([client])
    assert "response.done without response" in wrong
    assert "not of the protocol: response.undone" in wrong
    assert "never taken: session.update" in wrong


SAID = {"type": "response.output_text.delta", "event_id": "e", "response_id": "r", "item_id": "m", "output_index": 0,
        "content_index": 0, "delta": "x"}  # fmt: skip
CUT = {"type": "conversation.item.truncated", "event_id": "e", "item_id": "m", "content_index": 0, "audio_end_ms": 40}
CREATED: dict[str, Any] = {
    "type": "session.created",
    "event_id": "e",
    "session": {"type": "realtime", "id": "s", "object": "realtime.session", "expires_at": 1, "parley": {}},
}
DTMF = {"type": "input_audio_buffer.dtmf_event_received", "event": "7", "received_at": 1}


@pytest.mark.parametrize(
    ("event", "wrong"),
    [
        (SAID, {"output_index": "0"}),
        (SAID, {"delta": None}),
        (SAID, {"status": "ours"}),
        (SAID, {"parley": {"seq": 1, "other": 2}}),
        (CUT, {"audio_end_ms": 40.5}),
        (CUT, {"heard_text": "x"}),
        (CREATED, {"session": {**CREATED["session"], "greeting": "x"}}),
        (CREATED, {"session": {**CREATED["session"], "audio": {"output": {"volume": 1}}}}),
        (DTMF, {"event_id": "e"}),
        (DTMF, {"received_at": 1.5}),
    ],
)
def test_the_check_is_strict(event: dict[str, Any], wrong: dict[str, Any]) -> None:
    for right in (event, {**event, "parley": {"seq": 1}}):
        check_event(right)
    with pytest.raises((ValidationError, AssertionError)):
        check_event({**event, **wrong})


def test_a_key_is_told_as_openais_type_has_it() -> None:
    (text,) = encode(DtmfReceivedEvent("7", 1))
    assert json.loads(text) == DTMF


def test_every_event_is_one_that_the_types_know_and_what_is_left_out_has_its_reason() -> None:
    assert NOT_APPLICABLE.keys() <= EVENTS["server"].keys()
    assert all(NOT_APPLICABLE.values())
