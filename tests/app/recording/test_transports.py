"""Calls and Live sessions are recorded like sessions over a WebSocket, and their replays have the same conversation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aioice.ice
import httpx
import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from app.recording.file import read
from tests.app.live.caller import RESPONSES, dialled
from tests.app.live.test_live_call import LiveCaller
from tests.app.recording.recorded import conversation_differences_of, only, recorder
from tests.app.rig import Running, silence, tone
from tests.app.transports.webrtc.caller import Caller, calling


@pytest.fixture(autouse=True)
def _loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


def client_types(path: Path) -> set[str]:
    return {json.loads(event.text)["type"] for event in read(path).client}


async def test_a_call_with_a_barge_in(tmp_path: Path) -> None:
    async with recorder(tmp_path) as server, calling(server, record=True) as call:
        call.mouth.say(np.concatenate([silence(0.2), tone(0.6), silence(0.8)]))
        await call.until("output_audio_buffer.stopped")
        await call.say("long 100")
        await call.sound()
        call.mouth.say(tone(0.6))
        await call.until("conversation.item.truncated")
    assert client_types(only(tmp_path)) == {"parley.microphone", "conversation.item.create", "response.create"}
    assert await conversation_differences_of(only(tmp_path)) == []


async def test_a_live_session_with_a_delegation(tmp_path: Path) -> None:
    async with recorder(tmp_path) as server, dialled(server, "?record=true") as client:
        await client.start(instructions="Be brief.")
        await client.speak(np.concatenate([silence(0.5), tone(0.6), silence(0.8)]))
        await client.until("session.usage.updated")
        await client.say("tool delegate_to_application {}")
        created = (await client.until("session.delegation.created"))["delegation"]
        await client.send("session.commentary.append", content="sunny", delegation_id=created["id"])
        await client.said("sunny")
        await client.send("session.input_audio.mute")
        await client.until("session.input_audio.muted")
        await client.send("session.close")
        await client.until("session.closed")
    assert "session.commentary.append" in client_types(only(tmp_path))
    assert await conversation_differences_of(only(tmp_path)) == []


async def test_a_live_call_with_a_history(tmp_path: Path) -> None:
    history = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Good day."}]}]
    async with recorder(tmp_path) as server:
        session = {"model": "m", "input": history, "delegation": RESPONSES}
        caller = await LiveCaller(server, record=True).place(session)
        await caller.until("session.started")
        await caller.send("session.commentary.append", content="said", delegation_id=None)
        await caller.until("session.usage.updated")
        await caller.hang_up()
        await server.empty()
    assert {"parley.history", "parley.microphone"} < client_types(only(tmp_path))
    assert await conversation_differences_of(only(tmp_path)) == []


async def refused_call(server: Running) -> Any:
    caller = Caller(server)
    form = {"sdp": (None, await caller.offer(), "application/sdp")}
    async with httpx.AsyncClient(base_url=server.http) as http:
        answer = await http.post("/v1/realtime/calls?record=true", files=form)
    await caller.hang_up()
    return answer.json()


async def test_each_transport_refuses_where_nothing_is_recorded(server: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with dialled(server, "?record=true"):
            pass
    assert refused.value.response.status_code == 403
    assert (await refused_call(server))["error"]["code"] == "recording_disabled"
