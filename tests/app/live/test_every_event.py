"""Every event of the Live protocol, by the SDK's own types: sent strictly of its type, taken, or left out for a reason.

The scenes below bring them all forth; an event that no scene does, or one that should not be there, fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import aioice.ice
import numpy as np
import pytest
from openai.types.live import ServerEvent
from openai.types.live.client_event import ClientEvent
from openai.types.live.connect_client_event import ConnectClientEvent
from openai.types.live.connect_server_event import ConnectServerEvent
from websockets.asyncio.client import connect

from tests.app.live.caller import RESPONSES, SOUND, LiveClient, dialled
from tests.app.live.test_live_call import PATH, LiveCaller
from tests.app.rig import Running, silence, tone

DECISIONS = "decisions are not supported"
FIXTURES = "audio fixtures are not supported"
TELEPHONE = "of telephones: tests/app/transports/telephone/test_calls.py has what is served"
NEVER_SENT = {
    "info": "nothing is told that is no error",
    "decision.event": DECISIONS, "decision.item.created": DECISIONS, "decision.item.deleted": DECISIONS,
    "session.output_audio.fixture.playing": FIXTURES, "session.output_audio.fixture.played": FIXTURES,
    **{f"transport.{one}": TELEPHONE for one in ("dtmf.received", "dtmf.send", "dtmf.sent")},
    **{f"transport.{one}": "of calls that the server makes, and it makes none" for one in (
        "ringing", "answered", "failed")},
}  # fmt: skip
NEVER_TAKEN = {
    "decision.create": DECISIONS, "decision.item.create": DECISIONS, "decision.item.delete": DECISIONS,
    "session.output_audio.fixture.play": FIXTURES,
    "transport.dtmf.send": "the server presses no keys",
}  # fmt: skip


def kinds(*unions: Any) -> set[str]:
    """The values of ``type`` of all events of a union."""
    return {
        name
        for union in unions
        for event in get_args(get_args(union)[0])
        for name in get_args(event.model_fields["type"].annotation)
    }


class Witness(LiveClient):
    """Notes the client events that the server took, by those that it refused."""

    def __init__(self, socket: Any) -> None:
        super().__init__(socket)
        self.sent: dict[str, str] = {}

    async def send(self, type: str, **fields: Any) -> Any:
        fields.setdefault("event_id", f"mine_{len(self.sent)}")
        self.sent[fields["event_id"]] = type
        return await super().send(type, **fields)

    def taken(self) -> set[str]:
        refused = {event["error"].get("client_event_id") for event in self.of("error")}
        return {type for name, type in self.sent.items() if name not in refused}

    def seen(self) -> set[str]:
        return {event["type"] for event in [*self.events, *self.sounds]}


async def delegated(client: Witness, server: Running) -> None:
    """A function that a backend runs, and other settings for it."""
    await client.start(delegation=RESPONSES)
    await client.say("tool get_weather {}")
    await client.until("session.delegation.created")
    await client.until("response.event", "response.completed")
    (call,) = [one["item"] for one in client.inner() if one["type"] == "response.output_item.done"]
    item = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    await client.send("response.item.create", item=item)
    await client.send("response.create")
    await client.said("sunny")
    await client.send("session.update", session={"delegation": RESPONSES})
    await client.until("session.updated")


async def spoken(client: Witness, server: Running) -> None:
    """What is said, and what the thinker is told beside it."""
    await client.start()
    await client.say("say: one two three")
    await client.until("session.commentary.appended")
    await client.until(SOUND)
    for purpose in ("thinking", "instructions"):
        await client.send(f"session.{purpose}.append", content="Be kind.", delegation_id=None)
        await client.until(f"session.{purpose}.appended")
    await client.speak(np.concatenate([silence(0.5), tone(0.6), silence(0.8)]))
    await client.until("session.input_transcript.delta")
    await client.until("session.usage.updated")
    for change in ("mute", "unmute"):
        await client.send(f"session.input_audio.{change}")
        await client.until(f"session.input_audio.{change}d")
    await client.send("nonsense", event_id="nonsense")
    await client.error()
    await client.send("session.close")
    await client.until("session.closed")


async def beside(client: Witness, server: Running) -> None:
    """A call's sound, both ways, as a socket beside it has it."""
    caller = await LiveCaller(server).place({"model": "m"})
    await caller.until("session.started")
    async with connect(server.ws.removesuffix("/v1/realtime") + f"{PATH}/{caller.id}/attach") as socket:
        client.socket = socket
        await client.until("session.started")
        await client.until("session.input_audio.append")
        await client.say("say: one two three")
        await client.said("three")
        assert SOUND not in {event["type"] for event in caller.events}, "it has a track for that"
        assert all(event["end_ms"] > event["start_ms"] >= 0 for event in client.sounds)
        await client.send("session.close")
        await client.until("session.closed")
    await caller.hang_up()


async def idle(client: Witness, server: Running) -> None:
    """A call in which nothing happens, until its user speaks."""
    caller = await LiveCaller(server).place({"model": "m", "idle_timeout_s": 1})
    await caller.until("session.started")
    client.events.append(await caller.until("session.paused"))
    caller.mouth.say(tone(0.6))
    client.events.append(await caller.until("session.resumed"))
    await caller.hang_up()


Scene = Callable[[Witness, Running], Awaitable[None]]
SCENES: list[Scene] = [delegated, spoken, beside, idle]
CONTROLS = {
    delegated: "never sent: response.event",
    spoken: "never taken: session.input_audio.mute",
    beside: "never sent: session.input_audio.append",
    idle: "never sent: session.paused",
}


def missing(clients: list[Witness]) -> list[str]:
    """What is wrong with what the clients saw and sent: events that were never there, and those that should not be."""
    seen = {type for client in clients for type in client.seen()}
    taken = {type for client in clients for type in client.taken()}
    return [
        *(f"never sent: {type}" for type in sorted(kinds(ServerEvent, ConnectServerEvent) - seen - NEVER_SENT.keys())),
        *(f"sent all the same: {type}" for type in sorted(seen & NEVER_SENT.keys())),
        *(
            f"never taken: {type}"
            for type in sorted(kinds(ClientEvent, ConnectClientEvent) - taken - NEVER_TAKEN.keys())
        ),
        *(f"taken all the same: {type}" for type in sorted(taken & NEVER_TAKEN.keys())),
    ]


async def test_every_event_that_applies_is_sent_or_taken(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])
    clients = list[Witness]()
    for scene in SCENES:
        async with dialled(server) as line:
            clients.append(client := Witness(line.socket))
            await scene(client, server)
    assert missing(clients) == []
    for scene, wrong in CONTROLS.items():  # without its scene an event is missed
        others = [client for one, client in zip(SCENES, clients, strict=True) if one is not scene]
        assert wrong in missing(others)
    await server.empty()


def test_what_is_left_out_is_of_the_protocol() -> None:
    assert NEVER_SENT.keys() <= kinds(ServerEvent, ConnectServerEvent)
    assert NEVER_TAKEN.keys() <= kinds(ClientEvent, ConnectClientEvent)
